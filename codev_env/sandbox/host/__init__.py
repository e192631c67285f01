"""The trusted side of the sandbox: sessions, the pool of workers, and what a worker is asked."""
