"""Tools for data: look at tasks, check them, filter by difficulty, convert and replay demonstrations."""
