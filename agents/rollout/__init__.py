"""Plays episodes with a policy: tokens in, tokens out."""
