"""An environment of codev-env as a Space of OpenEnv; README.md says how to push it."""
