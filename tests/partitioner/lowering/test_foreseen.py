"""What loops come to vary over is foreseen where that is plain, as lowering finds it by itself."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.lax as lax
import shardtrace.numpy as jnp
from shardtrace.partitioner.lowering import region_bodies
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

RING = [(i, (i + 1) % 4) for i in range(4)]


def ring(x):
    def body(i, c):
        total, block = c
        return total + block * 2, lax.ppermute(block, "x", RING)
    zeros = lax.pcast(jnp.zeros(x.shape, x.dtype), "x", to="varying")
    return lax.fori_loop(0, 4, body, (zeros, x))[0]


def kept(x):
    """A carry that its type says varies, but that is the same everywhere."""
    one = lax.pcast(jnp.ones((), x.dtype), "x", to="varying")
    return lax.fori_loop(0, 3, lambda i, c: (c[0], c[1] * c[0]), (one, x))[1]


def summed(x):
    def body(i, c):
        return c[0] + lax.psum(c[1], "x"), c[1] + 1
    return lax.fori_loop(0, 3, body, (jnp.zeros(x.shape, x.dtype), x))[1]


def nested(x):
    def body(i, c):
        return lax.fori_loop(0, 2, lambda j, d: d + x, c)
    return lax.fori_loop(0, 3, body, lax.pcast(jnp.zeros(x.shape, x.dtype), "x", to="varying"))


def until(x):
    def more(c):
        return c[1].sum() < 100
    zeros = lax.pcast(jnp.zeros((), x.dtype), "x", to="varying")
    return lax.while_loop(more, lambda c: (c[0] + 1, c[1] + 1), (zeros, x))[1]


def in_shard_map(f):
    return lambda mesh: st.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))


def scanned(mesh):
    def f(x):
        return lax.scan(lambda c, row: (c + row, c), jnp.zeros(x.shape[1:], x.dtype), x)
    return f


CASES = {f.__name__: in_shard_map(f) for f in (ring, kept, summed, nested, until)} | {
    "scanned": scanned}


def local(name, kind):
    mesh = st.make_mesh((4,), ("x",), axis_types=(kind,))
    spec = P(None, "x") if name == "scanned" else P("x")
    x = st.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(mesh, spec))
    st.clear_caches()
    return st.jit(CASES[name](mesh)).lower(x).compile().as_text()


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_foreseen_changes_no_program(name, kind, monkeypatch):
    found = local(name, kind)
    monkeypatch.setattr(region_bodies, "_result_states", lambda *given: given[-1])
    assert local(name, kind) == found


def test_a_body_whose_carry_starts_as_zeros_is_lowered_once(monkeypatch):
    lowered = []
    body = region_bodies._body

    def counted(out, region, p, states):
        before = len(out.bodies)
        found = body(out, region, p, states)
        lowered.append(len(out.bodies) - before)
        return found
    monkeypatch.setattr(region_bodies, "_body", counted)
    local("ring", AxisType.Auto)
    assert sum(lowered) == 1
