"""Time to lower programs whose sums are finished in random layouts, by mesh axes and rank.

    python benchmarks/layouts.py [--programs 3] [--seed 0]

Each program has 50 equations, none like another: 25 sums over the first dimension of arrays that
are split at random, and 25 constraints to layouts at random. Every search of the partitioner is
bounded, so that no program takes much longer than those of a few axes; see STATES in
partitioner/redistribution/, BUDGETS in partitioner/choice/lookahead.py, and the limit in
partitioner/choice/candidates.py.
"""
from __future__ import annotations

import argparse
import gc
import statistics
import time

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AbstractMesh, NamedSharding, PartitionSpec

AXES, RANKS, SUMS, SIZE = range(1, 9), range(1, 6), 25, 256


def random_spec(rng: np.random.Generator, names: str, rank: int) -> PartitionSpec:
    """Each axis on one dimension or none, in any order."""
    entries: list[list[str]] = [[] for _ in range(rank + 1)]
    for a in rng.permutation(list(names)):
        entries[int(rng.integers(0, rank + 1))].append(str(a))
    return PartitionSpec(*[tuple(e) or None for e in entries[:rank]])


def seconds(rng: np.random.Generator, axes: int, rank: int) -> float:
    """Of the processor, to lower one program."""
    names = "abcdefgh"[:axes]
    mesh = AbstractMesh((2,) * axes, tuple(names))
    given = [NamedSharding(mesh, random_spec(rng, names, rank + 1)) for _ in range(SUMS)]
    wanted = [NamedSharding(mesh, random_spec(rng, names, rank)) for _ in range(SUMS)]
    st.clear_caches()
    traced = st.jit(lambda *xs: [lax.with_sharding_constraint(jnp.sum(x, 0), s) for x, s in
                                 zip(xs, wanted, strict=True)]).trace(
        *[st.ShapeDtypeStruct((SIZE,) * (rank + 1), jnp.float32, sharding=s) for s in given])
    gc.collect()
    start = time.process_time()
    traced.lower()
    return time.process_time() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", type=int, default=3, help="for each number of axes and rank")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    print("milliseconds (median, worst) by axes and rank")
    worst = 0.0
    for axes in AXES:
        row = []
        for rank in RANKS:
            found = [seconds(rng, axes, rank) for _ in range(options.programs)]
            worst = max(worst, *found)
            row.append(f"{statistics.median(found) * 1e3:6.0f} {max(found) * 1e3:5.0f}")
        print(f"{axes}  {'   '.join(row)}", flush=True)
    print(f"worst: {worst * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
