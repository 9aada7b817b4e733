# %% setup
from functools import partial

import numpy as np

import shardtrace as jax
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 8)
mesh = jax.make_mesh((4, 2), ("a", "b"))


def put(value, *spec):
    return jax.device_put(value, NamedSharding(mesh, P(*spec)))


x = put(np.arange(64, dtype=np.float32).reshape(8, 8) / 64, "a", "b")

# %% elementwise, op by op
y = jnp.sin(x)
print(y.sharding, y.sharding == x.sharding)
print(y[0])

# %% elementwise under jit
f = jax.jit(lambda x: 2 * jnp.sin(x) + 1)
print(f(x).sharding.spec, np.allclose(f(x), 2 * np.sin(np.asarray(x)) + 1))

# %% reductions
for axis in (0, 1, None):
    s = jax.jit(partial(jnp.sum, axis=axis))(x)
    print(axis, s.sharding.spec, s)

# %% matmul
w = put(np.ones((8, 4), np.float32), "b", None)
z = jnp.dot(x, w)
print(z.shape, z.sharding.spec)
print(z[:2])

# %% transposed matmul
z = jax.jit(lambda x: x @ x.T)(x)
print(z.sharding.spec, np.allclose(z, np.asarray(x) @ np.asarray(x).T))

# %% free dimensions sharded on both sides
lhs = put(np.ones((8, 8), np.float32), "a", None)
rhs = put(np.ones((8, 8), np.float32), None, "b")
out = jnp.dot(lhs, rhs)
print(out.sharding.spec)
jax.debug.visualize_array_sharding(out)

# %% contraction sharded on both sides
lhs = put(np.ones((8, 8), np.float32), None, "a")
rhs = put(np.ones((8, 8), np.float32), "a", None)
out = jnp.dot(lhs, rhs)
print(out.sharding.spec, out[0, 0])

# %% transpose
print(x.T.sharding.spec, jax.jit(jnp.transpose)(x).sharding.spec)

# %% constraint inside jit
@jax.jit
def g(x):
    y = x + 1
    return lax.with_sharding_constraint(y, NamedSharding(mesh, P(None, "b")))


print(g(x).sharding.spec)
jax.debug.visualize_array_sharding(g(x))

# %% constraint outside jit
print(lax.with_sharding_constraint(x, NamedSharding(mesh, P("b", "a"))).sharding.spec)

# %% a spec under a context mesh
with jax.set_mesh(mesh):
    print(jax.jit(lambda x: lax.with_sharding_constraint(x * 2, P("b")))(x).sharding.spec)

# %% out_shardings
h = jax.jit(lambda x: (x, x.sum()), out_shardings=(NamedSharding(mesh, P(None, "a")), None))
a, b = h(x)
print(a.sharding.spec, b.sharding.spec, b)

# %% in_shardings place what is not placed yet
k = jax.jit(lambda x: x * 2, in_shardings=NamedSharding(mesh, P("a")), out_shardings=NamedSharding(mesh, P("a")))
r = k(np.arange(8, dtype=np.float32))
print(r, r.sharding.spec)

# %% in_shardings that disagree with a placed argument
jax.jit(lambda x: x, in_shardings=NamedSharding(mesh, P(None, "b")))(x)

# %% no argument is sharded
c = jax.jit(lambda: jnp.zeros((8, 8)), out_shardings=NamedSharding(mesh, P("a", "b")))()
print(c.sharding.spec, c.addressable_shards[0].data.shape)

# %% types in Auto mode are silent about sharding
@jax.jit
def typed(x):
    print(jax.typeof(x), jax.typeof(x.sum(0)), jax.typeof(x @ x))
    return x


typed(x)
print(jax.typeof(x))

# %% jit traces once for equal types
count = []


@jax.jit
def counted(x):
    count.append(1)
    return x * 2


counted(x); counted(x + 1); counted(put(np.ones((8, 8), np.float32), None, "b"))
print(len(count))
counted(put(np.ones((4, 8), np.float32), "a"))
print(len(count))

# %% a batch of inputs and replicated weights
rng = np.random.default_rng(0)
batch = put(rng.normal(size=(16, 8)).astype(np.float32), "a", None)
params = [(rng.normal(size=(8, 32)).astype(np.float32), np.zeros(32, np.float32)),
          (rng.normal(size=(32, 4)).astype(np.float32), np.zeros(4, np.float32))]
params = jax.device_put(params, NamedSharding(mesh, P()))


def predict(params, inputs):
    for w, b in params:
        outputs = jnp.dot(inputs, w) + b
        inputs = jnp.maximum(outputs, 0)
    return outputs


def loss(params, batch):
    return jnp.mean(jnp.sum(predict(params, batch) ** 2, axis=-1))


print(jax.jit(predict)(params, batch).sharding.spec)
print(jax.jit(loss)(params, batch), loss(params, batch))

# %% tensor parallel weights
(w1, b1), (w2, b2) = params
params_tp = [(put(w1, None, "b"), put(b1, "b")), (put(w2, "b", None), put(b2))]
print(np.allclose(jax.jit(predict)(params_tp, batch), jax.jit(predict)(params, batch), atol=1e-4))
hidden = jax.jit(lambda x, w, b: jnp.maximum(x @ w + b, 0))(batch, *params_tp[0])
jax.debug.visualize_array_sharding(hidden)

# %% softmax over a sharded dimension
p = jax.jit(jax.nn.softmax)(x)
print(p.sharding.spec, np.allclose(p.sum(axis=1), 1))

# %% sort, cumsum and argmax over a sharded dimension
v = put(np.array([3, 1, 2, 7, 5, 4, 0, 6], np.int32), "a")
print(jnp.sort(v), jnp.cumsum(v), jnp.argmax(v), jnp.argsort(v), v[::-1])

# %% reshapes
print(x.reshape(64)[:4], x.reshape(4, 16).shape, jnp.ravel(x).shape)
print(jax.jit(lambda x: x.reshape(4, 2, 8))(x).sharding.spec)

# %% broadcast against a replicated vector
print((x + jnp.arange(8.0)).sharding.spec)
print((x * put(np.ones(8, np.float32), "b")).sharding.spec)

# %% operands that disagree
mixed = put(np.ones((8, 8), np.float32), "a") + put(np.ones((8, 8), np.float32), "b")
print(mixed[0, :3])

# %% concatenate and stack
print(jnp.concatenate([x, x]).shape, jnp.stack([x, x]).shape, jnp.concatenate([x, x], axis=1)[0])

# %% zeros_like keeps the sharding
print(jnp.zeros_like(x).sharding.spec, jnp.ones_like(x).shape)

# %% random numbers in the sharding one asks for
key = jax.random.key(0)
n = jax.jit(lambda: jax.random.normal(key, (8, 8)), out_shardings=NamedSharding(mesh, P("a", "b")))()
print(n.sharding.spec, np.allclose(n, jax.random.normal(key, (8, 8)), atol=1e-6))
print(jax.random.uniform(key, (3,)), jax.random.randint(key, (4,), 0, 10))

# %% keys
k1, k2 = jax.random.split(jax.random.PRNGKey(42))
print(k1, k2, jax.random.key(1).dtype, jax.random.fold_in(jax.random.PRNGKey(0), 3))

# %% pytrees in and out
out = jax.jit(lambda d: {"s": d["x"].sum(0), "t": (d["x"], d["y"] + 1)})({"x": x, "y": 1.0})
print(out["s"].sharding.spec, out["t"][0].sharding.spec, out["t"][1])

# %% static arguments
@partial(jax.jit, static_argnums=1)
def power(x, n):
    return x**n


print(power(x, 2)[0, :3], power(x, 3)[0, :3])

# %% static by name
print(jax.jit(lambda x, *, axis: x.sum(axis), static_argnames="axis")(x, axis=0).sharding.spec)

# %% control flow
# needs: lax.fori_loop
print(jax.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: c * 2, x))(x).sharding.spec)
print(lax.scan(lambda c, row: (c + row, row.sum()), jnp.zeros(8), x)[1])
print(lax.cond(x[0, 1] > 0, lambda: 1, lambda: 2))

# %% einsum
e = jax.jit(lambda a, b: jnp.einsum("ij,kj->ik", a, b))(x, x)
print(e.shape, np.allclose(e, np.asarray(x) @ np.asarray(x).T))

# %% donate
d = put(np.ones((8, 8), np.float32), "a")
o = jax.jit(lambda x: x + 1, donate_argnums=0)(d)
print(d.is_deleted(), o[0, 0])
