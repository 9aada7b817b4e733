"""A penzai MLP on named arrays, three steps of gradient descent, and a selection in its tree."""
import jax
import jax.numpy as jnp
from penzai import pz

model = pz.nn.Sequential([
    pz.nn.Affine.from_config("in", jax.random.key(0), {"feature": 4}, {"hidden": 8}),
    pz.nn.Elementwise(jax.nn.tanh),
    pz.nn.Affine.from_config("out", jax.random.key(1), {"hidden": 8}, {"out": 1}),
])
x = pz.nx.wrap(jax.random.normal(jax.random.key(2), (16, 4)), "batch", "feature")
y = pz.nx.wrap(jnp.sin(jnp.arange(16.0))[:, None], "batch", "out")


def loss(params, model):
    out = pz.bind_variables(model, params)(x)
    return pz.nx.nmap(lambda a, b: (a - b) ** 2)(out, y).untag("batch", "out").unwrap().mean()


model, params = pz.unbind_params(model, freeze=True)
step = jax.jit(jax.value_and_grad(loss))
for _ in range(3):
    value, grads = step(params, model)
    params = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
    print(float(value))
print(pz.select(model).at_instances_of(pz.nn.Affine).count())
print(pz.nx.nmap(jnp.sum)(x.untag("batch")).named_shape)
