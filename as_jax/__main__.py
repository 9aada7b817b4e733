"""`python -m shardtrace.as_jax FILE [ARGUMENTS]`, or `-m MODULE`, as `python` runs them."""
from __future__ import annotations

import os
import runpy
import sys

USAGE = """usage: python -m shardtrace.as_jax FILE [ARGUMENT ...]
       python -m shardtrace.as_jax -m MODULE [ARGUMENT ...]

Runs a program written for jax on shardtrace: its imports of jax give shardtrace's functions of the
same names, on simulated devices (SHARDTRACE_NUM_DEVICES, 8 unless set)."""


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        sys.exit(0 if arguments else 2)
    as_module = arguments[0] == "-m" and len(arguments) > 1
    sys.argv = arguments[as_module:]
    if as_module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")


main(sys.argv[1:])
