"""OpenEnv: serve an environment on port 8000: `uvicorn openenv_server:app --app-dir examples`.

Needs `pip install openenv codev-env`. Programs run on the server; `openenv_client.py` connects from anywhere.
"""

from codev_env.adapters.openenv import make_app

app = make_app("CodeV-VStar-v0", data="synthetic", scenes="toy", max_turns=3)
