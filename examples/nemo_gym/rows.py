"""NeMo-Gym: write the rows of tasks for the environment of `codev.yaml`: `python rows.py 64 > rows.jsonl`.

Needs `pip install nemo-gym codev-env`, and Python 3.12 or newer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from codev_env.adapters.nemo_gym import rows


def main(count: int) -> None:
    """Print one row per task."""
    served = yaml.safe_load(Path(__file__).with_name("codev.yaml").read_text())["codev"]["resources_servers"]["codev"]
    for row in rows(range(count), env=served["env"], **served["options"]):
        print(json.dumps(row))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(int(sys.argv[1]))
