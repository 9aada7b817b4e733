"""What is exchanged, program by program, beside XLA: bytes received per device, modelled time.

    python benchmarks/collectives.py                 # beside what was recorded of XLA
    python benchmarks/collectives.py --jax PYTHON    # and XLA's partitioner itself, by that Python
    python benchmarks/collectives.py -k embedding    # some programs
    python benchmarks/collectives.py --hardware h100 --objective bytes

Nothing is run: programs are compiled from shapes. XLA's exchanges come from the text of its
optimised per-device program, with the loop bodies multiplied by their trip counts; their time is
that of the same cost model. The time of both is that of all exchanges and of the computation of our
program, one after the other; what XLA computes otherwise shows in the operations, which it counts
once in loops.
"""
from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import numpy as np
import partition_models  # noqa: F401 - adds its programs
from partition_programs import CASES, Case

DEVICES = 8
RECORDED = pathlib.Path(__file__).parent.parent / "tests" / "golden" / "partition_programs.json"
SAME = 1.001                    # times that differ by less are the same
_SIZES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8,
          "u64": 8, "f64": 8, "c64": 8}


def _built(case: Case, name: str) -> tuple[Any, Any, Any, Any, list[Any]]:
    """(library, mesh, spec -> sharding, function, arguments) of a case."""
    lib = importlib.import_module(name)
    jnp, lax = (importlib.import_module(f"{name}.{part}") for part in ("numpy", "lax"))
    sharding = importlib.import_module(f"{name}.sharding")
    P, kind = sharding.PartitionSpec, sharding.AxisType.Auto
    mesh = lib.make_mesh(tuple(case.mesh.values()), tuple(case.mesh),
                         axis_types=(kind,) * len(case.mesh))

    def placed(spec: Any) -> Any:
        return sharding.NamedSharding(mesh, P(*spec))
    args = [lib.ShapeDtypeStruct(a[0], a[2] if len(a) > 2 else "float32", sharding=placed(a[1]))
            for a in case.args]
    return lib, mesh, placed, case.make(lib, jnp, lax, P), args


def open_specs(case: Case, name: str) -> list[list[list[str]]]:
    """Per result, the axes of its dimensions where nobody asks for any."""
    lib, mesh, _, f, args = _built(case, name)
    with lib.set_mesh(mesh):
        compiled = lib.jit(f).lower(*args).compile()
        results = lib.tree.leaves(lib.eval_shape(f, *args))
    found = []
    for sharding, result in zip(lib.tree.leaves(compiled.output_shardings), results, strict=True):
        entries = (*sharding.spec, *[None] * (len(result.shape) - len(sharding.spec)))
        found.append([[e] if isinstance(e, str) else list(e or ()) for e in entries])
    return found


def compile_case(case: Case, name: str) -> Any:
    """The compiled program of a case, by the library `name`."""
    lib, mesh, placed, f, args = _built(case, name)
    nested = isinstance(case.out, tuple) and case.out and isinstance(case.out[0], tuple) \
        and all(isinstance(s, tuple) for s in case.out) and not _is_spec(case, f, args, lib)
    out = tuple(map(placed, case.out)) if nested else placed(case.out or ())
    with lib.set_mesh(mesh):
        return lib.jit(f, out_shardings=out).lower(*args).compile()


def _is_spec(case: Case, f: Any, args: Any, lib: Any) -> bool:
    """Whether `out` is one spec with a tuple of axes in it, not a tuple of specs."""
    return not isinstance(lib.eval_shape(f, *args), (tuple, list))


# -- XLA ------------------------------------------------------------------------------------------
_SHAPE = re.compile(r"([a-z]+\d*)\[([\d,]*)\]")
_OPS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_PARTS = {"all-gather": lambda n: n - 1, "all-reduce": lambda n: 2 * (n - 1) / n,
          "reduce-scatter": lambda n: (n - 1) / n, "all-to-all": lambda n: (n - 1) / n,
          "collective-permute": lambda n: 1}

# (how often, kind, mesh axes, members of a group, bytes of one device's operand)
Exchange = tuple[int, str, list[str], int, int]


def _bytes(text: str) -> int:
    return sum(_SIZES.get(t, 4) * math.prod(map(int, dims.split(","))) if dims else
               _SIZES.get(t, 4) for t, dims in _SHAPE.findall(text))


def _group(line: str) -> list[int]:
    """The devices of the first replica group; of a permutation those of its pairs."""
    devices = np.arange(DEVICES)
    match = re.search(r"replica_groups=\{\{([\d,]+)\}", line)
    if match:
        return [int(i) for i in match[1].split(",")]
    match = re.search(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", line)
    if match:
        order = devices.reshape([int(n) for n in match[3].split(",")])
        if match[4]:
            order = order.transpose([int(n) for n in match[4].split(",")])
        return order.reshape(int(match[1]), int(match[2]))[0].tolist()
    match = re.search(r"replica_groups=mesh\[(.*?)\].*?\{(.*?)\}", line)
    if match:                                   # the axes of a group, whole or in part
        order = re.search(r"device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\)", line)
        if order:
            devices = devices.reshape([int(n) for n in order[1].split(",")])
            if order[2]:
                devices = devices.transpose([int(n) for n in order[2].split(",")])
        parts = {name: (int(before or 1), int(size or 0)) for name, before, size in
                 re.findall(r"'(\w+)'(?::\((\d+)\)(\d+))?", match[2])}
        sizes: list[int] = []
        free: list[Any] = []
        for name, n in re.findall(r"'(\w+)'=(\d+)", match[1]):
            before, size = parts.get(name, (int(n), 1))
            size = size or int(n)
            sizes += [before, size, int(n) // (before * size)]
            free += [0, slice(None), 0]
        return devices.reshape(sizes)[tuple(free)].ravel().tolist()
    return sorted({int(i) for pair in _pairs(line) for i in pair})


def _pairs(line: str) -> list[tuple[str, str]]:
    return re.findall(r"\{(\d+),(\d+)\}", line.split("source_target_pairs=")[-1])


def _axes(line: str, mesh: dict[str, int]) -> list[str]:
    """The mesh axes along which the members of a group differ."""
    sizes = tuple(mesh.values())
    pairs = _pairs(line) if "source_target_pairs" in line else [(i, _group(line)[0])
                                                                for i in _group(line)]
    places = [(np.unravel_index(int(i), sizes), np.unravel_index(int(j), sizes)) for i, j in pairs]
    return [name for d, name in enumerate(mesh) if any(a[d] != b[d] for a, b in places)]


def xla_exchanges(text: str, mesh: dict[str, int]) -> list[Exchange]:
    """The exchanges of an optimised HLO module of one device."""
    bodies: dict[str, list[str]] = {}
    entry = current = ""
    for line in text.split("\n"):
        head = re.match(r"(ENTRY )?%?([\w.\-]+) (\(.*)?\{?.*\{$", line)
        if head and not line.startswith(" "):
            current = head[2]
            bodies[current] = []
            entry = current if head[1] else entry
        elif current:
            bodies[current].append(line)
    found: list[Exchange] = []
    _walk(bodies, entry, mesh, found, 1)
    return found


def _walk(bodies: dict[str, list[str]], name: str, mesh: dict[str, int], found: list[Exchange],
          times: int) -> None:
    lines = bodies.get(name, [])
    for line in lines:
        match = re.match(r"\s*(ROOT )?%?([\w.\-]+) = (.*?) ([a-z\-]+)\((.*?)\)", line)
        if not match:
            continue
        result, kind = match[3], match[4].removesuffix("-start")
        if kind == "while":
            trips = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
            body = re.search(r"body=%?([\w.\-]+)", line)
            if body:
                _walk(bodies, body[1], mesh, found, times * (int(trips[1]) if trips else 1))
        elif kind in ("call", "conditional", "fusion"):
            inside = r"(?:to_apply|calls|branch_computations)=\{?%?([\w.\-]+)"
            for inner in re.findall(inside, line):
                _walk(bodies, inner, mesh, found, times)
        elif kind in _OPS:
            n, size = len(_group(line)), _bytes(result)
            if kind == "all-gather":
                size //= n
            elif kind == "reduce-scatter":
                size *= n
            elif kind == "all-reduce":          # each device cuts its block: a reduce-scatter
                uses = [u for u in lines if re.search(rf"[(, ]%?{re.escape(match[2])}[,)]", u)]
                if uses and all("dynamic-slice" in u for u in uses):
                    kind = "reduce-scatter"
            elif kind == "collective-permute" and all(a == b for a, b in _pairs(line)):
                continue
            axes = _axes(line, mesh)
            if kind == "collective-permute":    # whose group is whoever the axes connect
                n = math.prod(mesh[a] for a in axes)
            found.append((times, kind, axes, n, size))


def xla_record(case: Case) -> dict[str, Any]:
    """What XLA makes of a case, in the process of JAX."""
    compiled = compile_case(case, "jax")
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    return {"exchanges": xla_exchanges(compiled.as_text(), case.mesh),
            "flops": cost.get("flops") or 0,
            "peak": (memory.argument_size_in_bytes + memory.output_size_in_bytes
                     + memory.temp_size_in_bytes - memory.alias_size_in_bytes)}


def received(exchanges: list[Exchange]) -> int:
    """Bytes that the busiest device receives."""
    return round(sum(times * size * _PARTS[kind](n) for times, kind, _, n, size in exchanges))


def seconds(exchanges: list[Exchange], mesh: dict[str, int], hardware: str) -> float:
    """Seconds of the exchanges one after the other, by our cost model."""
    links = importlib.import_module("shardtrace.partitioner.cost.links")
    topology = importlib.import_module("shardtrace.partitioner.cost.topology").Topology.of(
        hardware, mesh)
    return sum(times * links.collective_seconds(
        topology, kind, axes, n, size, size) for times, kind, axes, n, size in exchanges)


# -- shardtrace -----------------------------------------------------------------------------------
def own_record(case: Case, hardware: str = "v5p") -> dict[str, Any]:
    """What shardtrace makes of a case: bytes, seconds, operations, peak memory, exchanges."""
    compiled = compile_case(case, "shardtrace")
    found = compiled.explain(hardware)
    return {"bytes": found.received_bytes, "compute": found.times.compute,
            "communication": found.times.communication, "peak": found.peak_bytes,
            "flops": compiled.cost_analysis()["flops"], "words": own_bytes(compiled)[1]}


def own_bytes(compiled: Any) -> tuple[int, list[str]]:
    """Bytes received per device by a program of ours, and its collectives in words."""
    records = compiled.collectives()
    return sum(r.received_bytes * r.count for r in records), [
        f"{r.count} x {r.kind}[{r.received_bytes}]/{r.group_size}" for r in records]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jax", metavar="PYTHON", nargs="?", const=sys.executable,
                        help="measure XLA's partitioner anew, by this Python")
    parser.add_argument("-k", default="", help="only programs whose name has this")
    parser.add_argument("-v", action="store_true", help="show the exchanges")
    parser.add_argument("--hardware", default="v5p", help="for whose time (default v5p)")
    parser.add_argument("--objective", default="time", help="what plans are judged by: time, bytes")
    parser.add_argument("--only-jax", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = [case for case in CASES if options.k in case.name]
    if options.only_jax:
        print(json.dumps({case.name: xla_record(case) for case in cases}))
        return
    recorded = json.loads(RECORDED.read_text())
    if options.jax:
        environment = {**os.environ, "JAX_PLATFORMS": "cpu",
                       "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}"}
        run = subprocess.run([options.jax, __file__, "--only-jax", "-k", options.k],
                             capture_output=True, text=True, env=environment, check=True)
        recorded = json.loads(run.stdout.splitlines()[-1])
    config = importlib.import_module("shardtrace").config
    config.update("shardtrace_objective", options.objective)
    config.update("shardtrace_hardware", options.hardware)
    print(f"{'program':42} {'us':>8} {'XLA':>8} {'bytes':>9} {'XLA':>9} {'best':>9} "
          f"{'FLOPs':>6} {'peak':>5}")
    times, sizes = [], []
    for case in cases:
        own, xla = own_record(case, options.hardware), recorded[case.name]
        other = seconds(xla["exchanges"], case.mesh, options.hardware) + own["compute"]
        mine = own["communication"] + own["compute"]
        moved = received(xla["exchanges"])
        times.append((mine, other))
        sizes.append((own["bytes"], moved))
        operations = f"{own['flops'] / xla['flops']:6.2f}" if xla["flops"] else "     -"
        print(f"{case.name[:42]:42} {mine * 1e6:8.2f} {other * 1e6:8.2f} {own['bytes']:9} "
              f"{moved:9} {case.best if case.best is not None else '-':>9} {operations} "
              f"{own['peak'] / xla['peak']:5.2f}{'  <--' if mine > SAME * other else ''}")
        if options.v:
            print(f"      shardtrace: {'; '.join(own['words'])}")
            words = [f"{t} x {k}[{n}] {','.join(a)}" for t, k, a, _, n in xla["exchanges"]]
            print(f"      XLA: {'; '.join(words)}")
    for what, pairs in (("time", times), ("bytes", sizes)):
        ratios = [math.log(a / b) for a, b in pairs if a and b]
        mean = math.exp(sum(ratios) / max(1, len(ratios)))
        above = sum(a > SAME * b for a, b in pairs)
        print(f"{what}: {mean:.3f} of XLA's (geometric mean), above it in {above} of {len(pairs)}")


if __name__ == "__main__":
    main()
