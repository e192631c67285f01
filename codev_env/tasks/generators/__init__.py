"""Generated scenes with exact ground truth; one file per kind, `base` for what they share."""
