"""What host and worker share: messages, shared memory, pixels and limits."""
