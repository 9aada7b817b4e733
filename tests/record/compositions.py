"""Record what JAX gives for all towers of transformations: tests/golden/compositions.json.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 \\
        ORACLE -m tests.record.compositions [name ...]

With names of transformations, only the towers that have one of them are recorded again. ORACLE is
a Python interpreter that has jax 0.10.2. A program that JAX refuses has null.
"""
from __future__ import annotations

import json
import sys

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from ..tracer import compositions


def main(*names: str) -> None:
    tower = compositions.Tower(jax, jnp, lax, P)
    golden: dict[str, dict[str, list[float] | None]] = (
        json.loads(compositions.TABLE.read_text()) if names else {})
    for name, (shape, kinds) in compositions.MESHES.items():
        mesh = jax.make_mesh(shape, compositions.AXES,
                             axis_types=tuple(getattr(AxisType, kind) for kind in kinds))
        x = jax.device_put(compositions.argument(), NamedSharding(mesh, P("x")))
        rows = golden.setdefault(name, {})
        for word in compositions.WORDS + compositions.PAIRS:
            if names and not set(names) & set(word.split(".")):
                continue
            try:
                with jax.set_mesh(mesh):
                    result = jax.jit(tower.build(word))(x)
                rows[word] = [float(f"{v:.7g}") for v in compositions.summary(result)]
            except Exception as error:    # of typing, or of the compiler
                rows[word] = None
                print(name, word, type(error).__name__, str(error)[:200])
        print(name, len(rows), flush=True)
    text = ",\n".join(
        f'"{name}": {{\n' + ",\n".join(f'"{w}": {json.dumps(v)}' for w, v in rows.items()) + "}"
        for name, rows in golden.items())
    compositions.TABLE.write_text("{\n" + text + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
