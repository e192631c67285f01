"""verl: write the inputs of its trainer: `python examples/verl_agent_loop.py FOLDER`, then run the printed command.

Needs `pip install verl cachetools fastapi uvicorn pyarrow codev-env`; training itself needs GPUs and one of verl's
inference engines.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet

from codev_env.adapters.verl import NAME, rows

AGENT_LOOP = f"""\
- name: {NAME}
  _target_: codev_env.adapters.verl.CodeVAgentLoop
  env: CodeV-VStar-v0
  options: {{data: synthetic, scenes: toy, max_turns: 6}}
"""


def main(folder: str) -> str:
    """Write the rows and the agent loop's configuration; return the command."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for split, indices in (("train", range(1024)), ("val", range(1024, 1152))):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows(indices)), place / f"{split}.parquet")
    (place / "agent_loop.yaml").write_text(AGENT_LOOP)
    return " ".join(
        [
            "python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.mode=async",
            f"data.train_files={place}/train.parquet data.val_files={place}/val.parquet",
            f"actor_rollout_ref.rollout.agent.agent_loop_config_path={place}/agent_loop.yaml",
            "actor_rollout_ref.model.path=Qwen/Qwen2.5-VL-7B-Instruct actor_rollout_ref.rollout.n=8",
        ]
    )


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print(main(sys.argv[1]))
