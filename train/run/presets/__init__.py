"""YAML presets of the trainer."""
