# %% setup
from functools import partial

import numpy as np

import shardtrace as jax
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 8)
mesh = jax.make_mesh((4, 2), ("x", "y"))
line = jax.make_mesh((8,), ("i",))


def over(f, *args, spec=P("i"), out=P("i"), mesh=line):
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=out))(*args)


x = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 1, 2])

# %% a matrix product by hand
a = jnp.arange(8 * 16.0).reshape(8, 16)
b = jnp.arange(16 * 4.0).reshape(16, 4)


@partial(jax.shard_map, mesh=mesh, in_specs=(P("x", "y"), P("y", None)), out_specs=P("x", None))
def matmul_basic(a_block, b_block):
    print(a_block.shape, b_block.shape)
    c_partialsum = jnp.dot(a_block, b_block)
    c_block = lax.psum(c_partialsum, "y")
    print(c_partialsum.shape, c_block.shape)
    return c_block


c = jax.jit(matmul_basic)(a, b)
print(np.allclose(c, jnp.dot(a, b)), c.sharding)
jax.debug.visualize_array_sharding(c)

# %% op by op, without jit
c = jax.shard_map(lambda a: a * 2, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(np.arange(8.0))
print(c, c.sharding.spec)

# %% a reduction scattered
@jax.jit
@partial(jax.shard_map, mesh=mesh, in_specs=(P("x", "y"), P("y", None)), out_specs=P("x", "y"))
def matmul_scatter(a_block, b_block):
    return lax.psum_scatter(jnp.dot(a_block, b_block), "y", scatter_dimension=1, tiled=True)


print(np.allclose(matmul_scatter(a, b), jnp.dot(a, b)), matmul_scatter(a, b).sharding.spec)

# %% spec that names no axis
@jax.jit
@partial(jax.shard_map, mesh=line, in_specs=P(), out_specs=P())
def replicated(x):
    print(x.shape, jax.typeof(x))
    return x + 1


print(replicated(np.arange(4.0)))

# %% stacking along an axis that does not vary
print(jax.shard_map(lambda x: x, mesh=line, in_specs=P(), out_specs=P("i"))(np.arange(3)))

# %% stacking along two axes
o = jax.shard_map(lambda: jnp.zeros((2, 2)), mesh=mesh, in_specs=(), out_specs=P("x", "y"))()
print(o.shape, o.sharding.spec)

# %% types inside
@jax.jit
@partial(jax.shard_map, mesh=mesh, in_specs=(P("x", "y"), P("x"), P()), out_specs=(P("x", "y"), P("x"), P()))
def typed(a, b, c):
    print(jax.typeof(a), jax.typeof(b), jax.typeof(c), jax.typeof(a + c.sum()), jax.typeof(lax.psum(a, "y")))
    return a, b, c


r = typed(np.ones((8, 4), np.float32), np.ones((4, 4), np.float32), np.ones(4, np.float32))
print([v.shape for v in r])

# %% psum
print(over(lambda v: lax.psum(v, "i"), x, out=P()))
print(over(lambda v: lax.psum(v, "i"), x))
print(over(lambda v: lax.psum(v.sum(), "i"), x, out=P()))

# %% pmean, pmax, pmin
print(over(lambda v: lax.pmean(v, "i"), x, out=P()), over(lambda v: lax.pmax(v, "i"), x, out=P()),
      over(lambda v: lax.pmin(v, "i"), x, out=P()))

# %% all_gather
def gathers(v):
    stacked = lax.all_gather(v, "i")
    tiled = lax.all_gather(v, "i", tiled=True)
    print(v.shape, stacked.shape, tiled.shape)
    return tiled


print(over(gathers, x).shape)
print(over(gathers, x)[:16])

# %% psum_scatter
def scatter(v):
    out = lax.psum_scatter(v, "i", tiled=True)
    print(v.shape, out.shape)
    return out


print(over(scatter, np.arange(64)))

# %% ppermute
print(over(lambda v: lax.ppermute(v, "i", perm=[(j, (j + 1) % 8) for j in range(8)]), x))
print(over(lambda v: lax.ppermute(v, "i", perm=[(0, 1), (2, 3)]), x))

# %% all_to_all
def transpose(v):
    out = lax.all_to_all(v, "i", split_axis=1, concat_axis=0, tiled=True)
    print(v.shape, out.shape)
    return out


m = np.arange(64).reshape(8, 8)
t = over(transpose, m, spec=P("i", None), out=P(None, "i"))
print(np.array_equal(t, m), t.sharding.spec)

# %% axis_index and axis_size
print(over(lambda v: v * 0 + lax.axis_index("i"), x), over(lambda v: v * 0 + lax.axis_size("i"), x))
print(jax.shard_map(lambda v: v * 0 + lax.axis_index(("x", "y")), mesh=mesh, in_specs=P(("x", "y")), out_specs=P(("x", "y")))(np.arange(8)))

# %% two mesh axes
v = np.arange(32.0).reshape(8, 4)
print(over(lambda v: lax.psum(v, "x"), v, spec=P("x", "y"), out=P(None, "y"), mesh=mesh))
print(over(lambda v: lax.psum(v, ("x", "y")), v, spec=P("x", "y"), out=P(), mesh=mesh))

# %% a ring of partial sums
@jax.jit
@partial(jax.shard_map, mesh=line, in_specs=P("i"), out_specs=P("i"))
def ring_sum(v):
    total = v
    for _ in range(7):
        v = lax.ppermute(v, "i", perm=[(j, (j + 1) % 8) for j in range(8)])
        total = total + v
    return total


print(ring_sum(np.arange(8)))

# %% a loop inside
# needs: lax.fori_loop
@jax.jit
@partial(jax.shard_map, mesh=line, in_specs=P("i"), out_specs=P("i"))
def looped(v):
    return lax.fori_loop(0, 3, lambda k, c: c + lax.axis_index("i"), v)


print(looped(np.zeros(8, np.int32)))

# %% a constant carry in a loop
# needs: lax.fori_loop
over(lambda v: lax.fori_loop(0, 2, lambda k, c: c + v.sum(), 0)[None], x)

# %% pcast makes a constant vary
# needs: lax.fori_loop
print(over(lambda v: lax.fori_loop(0, 2, lambda k, c: c + v.sum(), lax.pcast(0, "i", to="varying"))[None], x))

# %% different data on different devices
print(over(lambda v: jnp.where(lax.axis_index("i") % 2 == 0, v, -v), x))

# %% branches that differ
# needs: lax.cond
print(over(lambda v: lax.cond(lax.axis_index("i") < 4, lambda u: u + 100, lambda u: u, v), x))

# %% one device's block
print(over(lambda v: lax.dynamic_index_in_dim(v, lax.axis_index("i"), keepdims=True), np.arange(8), spec=P()))

# %% shapes of a forgotten dimension
over(lambda v: v.sum(), x)

# %% an output that is not replicated
over(lambda v: v, x, out=P())

# %% the check can be turned off
print(jax.shard_map(lambda v: v, mesh=line, in_specs=P("i"), out_specs=P(), check_vma=False)(x))

# %% rank of an input too low
over(lambda v: v, x, spec=P("x", "y"), out=P("x", "y"), mesh=mesh)

# %% an indivisible input
over(lambda v: v, np.arange(6))

# %% an axis the mesh does not have
over(lambda v: v, x, spec=P("k"))

# %% too few specs
jax.shard_map(lambda a, b: a, mesh=line, in_specs=(P("i"),), out_specs=P("i"))(x, x)

# %% a collective outside
lax.psum(jnp.ones(3), "i")

# %% axis_index outside
lax.axis_index("i")

# %% one axis manual, the other auto
@jax.jit
@partial(jax.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
def partly(v):
    print(v.shape, jax.typeof(v))
    return v * 2


print(partly(jax.device_put(np.arange(16.0).reshape(8, 2), NamedSharding(mesh, P("x", "y")))).sum())

# %% on an explicit mesh the specs are checked
em = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
e = jax.device_put(np.arange(8.0, dtype=np.float32).reshape(4, 2), NamedSharding(em, P("x", "y")))
with jax.set_mesh(em):
    print(jax.typeof(jax.shard_map(lambda v: v * 2, in_specs=P("x", "y"), out_specs=P("x", "y"))(e)))
    jax.shard_map(lambda v: v, in_specs=P("x"), out_specs=P("x"))(e)

# %% specs inferred from the types
with jax.set_mesh(em):
    print(jax.shard_map(lambda v: (print(jax.typeof(v)), v + 1)[1], out_specs=P("x", "y"))(e))

# %% pytrees of specs
tree = {"w": np.arange(8.0), "b": (np.arange(2.0), np.ones(8))}
out = jax.shard_map(lambda t: jax.tree.map(lambda v: v * 2, t), mesh=line,
                    in_specs=({"w": P("i"), "b": P()},), out_specs={"w": P("i"), "b": P()})(tree)
print(out["w"], out["b"][0], out["w"].sharding.spec)

# %% nested jit
inner = jax.jit(lambda v: v * v)
print(over(lambda v: inner(v) + 1, x))

# %% the old name
from shardtrace.experimental.shard_map import shard_map as old_shard_map

print(callable(old_shard_map))

# %% a layer by hand: data parallel
rng = np.random.default_rng(1)
w = rng.normal(size=(8, 4)).astype(np.float32)
batch = rng.normal(size=(16, 8)).astype(np.float32)


@jax.jit
@partial(jax.shard_map, mesh=line, in_specs=(P(), P("i")), out_specs=P())
def mean_loss(w, batch):
    return lax.pmean(jnp.mean((batch @ w) ** 2), "i")


print(mean_loss(w, batch), np.mean((batch @ w) ** 2))

# %% a layer by hand: gather the weights when they are used
@jax.jit
@partial(jax.shard_map, mesh=line, in_specs=(P("i"), P("i")), out_specs=P("i"))
def gathered(w, batch):
    whole = lax.all_gather(w, "i", tiled=True)
    print(w.shape, whole.shape, batch.shape)
    return batch @ whole


print(np.allclose(gathered(w, batch), batch @ w, atol=1e-5), gathered(w, batch).sharding.spec)

# %% a layer by hand: columns then rows
w1, w2 = rng.normal(size=(8, 16)).astype(np.float32), rng.normal(size=(16, 4)).astype(np.float32)


@jax.jit
@partial(jax.shard_map, mesh=mesh, in_specs=(P("x"), P(None, "y"), P("y", None)), out_specs=P("x"))
def mlp(h, w1, w2):
    return lax.psum(jax.nn.relu(h @ w1) @ w2, "y")


print(np.allclose(mlp(batch, w1, w2), np.maximum(batch @ w1, 0) @ w2, atol=1e-3), mlp(batch, w1, w2).sharding)
