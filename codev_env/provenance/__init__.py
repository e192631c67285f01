"""Finds the region of the original that each returned image shows."""

from codev_env.provenance.tracker import Tracker

__all__ = ["Tracker"]
