"""Wall time of partitioned programs on XLA, compared with XLA's own partition.

    python benchmarks/engines.py                  # programs of collectives.py that a CPU can run
    python benchmarks/engines.py -k mlp           # some of them
    python benchmarks/engines.py --write FILE     # and the figures as JSON
    python benchmarks/engines.py --least 100000   # those in which a device receives as many bytes
    python benchmarks/engines.py --processes 2    # over two processes with four devices each

Both are functions that JAX compiled for the same 8 virtual devices of the CPU, called with the same
arrays, one after the other in turn; of each the fastest call counts. Under 1 is faster than XLA.
"""
from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import types
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import collectives
import jax
import numpy as np

import shardtrace as st
from shardtrace.engines.xla.engine import XLAProgram
from shardtrace.partitioner.cost.hardware import hardware

# Of one of several processes: its number, how many there are, and the port of the first.
RANK, PROCESSES, PORT = map(int, os.environ.get("BENCHMARK_PROCESS", "0 1 0").split())
if PROCESSES > 1:
    jax.distributed.initialize(f"localhost:{PORT}", PROCESSES, RANK)

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"
LOSSES = EXAMPLES.parent / "tests" / "golden" / "examples.json"
MOST_OPERATIONS = 4e9          # of all devices: more takes seconds a call
MOST_BYTES = 2 ** 28           # of all arguments


# Virtual devices of a CPU with two cores, as this program measures them: a collective of 8 devices
# takes 0.1 ms to start, and what each computes, reads and sends shares the same two cores.
HOST = hardware("cpu").replace(
    key="host", name="virtual devices", peak={"bf16": 4e9, "f32": 8e9, "f64": 4e9}, hbm=2e9,
    link=1e9, link_latency=20e-6, start_latency=100e-6, network=1e9, network_latency=100e-6)


def random_array(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 4, shape).astype(dtype)
    return (rng.standard_normal(shape) * 0.1).astype(dtype)


def seconds(f: Any, args: Any) -> float:
    start = time.perf_counter()
    jax.block_until_ready(f(*args))
    return time.perf_counter() - start


def race(ours: Any, our_args: Any, theirs: Any, their_args: Any, budget: float
         ) -> tuple[float, float]:
    """The fastest call of each, in turn, in about as many seconds; six calls each at least. All of
    several processes make thirty.
    """
    best = [math.inf, math.inf]
    for f, args in ((ours, our_args), (theirs, their_args)):
        seconds(f, args)
    end, calls = time.perf_counter() + budget, 0
    while calls < 30 if PROCESSES > 1 else (
            calls < 6 or time.perf_counter() < end and calls < 400):
        best[0] = min(best[0], seconds(ours, our_args))
        best[1] = min(best[1], seconds(theirs, their_args))
        calls += 1
    return best[0], best[1]


def measure(case: Any, budget: float, least: int = 0) -> dict[str, Any] | None:
    """Seconds of a case both ways, and the bytes that a device receives; None if it is too large,
    or one of them receives less than `least`."""
    compiled = collectives.compile_case(case, "shardtrace")
    if compiled.cost_analysis()["flops"] * collectives.DEVICES > MOST_OPERATIONS:
        return None
    moved, words = collectives.own_bytes(compiled)
    if sum(4 * math.prod(a[0]) for a in case.args) > MOST_BYTES:
        return None
    reference = collectives.compile_case(case, "jax")
    xla = collectives.xla_program(reference.as_text(), case.mesh).exchanges
    if max(moved, collectives.received(xla)) < least:
        return None
    loaded = XLAProgram(compiled.program, compiled.runtime_executable().placement.abstract_mesh)
    rng = np.random.default_rng(0)
    values = [random_array(a[0], a[2] if len(a) > 2 else "float32", rng) for a in case.args]
    here = [jax.device_put(v, s) for v, s in zip(values, loaded.sharding, strict=True)]
    there = [jax.device_put(v, a.sharding) for v, a in zip(
        values, collectives._built(case, "jax")[-1], strict=True)]
    f = loaded.compiled()
    pairs = zip(jax.tree.leaves(f(*here)), jax.tree.leaves(reference(*there)), strict=True)
    for a, b in pairs if PROCESSES == 1 else ():
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64),
                                   rtol=2e-2, atol=1e-2 * max(1.0, float(np.abs(b).max())))
    ours, theirs = race(f, here, reference, there, budget)
    return {"name": case.name, "ours": ours, "xla": theirs, "received": moved,
            "received_xla": collectives.received(xla), "collectives": len(words),
            "collectives_xla": len(xla)}


class _Called(Exception):
    """The step of a model was called."""


def _first_call(name: str, library: str) -> tuple[Any, tuple]:
    """The step that a model of examples/ trains with, compiled without donation, and the arguments
    of its first call. library: what the model imports."""
    text = (EXAMPLES / f"{name}.py").read_text()
    text = re.sub(r"^(import|from) shardtrace\b", rf"\1 {library}", text, flags=re.MULTILINE)
    module = types.ModuleType(f"{name}_on_{library}")
    sys.modules[module.__name__] = module
    exec(compile(text, f"{name}.py", "exec"), module.__dict__)
    step, found = module.train_step, []
    jit = importlib.import_module(library).jit

    def spy(*args: Any) -> Any:                  # in whatever context the model calls it
        found.extend((jit(step.__wrapped__).lower(*args).compile(), args))
        raise _Called

    module.train_step = spy
    try:
        module.main(steps=1)
    except _Called:
        pass
    return found[0], found[1]


def measure_model(name: str, budget: float) -> dict[str, Any]:
    """As `measure`, of a model's training step."""
    compiled, args = _first_call(name, "shardtrace")
    placement = compiled.runtime_executable().placement
    loaded = XLAProgram(compiled.program, placement.abstract_mesh)
    here = loaded.place(compiled.stored_arguments(*args))
    reference, there = _first_call(name, "jax")
    mesh = dict(placement.abstract_mesh.shape)
    moved, words = collectives.own_bytes(compiled)
    xla = collectives.xla_program(reference.as_text(), mesh).exchanges
    ours, xla_seconds = race(loaded.compiled(), here, reference, there, budget)
    return {"name": f"examples/{name}.py", "ours": ours, "xla": xla_seconds, "received": moved,
            "received_xla": collectives.received(xla), "collectives": len(words),
            "collectives_xla": len(xla)}


def start_processes(count: int) -> int:
    """This command in so many processes; the first one prints. Its exit status."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    flags = f"--xla_force_host_platform_device_count={8 // count}"
    started = [subprocess.Popen(
        [sys.executable, *sys.argv], stdout=None if i == 0 else subprocess.DEVNULL,
        env={**os.environ, "XLA_FLAGS": flags, "SHARDTRACE_NUM_DEVICES": "8",
             "BENCHMARK_PROCESS": f"{i} {count} {port}"}) for i in range(count)]
    return max(p.wait() for p in started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", help="programs whose name has this")
    parser.add_argument("--budget", type=float, default=1.0, help="seconds a program")
    parser.add_argument("--least", type=int, default=0, help="bytes that a device receives")
    parser.add_argument("--hardware", default="v5p",
                        help="whose time our plans are judged by; host: that of these devices")
    parser.add_argument("--objective", default="time", help="what our plans are judged by")
    parser.add_argument("--processes", type=int, default=1, help="among which the devices are, "
                        "connected by gloo over the loopback")
    parser.add_argument("--write", type=pathlib.Path)
    options = parser.parse_args()
    if options.processes > 1 and PROCESSES == 1:
        sys.exit(start_processes(options.processes))
    found = []
    st.config.update("shardtrace_hardware",
                     HOST if options.hardware == "host" else options.hardware)
    st.config.update("shardtrace_objective", options.objective)
    print(f"{'':44}{'ours':>9}{'XLA':>9}{'ratio':>7}{'bytes':>10}{'XLA':>10}  exchanges")
    jobs = [(case.name, functools.partial(measure, case, options.budget, options.least))
            for case in collectives.CASES if not case.name.startswith("examples/")]
    jobs += [(f"examples/{name}.py", functools.partial(measure_model, name, options.budget))
             for name in json.loads(LOSSES.read_text())]
    for name, job in jobs:
        row = job() if options.k in name else None
        if row is None:
            continue
        found.append(row)
        print(f"{row['name'][:43]:44}{row['ours'] * 1e3:7.2f}ms{row['xla'] * 1e3:7.2f}ms"
              f"{row['ours'] / row['xla']:7.2f}{row['received']:10,}{row['received_xla']:10,}"
              f"  {row['collectives']}, {row['collectives_xla']}", flush=True)
        if options.write:
            options.write.write_text(json.dumps(found, indent=1))
    ratios = [r["ours"] / r["xla"] for r in found]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"\n{len(found)} programs: geometric mean {mean:.2f}, "
              f"{sum(r > 1.1 for r in ratios)} over 1.1, {sum(r < 0.9 for r in ratios)} under 0.9")


if __name__ == "__main__":
    main()
