"""Plans by objective="xla" compared with XLA's: kinds, mesh axes and counts of all exchanges.

    python benchmarks/xla_plans.py                   # beside what was recorded of XLA
    python benchmarks/xla_plans.py --jax PYTHON      # and XLA itself, by that Python with JAX
    python benchmarks/xla_plans.py -k block -a       # some programs, those that agree too
    python benchmarks/xla_plans.py --random 11 100 --jax PYTHON    # programs drawn by a seed

Programs are those of partition_*.py, and the training steps of examples/. Counts are those of the
optimised program of eight CPU devices, loops multiplied by their trips, all-reduces after XLA has
joined them. An all-reduce of which all that is read is each device's own block counts as the
reduce-scatter that it becomes on other devices; CPU has none. Where plans agree, and without such a
sum, memory at the peak is compared too: the model with what XLA's compiler assigns.
"""
from __future__ import annotations

import argparse
import collections
import functools
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import collectives
import hlo
from collectives import CASES, DEVICES
from partition.drawn import drawn

ROOT = pathlib.Path(__file__).parent.parent
RECORDED = ROOT / "tests" / "golden" / "xla_plans.json"
Plan = collections.Counter[str]         # by kind and axes, "all-reduce x,y"


EXAMPLES = {f"examples/{path.name}": path for path in sorted((ROOT / "examples").glob("*.py"))
            if "def train_step(" in path.read_text() and path.stem != "autoshard"}


class _Compiled(Exception):
    """Raised in place of running a step: (compiled program, mesh axes by name)."""


def _example(path: pathlib.Path, library: str) -> Any:
    """The compiled training step of an example, and its mesh axes by name."""
    source = re.sub(r"^(import|from) shardtrace\b", rf"\1 {library}", path.read_text(), flags=re.M)
    scope: dict[str, Any] = {"__name__": path.stem}
    exec(compile(source, path, "exec"), scope)
    step = scope["train_step"]

    def compile_step(*args: Any) -> None:
        raise _Compiled(step.lower(*args).compile(), dict(scope["mesh"].shape))
    scope["train_step"] = compile_step
    try:
        scope["main"](steps=1)
    except _Compiled as found:
        return found.args
    raise AssertionError(f"{path} runs no step")


def programs(pattern: str, random: tuple[int, int] | None = None) -> list[str]:
    """The programs whose name has this. random: those drawn by a seed, and how many, instead."""
    chosen = drawn(*random) if random else CASES
    _CASES.update({case.name: case for case in chosen})
    names = [*(case.name for case in chosen), *(() if random else EXAMPLES)]
    return [name for name in names if pattern in name]


def compiled(name: str, library: str) -> tuple[Any, dict[str, int]]:
    """A program compiled by a library, and its mesh axes by name."""
    if name in EXAMPLES:
        return _example(EXAMPLES[name], library)
    case = _CASES[name]
    return collectives.compile_case(case, library), case.mesh


_CASES = {case.name: case for case in CASES}


# -- XLA ------------------------------------------------------------------------------------------
def plan_of_hlo(text: str, mesh: dict[str, int]) -> Plan:
    """The exchanges of an optimised HLO module; of a conditional those of all branches, as the
    collectives of a program of shardtrace are.
    """
    bodies, entry = hlo.parse(text)
    found: Plan = collections.Counter()
    for times, body, at in hlo.executed(bodies, entry):
        axes = ",".join(sorted(hlo.axes_of(at.text, mesh))) if at.kind in hlo.KINDS else ""
        for kind in _kinds(bodies, body, at) if axes else ():
            found[f"{kind} {axes}"] += times
    return found


def _kinds(bodies: hlo.Bodies, body: str, at: hlo.Instruction) -> list[str]:
    """What an exchange is: of a joint all-reduce, all that is scattered apart."""
    if at.kind != "all-reduce":
        return [at.kind]
    parts = hlo.cut_parts(bodies, body, at)
    return ["reduce-scatter"] * sum(parts) + ["all-reduce"] * (not all(parts))


def xla_plan(name: str) -> Plan:
    """What XLA makes of a program, in the process of JAX."""
    found, mesh = compiled(name, "jax")
    return plan_of_hlo(found.as_text(), mesh)


# -- shardtrace -----------------------------------------------------------------------------------
def own_plan(name: str) -> Plan:
    """What shardtrace makes of a program by objective="xla"; of parts of an axis, the axis."""
    found: Plan = collections.Counter()
    for record in own_program(name).collectives():
        axes = sorted({a.partition(":")[0] for a in record.mesh_axes})
        found[f"{record.kind} {','.join(axes)}"] += record.count
    return found


@functools.cache
def own_program(name: str) -> Any:
    """A program compiled by shardtrace for objective="xla"."""
    with importlib.import_module("shardtrace").config.override(shardtrace_objective="xla"):
        return compiled(name, "shardtrace")[0]


def peak_ratios(plans: dict[str, Plan]) -> dict[str, float]:
    """By program the bytes that a device holds at the peak, as parts of what was recorded of XLA's.
    plans: those that agree.
    """
    recorded = json.loads(collectives.RECORDED.read_text())
    return {name: own_program(name).memory_analysis().peak_memory_in_bytes / recorded[name]["peak"]
            for name, plan in plans.items()
            if name in recorded and not any(what.startswith("reduce-scatter") for what in plan)}


def words(plan: Plan) -> str:
    """A plan in words."""
    return "; ".join(f"{n} x {what}" for what, n in sorted(plan.items())) or "nothing"


def main() -> None:
    """Print what differs, and the share that agrees."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jax", metavar="PYTHON", nargs="?", const=sys.executable,
                        help="ask XLA anew, by this Python")
    parser.add_argument("-k", default="", help="only programs whose name has this")
    parser.add_argument("-a", action="store_true", help="show those that agree too")
    parser.add_argument("--record", action="store_true", help="keep what XLA says")
    parser.add_argument("--random", metavar=("SEED", "COUNT"), type=int, nargs=2,
                        help="programs drawn by this seed instead; with --jax")
    parser.add_argument("--only-jax", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = programs(options.k, options.random)
    if options.only_jax:
        print(json.dumps({name: xla_plan(name) for name in names}))
        return
    if options.random and (options.record or not options.jax):
        parser.error("nothing is recorded of programs at random: --jax PYTHON, without --record")
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    if options.jax:
        environment = {**os.environ, "JAX_PLATFORMS": "cpu",
                       "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}"}
        which = ["--random", *map(str, options.random)] if options.random else []
        run = subprocess.run([options.jax, __file__, "--only-jax", "-k", options.k, *which],
                             capture_output=True, text=True, env=environment, check=True)
        recorded |= json.loads(run.stdout.splitlines()[-1])
        if options.record:
            rows = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in recorded.items()]
            RECORDED.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    agreed: dict[str, Plan] = {}
    for name in names:
        own, xla = own_plan(name), collections.Counter(recorded[name])
        if own == xla:
            agreed[name] = own
        if options.a or own != xla:
            print(f"{'  ' if own == xla else '! '}{name}\n      shardtrace: {words(own)}"
                  f"\n      XLA:        {words(xla)}")
    print(f"{len(agreed)} of {len(names)} plans agree "
          f"({100 * len(agreed) / max(1, len(names)):.1f}%)")
    ratios = peak_ratios(agreed)
    for part in (0.05, 0.1) if ratios else ():
        within = sum(abs(ratio - 1) <= part for ratio in ratios.values())
        print(f"peak memory within {part:.0%} of XLA's in {within} of {len(ratios)} of them "
              f"({within / len(ratios):.1%})")
    if options.a:
        for name, ratio in sorted(ratios.items(), key=lambda item: item[1]):
            print(f"{ratio:6.3f} {name}")


if __name__ == "__main__":
    main()
