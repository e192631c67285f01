"""Which Python a program may be written in, and the modules it sees."""
