"""Every kind of exchange, on all engines."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, random
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

from .conftest import on_all

pytestmark = pytest.mark.every_engine
ROWS = (64, 24)
RING = [(i, (i + 1) % 8) for i in range(8)]


def in_region(f: Callable[..., Any], specs: Any = P("x"), out: Any = P("x")) -> Callable[..., Any]:
    return st.shard_map(f, in_specs=specs, out_specs=out, axis_names={"x"})


def _loop(x: Any, w: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.tanh(c @ w), c.sum()), x, None, length=3)


# name: (mesh sizes, function, shapes, specs of arguments, spec of the result or None, a collective
# that it is there for)
CASES: dict[str, tuple[Any, ...]] = {
    "sum": ((8,), lambda x, w: x @ w, [(16, 32), (32, 8)], [(None, "x"), ("x",)], (),
            "all-reduce over x"),
    "sum over two axes": ((2, 4), lambda x: x.sum(), [(16, 32)], [("x", "y")], (),
                          "all-reduce over x,y"),
    "small sums": ((8,), lambda x: (x.sum(0), (x * x).sum(0), x.max(0)), [(16, 32)], [("x",)],
                   None, ""),
    "maximum": ((2, 4), lambda x: x.max(1), [(16, 32)], [("x", "y")], ("x",),
                "all-reduce over y"),
    "scattered maximum": ((2, 4), lambda x: x.max(0), [(16, 32)], [("x", "y")], (("y", "x"),),
                          "reduce-scatter over x"),
    "scattered product": ((8,), lambda x: x.prod(0), [(16, 32)], [("x",)], ("x",),
                          "reduce-scatter over x"),
    "gather": ((2, 4), lambda x: x + 1, [(16, 32)], [("x", "y")], ("x",), "all-gather over y"),
    "scattered sum": ((8,), lambda x, w: x @ w, [(16, 32), (32, 8)], [(None, "x"), ("x",)],
                      ("x",), "reduce-scatter over x"),
    "transposed layout": ((8,), lambda x: x + 1, [(16, 32)], [("x",)], (None, "x"),
                          "all-to-all over x"),
    "axes exchanged": ((2, 4), lambda x: x * 2, [(16, 16)], [("x", "y")], ("y", "x"),
                       "collective-permute over pairs"),
    "an axis of one device": ((8, 1), lambda x: x * 2, [(16, 16)], [(("x", "y"),)], (("y", "x"),),
                              ""),
    "two dimensions at once": ((2, 4), lambda x: x * 2, [(8, 8, 8, 8)], [("x", "y")],
                               (None, None, "x", "y"), ""),
    "part of an axis": ((8,), lambda x: x.reshape(2, 8, 4), [(16, 4)], [("x",)], None, ""),
    "shifted rows": ((8,), lambda x: x[1:] - x[:-1], [(512, 2048)], [("x",)], None,
                     "collective-permute over pairs"),
    "joined rows": ((8,), lambda x, y: jnp.concatenate([x, y]), [ROWS, (8, 24)], [("x",), ("x",)],
                    ("x",), "collective-permute over pairs"),
    "roll": ((8,), lambda x: jnp.roll(x, 3, 0), [ROWS], [("x",)], ("x",),
             "collective-permute over pairs"),
    "stencil": ((8,), lambda x: lax.conv_general_dilated(
        x[None], jnp.ones((3, 24, 8)), (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")),
        [ROWS], [("x",)], (None, "x"), "collective-permute over pairs"),
    "own block": ((8,), lambda x: x * 2, [ROWS], [()], ("x",), None),
    "random bits": ((8,), lambda x: x * random.normal(random.key(0), ROWS), [ROWS], [("x",)],
                    ("x",), None),
    "ring": ((8,), in_region(lambda x: lax.ppermute(x, "x", RING)), [ROWS], [("x",)], None,
             "collective-permute over pairs"),
    "groups": ((8,), st.shard_map(
        lambda x: lax.psum(x, "x", axis_index_groups=[[0, 1, 2, 3], [4, 5, 6, 7]]),
        in_specs=P("x"), out_specs=P("x"), axis_names={"x"}, check_vma=False),
        [ROWS], [("x",)], None, "all-reduce over x"),
    "loop": ((8,), _loop, [(16, 32), (32, 32)], [(None, "x"), ("x",)], None, ""),
    "branch": ((8,), lambda x: lax.cond(jnp.sum(x) > 0, lambda x: x.sum(0), lambda x: x[0], x),
               [ROWS], [("x",)], None, "all-reduce over x"),
    "cumulative sum": ((8,), lambda x: jnp.cumsum(x, 0), [ROWS], [("x",)], ("x",), ""),
    "sort": ((8,), lambda x: jnp.sort(x, 0), [ROWS], [("x",)], ("x",), ""),
    "rows looked up": ((8,), lambda x: x[jnp.arange(40) * 7 % 64], [ROWS], [("x",)], None, ""),
}


def lowered_case(name: str) -> tuple[Any, list[Any]]:
    """A case as a lowered function, and arguments for it."""
    sizes, f, shapes, specs, out, _ = CASES[name]
    mesh = st.make_mesh(sizes, ("x", "y")[:len(sizes)])
    rng = np.random.default_rng(0)
    args = [st.device_put(rng.standard_normal(s).astype(np.float32), NamedSharding(mesh, P(*spec)))
            for s, spec in zip(shapes, specs, strict=True)]
    wanted = {} if out is None else {"out_shardings": NamedSharding(mesh, P(*out))}
    with st.set_mesh(mesh):
        return st.jit(f, **wanted).lower(*args), args


@pytest.mark.parametrize("name", CASES)
def test_exchanges_give_the_same_on_all_engines(name: str, jax: Any) -> None:
    lowered, args = lowered_case(name)
    compiled = lowered.compile(engine="simulated")
    on_all(compiled.program, compiled.runtime_executable().placement.abstract_mesh,
           compiled.stored_arguments(*args))
