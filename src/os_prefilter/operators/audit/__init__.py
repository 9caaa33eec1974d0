"""What enabling filters would do to every image of a cloud."""
