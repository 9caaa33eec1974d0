# SPDX-License-Identifier: Apache-2.0

"""The operator's own rules: model, reader, checks, the filter, and their
reload.
"""
