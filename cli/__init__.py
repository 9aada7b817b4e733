"""The `shardtrace` command: argument parsing and printing only."""
from __future__ import annotations

import importlib
import sys


def main() -> int:
    """The command `shardtrace`; its exit status.

    The package loads inside, so that an environment variable which it refuses is told in words.
    """
    try:
        command = importlib.import_module(".main", __package__)
    except ValueError as problem:
        print(f"shardtrace: {problem}", file=sys.stderr)
        return 2
    return command.main()
