"""What the library does to a real Ironic."""
