"""`codev` as one of several processes, of which only the first is asked to stop, in its first update."""

from __future__ import annotations

import os
import signal
import sys

from codev_env.app.cli import main
from codev_train import experiment
from codev_train.run.monitor import Monitor


class Stopping(Monitor):
    """Presses Ctrl-C on the main process."""

    def update(self, values, step):
        super().update(values, step)
        if step == 1 and os.environ["RANK"] == "0":
            os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    experiment.Monitor = Stopping  # type: ignore[misc]
    sys.exit(main())
