"""The agreement of a judge with ground truth."""
