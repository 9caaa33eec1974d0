# SPDX-License-Identifier: Apache-2.0

"""Helpers of every part: errors, quoting, entry points, threads."""
