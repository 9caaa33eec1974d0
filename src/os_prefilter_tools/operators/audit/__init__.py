# SPDX-License-Identifier: Apache-2.0

"""Audit: the effect on every image of a cloud of enabling filters."""
