"""What `tests/record/processes.py` and `test_processes.py` share: expressions of two processes.

Each line of tests/golden/processes.txt is an expression that both of two processes with 4 devices
each evaluate, one line after the other; what came of it in JAX at process 0 and at process 1 stands
behind it, separated by tabs: the repr, or `!` with an exception's class and first line.
"""
from __future__ import annotations

import re
from typing import Any

import numpy as np

from ...paths import GOLDEN

TABLE = GOLDEN / "processes.txt"


def names(jax: Any, jnp: Any, multihost_utils: Any) -> dict[str, Any]:
    """What the expressions are about, of `jax` or of what stands for it."""
    named, P = jax.sharding.NamedSharding, jax.sharding.PartitionSpec
    auto = jax.sharding.AxisType.Auto
    mesh = jax.make_mesh((8,), ("x",), axis_types=(auto,))
    grid = jax.make_mesh((2, 4), ("p", "d"), axis_types=(auto, auto))
    first = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("x",))
    rows, whole, half = named(mesh, P("x")), named(mesh, P()), named(first, P("x"))

    def numbers(n: int, sharding: Any = rows, **more: Any) -> Any:
        return jax.make_array_from_callback(
            (n,), sharding, lambda index: np.arange(n, dtype=np.float32)[index], **more)

    def part(y: Any) -> Any:
        return y.shape, str(y.sharding.spec), [np.asarray(s.data) for s in y.addressable_shards][:2]

    def with_mesh(f: Any) -> Any:
        with jax.set_mesh(mesh):
            y = f()
        return repr(y), str(y.sharding.spec)

    def donated() -> Any:
        y = numbers(16)
        z = jax.jit(lambda a: a + 1, donate_argnums=0)(y)
        return part(z), y.is_deleted()

    def deleted() -> Any:
        y = numbers(16)
        y.delete()
        return jnp.sin(y)

    def from_devices(me: int) -> Any:
        devices = mesh.local_devices
        data = np.arange(8, dtype=np.float32) + 8 * me
        arrays = jax.device_put(np.split(data, len(devices), axis=0), list(devices))
        return jax.make_array_from_single_device_arrays((16,), rows, arrays)

    return {"jax": jax, "jnp": jnp, "np": np, "mh": multihost_utils, "P": P, "mesh": mesh,
            "grid": grid, "rows": rows, "whole": whole, "half": half, "named": named,
            "numbers": numbers, "part": part, "with_mesh": with_mesh, "donated": donated,
            "deleted": deleted, "from_devices": from_devices, "x": numbers(16),
            "r": numbers(4, whole), "me": jax.process_index(), "f32": np.float32,
            "own": jax.local_devices()[0], "other": jax.devices()[7 - 7 * jax.process_index()],
            "single": jax.sharding.SingleDeviceSharding, "lax": jax.lax}


def rows() -> list[list[str]]:
    return [line.split("\t") for line in TABLE.read_text().splitlines()]


def outcome(expression: str, known: dict[str, Any]) -> str:
    """What comes of it, in one line."""
    try:
        text = repr(eval(expression, dict(known)))
    except Exception as e:
        first = str(e).split("\n")[0]
        # DeletedArrayError is both of the classes that JAX raises, which are RuntimeError here
        name = next(c.__name__ for c in type(e).__mro__ if c.__name__ != "DeletedArrayError")
        text = f"! {name}: {first}"
    # The ids of the second process's devices depend on the platform; sets print in any order.
    text = re.sub(r"\b20(4[89]|5[01])\b", lambda m: str(int(m[0]) - 2044), text)
    text = re.sub(r"\{(CpuDevice[^}]*)\}", lambda m: "{" + ", ".join(sorted(
        m[1].split(", "))) + "}", text)
    return re.sub(r"\s+", " ", text)
