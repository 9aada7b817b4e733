# %% setup
import numpy as np

import shardtrace as jax
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType, NamedSharding, PartitionSpec as P, auto_axes, explicit_axes, reshard

jax.config.update("jax_num_cpu_devices", 8)
mesh = jax.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Explicit,) * 2)
jax.set_mesh(mesh)


def put(shape, *spec, dtype=np.float32):
    return jax.device_put(np.arange(np.prod(shape), dtype=dtype).reshape(shape), P(*spec))


# %% the current mesh
print(jax.sharding.get_mesh())
print(jax.sharding.get_abstract_mesh())

# %% types of ordinary values
print(jax.typeof(np.arange(8)), jax.typeof(1.0), jax.typeof(1), jax.typeof(True), jax.typeof(np.float32(1)))
jax.typeof(np.arange(8))

# %% types of sharded arrays
for spec in (P("X", "Y"), P("X"), P(None, "Y"), P(("X", "Y")), P(("Y", "X"), None), P(), P(None, ("X", "Y"))):
    print(spec, jax.typeof(put((8, 8), *spec)))
repr(jax.typeof(put((8, 8), "X")))

# %% parts of a type
t = jax.typeof(put((8, 8), "X", "Y"))
print(t.shape, t.dtype, t.ndim, t.size, t.weak_type, t.sharding.spec, t.sharding.mesh.axis_names)

# %% equal types
print(jax.typeof(put((8, 8), "X")) == jax.typeof(put((8, 8), "X", None)))
print(jax.typeof(put((8, 8), "X")) == jax.typeof(put((8, 8), "Y")))

# %% creation under a mesh
print(jax.typeof(jnp.zeros((4, 8))), jax.typeof(jnp.zeros((4, 8), out_sharding=P("X", "Y"))))
print(jax.typeof(jnp.arange(8, out_sharding=P("Y"))), jax.typeof(jnp.ones(4, out_sharding=P("X"))))
print(jax.typeof(jnp.full((2, 4), 7, out_sharding=P(None, "Y"))), jax.typeof(jnp.array([1, 2], out_sharding=P("X"))))
print(jnp.arange(8, out_sharding=P("Y")).sharding)

# %% like another array
x = put((8, 4), "X", "Y")
print(jax.typeof(jnp.zeros_like(x)), jax.typeof(jnp.ones_like(x)), jax.typeof(jnp.full_like(x, 2.0)))

# %% types while tracing
@jax.jit
def f(x, y):
    z = x + y
    print("x:", jax.typeof(x), "y:", jax.typeof(y), "z:", jax.typeof(z))
    return z


x = put((4, 1), "X", None, dtype=np.int32)
y = put((1, 8), None, "Y", dtype=np.int32)
out = f(x, y)
print(out)
print(out.sharding)

# %% a second call does not trace, another sharding does
f(x, y)
f(put((4, 1), dtype=np.int32), y);

# %% op by op gives the same types
print(jax.typeof(x + y), jax.typeof(jnp.sin(x)), jax.typeof(x * 2.0), jax.typeof(x * x))

# %% contents of the shards
for shard in put((4, 2), "X", dtype=np.int32).addressable_shards:
    print(shard.device, shard.data.tolist())

# %% both operands sharded on one dimension
put((4, 4), "X") + put((4, 4), "Y")

# %% one mesh axis on two dimensions
put((8, 8), "X") + put((8, 8), None, "X")

# %% rank promotion meets the last dimension
put((4, 4), "X", "Y") + put((4,), "X")

# %% the same conflicts under jit
@jax.jit
def conflict(x, y):
    return x * y


conflict(put((4, 4), "X"), put((4, 4), "Y"))

# %% reshard resolves a conflict
a, b = put((4, 4), "X"), put((4, 4), "Y")
print(jax.typeof(a + reshard(b, P("X", None))), jax.typeof(reshard(a, P("Y")) + b))
print(a + reshard(b, P("X", None)))

# %% reshard to any spec
for spec in (P(), P("Y"), P("Y", "X"), P(("X", "Y")), P(None, ("Y", "X"))):
    r = jax.reshard(put((8, 8), "X", "Y"), spec)
    print(jax.typeof(r), r.sharding.spec, np.array_equal(r, np.arange(64.0).reshape(8, 8)))

# %% matmul of free dimensions
print(jax.typeof(put((4, 8), "X") @ put((8, 8), None, "Y")))
print(np.asarray(put((4, 8), "X") @ put((8, 8), None, "Y"))[0])

# %% contraction sharded on both sides
put((4, 8), None, "Y") @ put((8, 4), "Y")

# %% contraction with an output sharding
for spec in (P(), P("X"), P("X", "Y"), P(None, "Y")):
    d = jnp.dot(put((4, 8), None, "Y"), put((8, 4), "Y"), out_sharding=spec)
    print(jax.typeof(d), np.asarray(d)[0, 0])
print(jax.typeof(jnp.einsum("ij,jk->ik", put((4, 8), "X", "Y"), put((8, 4), "Y"), out_sharding=P("X"))))

# %% contraction sharded on one side
print(jax.typeof(put((4, 8), "X", "Y") @ put((8, 4))))

# %% both free dimensions over one axis
put((8, 4), "X") @ put((4, 8), None, "X")

# %% an unreduced product
u = jnp.dot(put((4, 8), "X", "Y"), put((8, 4), "Y"), out_sharding=P("X", unreduced={"Y"}))
print(jax.typeof(u))
print(jax.typeof(jax.reshard(u, P("X"))), np.asarray(jax.reshard(u, P("X")))[0])

# %% reductions drop entries
x = put((8, 4), "X", "Y")
print(jax.typeof(x.sum(0)), jax.typeof(x.sum(1)), jax.typeof(x.sum()), jax.typeof(x.mean(axis=1, keepdims=True)))
print(x.sum(0), x.max(1), x.mean())

# %% transposes move entries
print(jax.typeof(x.T), jax.typeof(jnp.swapaxes(x, 0, 1)), jax.typeof(jnp.moveaxis(put((2, 4, 8), "X", "Y"), 0, -1)))

# %% new dimensions are unsharded
print(jax.typeof(x[None]), jax.typeof(x[:, None, :]), jax.typeof(jnp.expand_dims(x, -1)))
print(jax.typeof(jnp.broadcast_to(x, (3, 8, 4))), jax.typeof(jnp.squeeze(put((1, 8), None, "Y"))))

# %% reshapes that split and merge
print(jax.typeof(x.reshape(2, 4, 4)), jax.typeof(x.reshape(32)))
print(jax.typeof(jnp.reshape(x, (4, 8), out_sharding=P("X", None))))

# %% a reshape that has no answer
x.reshape(4, 8)

# %% astype, where, comparison
print(jax.typeof(x.astype(jnp.bfloat16)), jax.typeof(jnp.where(x > 3, x, 0.0)), jax.typeof(x > 3))

# %% where does not reconcile
jnp.where(x > 3, x, jnp.zeros((8, 4)))

# %% concatenate
print(jax.typeof(jnp.concatenate([x, x], axis=1)), jax.typeof(jnp.stack([x, x])))

# %% concatenate wants equal shardings
jnp.concatenate([x, jnp.zeros((8, 4))])

# %% cumsum wants the axis whole
print(jax.typeof(jnp.cumsum(put((8, 4), "X"), axis=1)))
jnp.cumsum(x, axis=0)

# %% sort wants the dimension whole
print(jax.typeof(jnp.sort(put((8, 4), "X"), axis=1)), jax.typeof(jnp.argsort(put((8, 4), "X"), axis=1)))
jnp.sort(x, axis=0)

# %% slices of traced arrays
@jax.jit
def slices(x):
    print(jax.typeof(x[0:4]), jax.typeof(x[:, 0:4]), jax.typeof(x[::2]), jax.typeof(x[::-1]))
    return x[0:4]


print(slices(put((8, 8), "X", "Y")))

# %% a slice that does not divide
jax.jit(lambda x: x[0:3])(put((8, 8), "X", "Y"))

# %% rows of an array
r = put((8, 4), None, "Y")
print(jax.typeof(r[0]), jax.typeof(r[np.array([0, 2, 3])]), r[1])
print(jax.typeof(r.at[0].set(0.0)), r.at[0].set(0.0)[0])

# %% a gather that needs an answer
e = put((8, 4), "X", None)
print(jax.typeof(e.at[np.array([0, 1])].get(out_sharding=P())))
e[np.array([0, 1])]

# %% softmax and other activations
print(jax.typeof(jax.nn.softmax(x)), jax.typeof(jax.nn.relu(x)), jax.typeof(jax.nn.sigmoid(x)), jax.typeof(jax.nn.gelu(x)))
print(jax.typeof(jax.nn.one_hot(put((8,), "X", dtype=np.int32), 4)))

# %% device_put inside jit
print(jax.typeof(jax.jit(lambda x: jax.device_put(x, P("Y", None)))(x)))

# %% with_sharding_constraint is an assertion
print(jax.typeof(lax.with_sharding_constraint(x, P("X", "Y"))))
lax.with_sharding_constraint(x, P("Y", "X"))

# %% auto_axes
@auto_axes
def anything_goes(x, y):
    print(jax.typeof(x), jax.typeof(y), jax.sharding.get_abstract_mesh().axis_types)
    return x + y


@jax.jit
def g(x, y):
    x, y = jnp.sin(x), jnp.cos(y)
    z = anything_goes(x, y, out_sharding=P("X", "Y"))
    print(jax.typeof(z))
    return z


print(g(put((4, 4), "X"), put((4, 4), "Y")).sharding)

# %% auto_axes without an answer
anything_goes(put((4, 4), "X"), put((4, 4), "Y"))

# %% auto_axes over one axis
@jax.jit
def h(x):
    inner = auto_axes(lambda x: (print(jax.typeof(x)), x * 2)[1], axes="X", out_sharding=P("X", "Y"))
    return inner(x)


print(jax.typeof(h(put((4, 4), "X", "Y"))))

# %% explicit_axes
auto_mesh = jax.make_mesh((2, 4), ("X", "Y"))
with jax.set_mesh(auto_mesh):
    @jax.jit
    def k(x):
        print("outside:", jax.typeof(x))

        @explicit_axes(in_sharding=P("X", "Y"))
        def inside(x):
            print("inside:", jax.typeof(x), jax.typeof(x.sum(0)))
            return x * 2

        return inside(x)

    out = k(np.ones((4, 4), np.float32))
    print(jax.typeof(out))

# %% a mixed mesh
mixed = jax.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Auto, AxisType.Explicit))
with jax.set_mesh(mixed):
    m = jax.device_put(np.ones((4, 8), np.float32), NamedSharding(mixed, P("X", "Y")))
    print(jax.typeof(m), jax.typeof(m + 1), jax.typeof(m.sum(0)), m.sharding.spec)

# %% random numbers
key = jax.random.key(0)
print(jax.typeof(jax.random.normal(key, (8, 4))), jax.typeof(jax.random.normal(key, (8, 4), out_sharding=P("X", "Y"))))
print(np.allclose(jax.random.normal(key, (8, 4)), jax.random.normal(key, (8, 4), out_sharding=P("X", "Y")), atol=1e-6))

# %% eval_shape
s = jax.eval_shape(lambda x, y: x @ y, jax.ShapeDtypeStruct((4, 8), jnp.float32, sharding=P("X", None)),
                   jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=P(None, "Y")))
print(s.shape, s.dtype, s.sharding.spec, jax.typeof(s))

# %% scan
# needs: lax.scan
def step(carry, row):
    print(jax.typeof(carry), jax.typeof(row))
    return carry + row, row.sum()


total, sums = lax.scan(step, jnp.zeros(8, out_sharding=P("Y")), put((4, 8), None, "Y"))
print(jax.typeof(total), jax.typeof(sums), total, sums)

# %% scan over a sharded dimension
# needs: lax.scan
lax.scan(step, jnp.zeros(8), put((4, 8), "X"))

# %% a carry that changes its type
# needs: lax.scan
lax.scan(lambda c, r: (c + r, None), jnp.zeros(8), put((4, 8), None, "Y"))

# %% branches of different types
# needs: lax.cond
lax.cond(True, lambda x: x, lambda x: jax.reshard(x, P()), put((4, 4), "X"))

# %% fori_loop
# needs: lax.fori_loop
print(jax.typeof(lax.fori_loop(0, 3, lambda i, c: c * 2, put((4, 4), "X"))), lax.fori_loop(0, 3, lambda i, c: c * 2, put((4,), "X")))

# %% vmap over a sharded dimension
# needs: vmap
print(jax.typeof(jax.vmap(lambda row: (print(jax.typeof(row)), row.sum())[1])(put((4, 8), "X", "Y"))))

# %% indivisible
jnp.zeros(3, out_sharding=P("X"))

# %% a mesh axis that does not exist
jnp.zeros(4, out_sharding=P("Z"))

# %% an array of another mesh
other = jax.make_mesh((8,), ("Z",), axis_types=(AxisType.Explicit,))
jax.device_put(np.ones(8, np.float32), NamedSharding(other, P("Z"))) * 2

# %% numpy operands are free
print(jax.typeof(put((4, 4), "X", "Y") + np.ones((4, 4), np.float32)), jax.typeof(put((4, 4), "X") * 2))

# %% sharding of a tracer
jax.jit(lambda x: x.sharding)(x)

# %% out_shardings of an explicit jit
print(jax.typeof(jax.jit(lambda x: x * 2, out_shardings=P("Y"))(put((4, 4), "X"))))

# %% layer with free choice
x, w, b = put((8, 16), "X"), put((16, 8), None, "Y"), put((8,), "Y")
print(jax.typeof(jnp.tanh(x @ w + b)))
