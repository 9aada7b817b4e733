"""Dataclasses, assertions and variants of chex in a small training step."""
import chex
import jax
import jax.numpy as jnp


@chex.dataclass(frozen=True)
class Params:
    w: chex.Array
    b: chex.Array


@chex.dataclass
class State:
    params: Params
    step: int


def loss(params, x, y):
    chex.assert_rank([x, y], [2, 1])
    chex.assert_equal_shape_prefix([x, y], 1)
    chex.assert_type([x, y], float)
    out = jnp.tanh(x @ params.w + params.b)
    chex.assert_shape(out, (x.shape[0],))
    return jnp.mean((out - y) ** 2)


@jax.jit
@chex.assert_max_traces(n=2)
def step(state, x, y):
    value, grads = jax.value_and_grad(loss)(state.params, x, y)
    chex.assert_trees_all_equal_structs(state.params, grads)
    params = jax.tree.map(lambda p, g: p - 0.5 * g, state.params, grads)
    return state.replace(params=params, step=state.step + 1), value


x = jax.random.normal(jax.random.key(0), (16, 4))
y = jnp.sin(x.sum(1))
state = State(params=Params(w=jnp.full(4, 0.1), b=jnp.zeros(())), step=0)
for _ in range(3):
    state, value = step(state, x, y)
    chex.assert_tree_all_finite(state)
    print(float(value))
chex.assert_trees_all_close(state, state, rtol=1e-6)
chex.assert_devices_available(1, "cpu", not_less_than=True)
try:
    chex.assert_shape(x, (1, 2))
except AssertionError as error:
    print(type(error).__name__)
print(int(state.step))
