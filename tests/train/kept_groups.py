"""`codev`, in which no saved group is removed: as if it had been killed before each checkpoint was complete."""

from __future__ import annotations

import sys

from codev_env.app.cli import main
from codev_train.learn.progress import GroupLog
from codev_train.sft import cold_start as sft

if __name__ == "__main__":
    GroupLog.settle = GroupLog.finish = lambda *args: None  # type: ignore[method-assign]
    sft.CORPUS_SCENES = 40
    sys.exit(main())
