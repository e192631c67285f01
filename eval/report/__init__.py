"""HTML reports: one file each, made from metrics and trajectories."""
