"""Record the losses that JAX gives for the models of examples/, into tests/golden/examples.json.

    python -m tests.record.examples ORACLE [name ...]

ORACLE is a Python interpreter that has jax 0.10.2. An example is run as it stands but for its
imports, each in a process of its own, on eight CPU devices.
"""
from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

from ..paths import EXAMPLES, GOLDEN

LOSSES = GOLDEN / "examples.json"
EIGHT_DEVICES = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}


def models() -> list[pathlib.Path]:
    """The examples that train a model: all but the tour and the one made of shapes alone."""
    return [path for path in sorted(EXAMPLES.glob("*.py"))
            if path.stem not in ("sharding_tour", "llama70b_on_4096", "uneven_loss")]


def with_jax_imports(source: str) -> str:
    """The program with `jax` for `shardtrace` in its import lines, and nowhere else."""
    return re.sub(r"^(import|from) shardtrace\b", r"\1 jax", source, flags=re.MULTILINE)


def losses_of(oracle: str, source: pathlib.Path) -> list[float]:
    program = with_jax_imports(source.read_text()).split("\nif __name__ ==")[0]
    program += '\nimport json\nlosses = main()\nprint("LOSSES", json.dumps(losses))\n'
    done = subprocess.run([oracle, "-c", program], capture_output=True, text=True, check=False,
                          env={**os.environ, **EIGHT_DEVICES})
    if done.returncode:
        raise SystemExit(f"{source.name} failed under the oracle:\n{done.stderr}")
    return json.loads(done.stdout.split("LOSSES")[-1])


def main(oracle: str, *names: str) -> None:
    golden = json.loads(LOSSES.read_text()) if LOSSES.exists() else {}
    for source in models():
        if not names or source.stem in names:
            golden[source.stem] = losses_of(oracle, source)
            print(f"{source.stem}: {len(golden[source.stem])} steps")
    lines = (f'"{name}": {json.dumps(losses)}' for name, losses in sorted(golden.items()))
    LOSSES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
