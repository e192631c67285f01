"""How well a judge agrees with ground truth."""
