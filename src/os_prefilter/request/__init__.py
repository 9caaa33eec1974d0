# SPDX-License-Identifier: Apache-2.0

"""A request: the request spec, the view of it that filters get, and what it
requires.
"""
