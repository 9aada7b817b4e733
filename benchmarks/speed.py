"""How fast: tracing, partitioning, dispatch and simulated runs, as ratios within one run.

    python benchmarks/speed.py                  # against plain numpy
    python benchmarks/speed.py --jax            # and against JAX, where it is installed

Every figure is a median over interleaved repeats; ratios travel better between machines than times.
"""
from __future__ import annotations

import argparse
import importlib
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

DEVICES = 8


def medians(repeats: int, *functions: Callable[[], Any]) -> list[float]:
    """Median seconds of each function, measured in turns."""
    times: list[list[float]] = [[] for _ in functions]
    for f in functions:
        f()
    for _ in range(repeats):
        for f, out in zip(functions, times, strict=True):
            start = time.perf_counter()
            f()
            out.append(time.perf_counter() - start)
    return [statistics.median(t) for t in times]


class Library:
    """The names that the programs use, of shardtrace or of jax."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root = importlib.import_module(name)
        self.jnp = importlib.import_module(f"{name}.numpy")
        self.sharding = importlib.import_module(f"{name}.sharding")
        self.P = self.sharding.PartitionSpec
        kind = self.sharding.AxisType.Explicit
        self.mesh = self.root.make_mesh((2, 4), ("X", "Y"), axis_types=(kind, kind))

    def put(self, value: np.ndarray, *spec: Any) -> Any:
        return self.root.device_put(value, self.sharding.NamedSharding(self.mesh, self.P(*spec)))


def chain(lib: Any, n: int) -> Callable[..., Any]:
    """An elementwise chain of n operations."""
    def f(x: Any, y: Any) -> Any:
        for _ in range(n // 2):
            x = lib.tanh(x) * y
        return x
    return f


def mlp(lib: Any) -> Callable[..., Any]:
    def f(x: Any, w1: Any, w2: Any) -> Any:
        return lib.tanh(x @ w1) @ w2
    return f


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def trace(lib: Library, n: int) -> Callable[[], Any]:
    x, y = lib.put(data(8, 8), "X"), lib.put(data(8, 8), "X")
    return lambda: lib.root.jit(chain(lib.jnp, n)).trace(x, y)


def first_result(lib: Library, n: int) -> Callable[[], Any]:
    x, y = lib.put(data(8, 8), "X"), lib.put(data(8, 8), "X")
    return lambda: lib.root.jit(chain(lib.jnp, n))(x, y).block_until_ready()


def dispatch(lib: Library) -> Callable[[], Any]:
    x = lib.put(data(8, 8), "X")
    f = lib.root.jit(lambda v: v + 1)
    return lambda: f(x).block_until_ready()


def run_mlp(lib: Library) -> Callable[[], Any]:
    x, w1 = lib.put(data(512, 1024), "X", None), lib.put(data(1024, 2048), None, "Y")
    w2 = lib.put(data(2048, 512), None, None)
    f = lib.root.jit(mlp(lib.jnp))
    return lambda: f(x, w1, w2).block_until_ready()


def run_chain(lib: Library) -> Callable[[], Any]:
    x, y = lib.put(data(2048, 2048), "X", "Y"), lib.put(data(2048, 2048), "X", "Y")
    f = lib.root.jit(chain(lib.jnp, 20))
    return lambda: f(x, y).block_until_ready()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jax", action="store_true", help="compare with JAX")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    os.environ.setdefault("XLA_FLAGS", f"--xla_force_host_platform_device_count={DEVICES}")
    ours = Library("shardtrace")
    libraries = [ours, Library("jax")] if options.jax else [ours]
    print(f"{'what':<44}{'shardtrace':>12}" + "".join(
        f"{lib.name:>12}{'ratio':>8}" for lib in libraries[1:]))

    def row(what: str, make: Callable[..., Callable[[], Any]], *args: Any, per: int = 1) -> None:
        times = medians(options.repeats, *(make(lib, *args) for lib in libraries))
        cells = f"{times[0] / per * 1e6:>10.1f}us"
        for t in times[1:]:
            cells += f"{t / per * 1e6:>10.1f}us{times[0] / t:>8.3f}"
        print(f"{what:<44}{cells}")

    row("trace, 1,000 equations, each", trace, 1000, per=1000)
    row("trace, 100 equations, each", trace, 100, per=100)
    row("first result, 100 equations", first_result, 100)
    row("dispatch of a tiny jitted call", dispatch)
    x, w1, w2 = data(512, 1024), data(1024, 2048), data(2048, 512)
    a, b = data(2048, 2048), data(2048, 2048)
    for what, make, plain in [
            ("run: MLP forward, 2x4 devices", run_mlp, lambda: mlp(np)(x, w1, w2)),
            ("run: 20 elementwise ops on 4M floats", run_chain, lambda: chain(np, 20)(a, b))]:
        row(what, make)
        mine, numpy_time = medians(options.repeats, make(ours), plain)
        print(f"{'  against plain numpy':<44}{mine / numpy_time:>12.3f}")


if __name__ == "__main__":
    main()
