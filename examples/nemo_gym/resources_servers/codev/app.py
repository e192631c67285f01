"""NeMo-Gym: the entry point of the resources server."""

from codev_env.adapters.nemo_gym import CodeVServer

if __name__ == "__main__":
    CodeVServer.run_webserver()
