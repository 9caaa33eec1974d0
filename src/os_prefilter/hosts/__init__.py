"""What hosts can do: reporters, the traits they report, the late check, guest settings, and the agent."""
