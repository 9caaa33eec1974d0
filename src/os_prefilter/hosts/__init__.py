# SPDX-License-Identifier: Apache-2.0

"""Capabilities of hosts: reporters, their traits, the late check, guest
settings, and the agent.
"""
