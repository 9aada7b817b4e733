"""What JAX's compiled program and `st.explain` tell of the block of the tutorial's fourth page.

    python benchmarks/beside_jax.py --jax PYTHON_WITH_JAX

For growing meshes: the collectives that each finds, and the seconds from the function to the list
of them (the fastest of three processes; importing is not counted). docs/index.md has the figures.
"""
from __future__ import annotations

import argparse
import os
import subprocess
import sys

MESHES = ((1, 8), (4, 8), (64, 8), (512, 8))
COMMON = """
import re, time
import numpy as np
def block(x, up, down):
    h = jnp.tanh(x @ up)
    return h @ down
def run(lib, mesh):
    specs = {"x": P("data"), "up": P(None, "model"), "down": P("data")}
    shapes = {"x": (4096, 1024), "up": (1024, 4096), "down": (4096, 1024)}
    args = [lib.ShapeDtypeStruct(shapes[k], np.float32, sharding=NamedSharding(mesh, s))
            for k, s in specs.items()]
    return lib.jit(block, out_shardings=NamedSharding(mesh, P("data"))), args
"""
JAX = """
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
mesh = jax.make_mesh(SHAPE, ("data", "model"), axis_types=(AxisType.Auto,) * 2)
before = time.perf_counter()
step, args = run(jax, mesh)
text = step.lower(*args).compile().as_text()
kinds = re.findall(r" (all-[a-z]+|collective-permute|reduce-scatter)(?:-start)?[(]", text)
"""
OURS = """
import shardtrace as st, shardtrace.numpy as jnp
from shardtrace.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
mesh = AbstractMesh(SHAPE, ("data", "model"))
before = time.perf_counter()
step, args = run(st, mesh)
kinds = [c.kind for c in st.explain(step)(*args).collectives]
"""


def measured(python: str, program: str, shape: tuple[int, int]) -> str:
    """Seconds and collectives, or the last line of what was raised."""
    source = (f"SHAPE = {shape}\n{COMMON}\n{program}\n"
              "print(time.perf_counter() - before, *kinds)")
    flags = f"--xla_force_host_platform_device_count={shape[0] * shape[1]}"
    runs = [subprocess.run([python, "-c", source], capture_output=True, text=True,
                           env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags})
            for _ in range(3)]
    if any(done.returncode for done in runs):
        return runs[0].stderr.strip().splitlines()[-1]
    seconds, *kinds = min((done.stdout.split() for done in runs), key=lambda row: float(row[0]))
    return f"{float(seconds):.2f} s  {', '.join(kinds)}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--jax", default=sys.executable, help="a Python that has JAX")
    python = options.parse_args().jax
    for shape in MESHES:
        print(f"{shape[0]} x {shape[1]}")
        print("  shardtrace ", measured(sys.executable, OURS, shape))
        print("  jax        ", measured(python, JAX, shape))


if __name__ == "__main__":
    main()
