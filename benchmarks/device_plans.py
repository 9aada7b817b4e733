"""What one device computes by two plans of a program, on a real device and by the cost model.

    python benchmarks/device_plans.py --json OUT           # on JAX's first device
    python benchmarks/device_plans.py --most 40 -k uneven

Of the programs of `collectives.py` whose plans for `objective="time"` and `objective="xla"` compute
differently, both per-device programs run on one device. What stands there for an exchange has its
shapes and takes no part in the figures: the profiler says how long every other kernel takes. So a
plan that repeats computation to save an exchange is judged by what the device needs for that.
"""
from __future__ import annotations

import argparse
import importlib
import json
import pathlib
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from collectives import CASES, _computation, compile_case

import shardtrace as st
from shardtrace.engines.xla.engine import executed
from shardtrace.engines.xla.source import Source

OBJECTIVES = ("time", "xla")
RUNS, CALLS = 5, 20


class Exchanges:
    """Stands for `jax.lax` in the program of one device: an exchange gives an array of its shape.

    Barriers keep it apart from what is computed before and behind, and its kernels are named.
    """

    def __init__(self, jax: Any, sizes: dict[str, int]) -> None:
        self._jax, self._sizes = jax, sizes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._jax.lax, name)

    def _members(self, axes: Any, groups: Any) -> int:
        if groups is not None:
            return len(groups[0])
        return int(np.prod([self._sizes[a] for a in ([axes] if isinstance(axes, str) else axes)]))

    def _apart(self, make: Any, *x: Any) -> Any:
        barrier = self._jax.lax.optimization_barrier
        with self._jax.named_scope("exchange"):
            return barrier(make(*barrier(x)))

    def psum(self, x: Any, axes: Any, axis_index_groups: Any = None) -> Any:
        return self._apart(lambda x: x, x)

    pmax = pmin = psum

    def ppermute(self, x: Any, axes: Any, perm: Any) -> Any:
        return self._apart(lambda x: x, x)

    def axis_index(self, axes: Any) -> Any:
        return self._apart(lambda x: x, np.int32(0))

    def all_gather(self, x: Any, axes: Any, *, axis: int = 0, tiled: bool = False,
                   axis_index_groups: Any = None) -> Any:
        n, jnp = self._members(axes, axis_index_groups), self._jax.numpy
        join = jnp.concatenate if tiled else jnp.stack
        return self._apart(lambda x: join([x] * n, axis), x)

    def psum_scatter(self, x: Any, axes: Any, *, scatter_dimension: int = 0, tiled: bool = False,
                     axis_index_groups: Any = None) -> Any:
        n = self._members(axes, axis_index_groups)

        def own(x: Any) -> Any:
            part = self._jax.lax.slice_in_dim(x, 0, x.shape[scatter_dimension] // n,
                                              axis=scatter_dimension)
            return part if tiled else part.squeeze(scatter_dimension)
        return self._apart(own, x)

    def all_to_all(self, x: Any, axes: Any, split_axis: int, concat_axis: int, *,
                   tiled: bool = False, axis_index_groups: Any = None) -> Any:
        n, jnp = self._members(axes, axis_index_groups), self._jax.numpy
        if not tiled:
            return self._apart(lambda x: jnp.moveaxis(x, split_axis, concat_axis), x)
        return self._apart(lambda x: jnp.concatenate(jnp.split(x, n, split_axis), concat_axis), x)


def differing(word: str, most: int, hardware: str) -> dict[str, dict[str, Any]]:
    """By case and objective the compiled programs, of cases whose plans compute differently; most
    of them, those that differ most first.
    """
    found = {}
    for case in CASES:
        if word not in case.name:
            continue
        plans = {}
        for objective in OBJECTIVES:
            with st.config.override(shardtrace_hardware=hardware, shardtrace_objective=objective):
                plans[objective] = compile_case(case, "shardtrace")
        flops = [p.cost_analysis()["flops"] for p in plans.values()]
        moved = [p.cost_analysis()["bytes accessed"] for p in plans.values()]
        apart = max(max(x) / max(1, min(x)) for x in (flops, moved))
        if apart > 1.01:
            found[case.name] = apart, plans
    order = sorted(found, key=lambda name: -found[name][0])[:most]
    return {name: found[name][1] for name in order}


def local_function(jax: Any, compiled: Any, name: str) -> tuple[Any, list[Any]]:
    """The program of one device under JAX, without its exchanges, and its arguments."""
    program, mesh = compiled.program, compiled.runtime_executable().placement.abstract_mesh
    source = Source(program, mesh, abstract=True)
    text = source.text()
    names = executed(text, {"constants": source.constants, "callbacks": []})
    inner = re.search(r"^step = (?:jax\.shard_map\()?(\w+)", text, re.M)
    assert inner is not None
    names["lax"] = Exchanges(jax, source.sizes)
    function = names[inner[1]]
    function.__name__ = function.__qualname__ = name
    numbers = np.random.default_rng(0)
    return function, [_values(numbers, v.aval) for v in program.invars]


def _values(numbers: Any, aval: Any) -> Any:
    shape, dtype = aval.local_shape(), aval.dtype
    if np.dtype(dtype).kind == "b":
        return numbers.random(shape) < 0.5
    if np.dtype(dtype).kind in "iu":
        return numbers.integers(0, 4, shape).astype(dtype)
    return (numbers.random(shape) * 0.1).astype(dtype)


def kernels(folder: str, jax: Any) -> dict[str, list[tuple[bool, float]]]:
    """By module, of each kernel that the profiler saw: whether it stands for an exchange, and its
    seconds.
    """
    found: dict[str, list[tuple[bool, float]]] = {}
    for file in pathlib.Path(folder).rglob("*.xplane.pb"):
        data = jax.profiler.ProfileData.from_file(str(file))
        for plane in data.planes:
            if not plane.name.startswith("/device:GPU"):
                continue
            for line in plane.lines:
                if not line.name.startswith("Stream"):
                    continue
                for event in line.events:
                    stats = {k: v for k, v in event.stats}
                    module = str(stats.get("hlo_module", ""))
                    where = str(stats.get("name", "")) + str(stats.get("tf_op", ""))
                    found.setdefault(module, []).append(
                        ("exchange" in where, event.duration_ns * 1e-9))
    return found


def wall(jax: Any, run: Any, args: list[Any]) -> float:
    """Seconds of a call among others that do not wait for it, exchanges' stand-ins included."""
    jax.block_until_ready([run(*args) for _ in range(3)])
    means = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(CALLS):
            results = run(*args)
        jax.block_until_ready(results)
        means.append((time.perf_counter() - start) / CALLS)
    return min(means)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hardware", default="h100")
    parser.add_argument("-k", default="", help="only programs whose name has this")
    parser.add_argument("--most", type=int, default=1000, help="as many programs as this")
    parser.add_argument("--seconds", type=float, default=1e9, help="for compiling")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    jax = importlib.import_module("jax")
    chosen = differing(options.k, options.most, options.hardware)
    print(f"{len(chosen)} programs compute differently", flush=True)
    jobs = []
    for number, (name, plans) in enumerate(chosen.items()):
        for objective, compiled in plans.items():
            module = f"p{number}_{objective}"
            try:
                function, args = local_function(jax, compiled, module)
            except Exception as problem:
                print(f"{name}, {objective}: {problem}", file=sys.stderr)
                continue
            jobs.append((name, objective, module, function, args, compiled))

    until = time.monotonic() + options.seconds

    def build(job: Any) -> Any:
        if time.monotonic() > until:
            return None
        try:
            placed = [jax.device_put(x) for x in job[4]]
            return jax.jit(job[3]).lower(*placed).compile(), placed
        except Exception as problem:
            print(f"{job[0]}, {job[1]}: {str(problem)[:300]}", file=sys.stderr)
            return None
    with ThreadPoolExecutor(8) as pool:
        built = list(pool.map(build, jobs))
    ready = [(job, made) for job, made in zip(jobs, built, strict=True) if made]
    waited = [wall(jax, run, args) for _, (run, args) in ready]
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _, (run, args) in ready:
                for _ in range(RUNS):
                    jax.block_until_ready(run(*args))
        seen = kernels(folder, jax)
    results = []
    for ((name, objective, module, _, _, compiled), _), took in zip(ready, waited, strict=True):
        events = seen.get(f"jit_{module}", [])
        own = [t for is_exchange, t in events if not is_exchange]
        explained = compiled.explain(options.hardware)
        device = explained.topology.hardware
        products, rest, _ = _computation(explained.partitioned.local, device)
        results.append({
            "program": name, "objective": objective, "kernels": len(own) / RUNS,
            "seconds": sum(own) / RUNS, "wall": took, "exchanges": (len(events) - len(own)) / RUNS,
            "model": products + rest, "communication": explained.times.communication})
        print(json.dumps(results[-1]), flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
