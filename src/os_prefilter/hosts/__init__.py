"""Capabilities of hosts: reporters, their traits, the late check, guest settings, and the agent."""
