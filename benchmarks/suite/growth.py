"""How times grow: with equations, with the devices and with the axes of a mesh.

    python growth.py equations|mesh|axes          one subject, in a process of its own; JSON lines

Prints `{"row": ..., "small": [...], "large": [...], ...}`: seconds, measured in turns.
"""
from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from shardtrace.ir.support.caches import forget
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.text.print import print_program
from shardtrace.ir.verify import verify
from suite import names
from suite.library import Library, Placed, Program, map_tree
from suite.programs.elementwise import chain
from suite.quiet import undisturbed
from suite.worker import timed

Measured = dict[Any, list[float]]


def interleaved(rounds: int, subjects: dict[Any, Callable[[], Any]]) -> Measured:
    """Seconds of each subject, `rounds` times, one after the other; one turn before counts not."""
    found: Measured = {key: [] for key in subjects}
    for turn in range(rounds + 1):
        for key, f in subjects.items():
            seconds, _ = undisturbed(lambda f=f: timed(f))
            if turn:
                found[key].append(seconds)
    return found


def measure(row: str, rounds: int, subjects: dict[Any, Callable[[], Any]]) -> None:
    """Time subjects and print a line for the driver: medians by size."""
    print(json.dumps({"row": row, "sizes": {
        str(k): statistics.median(v) for k, v in interleaved(rounds, subjects).items()}}),
        flush=True)


def lowered(traced: Any) -> Any:
    """The program partitioned, not found among those of earlier rounds."""
    forget("driver.execution.partition_cache")
    return traced.lower()


def equations(rounds: int, sizes: Sequence[int] = (3_000, 30_000)) -> None:
    """Trace, partition, print, parse and verify programs of more and more equations."""
    lib = Library("shardtrace", {"X": 8}, True)
    with lib.context():
        x = lib.put(Placed(np.ones((8, 8), np.float32), ("X",)))
        traced = {n: lib.root.jit(chain(lib, n)).trace(x, x) for n in sizes}
        texts = {n: print_program(t.jaxpr) for n, t in traced.items()}
        measure("trace", rounds, {
            n: lambda n=n: lib.root.jit(chain(lib, n)).trace(x, x) for n in sizes})
        measure("partition", rounds, {n: lambda n=n: lowered(traced[n]) for n in sizes})
        measure("print", rounds, {n: lambda n=n: print_program(traced[n].jaxpr) for n in sizes})
        measure("parse", rounds, {n: lambda n=n: parse_program(texts[n]) for n in sizes})
        measure("verify", rounds, {n: lambda n=n: verify(traced[n].jaxpr.replace())
                                   for n in sizes})     # a program remembers that it is valid
        compiled = {n: t.lower().compile() for n, t in traced.items()}
        measure("first run", 1, {n: lambda n=n: compiled[n](x, x) for n in sizes})
        measure("steady run", rounds, {n: lambda n=n: compiled[n](x, x) for n in sizes})


# Programs on an abstract mesh, each dimension of their arguments 256 times as long.
ABSTRACT = ("mlp step, data x tensor", "mlp step, data x tensor, auto",
            "mlp forward, tensor parallel", "chain of reshards")


class OnMesh:
    """A program on an AbstractMesh, and what is done with it there."""

    def __init__(self, p: Program, sizes: dict[str, int]) -> None:
        self.program = p
        self.lib = Library("shardtrace", sizes, p.explicit, abstract=True)
        self.args = map_tree(lambda a: enlarged(self.lib, a),
                             p.arguments(np.random.default_rng(0)))
        self.traced = self.trace()

    def jitted(self) -> Any:
        return self.lib.root.jit(self.program.make(self.lib))

    def trace(self) -> Any:
        with self.lib.context():
            return self.jitted().trace(*self.args)

    def partition(self) -> Any:
        with self.lib.context():
            return lowered(self.traced)

    def explain(self) -> Any:
        forget("driver.execution.partition_cache")
        with self.lib.context():
            return self.lib.root.explain(self.jitted())(*self.args)


def mesh(rounds: int) -> None:
    """Measure programs on an AbstractMesh of 8 and of 65,536 devices."""
    for name in ABSTRACT:
        p = names()[name]
        few, many = OnMesh(p, p.mesh), OnMesh(p, dict.fromkeys(p.mesh, 256))
        for what in ("trace", "partition", "explain"):
            measure(f"{what}: {name}", rounds * 10,
                    {8: getattr(few, what), 65_536: getattr(many, what)})


def enlarged(lib: Library, x: Placed) -> Any:
    """The argument's type with every dimension 256 times as long: there is room for every axis."""
    sharding = lib.sharding.NamedSharding(lib.mesh, lib.P(*x.spec))
    shape = tuple(256 * n for n in x.value.shape)
    return lib.root.ShapeDtypeStruct(shape, x.value.dtype, sharding=sharding)


def axes(rounds: int) -> None:
    """A data-parallel step whose batch is split over 1, 2, 4 and 6 axes of two devices."""
    p = names()["mlp step, data parallel"]
    arguments = p.arguments(np.random.default_rng(0))
    cases = {}
    for n in (1, 2, 4, 6):
        lib = Library("shardtrace", {f"a{i}": 2 for i in range(n)}, True, abstract=True)
        every = tuple(f"a{i}" for i in range(n))
        cases[n] = lib, map_tree(lambda a, lib=lib, every=every: lib.put(
            Placed(a.value, (every,) if a.spec else ())), arguments)

    def step(lib: Library) -> Any:
        def loss(ws: Any, x: Any, y: Any) -> Any:
            return ((lib.jnp.tanh(x @ ws[0]) @ ws[1] - y) ** 2).mean()
        return lib.root.jit(lambda w1, w2, x, y: lib.root.grad(loss)((w1, w2), x, y))

    def trace(n: int) -> Any:
        lib, args = cases[n]
        with lib.context():
            return step(lib).trace(*args)
    traced = {n: trace(n) for n in cases}
    measure("trace", rounds, {n: lambda n=n: trace(n) for n in cases})
    measure("partition", rounds, {n: lambda n=n: lowered(traced[n]) for n in cases})


if __name__ == "__main__":
    {"equations": equations, "mesh": mesh, "axes": axes}[sys.argv[1]](int(sys.argv[2]))
