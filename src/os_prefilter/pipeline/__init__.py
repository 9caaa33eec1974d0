# SPDX-License-Identifier: Apache-2.0

"""The pipeline: filters in their order, one decision, the facts it needs, and
the query to Placement.
"""
