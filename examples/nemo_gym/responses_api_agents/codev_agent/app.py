"""NeMo-Gym: the entry point of the agent."""

from codev_env.adapters.nemo_gym import CodeVAgent

if __name__ == "__main__":
    CodeVAgent.run_webserver()
