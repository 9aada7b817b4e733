"""How much is moved: bytes received per device, program by program, beside XLA and the best known.

    python benchmarks/collectives.py                 # shardtrace alone
    python benchmarks/collectives.py --jax           # and XLA's partitioner, where JAX is installed
    python benchmarks/collectives.py -k embedding    # some programs

Nothing is run: programs are compiled from shapes. XLA's figures come from the text of its optimised
per-device program, with the loop bodies multiplied by their trip counts.
"""
from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import re
import sys
from typing import Any

import partition_models  # noqa: F401 - adds its programs
from partition_programs import CASES, Case

DEVICES = 8
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


def _bytes(text: str) -> int:
    return sum(_SIZES.get(t, 4) * math.prod(map(int, dims.split(","))) if dims else
               _SIZES.get(t, 4) for t, dims in _SHAPE.findall(text))


def _group_size(line: str) -> int:
    match = re.search(r"replica_groups=\[(\d+),(\d+)\]", line)
    if match:
        return int(match[2])
    match = re.search(r"replica_groups=mesh\[(.*?)\].*?\{(.*?)\}", line)
    if match:                                   # the axes of a group, whole or in part
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", match[1]))
        return math.prod(int(part or sizes[axis])
                         for axis, part in re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", match[2]))
    match = re.search(r"replica_groups=\{\{([\d,]+)\}", line)
    return len(match[1].split(",")) if match else DEVICES


def xla_bytes(text: str) -> tuple[int, list[str]]:
    """Bytes received by the busiest device, and the collectives in words."""
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
    words: list[str] = []
    return _computation(bodies, entry, words, 1), words


def _computation(bodies: dict[str, list[str]], name: str, words: list[str], times: int) -> int:
    total = 0
    lines = bodies.get(name, [])
    for line in lines:
        match = re.match(r"\s*(ROOT )?%?([\w.\-]+) = (.*?) ([a-z\-]+)\((.*?)\)", line)
        if not match:
            continue
        result, op = match[3], match[4].removesuffix("-start")
        if op == "while":
            trips = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
            body = re.search(r"body=%?([\w.\-]+)", line)
            if body:
                total += _computation(bodies, body[1], words,
                                      times * (int(trips[1]) if trips else 1))
        elif op in ("call", "conditional", "fusion"):
            inside = r"(?:to_apply|calls|branch_computations)=\{?%?([\w.\-]+)"
            for inner in re.findall(inside, line):
                total += _computation(bodies, inner, words, times)
        elif op in _OPS:
            n, size = _group_size(line), _bytes(result)
            uses = [u for u in lines if re.search(rf"[(, ]%?{re.escape(match[2])}[,)]", u)]
            if op == "all-reduce":
                scattered = uses and all("dynamic-slice" in u for u in uses)
                moved = (1 if scattered else 2) * (n - 1) * size // n
            elif op == "all-gather":
                moved = size // n * (n - 1)
            elif op == "reduce-scatter":
                moved = size * (n - 1)
            elif op == "all-to-all":
                moved = size * (n - 1) // n
            else:
                pairs = re.findall(r"\{(\d+),(\d+)\}", line.split("source_target_pairs=")[-1])
                moved = size if any(a != b for a, b in pairs) else 0
            words.append(f"{times} x {op}[{size}]/{n}")
            total += times * moved
    return total


def own_bytes(compiled: Any) -> tuple[int, list[str]]:
    """Bytes received per device by a program of ours, and its collectives in words."""
    records = compiled.collectives()
    return sum(r.received_bytes * r.count for r in records), [
        f"{r.count} x {r.kind}[{r.received_bytes}]/{r.group_size}" for r in records]


def measure(name: str, wanted: str) -> dict[str, Any]:
    """Bytes (or the error) by program."""
    found: dict[str, Any] = {}
    for case in CASES:
        if wanted not in case.name:
            continue
        try:
            compiled = compile_case(case, name)
            found[case.name] = (own_bytes(compiled) if name == "shardtrace"
                                else xla_bytes(compiled.as_text()))
        except Exception as error:
            found[case.name] = (None, [f"{type(error).__name__}: {str(error).splitlines()[0]}"])
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jax", metavar="PYTHON", nargs="?", const=sys.executable,
                        help="also measure XLA's partitioner, by this Python")
    parser.add_argument("-k", default="", help="only programs whose name has this")
    parser.add_argument("-v", action="store_true", help="show the collectives")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure(options.only, options.k)))
        return
    own = measure("shardtrace", options.k)
    xla: dict[str, Any] = {}
    if options.jax:
        import subprocess
        environment = {**os.environ, "JAX_PLATFORMS": "cpu",
                       "XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}"}
        run = subprocess.run([options.jax, __file__, "--only", "jax", "-k", options.k],
                             capture_output=True, text=True, env=environment, check=True)
        xla = json.loads(run.stdout.splitlines()[-1])
    above = 0
    print(f"{'program':45} {'shardtrace':>11} {'XLA':>11} {'best':>11}")
    for case in CASES:
        if case.name not in own:
            continue
        bytes_, words = own[case.name]
        other, other_words = xla.get(case.name, (None, []))
        worse = [b for b in (other, case.best) if b is not None and (bytes_ is None or bytes_ > b)]
        above += bool(worse)
        print(f"{case.name:45} {bytes_!s:>11} {other!s:>11} {case.best!s:>11}"
              f"{'  <--' if worse else ''}")
        if options.v or bytes_ is None:
            print(f"      shardtrace: {'; '.join(words)}")
        if options.v and other_words:
            print(f"      XLA: {'; '.join(other_words)}")
    print(f"{above} of {len(own)} programs move more than XLA or than the best plan known")


if __name__ == "__main__":
    main()
