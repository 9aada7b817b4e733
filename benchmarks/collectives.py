"""What plans cost, program by program, compared with XLA: modelled time, bytes, operations, memory.

    python benchmarks/collectives.py                 # beside what was recorded of XLA
    python benchmarks/collectives.py --jax PYTHON    # and XLA's partitioner itself, by that Python
    python benchmarks/collectives.py -k embedding    # some programs
    python benchmarks/collectives.py --hardware h100 --objective bytes
    python benchmarks/collectives.py --gpu           # beside XLA's compiler of GPUs
    python benchmarks/collectives.py --random 7 100 --jax PYTHON    # programs drawn by a seed
    python benchmarks/collectives.py --larger 16 --jax PYTHON       # sizes as models have them

Nothing is run: programs are compiled from shapes. Columns: bytes received per device of ours, of
XLA and of the best plan known; the others as parts of XLA's: operations, memory at the peak, that
besides the arguments, and modelled time on each hardware, for which the plan is made anew (all else
is of the plan for the first one).

What XLA exchanges and computes comes from the text of its optimised per-device program (hlo.py),
and both times from the same cost model, exchanges and computation one after the other. XLA computes
its products, and all else as our program for `objective="xla"` does where that exchanges as much;
elsewhere as our program does, or less by as much as it has fewer operations there. Its own reads
and writes are those of the compiler of CPUs, which fuses otherwise. The compiler of GPUs (`--gpu`)
goes further: it adds before it sums, and combines exchanges of all kinds without a copy. Of it
exchanges and memory are taken, which one GPU suffices to record.
"""
from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any

from hlo import DEVICES, Exchange, xla_program
from partition import CASES, Case
from partition.drawn import drawn

RECORDED = pathlib.Path(__file__).parent.parent / "tests" / "golden" / "partition_programs.json"
RECORDED_ON_GPU = RECORDED.with_name("partition_programs_gpu.json")
HARDWARE = ("v5p", "h100")
SAME = 1.005                    # what differs by less is the same
REPEATED = 0.75                 # XLA's share of operations, from which down ours are repeated
FLOPS, PEAK, FASTER = 1.05, 1.1, 0.95       # of XLA's; more needs a time that is less by 5%
_PARTS = {"all-gather": lambda n: n - 1, "all-reduce": lambda n: 2 * (n - 1) / n,
          "reduce-scatter": lambda n: (n - 1) / n, "all-to-all": lambda n: (n - 1) / n,
          "collective-permute": lambda n: 1}


def _built(case: Case, name: str) -> tuple[Any, Any, Any, Any, list[Any]]:
    """(library, mesh, spec -> sharding, function, arguments) of a case."""
    lib = importlib.import_module(name)
    jnp, lax = (importlib.import_module(f"{name}.{part}") for part in ("numpy", "lax"))
    sharding = importlib.import_module(f"{name}.sharding")
    P, kinds = sharding.PartitionSpec, sharding.AxisType
    kind = kinds.Explicit if case.explicit else kinds.Auto
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


def jitted_case(case: Case, name: str) -> tuple[Any, Any, list[Any]]:
    """(the jitted function of a case by the library `name`, its mesh, its arguments)."""
    lib, mesh, placed, f, args = _built(case, name)
    with lib.set_mesh(mesh):
        nested = isinstance(case.out, tuple) and case.out and isinstance(case.out[0], tuple) \
            and all(isinstance(s, tuple) for s in case.out) and not _is_spec(f, args, lib)
        out = tuple(map(placed, case.out)) if nested else placed(case.out or ())
        return lib.jit(f, out_shardings=out), mesh, args


def compile_case(case: Case, name: str) -> Any:
    """The compiled program of a case, by the library `name`."""
    jitted, mesh, args = jitted_case(case, name)
    with importlib.import_module(name).set_mesh(mesh):
        return jitted.lower(*args).compile()


def _is_spec(f: Any, args: Any, lib: Any) -> bool:
    """Whether `out` is one spec with a tuple of axes in it, not a tuple of specs."""
    return not isinstance(lib.eval_shape(f, *args), (tuple, list))


# -- XLA ------------------------------------------------------------------------------------------
def xla_record(case: Case) -> dict[str, Any]:
    """What XLA makes of a case, in the process of JAX."""
    compiled = compile_case(case, "jax")
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    found = xla_program(compiled.as_text(), case.mesh)
    results = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return {"exchanges": found.exchanges, "flops": (cost.get("flops") or 0) + found.repeated,
            "products": [[times, *product] for product, times in found.products.items()],
            "arguments": memory.argument_size_in_bytes,
            "peak": memory.argument_size_in_bytes + results + memory.temp_size_in_bytes}


def larger(cases: list[Case], factor: int) -> list[Case]:
    """The cases with those of their sizes that are multiples of 32 as many times as large."""
    return [replace(case, args=tuple([
        (tuple([n if n % 32 else n * factor for n in sizes]), *rest)
        for sizes, *rest in case.args])) for case in cases]


def _records(cases: list[Case], skips: bool) -> dict[str, Any]:
    """What XLA makes of the cases. skips: leave out those that it fails on, as of a few that are
    drawn, and of larger ones whose functions name sizes.
    """
    found = {}
    for case in cases:
        try:
            found[case.name] = xla_record(case)
        except Exception as error:
            if not skips:
                raise
            print(f"{case.name}: {str(error)[:200]}", file=sys.stderr)
    return found


def received(exchanges: list[Exchange]) -> int:
    """Bytes that the busiest device receives."""
    return round(sum(times * size * _PARTS[kind](n) for times, kind, _, n, size in exchanges))


def exchange_seconds(exchanges: list[Exchange], mesh: dict[str, int], hardware: str) -> float:
    """Seconds of the exchanges one after the other, by our cost model."""
    links = importlib.import_module("shardtrace.partitioner.cost.links")
    topology = importlib.import_module("shardtrace.partitioner.cost.topology").Topology.of(
        hardware, mesh)
    return sum(times * links.collective_seconds(
        topology, kind, axes, n, size, size) for times, kind, axes, n, size in exchanges)


# -- both -----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Plan:
    """Of one device: bytes received, operations, bytes at the peak and of them the arguments'."""
    seconds: float
    received: int
    flops: float
    peak: int
    arguments: int
    words: tuple[str, ...] = ()

    @property
    def held(self) -> int:
        """Bytes at the peak besides the arguments."""
        return max(0, self.peak - self.arguments)


def plans(case: Case, xla: dict[str, Any], hardware: str = "v5p", compiled: Any = None,
          as_xla: Any = None) -> tuple[Plan, Plan]:
    """Our plan of a case, made for the hardware, and that of XLA. compiled: for it, by us. as_xla:
    by us with the objective "xla", which is the same for all hardware.
    """
    config = importlib.import_module("shardtrace").config
    if compiled is None:
        with config.override(shardtrace_hardware=hardware):
            compiled = compile_case(case, "shardtrace")
    found = compiled.explain(hardware)
    moved, words = own_bytes(compiled)
    device = found.topology.hardware
    _, rest, operations = _computation(found.partitioned.local, device)
    theirs = sum(times * (max(flops / device.peak_of("float32"), size / device.hbm) + device.kernel)
                 for times, flops, size in xla["products"])
    flops = compiled.cost_analysis()["flops"]
    less = (xla["flops"] - sum(n * f for n, f, _ in xla["products"])) / max(1, flops - operations)
    if as_xla is None:
        with config.override(shardtrace_objective="xla"):
            as_xla = compile_case(case, "shardtrace")
    moved_there = received(xla["exchanges"])
    if own_bytes(as_xla)[0] == moved_there:
        rest = _computation(as_xla.explain(hardware).partitioned.local, device)[1]
    elif moved != moved_there and 0.9 / DEVICES < less < REPEATED:     # as many kernels, smaller
        smaller = _computation(found.partitioned.local, device.replace(kernel=0.0))[1]
        rest -= (1 - less) * smaller
    computed = theirs + rest
    own = Plan(found.times.communication + found.times.compute, moved, flops,
               compiled.memory_analysis().peak_memory_in_bytes, xla["arguments"], tuple(words))
    exchanged = exchange_seconds(xla["exchanges"], case.mesh, hardware)
    return own, Plan(exchanged + computed, moved_there, xla["flops"], xla["peak"],
                     xla["arguments"],
                     tuple(f"{t} x {k}[{n}] {','.join(a)}" for t, k, a, _, n in xla["exchanges"]))


def _computation(program: Any, device: Any) -> tuple[float, float, float]:
    """Of a per-device program the seconds of its products and of all else that it computes, and the
    operations of its products.
    """
    work = importlib.import_module("shardtrace.partitioner.cost.work")
    kernels = importlib.import_module("shardtrace.partitioner.cost.kernels").kernels
    grouped, found = kernels(program, device.keeps_rows), (0.0, 0.0, 0.0)
    for eqn in program.eqns:
        inner = [_computation(p, device) for p in work.bodies(eqn)]
        more = (0.0, 0.0, 0.0)
        if inner:
            more = tuple(work.trips(eqn) * (max if eqn.op.name == "cond" else sum)(part)
                         for part in zip(*inner, strict=True))
        else:
            seconds = work.equation_seconds(eqn, grouped, device)
            product = eqn.op.arithmetic and work.info_of(eqn).is_product and not _of_vectors(eqn)
            more = (seconds, 0.0, work.equation_flops(eqn)) if product else (0.0, seconds, 0.0)
        found = tuple(a + b for a, b in zip(found, more, strict=True))
    return found


def _of_vectors(eqn: Any) -> bool:
    """Is it a product of vectors, or of a batch of them? XLA multiplies and sums instead."""
    numbers = eqn.params.get("dimension_numbers")
    return eqn.op.name == "dot_general" and eqn.outvars[0].aval.ndim == len(numbers[1][0])


def own_bytes(compiled: Any) -> tuple[int, list[str]]:
    """Bytes received per device by a program of ours, and its collectives in words."""
    records = compiled.collectives()
    return sum(r.received_bytes * r.count for r in records), [
        f"{r.count} x {r.kind}[{r.received_bytes}]/{r.group_size}" for r in records]


def recorded_by(python: str, which: list[str], gpu: bool = False) -> dict[str, Any]:
    """XLA's plans of the cases that these options name, made now by that Python. gpu: by the
    compiler of GPUs, for one that is there and seven like it.
    """
    # kernels are not tuned: that work is shared by the devices, of which seven are not there
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
                   "XLA_FLAGS": "--xla_gpu_autotune_level=0 --xla_gpu_shard_autotuning=false"
                   } if gpu else {
        **os.environ, "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}"}
    run = subprocess.run([python, __file__, "--only-jax", *which, *["--gpu"] * gpu],
                         capture_output=True, text=True, env=environment, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def above(own: Plan, xla: Plan) -> list[str]:
    """What of our plan is above the bars: time, operations, memory at the peak."""
    found = ["time"] if own.seconds > SAME * xla.seconds else []
    if own.seconds >= FASTER * xla.seconds:
        found += ["FLOPs"] if own.flops > SAME * FLOPS * xla.flops > 0 else []
        found += ["peak"] if own.peak > SAME * PEAK * xla.peak else []
    return found


def _part(own: float, xla: float) -> float | None:
    return own / xla if xla > 0 else None


def _summary(rows: list[dict[str, float | None]], bars: dict[str, float]) -> None:
    """Geometric means of all columns, and how many programs are above the bars; of those with more
    operations or memory, how many are faster on the hardware that the plans were made for.
    """
    first = next(name for name in rows[0] if name in HARDWARE)
    for name, bar in bars.items():
        found = [(r[name], r[first] or 1.0) for r in rows]
        known = [(n, t) for n, t in found if n is not None]
        logs = [math.log(n) for n, _ in known if n > 0]
        mean = math.exp(sum(logs) / max(1, len(logs)))
        above = sum(n > SAME * bar for n, _ in known)
        excused = sum(n > SAME * bar and t < FASTER for n, t in known)
        more = f", {excused} of them faster by 5%" if bar in (FLOPS, PEAK) else ""
        print(f"{name}: {mean:.3f} of XLA's (geometric mean of {len(logs)}), "
              f"above {bar} in {above} of {len(known)}{more}")


def _options() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jax", metavar="PYTHON", nargs="?", const=sys.executable,
                        help="measure XLA's partitioner anew, by this Python")
    parser.add_argument("--gpu", action="store_true",
                        help="beside XLA for GPUs; with --jax this needs one")
    parser.add_argument("-k", default="", help="only programs whose name has this")
    parser.add_argument("-v", action="store_true", help="show the exchanges")
    parser.add_argument("--random", metavar=("SEED", "COUNT"), type=int, nargs=2,
                        help="programs drawn by this seed instead; with --jax")
    parser.add_argument("--larger", metavar="TIMES", type=int, default=1,
                        help="sizes that are multiples of 32 by so much; with --jax")
    parser.add_argument("--hardware", default=",".join(HARDWARE), help="for whose time (default "
                        f"{','.join(HARDWARE)})")
    parser.add_argument("--objective", default="time", help="what plans are judged by: time, bytes")
    parser.add_argument("--only-jax", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.measured = bool(options.random or options.larger > 1)
    if options.measured and not options.jax and not options.only_jax:
        parser.error("nothing is recorded of programs at random or larger: add --jax PYTHON")
    return options


def _row(case: Any, own: Any, xla: Any, times: dict[str, float | None], verbose: bool
         ) -> dict[str, float | None]:
    """Print the line of a program; returns its ratios. times: those of plans, by hardware."""
    row = {"bytes": 1.0 if own.received == xla.received else _part(own.received, xla.received),
           "FLOPs": _part(own.flops, xla.flops), "peak": _part(own.peak, xla.peak),
           "temps": _part(own.held, xla.held), **times}
    shown = {k: "-" if v is None else f"{v:.2f}" for k, v in row.items()}
    slower = any((t or 0) > SAME for t in times.values())
    print(f"{case.name[:42]:42} {own.received:10} {xla.received:10} "
          f"{case.best if case.best is not None else '-':>10} {shown['FLOPs']:>6} "
          f"{shown['peak']:>5} {shown['temps']:>5} "
          f"{' '.join(f'{shown[d]:>6}' for d in times)}{'  <--' if slower else ''}")
    if verbose:
        if case.text:
            print(f"      {case.mesh}, {case.args} -> {case.out}")
            print("      " + case.text.replace("\n", "\n      "))
        print(f"      shardtrace: {'; '.join(own.words)}\n      XLA: {'; '.join(xla.words)}")
    return row


def main() -> None:
    """Print the table."""
    options = _options()
    cases = larger([case for case in (drawn(*options.random) if options.random else CASES)
                    if options.k in case.name], options.larger)
    which = ["-k", options.k, "--larger", str(options.larger),
             *(["--random", *map(str, options.random)] if options.random else [])]
    if options.only_jax:
        if options.gpu:
            importlib.import_module("jax").config.update("jax_mock_gpu_topology", f"1x{DEVICES}x1")
        print(json.dumps(_records(cases, skips=options.measured)))
        return
    recorded = (recorded_by(options.jax, which) if options.jax and not options.gpu
                else json.loads(RECORDED.read_text()))
    cases = [case for case in cases if case.name in recorded or not options.measured]
    if options.gpu:
        found = (recorded_by(options.jax, which, True) if options.jax
                 else json.loads(RECORDED_ON_GPU.read_text()))
        recorded = {name: {**recorded[name], "exchanges": made["exchanges"], "peak": made["peak"]}
                    for name, made in found.items()}
        cases = [case for case in cases if case.name in recorded]
    importlib.import_module("shardtrace").config.update("shardtrace_objective", options.objective)
    devices = options.hardware.split(",")
    print(f"{'program':42} {'bytes':>10} {'XLA':>10} {'best':>10} {'FLOPs':>6} {'peak':>5} "
          f"{'temps':>5} {' '.join(f'{d:>6}' for d in devices)}")
    rows: list[dict[str, float | None]] = []
    for case in cases:
        pairs = [plans(case, recorded[case.name], d) for d in devices]
        times = {d: _part(a.seconds, b.seconds) for d, (a, b) in zip(devices, pairs, strict=True)}
        rows.append(_row(case, *pairs[0], times, options.v))
    _summary(rows, {**dict.fromkeys((*devices, "bytes"), 1.0), "FLOPs": FLOPS, "peak": PEAK,
                    "temps": PEAK})


if __name__ == "__main__":
    main()
