# %% setup
from functools import partial

import numpy as np

import shardtrace as jax
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 8)
rng = np.random.default_rng(seed=7)
x = rng.normal(size=(32,)).astype(np.float32)
weights = rng.normal(size=(32, 4)).astype(np.float32)
bias = rng.normal(size=(4,)).astype(np.float32)
auto = jax.make_mesh((8,), ("x",))
explicit = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))


def layer(x, weights, bias):
    return jax.nn.sigmoid(x @ weights + bias)


# %% unsharded
layer(x, weights, bias)

# %% unsharded, jitted
jax.jit(layer)(x, weights, bias)

# %% double precision inputs come down to single
jax.jit(layer)(x.astype(np.float64), weights.astype(np.float64), bias.astype(np.float64))

# %% auto, contraction sharded on both sides
out = jax.jit(layer)(jax.device_put(x, NamedSharding(auto, P("x"))), jax.device_put(weights, NamedSharding(auto, P("x"))), bias)
print(out, out.sharding)

# %% auto, weights replicated
out = jax.jit(layer)(jax.device_put(x, NamedSharding(auto, P("x"))), jax.device_put(weights, NamedSharding(auto, P())), bias)
print(out, out.sharding.spec)

# %% explicit, ambiguous
with jax.set_mesh(explicit):
    jax.jit(layer)(jax.device_put(x, P("x")), jax.device_put(weights, P("x")), bias)

# %% explicit, one side sharded
@jax.jit
def layer_explicit(x, weights, bias):
    print(jax.typeof(x), jax.typeof(weights), jax.typeof(bias), jax.typeof(x @ weights))
    return layer(x, weights, bias)


with jax.set_mesh(explicit):
    out = layer_explicit(jax.device_put(x, P("x")), jax.device_put(weights, P()), bias)
    print(out, out.sharding.spec)

# %% explicit, answered
with jax.set_mesh(explicit):
    f = jax.jit(lambda x, w, b: jax.nn.sigmoid(jnp.dot(x, w, out_sharding=P()) + b))
    print(f(jax.device_put(x, P("x")), jax.device_put(weights, P("x")), bias))

# %% manual
@jax.jit
@partial(jax.shard_map, mesh=auto, in_specs=(P("x"), P("x", None), P(None)), out_specs=P(None))
def layer_manual(x, weights, bias):
    print(x.shape, weights.shape, bias.shape, jax.typeof(x @ weights), jax.typeof(jax.lax.psum(x @ weights, "x")))
    return jax.nn.sigmoid(jax.lax.psum(x @ weights, "x") + bias)


layer_manual(x, weights, bias)

# %% manual on an explicit mesh
@jax.jit
@partial(jax.shard_map, mesh=explicit, in_specs=(P("x"), P("x", None), P(None)), out_specs=P(None))
def layer_manual_explicit(x, weights, bias):
    return jax.nn.sigmoid(jax.lax.psum(x @ weights, "x") + bias)


with jax.set_mesh(explicit):
    print(layer_manual_explicit(jax.device_put(x, P("x")), jax.device_put(weights, P("x")), bias))

# %% forgotten psum
jax.shard_map(layer, mesh=auto, in_specs=(P("x"), P("x", None), P(None)), out_specs=P(None))(x, weights, bias)

# %% a batch, in two dimensions
mesh = jax.make_mesh((2, 4), ("data", "model"))
batch = rng.normal(size=(8, 32)).astype(np.float32)
placed = jax.device_put(batch, NamedSharding(mesh, P("data", "model")))
w = jax.device_put(weights, NamedSharding(mesh, P("model", None)))
out = jax.jit(layer)(placed, w, bias)
print(out.sharding, np.allclose(out, layer(batch, weights, bias), atol=1e-6))
jax.debug.visualize_array_sharding(out)

# %% the same in explicit mode
emesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
with jax.set_mesh(emesh):
    g = jax.jit(lambda x, w, b: jax.nn.sigmoid(jnp.matmul(x, w, out_sharding=P("data", None)) + b))
    out = g(jax.device_put(batch, P("data", "model")), jax.device_put(weights, P("model", None)), bias)
print(jax.typeof(out), np.allclose(out, layer(batch, weights, bias), atol=1e-6))
