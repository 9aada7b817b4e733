"""A small network of plain JAX: jit, grad, scan, vmap, a sharded batch, a region of shard_map."""
import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

jax.config.update("jax_numpy_rank_promotion", "raise")
mesh = jax.make_mesh((jax.device_count(),), ("data",))


def init(key):
    keys = jax.random.split(key, 3)
    scale = jax.nn.initializers.lecun_normal()
    return {"in": scale(keys[0], (8, 16)), "layers": jax.vmap(lambda k: scale(k, (16, 16)))(
        jax.random.split(keys[1], 3)), "out": scale(keys[2], (16, 1))}


def model(params, x):
    def layer(h, w):
        return h + 0.5 * jax.nn.gelu(h @ w), None

    h, _ = lax.scan(layer, x @ params["in"], params["layers"])
    return h @ params["out"]


def loss(params, x, y):
    return jnp.mean((model(params, x) - y) ** 2)


@functools.partial(jax.jit, donate_argnums=0)
def step(params, x, y):
    value, grads = jax.value_and_grad(loss)(params, x, y)
    return jax.tree_util.tree_map(lambda p, g: p - 0.01 * g, params, grads), value


@jax.shard_map(mesh=mesh, in_specs=P("data"), out_specs=P())
def total(x):
    return lax.psum(jnp.sum(x), "data")


with jax.set_mesh(mesh):
    x = jax.device_put(jax.random.normal(jax.random.key(1), (32, 8)), P("data"))
    y = jax.device_put(jax.random.normal(jax.random.key(2), (32, 1)), P("data"))
    params = init(jax.random.key(0))
    for _ in range(3):
        params, value = step(params, x, y)
        print(float(value))
    print(float(total(x)))
    print(jax.typeof(x), jax.jit(model).eval_shape(params, x).dtype)
