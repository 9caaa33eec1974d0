"""What happens to us and to others when something beside us breaks."""
