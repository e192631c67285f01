"""The libraries that programs may import, each behind a façade: a fixed set of names."""
