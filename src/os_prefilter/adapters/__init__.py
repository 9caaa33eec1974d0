# SPDX-License-Identifier: Apache-2.0

"""The only I/O: one file for each outside system."""
