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
import math
import pathlib
import re
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from collectives import CASES, _computation, compile_case
from device_times import seconds_of_a_call

import shardtrace as st
from shardtrace.engines.xla.engine import executed
from shardtrace.engines.xla.source import Source

OBJECTIVES = ("time", "xla")
RUNS = 5
BETWEEN = 0.4e-6         # seconds between two kernels of a program, as measured on an H200


class Exchanges:
    """Stands for `jax.lax` in the program of one device: an exchange gives an array of its shape.

    Barriers keep it apart from what is computed before and after, and its kernels are named.
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
                    stats = dict(event.stats)
                    module = str(stats.get("hlo_module", ""))
                    where = str(stats.get("name", "")) + str(stats.get("tf_op", ""))
                    found.setdefault(module, []).append(
                        ("exchange" in where, event.duration_ns * 1e-9))
    return found


def results(chosen: dict[str, dict[str, Any]], hardware: str, seconds: float
            ) -> list[dict[str, Any]]:
    """Of each program by each objective: how many kernels run, how long they take, and what the
    cost model says. seconds: for compiling; what is not compiled by then is left out.
    """
    jax = importlib.import_module("jax")
    jobs = [(name, objective, compiled, *local_function(jax, compiled, f"p{n}_{objective}"))
            for n, (name, plans) in enumerate(chosen.items())
            for objective, compiled in plans.items()]
    until = time.monotonic() + seconds

    def build(job: Any) -> Any:
        if time.monotonic() > until:
            return None
        *_, function, args = job
        placed = [jax.device_put(x) for x in args]
        return jax.jit(function).lower(*placed).compile(), placed
    with ThreadPoolExecutor(8) as pool:
        built = list(pool.map(build, jobs))
    ready = [(job, made) for job, made in zip(jobs, built, strict=True) if made]
    waited = [seconds_of_a_call(jax, *made) for _, made in ready]
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _, (run, args) in ready:
                for _ in range(RUNS):
                    jax.block_until_ready(run(*args))
        seen = kernels(folder, jax)
    found = []
    for ((name, objective, compiled, function, _), _), took in zip(ready, waited, strict=True):
        events = seen.get(f"jit_{function.__name__}", [])
        own = [t for is_exchange, t in events if not is_exchange]
        explained = compiled.explain(hardware)
        products, rest, _ = _computation(explained.partitioned.local, explained.topology.hardware)
        found.append({
            "program": name, "objective": objective, "kernels": len(own) / RUNS,
            "seconds": sum(own) / RUNS, "wall": took, "exchanges": (len(events) - len(own)) / RUNS,
            "model": products + rest, "communication": explained.times.communication})
    return found


def table(found: list[dict[str, Any]]) -> str:
    """The results as text, and what all of them say of the model."""
    plans: dict[str, dict[str, Any]] = {}
    for row in found:
        plans.setdefault(row["program"], {})[row["objective"]] = row
    lines = [f"{'program':50} {'kernels':>11} {'computing, us':>17} {'model, us':>17} {'step':>5} "
             f"{'measured':>8}"]
    parts, steps = [], []
    for name, both in plans.items():
        own, xla = (both.get(o) for o in OBJECTIVES)
        if own is None or xla is None:
            continue
        step = [(r["model"] + r["communication"]) for r in (own, xla)]
        real = [(r["seconds"] + BETWEEN * r["kernels"] + r["communication"]) for r in (own, xla)]
        parts += [math.log(r["model"] / (r["seconds"] + BETWEEN * r["kernels"]))
                  for r in (own, xla) if r["model"] and r["kernels"]]
        steps.append((step[0] / step[1], real[0] / real[1]))
        lines.append(
            f"{name[:50]:50} {own['kernels']:5.0f} {xla['kernels']:5.0f} "
            f"{own['seconds'] * 1e6:8.1f} {xla['seconds'] * 1e6:8.1f} {own['model'] * 1e6:8.1f} "
            f"{xla['model'] * 1e6:8.1f} {steps[-1][0]:5.2f} {steps[-1][1]:8.2f}")
    means = [math.exp(statistics.fmean(map(math.log, x))) for x in zip(*steps, strict=True)]
    above = [sum(s > 1.01 for s in x) for x in zip(*steps, strict=True)]
    part = math.exp(statistics.fmean(parts or [0]))
    return "\n".join([
        *lines, f"model / measured computation: {part:.2f} (geometric mean of {len(parts)} plans)",
        "steps by the plan for time, of those by XLA's rules: "
        f"{means[0]:.3f} by the model, {means[1]:.3f} with measured computation; longer: "
        f"{above[0]} and {above[1]} of {len(steps)}"])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hardware", default="h100", help="for whose time (default h100)")
    parser.add_argument("-k", default="", help="only programs whose name has this")
    parser.add_argument("--most", type=int, default=1000, help="as many programs as this")
    parser.add_argument("--seconds", type=float, default=math.inf, help="for compiling at most")
    parser.add_argument("--json", metavar="FILE", help="write the results")
    options = parser.parse_args()
    found = results(differing(options.k, options.most, options.hardware), options.hardware,
                    options.seconds)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
