"""The command line: `codev` and the commands that need nothing but the core."""
