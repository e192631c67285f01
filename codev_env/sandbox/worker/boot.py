"""Starts the zygote. Run as a script; arguments: the package's folder, import path, descriptor, kind, niceness.

Empty packages stand in for `codev_env` and `codev_env.sandbox`: importing the real ones would load gymnasium and the
host's modules into the process that workers are forked from.
"""

from __future__ import annotations

import json
import os
import sys
import types


def _main() -> None:
    folder, path, fd = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    sys.path[:] = path
    for name, place in (("codev_env", folder), ("codev_env.sandbox", os.path.join(folder, "sandbox"))):
        package = types.ModuleType(name)
        package.__path__ = [place]
        sys.modules[name] = package
    from codev_env.sandbox.worker.zygote import main

    main(fd, sys.argv[4], int(sys.argv[5]))


if __name__ == "__main__":
    _main()
