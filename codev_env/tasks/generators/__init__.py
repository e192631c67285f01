"""Generated scenes with exact ground truth: one file per kind, with shared code in `generator`."""
