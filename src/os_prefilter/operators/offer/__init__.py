"""What images and flavors can ask for in a fleet."""
