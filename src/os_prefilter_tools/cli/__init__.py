# SPDX-License-Identifier: Apache-2.0

"""The command ``os-prefilter``: argument parsing and printing only."""
