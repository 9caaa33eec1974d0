# SPDX-License-Identifier: Apache-2.0

"""Tools of operators and plugin authors: commands, their answers, and the test
kit. The library is os_prefilter.
"""
