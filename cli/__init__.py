"""The `shardtrace` command: argument parsing and printing only."""
from __future__ import annotations

import sys

from ..ir.support.lazy import lazy_import

_command = lazy_import(".main", __package__)


def main() -> int:
    """The command `shardtrace`; its exit status. Loads the rest, which an environment variable
    that there is not refuses."""
    try:
        run = _command.main
    except ValueError as problem:
        print(f"shardtrace: {problem}", file=sys.stderr)
        return 2
    return run()
