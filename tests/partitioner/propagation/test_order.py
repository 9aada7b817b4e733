"""Who has its way where values want different layouts: the specs that JAX 0.10.2 gives.

A function returns a value `h` whose spec is open, and something made of it whose spec is given.
`h` gets an axis from its operands or from what is made of it, whichever comes first.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

ROWS, COLUMNS, WHOLE = P("x"), P(None, "x"), P()
F32, I32 = "float32", "int32"
Argument = tuple[tuple[int, ...], P, str]


def spec_of(f: Callable[..., Any], made: Callable[[Any], Any], out: P, *args: Argument) -> P:
    """The spec of h = f(*args), where made(h) has the spec `out`."""
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))

    def both(*args: Any) -> Any:
        h = f(*args)
        return h, made(h)
    shapes = [st.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
              for shape, spec, dtype in args]
    lowered = st.jit(both, out_shardings=(None, NamedSharding(mesh, out))).lower(*shapes)
    return lowered.compile().output_shardings[0].spec


def all_pairs(a: Any, b: Any) -> Any:
    return jnp.einsum("ik,jk->ij", a, b)


def rows_of(table: Any, i: Any) -> Any:
    return table[i]


def wider(h: Any) -> Any:
    return jnp.pad(h, ((0, 0), (1, 0)))


def longer(h: Any) -> Any:
    return jnp.pad(h, ((1, 0), (0, 0)))


def product(h: Any) -> Any:
    return h @ jnp.ones((h.shape[1], 64))


@pytest.mark.parametrize("f, args, made, out, found", [
    (jnp.add, [((512, 256), ROWS, F32), ((512, 256), COLUMNS, F32)], jnp.tanh, ROWS, ROWS),
    (jnp.add, [((512, 256), ROWS, F32), ((512, 256), COLUMNS, F32)], jnp.tanh, COLUMNS, ROWS),
    (jnp.add, [((512, 256), COLUMNS, F32), ((512, 256), ROWS, F32)], jnp.tanh, ROWS, COLUMNS),
    (all_pairs, [((512, 256), ROWS, F32), ((1024, 256), ROWS, F32)], wider, ROWS, COLUMNS),
    (all_pairs, [((1024, 256), ROWS, F32), ((512, 256), ROWS, F32)], longer, COLUMNS, ROWS),
    (rows_of, [((512, 256), COLUMNS, F32), ((256,), ROWS, I32)], wider, ROWS, COLUMNS),
    (rows_of, [((8, 8), COLUMNS, F32), ((2048,), ROWS, I32)], longer, COLUMNS, ROWS),
    (rows_of, [((512, 256), ROWS, F32), ((256,), ROWS, I32)], product, WHOLE, ROWS)])
def test_the_larger_operand_has_its_way_and_of_a_draw_the_first(
        f: Any, args: Any, made: Any, out: P, found: P) -> None:
    assert spec_of(f, made, out, *args) == found


# what renames dimensions or keeps them is asked before products and lookups, the rest after them
EARLY: dict[str, tuple[Callable[[Any], Any], P]] = {
    "sin": (jnp.sin, ROWS), "transpose": (lambda h: h.T, COLUMNS),
    "reshape": (lambda h: h.reshape(512, 2, 512), ROWS),
    "broadcast by a dimension of 1": (lambda h: h[:, None], ROWS),
    "select": (lambda h: jnp.where(h > 0, h, 1.), ROWS), "clamp": (lambda h: h.clip(0, 1), ROWS),
    "convert": (lambda h: h.astype(jnp.bfloat16), ROWS),
    "softmax": (lambda h: nn.softmax(h, -1), ROWS),
    "while": (lambda h: lax.fori_loop(0, 3, lambda i, h: h * 2, h), ROWS),
    "cond": (lambda h: lax.cond(h[0, 0] > 0, lambda h: h * 2, lambda h: h, h), ROWS),
    "scan": (lambda h: lax.scan(lambda h, _: (h * 2, None), h, None, length=3)[0], ROWS),
    "bitcast": (lambda h: lax.bitcast_convert_type(h, jnp.int32), ROWS)}
LATE: dict[str, tuple[Callable[[Any], Any], P]] = {
    "pad": (wider, ROWS), "slice": (lambda h: h[:, :512], ROWS),
    "strided slice": (lambda h: h[:, ::2], ROWS), "reverse": (lambda h: h[:, ::-1], ROWS),
    "concatenate": (lambda h: jnp.concatenate([h, h], 1), ROWS),
    "dynamic slice": (lambda h: lax.dynamic_slice_in_dim(h, h[0, 0].astype(int), 512, 1), ROWS),
    "dynamic update": (lambda h: lax.dynamic_update_slice(h, jnp.ones((512, 8)), (0, 3)), ROWS),
    "sum": (lambda h: h.sum(1), ROWS), "cumsum": (lambda h: h.cumsum(1), ROWS),
    "sort": (lambda h: jnp.sort(h, 1), ROWS), "argmax": (lambda h: h.argmax(1), ROWS),
    "broadcast": (lambda h: jnp.broadcast_to(h[:, None], (512, 4, 1024)), ROWS),
    "pool": (lambda h: lax.reduce_window(h, 0., lax.add, (1, 2), (1, 2), "VALID"), ROWS),
    "product": (product, ROWS), "top_k": (lambda h: lax.top_k(h, 8)[0], ROWS),
    "split": (lambda h: jnp.split(h, 2, 1)[0], ROWS),
    "lookup": (lambda h: h[:, jnp.array([3, 1, 2, 8])], ROWS)}


@rows("name", [*EARLY, *LATE])
def test_what_is_asked_before_a_product_and_what_behind_it(name: str) -> None:
    made, out = (EARLY | LATE)[name]
    found = spec_of(all_pairs, made, out, ((512, 256), ROWS, F32), ((1024, 256), ROWS, F32))
    assert found == (ROWS if name in EARLY else COLUMNS)
