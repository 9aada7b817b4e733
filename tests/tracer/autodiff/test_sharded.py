"""Derivatives on meshes: what the gradient is typed as, what its region looks like, placement."""
from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.verify import verify
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...executors import agree

F32 = np.float32
BLOCKS = np.linspace(-2, 1, 32).astype(F32).reshape(8, 4)
W = np.linspace(-1, 1, 4).astype(F32)


def mesh_of(kind: AxisType) -> Any:
    return st.make_mesh((4, 2), ("x", "y"), axis_types=(kind,) * 2)


# -- cotangent types -------------------------------------------------------------------------------

@pytest.mark.parametrize("spec", [P(), P("x"), P("x", "y"), P(None, "x"), P(("x", "y"))])
def test_a_gradient_is_sharded_as_its_argument(spec: P) -> None:
    with st.set_mesh(mesh_of(AxisType.Explicit)):
        x = st.device_put(np.ones((8, 8), F32), spec)
        for g in (st.grad(lambda t: jnp.sum(jnp.sin(t) * t))(x),
                  st.jit(st.grad(lambda t: jnp.mean(t**2)))(x)):
            assert st.typeof(g) is st.typeof(x)
            assert g.sharding.is_equivalent_to(x.sharding, 2)


def test_unreduced_and_reduced_change_places() -> None:
    with st.set_mesh(mesh_of(AxisType.Explicit)):
        x, w = st.device_put(BLOCKS, P("x")), st.device_put(np.eye(4, dtype=F32), P())
        reduced = st.reshard(w, P(reduced={"x"}))
        program = st.make_jaxpr(st.grad(lambda w: jnp.sum(x @ w)))(reduced)
        assert str(program.outvars[0].aval) == "float32[4,4]{U:x}"
        verify(program)
        with pytest.raises(ValueError, match="for argument to VJP function"):
            st.vjp(lambda w: w * 2, w)[1](st.device_put(w, P("x")))


def test_constants_of_a_derivative_live_on_the_mesh_of_the_arguments() -> None:
    mesh = mesh_of(AxisType.Explicit)
    x = st.device_put(BLOCKS, NamedSharding(mesh, P("x")))     # no context mesh
    g = st.grad(lambda t: jnp.sum(jnp.sin(t)))(x)
    assert g.sharding.mesh == mesh
    np.testing.assert_allclose(g, np.cos(BLOCKS), rtol=1e-6)


def test_auto_axes_inside_a_differentiated_function() -> None:
    with st.set_mesh(mesh_of(AxisType.Explicit)):
        x = st.device_put(BLOCKS, P("x"))
        f = st.auto_axes(lambda t: jnp.sin(t) * t, out_sharding=P("x"))
        for wrap in (lambda h: h, st.jit):
            g = wrap(st.grad(lambda t: jnp.sum(f(t))))(x)
            assert str(st.typeof(g)) == "float32[8@x,4]"
            np.testing.assert_allclose(g, np.cos(BLOCKS) * BLOCKS + np.sin(BLOCKS), rtol=1e-5)


def test_cotangents_from_other_modes_add_up_on_the_mesh_of_their_value() -> None:
    with st.set_mesh(mesh_of(AxisType.Explicit)):
        x = st.device_put(BLOCKS, P("x"))

        def f(t):
            y = t * 2
            return jnp.repeat(y, 2, 1).sum() + jnp.sin(y).sum()         # repeat works in Auto mode

        for wrap in (lambda h: h, st.jit):
            np.testing.assert_allclose(wrap(st.grad(f))(x), 4 + 2 * np.cos(2 * BLOCKS), rtol=1e-5)


# -- shard_map -------------------------------------------------------------------------------------

def region(check_vma: bool) -> Any:
    return functools.partial(st.shard_map, mesh=mesh_of(AxisType.Auto), check_vma=check_vma)


def loss(check_vma: bool) -> Any:
    def f(w, x):
        def body(w, x):
            c = jnp.sin((w * x).sum())
            return lax.psum(c * c, "x"), jnp.exp(c) * x
        a, b = region(check_vma)(body, in_specs=(P(), P("x")), out_specs=(P(), P("x")))(w, x)
        return a * b.sum()
    return f


def plain(w, x):
    parts = x.reshape(4, 2, 4)
    c = jnp.sin((w * parts).sum((1, 2)))
    return (c * c).sum() * (jnp.exp(c)[:, None, None] * parts).sum()


@pytest.mark.parametrize("check_vma", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("wrap", [lambda f: f, st.jit], ids=["eager", "jit"])
def test_a_region_is_differentiated_as_the_whole(check_vma: bool, wrap: Any) -> None:
    f = loss(check_vma)
    expected = st.grad(plain, argnums=(0, 1))(W, BLOCKS)
    for a, b in zip(wrap(st.grad(f, argnums=(0, 1)))(W, BLOCKS), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
    hvp = wrap(lambda w, x: st.jvp(lambda w: st.grad(f)(w, x), (w,), (w,))[1])(W, BLOCKS)
    other = st.jvp(lambda w: st.grad(plain)(w, BLOCKS), (W,), (W,))[1]
    np.testing.assert_allclose(hvp, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("check_vma", [True, False], ids=["checked", "unchecked"])
def test_a_region_stays_one_region_in_each_direction(check_vma: bool) -> None:
    program = st.make_jaxpr(st.grad(loss(check_vma), argnums=(0, 1)))(W, BLOCKS)
    regions = [e for e in program.eqns if e.op.name == "shard_map"]
    assert len(regions) == 2
    verify(program)
    forward, backward = (e.params["jaxpr"] for e in regions)
    assert not any(e.op.name == "cos" for e in backward.eqns)    # it is a residual
    sums = [e.op.name for e in backward.eqns if e.op.name.startswith("psum")]
    assert sums == ["psum_invariant"] if check_vma else "psum" in sums


def test_both_executors_agree_on_gradients() -> None:
    agree(st.grad(loss(True), argnums=(0, 1)), W, BLOCKS, rtol=2e-5)


def test_grad_inside_a_region_sums_over_what_its_argument_does_not_vary_over() -> None:
    def body(w, x):
        return st.grad(lambda w: jnp.sin(w * x).sum())(w)
    summed = region(True)(body, in_specs=(P(), P("x")), out_specs=P())(W, BLOCKS)
    expected = (np.cos(W * BLOCKS) * BLOCKS).sum(0)
    np.testing.assert_allclose(summed, expected, rtol=1e-5)
    alone = region(False)(body, in_specs=(P(), P("x")), out_specs=P("x"))(W, BLOCKS)
    np.testing.assert_allclose(np.asarray(alone).reshape(4, 4).sum(0), expected, rtol=1e-5)


def test_custom_rules_inside_a_region() -> None:
    f = st.custom_vjp(lambda x: jnp.sin(x))
    f.defvjp(lambda x: (f(x), x), lambda x, ct: (3 * ct * jnp.cos(x),))
    for g in (f, st.checkpoint(f), st.jit(f)):
        total = region(True)(lambda x, g=g: lax.psum(g(x).sum(), "x"), in_specs=P("x"),
                             out_specs=P())
        for wrap in (lambda h: h, st.jit):
            np.testing.assert_allclose(wrap(st.grad(total))(BLOCKS), 3 * np.cos(BLOCKS), rtol=1e-5)


@pytest.mark.parametrize("policy", [None, st.checkpoint_policies.everything_saveable])
def test_a_region_under_checkpoint_that_was_traced_before_names_its_mesh(policy) -> None:
    mesh = mesh_of(AxisType.Auto)
    sines = st.shard_map(lambda x: jnp.sin(x.sum())[None], mesh=mesh, in_specs=P("x"),
                         out_specs=P("x"), axis_names={"x", "y"})
    shift = st.device_put(np.arange(8, dtype=F32), NamedSharding(mesh, P("x")))
    x = jnp.arange(8.0)
    expected = np.repeat(np.cos(2 * np.arange(8.0).reshape(4, 2).sum(1)), 2)
    for f in (lambda x: sines(x + jnp.arange(8.0)), lambda x: sines(x + shift)):
        f = st.checkpoint(f, policy=policy)
        for again in (f, lambda x, f=f: f(x), st.jit(f), st.jit(lambda x, f=f: f(x))):
            out, pull = st.vjp(again, x)
            np.testing.assert_allclose(pull(jnp.ones_like(out))[0], expected, rtol=1e-5)
    twice = st.grad(lambda x: st.vjp(f, x)[1](jnp.ones(4))[0].sum())(x)
    np.testing.assert_allclose(
        twice, np.repeat(-2 * np.sin(2 * np.arange(8.0).reshape(4, 2).sum(1)), 2), rtol=1e-4)
