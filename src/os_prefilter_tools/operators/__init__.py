"""Answers for operators: pure functions over requests, decisions and fleets."""
