"""Values that branches take and give are laid out as the branches need them.

Propagation gives an operand one layout for all branches, in which none may need it: here rows whole
over y, since one of three products splits what it sums over. Each branch takes its part itself.
"""
from __future__ import annotations

import functools

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.settings.context import config
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

from ... import specs

MESH = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
struct = functools.partial(specs.struct, mesh=MESH)


def projected(which, a, b, c, x):
    branches = [lambda x: x @ a, lambda x: x @ b, lambda x: x @ c]
    return jnp.tanh(lax.switch(which, branches, x))


def skipped(keep, a, b, x):
    def norm(x):
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return lax.cond(keep, lambda x: x + jnp.tanh(norm(x) @ a) @ b, lambda x: x, x)


def projections(rows, width):
    return (st.ShapeDtypeStruct((), np.int32), struct((width, width), None, "y"),
            struct((width, width), "y"), struct((width, width)), struct((rows, width), "x"))


def layer(rows, width):
    return (st.ShapeDtypeStruct((), np.bool_), struct((width, 4 * width), None, "y"),
            struct((4 * width, width), "y"), struct((rows, width), "x"))


def test_a_branch_takes_its_part_of_an_operand():
    """The column-parallel product exchanges nothing, the other two what they have to."""
    with config.override(shardtrace_objective="time"):
        compiled = st.jit(projected).lower(*projections(8192, 1024)).compile()
    columns, rows, whole = next(e for e in compiled.stages["resharded"].eqns
                                if e.op.name == "cond").params["branches"]
    assert [e.op.name for e in columns.eqns] == ["dot_general"]
    assert "reshard" in rows.op_names
    assert {r.received_bytes for r in compiled.collectives()} <= {1024 * 256 * 3}


def test_a_result_leaves_as_the_branch_that_computes_makes_it():
    """In rows of their own for each device of y, which are gathered once, after it."""
    whole = st.NamedSharding(MESH, P())
    with config.override(shardtrace_objective="time"):
        compiled = st.jit(skipped, out_shardings=whole).lower(*layer(8192, 1024)).compile()
    branch = next(e for e in compiled.stages["resharded"].eqns if e.op.name == "cond")
    assert branch.outvars[0].aval.entries == (("x", "y"), ())


@pytest.mark.parametrize("f, args, chosen", [
    *[(projected, projections(16, 8), np.int32(n)) for n in range(3)],
    *[(skipped, layer(16, 8), np.bool_(b)) for b in (False, True)]])
def test_results_and_gradients_are_those_of_one_device(f, args, chosen):
    rng = np.random.default_rng(0)
    values = [chosen, *[rng.normal(size=a.shape).astype(np.float32) for a in args[1:]]]
    placed = [chosen, *[st.device_put(v, a.sharding) for v, a in zip(values[1:], args[1:],
                                                                     strict=True)]]

    def loss(*args):
        return (f(*args) ** 2).sum()
    for g in (f, st.grad(loss, argnums=tuple(range(1, len(args))))):
        want = g(*values)
        for executor in ("simulated", "per_device"):
            with config.override(shardtrace_engine=executor):
                got = st.jit(g)(*placed)
            for a, b in zip(st.tree.leaves(got), st.tree.leaves(want), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
