"""The untrusted side of the sandbox: the processes that run programs, and their kernel restrictions."""
