# SPDX-License-Identifier: Apache-2.0

"""Answers for operators: pure functions over requests, decisions and
fleets.
"""
