# SPDX-License-Identifier: Apache-2.0

"""Helpers of every part: errors, quoting of untrusted text, entry points,
threads.
"""
