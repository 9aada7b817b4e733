"""Derivatives are the same in JAX and here: values, types (shardings and weakness), errors."""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy
import shardtrace.tree_util

from ...rows import rows

jax = pytest.importorskip("jax")

with contextlib.suppress(RuntimeError):
    jax.config.update("jax_num_cpu_devices", 8)

F32 = np.float32
V = np.array([0.5, -1.0, 2.0], F32)
X = np.linspace(-1, 2, 12).astype(F32).reshape(3, 4)
W = np.linspace(1, -2, 20).astype(F32).reshape(4, 5)
BLOCKS = np.linspace(-2, 1, 32).astype(F32).reshape(8, 4)
Case = Callable[[Any], Any]       # of the library, jax or shardtrace


def outcome(case: Case, lib: Any) -> Any:
    """Leaves as (type, value), or the exception's class and the start of its text."""
    try:
        leaves = lib.tree_util.tree_leaves(case(lib))
    except Exception as e:
        text = str(e).replace("shardtrace.", "jax.")     # the library that was called
        return type(e).__name__, " ".join(text.split())[:55]
    return [(f"float0{x.shape}", None) if np.asarray(x).dtype.kind == "V"
            else (str(lib.typeof(x)), np.asarray(x)) for x in leaves]


def check(case: Case) -> None:
    ours, theirs = outcome(case, st), outcome(case, jax)
    if isinstance(ours, tuple) or isinstance(theirs, tuple):
        assert ours == theirs
        return
    assert [t for t, _ in ours] == [t for t, _ in theirs]
    for (_, a), (_, b) in zip(ours, theirs, strict=True):
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=3e-5, atol=2e-6)


# -- without a mesh --------------------------------------------------------------------------------

def custom_jvp(L: Any) -> Any:
    f = L.custom_jvp(lambda a, b: L.numpy.sin(a) * b)
    f.defjvp(lambda p, t: (f(*p), L.numpy.cos(p[0]) * t[0] * p[1] * 10 + L.numpy.sin(p[0]) * t[1]))
    return f


def custom_vjp(L: Any) -> Any:
    f = L.custom_vjp(lambda a, b: L.numpy.sin(a) * b)
    f.defvjp(lambda a, b: (f(a, b), (L.numpy.cos(a), b, 3)),
             lambda r, g: (r[0] * g * r[1] * 10 * r[2], None))
    return f


def jitted_square(L: Any) -> Any:
    return L.jit(lambda x: L.numpy.sum(L.numpy.sin(x) * x))


CASES: dict[str, Case] = {
    "grad": lambda L: L.grad(lambda p: L.numpy.tanh(X @ p[0] + p[1]).sum())((W, W[0])),
    "value_and_grad": lambda L: L.value_and_grad(lambda x: L.numpy.sum(L.numpy.exp(x) * 2))(X),
    "python number": lambda L: L.grad(lambda x: x**2 if x > 0 else -x)(3.0),
    "thrice": lambda L: L.grad(L.grad(L.grad(lambda x: L.numpy.sin(x) * x**3)))(1.5),
    "through jit": lambda L: L.grad(L.jit(L.grad(lambda x: L.jit(L.numpy.sin)(x) * x**3)))(1.5),
    "jit of grad of jit": lambda L: L.jit(L.grad(jitted_square(L)))(X),
    "jvp of jit": lambda L: L.jvp(L.jit(lambda a, b: (a * b, a)), (V, V), (V, V * 2)),
    "integers": lambda L: L.grad(lambda i, y: (i * y).sum(), allow_int=True, argnums=(0, 1))(
        np.arange(3), V),
    "vjp": lambda L: L.vjp(lambda a, b: {"x": a * b, "y": a + b}, V, V)[1]({"x": V, "y": V}),
    "aux": lambda L: L.grad(lambda a: (a.sum(), {"k": a * 2, "n": 3}), has_aux=True)(V),
    "linearize": lambda L: L.linearize(lambda a: L.numpy.sin(a) * a.sum(), V)[1](V),
    "linear_transpose": lambda L: L.linear_transpose(lambda a: 2 * a.sum(), V)(1.0),
    "holomorphic": lambda L: L.grad(lambda z: z**2, holomorphic=True)(2 + 1j),
    "complex": lambda L: L.grad(lambda z: L.numpy.abs(z) ** 2)(L.numpy.complex64(2 + 1j)),
    "constant": lambda L: L.grad(lambda a: 1.0)(V),
    "bfloat16": lambda L: L.grad(lambda a: L.numpy.sum(a.astype("bfloat16") * 2).astype(F32))(V),
    "jacfwd": lambda L: L.jacfwd(lambda a, b: {"q": a * b.sum()}, argnums=(0, 1))(V, W),
    "jacrev": lambda L: L.jacrev(lambda a, b: {"q": a * b.sum()}, argnums=(0, 1))(V, W),
    "hessian": lambda L: L.hessian(lambda v: L.numpy.sum(v**3) * v[0])(V),
    "vmap of grad": lambda L: L.vmap(L.grad(lambda a: L.numpy.sin(a).sum()))(X),
    "grad of vmap": lambda L: L.grad(lambda a: L.vmap(
        lambda r: L.numpy.sin(r).sum() * r)(a).sum())(X),
    "custom_jvp": lambda L: (L.grad(custom_jvp(L), (0, 1))(1.0, 2.0), L.jit(
        L.grad(L.grad(custom_jvp(L))))(1.0, 2.0), L.vmap(L.grad(custom_jvp(L)))(V, V)),
    "custom_vjp": lambda L: (L.grad(custom_vjp(L), (0, 1))(1.0, 2.0), L.jit(
        L.grad(L.grad(custom_vjp(L))))(1.0, 2.0), L.vmap(L.grad(custom_vjp(L)))(V, V)),
    "custom_vjp forward": lambda L: L.jvp(custom_vjp(L), (1.0, 2.0), (1.0, 2.0)),
    "checkpoint": lambda L: L.grad(L.grad(L.checkpoint(
        lambda a: L.numpy.sin(L.numpy.sin(a)))))(1.0),
    "checkpoint keeping dots": lambda L: L.jit(L.grad(L.checkpoint(
        lambda a: L.numpy.sin(L.numpy.sin(a @ W) @ W.T).sum(),
        policy=L.checkpoint_policies.dots_saveable)))(X),
    "not a scalar": lambda L: L.grad(lambda a: a)(V),
    "integer": lambda L: L.grad(lambda a: a)(3),
    "complex result": lambda L: L.grad(lambda a: a)(2j),
    "integer result": lambda L: L.grad(lambda a: L.numpy.int32(a))(2.0),
    "argnums": lambda L: L.grad(lambda a: a, argnums=2)(2.0),
    "jvp trees": lambda L: L.jvp(lambda a: a, (V,), ((V,),)),
    "jvp dtypes": lambda L: L.jvp(lambda a: a, (V,), (np.ones(3, np.int32),)),
    "jvp shapes": lambda L: L.jvp(lambda a: a, (V,), (np.ones(2, F32),)),
    "cotangent": lambda L: L.vjp(lambda a: a, V)[1](np.ones(2, F32)),
    "cotangent tree": lambda L: L.vjp(lambda a: a, V)[1]((V,)),
    "string result": lambda L: L.grad(lambda a: "x")(1.0),
}


@rows("name", CASES)
def test_as_in_jax(name: str) -> None:
    check(CASES[name])


# -- shard_map -------------------------------------------------------------------------------------

def total(L: Any, region: Any) -> Any:
    P = L.sharding.PartitionSpec
    return lambda w, x: region(
        lambda w, x: L.lax.psum(L.numpy.sin((w * x).sum()), "x"), in_specs=(P(), P("x")),
        out_specs=P())(w, x)


def blocks(L: Any, region: Any, wrap: Any = lambda f: f) -> Any:
    P = L.sharding.PartitionSpec
    return lambda w, x: L.numpy.sum(region(
        wrap(lambda w, x: L.numpy.tanh(L.numpy.sin(w * x)) * w.sum()), in_specs=(P(), P("x")),
        out_specs=P("x"))(w, x) ** 2)


def exchanges(L: Any, region: Any) -> Any:
    P, jnp, lax = L.sharding.PartitionSpec, L.numpy, L.lax

    def body(w, x):
        everything = lax.all_gather(x, "x", tiled=True)
        moved = lax.ppermute(jnp.sin(x), "x", [(i, (i + 1) % 4) for i in range(4)])
        return lax.psum_scatter(jnp.cos(everything) * w, "x", tiled=True) * moved + x

    return lambda w, x: jnp.sum(region(body, in_specs=(P(), P("x")), out_specs=P("x"))(w, x) * 2)


def numbers(L: Any, region: Any) -> Any:
    """Residuals are numbers of which each device has its own."""
    P, jnp, lax = L.sharding.PartitionSpec, L.numpy, L.lax

    def body(w, x):
        c = jnp.sin(x.sum())
        return c**2 * jnp.exp(x[:, 0]), lax.pmean(jnp.cos(c) * w.sum(), "x")

    def loss(w, x):
        a, b = region(body, in_specs=(P(), P("x")), out_specs=(P("x"), P()))(w, x)
        return a.sum() * b
    return loss


REGIONS: dict[str, Any] = {
    "grad": lambda L, r, w, x: L.grad(total(L, r), (0, 1))(w, x),
    "grad of blocks": lambda L, r, w, x: L.grad(blocks(L, r), (0, 1))(w, x),
    "jit inside": lambda L, r, w, x: L.grad(blocks(L, r, L.jit), (0, 1))(w, x),
    "checkpoint inside": lambda L, r, w, x: L.grad(blocks(L, r, L.checkpoint), (0, 1))(w, x),
    "exchanges": lambda L, r, w, x: L.value_and_grad(exchanges(L, r), (0, 1))(w, x),
    "numbers": lambda L, r, w, x: L.grad(numbers(L, r), (0, 1))(w, x),
    "jvp": lambda L, r, w, x: L.jvp(blocks(L, r), (w, x), (w, x)),
    "jvp of grad": lambda L, r, w, x: L.jvp(lambda w: L.grad(total(L, r))(w, x), (w,), (w,)),
    "grad of grad": lambda L, r, w, x: L.grad(lambda w: L.grad(total(L, r))(w, x).sum())(w),
    "grad inside": lambda L, r, w, x: r(
        lambda w, x: L.grad(lambda y: L.numpy.sin(w * y).sum())(x),
        in_specs=(L.sharding.PartitionSpec(), L.sharding.PartitionSpec("x")),
        out_specs=L.sharding.PartitionSpec("x"))(w, x),
}


@pytest.mark.skipif(len(jax.devices()) < 8, reason="needs 8 devices")
@pytest.mark.parametrize("name", REGIONS)
@pytest.mark.parametrize("kind,check_vma", [
    ("auto", True), ("auto", False), ("explicit", True)], ids=["auto", "unchecked", "explicit"])
def test_regions_as_in_jax(name: str, kind: str, check_vma: bool) -> None:
    def case(L: Any) -> Any:
        axis = L.sharding.AxisType.Explicit if kind == "explicit" else L.sharding.AxisType.Auto
        mesh = L.make_mesh((4, 2), ("x", "y"), axis_types=(axis,) * 2)
        region = functools.partial(L.shard_map, mesh=mesh, check_vma=check_vma)
        w, x = W.ravel()[:4], BLOCKS
        run = functools.partial(REGIONS[name], L, region)
        if kind == "auto":
            return L.jit(run)(w, x)
        P, named = L.sharding.PartitionSpec, L.sharding.NamedSharding
        x, w = L.device_put(x, named(mesh, P("x"))), L.device_put(w, named(mesh, P()))
        with L.set_mesh(mesh):
            return L.jit(run)(w, x)
    check(case)


# -- Explicit axes ---------------------------------------------------------------------------------

def put(L: Any, x: Any, *spec: Any) -> Any:
    return L.device_put(x, L.sharding.PartitionSpec(*spec))


def reduced_weights(L: Any) -> Any:
    P, x = L.sharding.PartitionSpec, put(L, BLOCKS, "x")
    w = put(L, np.eye(4, dtype=F32))
    inside = L.grad(lambda w: L.numpy.sum(
        L.numpy.tanh(x @ L.sharding.reshard(w, P(reduced={"x"})))))(w)
    pending = L.jit(L.grad(lambda w: L.numpy.sum(L.numpy.tanh(x @ w))))(
        L.sharding.reshard(w, P(reduced={"x"})))
    assert "{U:x}" in str(L.typeof(pending))
    return inside, L.sharding.reshard(pending, P())


EXPLICIT: dict[str, Case] = {
    "data parallel": lambda L: (lambda x: L.grad(lambda w: L.numpy.sum(L.numpy.tanh(x @ w)))(
        put(L, np.eye(4, dtype=F32))))(put(L, BLOCKS, "x")),
    "tensor parallel": lambda L: (lambda x: L.jit(L.grad(lambda w: L.numpy.sum(L.numpy.tanh(
        L.numpy.matmul(x, w, out_sharding=L.sharding.PartitionSpec("x", None))))))(
            put(L, np.eye(4, dtype=F32), "y")))(put(L, BLOCKS, "x", "y")),
    "reduced weights": reduced_weights,
    "jacobians": lambda L: (lambda v: (L.jacfwd(L.numpy.sin)(v), L.jacrev(L.numpy.sin)(v),
                                       L.hessian(lambda v: (v**3).sum())(v)))(
        put(L, BLOCKS[:, 0], "x")),
    "jacobians of sums": lambda L: (lambda v: (L.jacfwd(lambda a: a.sum(1))(v),
                                               L.jacrev(lambda a: a.sum(1))(v)))(
        put(L, BLOCKS, "x", "y")),
    "cotangent elsewhere": lambda L: L.vjp(lambda t: t * 2, put(L, BLOCKS, "x"))[1](
        put(L, BLOCKS, "y")),
}


@pytest.mark.skipif(len(jax.devices()) < 8, reason="needs 8 devices")
@pytest.mark.parametrize("name", EXPLICIT)
def test_explicit_axes_as_in_jax(name: str) -> None:
    def case(L: Any) -> Any:
        mesh = L.make_mesh((4, 2), ("x", "y"), axis_types=(L.sharding.AxisType.Explicit,) * 2)
        with L.set_mesh(mesh):
            return EXPLICIT[name](L)
    check(case)
