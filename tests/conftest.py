"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# Tests never time anything: a busy machine must not fail them.
settings.register_profile("untimed", deadline=None)
settings.register_profile("soak", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile("untimed")
