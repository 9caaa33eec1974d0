# SPDX-License-Identifier: Apache-2.0

"""Capabilities of hosts: reporters, traits, late check and guest settings."""
