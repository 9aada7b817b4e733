"""What users meet besides a quiet machine: a cold process, an edited program, a busy neighbour.

    python situations.py cold|edit|busy|alone LIBRARY        one process, one answer in JSON

`cold` is the program of the README, from the library's import to its first result. `edit` is a step
of a transformer block traced again: with another number in it, and with another line. `busy` is a
step of small products beside a process that computes without end, `alone` the same without it.
"""
from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from suite.library import GRID, Library, Placed, map_tree, normal
from suite.programs import transformer

ROUNDS = 9
KINDS = {"cold": "import to first result, README",
         "cold modules": "the same, modules loaded",
         "trace again": "trace of a block's step, as before",
         "another number": "the same, another number in it",
         "another line": "the same, another line in it",
         "alone": "small products",
         "busy": "small products beside a busy process"}
SOURCE = """\
def make(lib, block):
    def loss(w, x):
        y = {number} * block(lib, w, x)
        {line}
        return (y ** 2).mean()
    def step(w, x):
        g = lib.root.grad(loss)(w, x)
        return {{k: w[k] - {number} * g[k] for k in w}}
    return step
"""


def first_result(library: str) -> dict[str, float]:
    """Processor seconds, and modules, of which numpy's are no part."""
    before, start = len(sys.modules), time.process_time()
    root = importlib.import_module(library)
    jnp = importlib.import_module(f"{library}.numpy")
    sharding = importlib.import_module(f"{library}.sharding")
    mesh = root.make_mesh((2, 4), ("data", "model"), axis_types=(sharding.AxisType.Auto,) * 2)

    def put(x: np.ndarray, *spec: Any) -> Any:
        return root.device_put(x, sharding.NamedSharding(mesh, sharding.PartitionSpec(*spec)))
    layer = root.jit(lambda x, w: jnp.tanh(x @ w))
    root.block_until_ready(layer(put(np.ones((8, 16), np.float32), "data", "model"),
                                 put(np.ones((16, 32), np.float32), "model", None)))
    return {"cold": time.process_time() - start, "cold modules": len(sys.modules) - before}


def _block(library: str, width: int) -> tuple[Library, tuple[Any, ...]]:
    lib, rng = Library(library, GRID, True), np.random.default_rng(0)
    x = Placed(normal(rng, 4, width // 2, width), ("X",))
    return lib, (transformer.weights(rng, width, 4), x)


def retrace(library: str) -> dict[str, float]:
    """Processor seconds of a trace, the median of some."""
    lib, arguments = _block(library, 64)
    with lib.context():
        args = map_tree(lib.put, arguments)

        def traced(number: float = 0.5, line: str = "pass", known: Any = None) -> float:
            names: dict[str, Any] = {}
            if known is None:
                exec(compile(SOURCE.format(number=number, line=line), "step.py", "exec"), names)
                known = names["make"](lib, transformer.block)
            f = lib.root.jit(lambda w, x: known(w, x))
            start = time.process_time()
            f.trace(*args)
            return time.process_time() - start
        names: dict[str, Any] = {}
        exec(compile(SOURCE.format(number=0.5, line="pass"), "step.py", "exec"), names)
        step = names["make"](lib, transformer.block)
        for _ in range(2):
            traced(known=step)
        lines = [f"y = y + {i} * lib.jnp.tanh(y)" if i % 2 else f"y = lib.jnp.sin(y) * {i}"
                 for i in range(2, ROUNDS + 2)]
        return {"trace again": statistics.median(traced(known=step) for _ in lines),
                "another number": statistics.median(traced(1 / i) for i in range(3, ROUNDS + 3)),
                "another line": statistics.median(traced(line=line) for line in lines)}


def small_products(library: str, kind: str = "alone") -> dict[str, float]:
    """Seconds by the clock of a step's run, the median of some."""
    lib, arguments = _block(library, 128)
    with lib.context():
        args = map_tree(lib.put, arguments)
        f = lib.root.jit(lib.root.grad(lambda w, x: (transformer.block(lib, w, x) ** 2).mean()))
        found = []
        for _ in range(4 * ROUNDS):
            start = time.perf_counter()
            lib.root.block_until_ready(f(*args))
            found.append(time.perf_counter() - start)
        return {kind: statistics.median(found[3:])}


def small_products_under_load(library: str) -> dict[str, float]:
    """`small_products` while another process keeps a core busy."""
    neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        return small_products(library, "busy")
    finally:
        neighbour.kill()
        neighbour.wait()


def situations(pythons: dict[str, str], rounds: int) -> dict[str, dict[str, float]]:
    """By row the seconds (or modules) of each library, medians of processes that take turns.

    shardtrace's small products also on one thread of BLAS, as a library of its own.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for kind in ("cold", "edit", "alone", "busy"):
            for library, python in pythons.items():
                if library not in ("shardtrace", "jax"):
                    continue
                threads: tuple[str, ...] = ("", "1") if kind in ("alone", "busy") and (
                    library == "shardtrace") else ("",)
                for count in threads:
                    for row, value in _in_new_process(python, kind, library, count).items():
                        name = f"{library}, one BLAS thread" if count else library
                        found.setdefault(row, {}).setdefault(name, []).append(value)
    return {row: {library: statistics.median(values) for library, values in by.items()}
            for row, by in found.items()}


def _in_new_process(python: str, kind: str, library: str, threads: str) -> dict[str, float]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"SHARDTRACE_NUM_DEVICES": "8", "JAX_PLATFORMS": "cpu",
                    "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        environment.pop(name, None)
        if threads:
            environment[name] = threads
    done = subprocess.run([python, __file__, kind, library], env=environment, check=True,
                          stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    subjects = {"cold": first_result, "edit": retrace, "alone": small_products,
                "busy": small_products_under_load}
    print(json.dumps(subjects[sys.argv[1]](sys.argv[2])))
