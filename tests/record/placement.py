"""Record what JAX makes of the expressions of tests/golden/placement.txt, for tests/runtime.

    ORACLE -m tests.record.placement          ORACLE: a Python with jax 0.10.2

To add a case, add a line with an expression and record. `A` stands for every operand; it then
becomes one line for each of them.
"""
from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import jax
import jax.core
import jax.dlpack
import jax.numpy as jnp

from ..arrays import placement

if __name__ == "__main__":
    known = {kind: placement.names(jax, jnp, kind) for kind in placement.KINDS}
    out = []
    for row in placement.rows():
        for _, expression in placement.expanded(row[0]):
            first, second = (placement.outcome(expression, known[kind])
                             for kind in placement.KINDS)
            out.append([expression, first, placement.SAME if first == second else second])
    placement.TABLE.write_text("".join("\t".join(row) + "\n" for row in out))
    print(len(out), "lines")
