"""The trusted side of the sandbox: sessions, worker processes, and checks of everything that workers send."""
