"""What four tools report of one block, that of the tutorial's fourth page, and how soon.

    python benchmarks/other_tools.py --jax PYTHON_WITH_JAX --torch PYTHON_WITH_TORCH

For growing meshes: the collectives that `st.explain`, JAX's compiled text and DTensor's
CommDebugMode find, the lines of Shardy's dump behind propagation, and the seconds from the function
to these (the fastest of three processes; importing is not counted). DTensor runs one rank of a
process group that exchanges nothing. docs/index.md has the figures.
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
SHARDY = JAX.replace("kinds = ", "mlir = ").replace("mesh = jax", """
import glob, os, tempfile
folder = tempfile.mkdtemp()
os.environ["XLA_FLAGS"] += f" --xla_dump_to={folder} --xla_dump_hlo_pass_re=shardy"
mesh = jax""") + """
(dump,) = glob.glob(f"{folder}/shardy/*/02.after_propagation.mlir")
kinds = [f"{len(open(dump).readlines())} lines"]
"""
TORCH = """
import time, torch, torch.distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore
torch.distributed.init_process_group("fake", rank=0, world_size=SHAPE[0] * SHAPE[1],
                                     store=FakeStore())
mesh = init_device_mesh("cpu", SHAPE, mesh_dim_names=("data", "model"))
def placed(rows, columns, *placements):
    for p, n in zip(placements, SHAPE):
        rows, columns = (rows // n if p == Shard(0) else rows,
                         columns // n if p == Shard(1) else columns)
    return DTensor.from_local(torch.ones(rows, columns), mesh, placements, run_check=False)
x, up, down = (placed(4096, 1024, Shard(0), Replicate()), placed(1024, 4096, Replicate(), Shard(1)),
               placed(4096, 1024, Shard(0), Replicate()))
before = time.perf_counter()
with CommDebugMode() as found:
    (torch.tanh(x @ up) @ down).redistribute(mesh, (Shard(0), Replicate()))
kinds = [f"{n} {op}".replace("c10d_functional.", "") for op, n in found.get_comm_counts().items()]
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
    source = (f"SHAPE = {shape}\n{'' if program is TORCH else COMMON}\n{program}\n"
              "print(time.perf_counter() - before, ', '.join(kinds))")
    flags = f"--xla_force_host_platform_device_count={shape[0] * shape[1]}"
    runs = [subprocess.run([python, "-c", source], capture_output=True, text=True,
                           env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags})
            for _ in range(3)]
    if any(done.returncode for done in runs):
        return runs[0].stderr.strip().splitlines()[-1]
    seconds, kinds = min((done.stdout.split(" ", 1) for done in runs),
                         key=lambda row: float(row[0]))
    return f"{float(seconds):.2f} s  {kinds.strip()}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--jax", default=sys.executable, help="a Python that has JAX")
    options.add_argument("--torch", help="a Python that has PyTorch")
    given = options.parse_args()
    tools = [("shardtrace", sys.executable, OURS), ("JAX", given.jax, JAX),
             ("Shardy", given.jax, SHARDY), ("DTensor", given.torch, TORCH)]
    for shape in MESHES:
        print(f"{shape[0]} x {shape[1]}")
        for name, python, program in tools:
            if python:
                print(f"  {name:11}", measured(python, program, shape), flush=True)


if __name__ == "__main__":
    main()
