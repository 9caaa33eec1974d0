# SPDX-License-Identifier: Apache-2.0

"""The operator's own rules: model, reader, checks, filter and reload."""
