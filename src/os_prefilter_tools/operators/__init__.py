"""What operators ask: pure functions over requests, decisions and fleets."""
