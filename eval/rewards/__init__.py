"""Tools for rewards: list and explain them, and attack them with cheating agents."""
