"""Shardings that flax's models state, by arrays, abstract arrays or boxes: programs have them."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardtrace as st
from shardtrace import interop
from shardtrace.sharding import PartitionSpec as P

from ..real_jax import real_jax

jax = real_jax()
nnx = pytest.importorskip("flax.nnx")
linen = pytest.importorskip("flax.linen")
pytestmark = pytest.mark.filterwarnings("ignore")
jnp = jax.numpy
AUTO = (jax.sharding.AxisType.Auto,) * 2
WANTED = {"up": P(None, "model"), "down": P("model", None)}
X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)


class Net(nnx.Module):
    def __init__(self, rngs: Any) -> None:
        def layer(n: int, m: int, spec: tuple) -> Any:
            init = nnx.with_partitioning(nnx.initializers.lecun_normal(), spec)
            return nnx.Linear(n, m, kernel_init=init, rngs=rngs)
        self.up, self.down = layer(8, 16, (None, "model")), layer(16, 8, ("model", None))

    def __call__(self, x: Any) -> Any:
        return self.down(nnx.relu(self.up(x)))


class Boxed(linen.Module):
    @linen.compact
    def __call__(self, x: Any) -> Any:
        def layer(name: str, m: int, spec: tuple) -> Any:
            init = linen.with_partitioning(linen.initializers.lecun_normal(), spec)
            return linen.Dense(m, kernel_init=init, name=name)
        return layer("down", 8, ("model", None))(linen.relu(layer("up", 16, (None, "model"))(x)))


def assert_split_as_stated(imported: Any, *args: Any, step: Any = None) -> None:
    """The kernels' specs, the one sum over the contracted axis, and the values of JAX."""
    compiled = imported.lower().compile()
    leaves = dict(zip(imported.trace().jaxpr.arg_names,
                      st.tree.leaves(compiled.input_shardings[0]), strict=True))
    for name, spec in WANTED.items():
        assert [(*s.spec, None)[:2] for path, s in leaves.items()
                if name in path and "kernel" in path] == [tuple(spec)]
    assert [c.mesh_axes for c in compiled.collectives()
            if c.kind == "all-reduce"][0] == ("model",)
    if step is not None:
        for a, b in zip(jax.tree.leaves(step(*args)), jax.tree.leaves(imported(*args)),
                        strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)


def loss_of(graphdef: Any) -> Any:
    return jax.jit(jax.grad(lambda state, x: jnp.mean(nnx.merge(graphdef, state)(x) ** 2)))


def test_arrays_of_a_model_made_on_a_mesh() -> None:
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=AUTO)
    with jax.set_mesh(mesh):
        model = nnx.jit(lambda: Net(nnx.Rngs(0)))()
    graphdef, state = nnx.split(model)
    step = loss_of(graphdef)
    assert_split_as_stated(interop.from_jax(step, state, X), state, X, step=step)
    grad = nnx.jit(nnx.grad(lambda m, x: jnp.mean(m(x) ** 2)))
    assert_split_as_stated(interop.from_jax(grad, model, X))


def test_abstract_arrays_of_a_model() -> None:
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=AUTO)
    graphdef, state = nnx.get_abstract_model(lambda: Net(nnx.Rngs(0)), mesh)
    assert_split_as_stated(interop.from_jax(loss_of(graphdef), state,
                                            jax.ShapeDtypeStruct(X.shape, X.dtype)))


@pytest.mark.parametrize("kind", ["nnx", "linen"])
def test_specs_that_flax_tells_of_a_model(kind: str) -> None:
    """Of values that lie on one device, stated for a mesh that JAX knows nothing of."""
    if kind == "nnx":
        with nnx.use_eager_sharding(False):
            graphdef, state = nnx.split(Net(nnx.Rngs(0)))
        specs, step = nnx.get_partition_spec(state), loss_of(graphdef)
    else:
        model = Boxed()
        state = model.init(jax.random.key(0), X)
        specs = linen.get_partition_spec(state)
        step = jax.jit(jax.grad(lambda v, x: jnp.mean(model.apply(v, x) ** 2)))
    imported = interop.from_jax(step, state, X, mesh=st.make_mesh((2, 4), ("data", "model")),
                                in_shardings=(specs, P("data")))
    assert_split_as_stated(imported, state, X, step=step)
