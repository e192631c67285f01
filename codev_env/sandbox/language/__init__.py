"""The Python that programs may use, and the modules they see."""
