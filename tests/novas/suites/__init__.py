# SPDX-License-Identifier: Apache-2.0

"""Nova's own test suites, out of its wheel, run with our filters activated."""
