# SPDX-License-Identifier: Apache-2.0

"""The pipeline: filters in their order, and one decision."""
