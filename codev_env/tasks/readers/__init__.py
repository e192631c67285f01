"""Benchmarks, training sets and users' own data, read lazily from disk or the hub; one file per format."""
