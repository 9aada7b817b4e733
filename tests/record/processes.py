"""Record what JAX makes of tests/golden/processes.txt in two processes, for tests/runtime.

    ORACLE -m tests.record.processes          ORACLE: a Python with jax 0.10.2

To add a case, add a line with an expression and record.
"""
from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile

from ..arrays.processes import two_processes


def process(number: int, port: str, results: pathlib.Path) -> None:
    """What one of the two processes does."""
    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", 2, number)
    known = two_processes.names(jax, jnp, multihost_utils)
    results.write_text("\n".join(
        two_processes.outcome(row[0], known) for row in two_processes.rows()))


def main() -> None:
    if len(sys.argv) > 1:
        process(int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]))
        return
    env = {**os.environ, "JAX_PLATFORMS": "cpu",
           "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder) / str(i) for i in range(2)]
        again = [sys.executable, "-m", __spec__.name]
        running = [subprocess.Popen([*again, str(i), "12769", str(file)], env=env)
                   for i, file in enumerate(files)]
        assert [p.wait(300) for p in running] == [0, 0]
        columns = [file.read_text().split("\n") for file in files]
    lines = ["\t".join(line) for line in zip(
        (row[0] for row in two_processes.rows()), *columns, strict=True)]
    two_processes.TABLE.write_text("\n".join(lines) + "\n")
    print(len(lines), "lines")


if __name__ == "__main__":
    main()
