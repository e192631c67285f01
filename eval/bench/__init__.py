"""Evaluations: episodes of a model on a benchmark, and the measures computed from them."""
