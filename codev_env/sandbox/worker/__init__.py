"""The untrusted side of the sandbox: the processes that run programs, and what the kernel forbids them."""
