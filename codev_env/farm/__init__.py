"""Many machines for programs, provenance and judges: one worker process per node, reached through Ray."""
