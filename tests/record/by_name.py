"""Record what the programs of tests/interop/by_name print with JAX, for tests/interop.

    ORACLE -m tests.record.by_name [NAME ...]     ORACLE: a Python with jax 0.10.2 and the libraries

Programs whose library is missing keep what was recorded of them.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys

from ..paths import GOLDEN, TESTS

RECORDED = GOLDEN / "by_name.json"
PROGRAMS = TESTS / "interop" / "by_name"


def main(names: list[str]) -> None:
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    environment = {**os.environ, "JAX_PLATFORMS": "cpu",
                   "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    for path in sorted(PROGRAMS.glob("*.py")):
        if names and path.stem not in names:
            continue
        done = subprocess.run([sys.executable, "-W", "ignore", str(path)], capture_output=True,
                              text=True, env=environment)
        if done.returncode:
            print(path.stem, done.stderr.splitlines()[-1])
        else:
            recorded[path.stem] = done.stdout.splitlines()
    RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
