"""`codev_verifiers`: the module that verifiers finds by the id `codev-verifiers`; ids with dots it does not take."""

from codev_env.adapters.verifiers import CodeVEnv, CodeVHarness, CodeVTaskset

__all__ = ["CodeVEnv", "CodeVHarness", "CodeVTaskset"]
