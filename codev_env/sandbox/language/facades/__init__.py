"""The libraries that programs may import, as façades with a fixed set of names."""
