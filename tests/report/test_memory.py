"""Peak memory against what XLA's compiler plans for the same program on the same mesh."""
import os

import numpy as np
import pytest

import shardtrace as st

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax")
if len(jax.devices()) < 8:
    pytest.skip("needs eight devices", allow_module_level=True)


def mlp(m):
    return lambda x, w1, w2: m.numpy.tanh(x @ w1) @ w2


def mlp_gradient(m):
    f = mlp(m)
    return lambda x, w1, w2: m.grad(lambda ws: (f(x, *ws) ** 2).sum())((w1, w2))


def layers(m, wrap=lambda m, f: f):
    def f(x, ws):
        body = wrap(m, lambda h, w: (m.numpy.tanh(m.numpy.sin(m.numpy.tanh(h @ w)) @ w), None))
        return m.lax.scan(body, x, ws)[0]
    return f


def layers_gradient(m):
    f = layers(m)
    return lambda x, ws: m.grad(lambda ws: (f(x, ws) ** 2).sum())(ws)


def layers_recomputed(m):
    f = layers(m, lambda m, body: m.checkpoint(body))
    return lambda x, ws: m.grad(lambda ws: (f(x, ws) ** 2).sum())(ws)


def attention(m):
    def f(q, k, v):
        s = m.numpy.einsum("bqhd,bkhd->bhqk", q, k) / 8
        return m.numpy.einsum("bhqk,bkhd->bqhd", m.nn.softmax(s), v)
    return f


def layer_norm(m):
    def f(x):
        mean = x.mean(-1, keepdims=True)
        var = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) / m.numpy.sqrt(var + 1e-5)
    return f


WEIGHTS = [((4096, 512), ("x",)), ((512, 2048), (None, "y")), ((2048, 512), ("y",))]
STACK = [((4096, 512), ("x",)), ((8, 512, 512), (None,))]


@pytest.mark.parametrize(("make", "args"), [
    (mlp, WEIGHTS), (mlp_gradient, WEIGHTS), (layers, STACK), (layers_gradient, STACK),
    (layers_recomputed, STACK), (attention, [((8, 256, 8, 64), ("x", None, "y"))] * 3),
    (layer_norm, [((4096, 1024), ("x",))])], ids=lambda v: getattr(v, "__name__", ""))
def test_the_peak_is_within_a_quarter_of_the_compilers(make, args):
    theirs = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    ours = st.make_mesh((2, 4), ("x", "y"))
    compiled = jax.jit(make(jax)).lower(*[
        jax.ShapeDtypeStruct(shape, np.float32, sharding=jax.NamedSharding(theirs, jax.P(*spec)))
        for shape, spec in args]).compile().memory_analysis()
    wanted = (compiled.argument_size_in_bytes + compiled.output_size_in_bytes
              + compiled.temp_size_in_bytes - compiled.alias_size_in_bytes)
    found = st.explain(make(st))(*[
        st.ShapeDtypeStruct(shape, np.float32, sharding=st.NamedSharding(ours, st.P(*spec)))
        for shape, spec in args])
    assert found.peak_bytes == pytest.approx(wanted, rel=0.25)
