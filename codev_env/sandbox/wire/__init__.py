"""Shared by host and worker: messages, the layout of pixels in shared memory, and limits."""
