"""Programs whose types JAX has given: tests/golden/typed_programs.jsonl, one JSON object a line.

    mesh, axis_types    axis name -> size, in the order of the mesh; Explicit or Auto for each axis
    inputs              types of x0, x1, ..: `f32[8@x,16]`, `f32[8@(x,y),4]`
    program             statements over them, the last one `r = [..]`
    result              `types` and `weak` of the flattened results, or `error` (a class) and
                        `phrase` (the longest run of fixed words of its first paragraph)

Programs may use jax, jnp, lax, np, P and `A(shape, dtype, spec)`, zeros with that spec. Each is
traced under `set_mesh(mesh)`. `trace` takes the library as an argument, so that the same code asks
JAX (tests/record/typed_programs.py) and shardtrace (test_typed_programs.py).
"""
from __future__ import annotations

import importlib
import json
import re
from typing import Any

import numpy as np

from ..paths import GOLDEN

PATH = GOLDEN / "typed_programs.jsonl"
DTYPES = {"f32": np.float32, "i32": np.int32, "bool": np.bool_}
VARIABLE = re.compile(r"""\S*[\[\]{}@=<>"'0-9()|/\\]\S*|Got.*|This error occurs.*""")


def cases() -> list[dict[str, Any]]:
    return [json.loads(line) for line in PATH.read_text().splitlines()]


def phrase(message: str) -> str:
    """The longest run of words that do not depend on the operands."""
    first = " ".join(message.strip().split("\n\n")[0].split())[:600]
    return max((part.strip(" .,:;") for part in VARIABLE.sub("\0", first).split("\0")), key=len)


def trace(name: str, case: dict[str, Any]) -> dict[str, Any]:
    """What the library `name` makes of a case: {"types", "weak"} or {"raised": exception}."""
    lib, sharding = importlib.import_module(name), importlib.import_module(f"{name}.sharding")
    jnp = importlib.import_module(f"{name}.numpy")
    spec = sharding.PartitionSpec
    names = {"jax": lib, "jnp": jnp, "lax": importlib.import_module(f"{name}.lax"), "np": np,
             "P": spec, "A": lambda shape, dtype, s: lib.reshard(jnp.zeros(shape, dtype), s)}
    importlib.import_module(f"{name}.nn"), importlib.import_module(f"{name}.random")
    mesh = lib.make_mesh(tuple(case["mesh"].values()), tuple(case["mesh"]),
                         tuple(getattr(sharding.AxisType, t) for t in case["axis_types"]))

    def abstract(text: str) -> Any:
        dtype, dims = re.fullmatch(r"(\w+)\[(.*)\]", text).groups()
        sizes, entries = [], []
        for dim in re.split(r",(?![^(]*\))", dims) if dims else ():
            size, _, axes = dim.partition("@")
            sizes.append(int(size))
            entries.append(tuple(axes.strip("()").split(",")) if axes else None)
        return lib.ShapeDtypeStruct(tuple(sizes), DTYPES.get(dtype, jnp.bfloat16),
                                    sharding=sharding.NamedSharding(mesh, spec(*entries)))

    found: dict[str, Any] = {"types": [], "weak": []}

    def run(*args: Any) -> int:
        space = {**names, **{f"x{i}": a for i, a in enumerate(args)}}
        for line in case["program"]:
            exec(line, space)
        for leaf in lib.tree.leaves(space["r"]):
            t = lib.typeof(leaf)
            found["types"].append(str(t).lstrip("~"))
            found["weak"].append(bool(t.weak_type))
        return 0

    with lib.set_mesh(mesh):
        args = [abstract(t) for t in case["inputs"]]
        try:
            lib.eval_shape(run, *args)
        except Exception as e:
            return {"raised": e}
    return found
