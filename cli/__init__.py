"""The `shardtrace` command: argument parsing and printing only."""
from __future__ import annotations

import importlib
import sys


def main() -> int:
    """The command `shardtrace`; its exit status.

    The package is imported inside, so that an environment variable that it refuses is reported
    without a traceback.
    """
    try:
        command = importlib.import_module(".main", __package__)
    except ValueError as problem:
        print(f"shardtrace: {problem}", file=sys.stderr)
        return 2
    return command.main()
