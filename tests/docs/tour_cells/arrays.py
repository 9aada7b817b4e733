# %% setup
import numpy as np

import shardtrace as jax
import shardtrace.numpy as jnp
from shardtrace.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding

jax.config.update("jax_num_cpu_devices", 8)

# %% devices
print(jax.devices())
print(jax.device_count(), jax.local_device_count(), len(jax.local_devices()))
print(jax.process_index(), jax.process_count())
jax.devices()[3]

# %% attributes of a device
d = jax.devices()[5]
print(d, d.id, d.platform, d.process_index, d.device_kind)
print(jax.devices("cpu")[0] is jax.devices()[0], jax.default_backend())

# %% an array lives on the first device
x = jnp.arange(8)
print(x, x.dtype, x.shape, x.ndim, x.size, x.nbytes)
print(x.devices(), x.device, x.sharding, x.committed)
x

# %% array reprs
print(repr(jnp.ones((2, 3))))
print(repr(jnp.float32(1.5)))
print(repr(jnp.array(2)))
print(repr(jnp.asarray(2.0)))
print(repr(jnp.array([True, False])))
print(repr(jnp.array([1 + 2j])))
print(repr(jnp.ones((2, 2), jnp.bfloat16)))
print(repr(jnp.zeros((0, 3))))
print(repr(jnp.arange(3, dtype=jnp.uint8)))

# %% device_put to a device
y = jax.device_put(x, jax.devices()[2])
print(y.devices(), y.sharding, y.committed)
y

# %% an operation follows its committed operand
z = y + 1
print(z.devices(), z)
print((jnp.ones(8) * y).devices())

# %% operands on two devices
a = jax.device_put(x, jax.devices()[0])
b = jax.device_put(x, jax.devices()[1])
a + b

# %% the default device
with jax.default_device(jax.devices()[4]):
    print(jnp.ones(3).devices())
print(jnp.ones(3).devices())

# %% device_put to a sharding
mesh = jax.make_mesh((4, 2), ("x", "y"))
s = NamedSharding(mesh, P("x", "y"))
m = jax.device_put(jnp.arange(32.0).reshape(8, 4), s)
print(m.sharding)
print(sorted(d.id for d in m.devices()))
print(m.sharding == s, m.committed, m.is_fully_replicated, m.is_fully_addressable)
m

# %% shards
for shard in m.addressable_shards:
    print(shard.device, shard.index, shard.replica_id, shard.data.shape)
print(m.addressable_shards[3].data)
print(m.addressable_shards[3])
print(len(m.global_shards), m.global_shards[0].device)

# %% shards of a partly replicated array
r = jax.device_put(np.arange(8.0), NamedSharding(mesh, P("y")))
for shard in r.addressable_shards:
    print(shard.device.id, shard.index, shard.replica_id, np.asarray(shard.data))

# %% addressable data
print(m.addressable_data(0))
print(m.addressable_data(7).shape, m.addressable_data(7).devices())

# %% a sharding answers about shapes
print(s.shard_shape((8, 4)))
for device, index in s.devices_indices_map((8, 4)).items():
    print(device, index)
print(s.is_fully_replicated, s.num_devices, s.is_fully_addressable, len(s.device_set))
print(s.spec, s.mesh, s.memory_kind)

# %% sharding equality
t = NamedSharding(mesh, P("x", None))
print(t == NamedSharding(mesh, P("x")), t.is_equivalent_to(NamedSharding(mesh, P("x")), 2))
print(NamedSharding(mesh, P()) == NamedSharding(mesh, P()), hash(t) == hash(NamedSharding(mesh, P("x", None))))
print(SingleDeviceSharding(jax.devices()[0]) == x.sharding)

# %% a mesh of one's own devices
mine = Mesh(np.array(jax.devices()).reshape(2, 4), ("rows", "cols"))
print(mine)
print(mine.devices)
print(dict(mine.shape), mine.axis_names, mine.size)
p = jax.device_put(np.ones((4, 8)), NamedSharding(mine, P("rows", "cols")))
print(p.sharding.spec, p.addressable_shards[0].data.shape)

# %% a mesh of some of the devices, in another order
few = Mesh(np.array(jax.devices()[:4][::-1]), ("i",))
q = jax.device_put(np.arange(8), NamedSharding(few, P("i")))
for shard in q.addressable_shards:
    print(shard.device, shard.data)

# %% resharding by device_put
m2 = jax.device_put(m, NamedSharding(mesh, P("y", "x")))
print(m2.sharding.spec, [tuple(s.data.shape) for s in m2.addressable_shards][:2])
print(np.array_equal(m, m2))
print(jax.device_put(m2, s).sharding == m.sharding)

# %% device_put keeps an array that is already there
print(jax.device_put(m, m.sharding) is m)

# %% gather to the host
print(np.asarray(m).sum(), jax.device_get(m)[0], type(jax.device_get(m)).__name__)
print(np.asarray(m).flags.writeable)

# %% scalars out of arrays
v = jax.device_put(np.arange(4.0), NamedSharding(mesh, P("x")))
print(float(v[2]), int(v.sum()), v.tolist(), v.max().item(), bool(v[0] == 0), len(v))

# %% truth of an array
bool(v > 1)

# %% iteration
for row in jax.device_put(np.arange(8).reshape(4, 2), NamedSharding(mesh, P("x", "y"))):
    print(row)

# %% indexing a sharded array
print(m[0], m[0, 0], m[1:3, ::2], m[-1], m[..., 0])
print(m[np.array([0, 2])])

# %% functional update
print(m.at[0].set(0.0)[:2])
print(m.at[:, 1].add(100.0)[0], m.at[1, 1].get())

# %% assignment is an error
m[0] = 1.0

# %% arrays cannot be hashed
# phrase: unhashable type
hash(m)

# %% make_array_from_callback
c = jax.make_array_from_callback((8,), NamedSharding(mesh, P("x")), lambda i: np.arange(8)[i] * 10)
print(c, c.sharding.spec)

# %% make_array_from_single_device_arrays
pieces = [jax.device_put(np.full((2,), d.id), d) for d in mesh.devices[:, 0]]
line = Mesh(mesh.devices[:, 0], ("x",))
print(jax.make_array_from_single_device_arrays((8,), NamedSharding(line, P("x")), pieces))

# %% make_array_from_process_local_data
print(jax.make_array_from_process_local_data(NamedSharding(mesh, P("x")), np.arange(8)).addressable_shards[2].data)

# %% indivisible
jax.device_put(np.ones(6), NamedSharding(mesh, P("x")))

# %% rank too low for the spec
jax.device_put(np.ones(8), NamedSharding(mesh, P("x", "y")))

# %% device_put of a tree
tree = jax.device_put({"w": np.ones((4, 2)), "b": np.zeros(4)}, NamedSharding(mesh, P("x")))
print({k: (v.shape, v.sharding.spec) for k, v in tree.items()})
both = jax.device_put((np.ones(4), np.ones(2)), (NamedSharding(mesh, P("x")), NamedSharding(mesh, P("y"))))
print([a.sharding.spec for a in both])

# %% copies and deletion
k = m.copy()
print(k.sharding == m.sharding, k is m, k.is_deleted())
k.delete()
print(k.is_deleted(), k.shape)

# %% block until ready
print(m.block_until_ready() is m, jax.block_until_ready((m, 1))[1])

# %% dtypes without x64
print(jnp.asarray(np.arange(3.0)).dtype, jnp.asarray(np.arange(3)).dtype, jnp.ones(2).dtype)
print(jnp.array([1, 2.5]).dtype, (jnp.arange(3) / 2).dtype, (jnp.arange(3) * 2.0).dtype)
print((jnp.ones(2, jnp.bfloat16) + 1).dtype, (jnp.ones(2, jnp.bfloat16) + jnp.ones(2)).dtype)
print(jnp.int8(1) + jnp.int32(1), (jnp.int8(1) + 1).dtype, (jnp.uint8(3) + jnp.int8(1)).dtype)

# %% methods
w = jax.device_put(np.arange(6.0).reshape(2, 3), NamedSharding(mesh, P("y")))
print(w.T, w.sum(), w.mean(axis=0), w.reshape(3, 2), w.astype(int), w.max(axis=1), w.ravel())
print(w.T.sharding.spec, w.argmax(), w.min(), w.prod(), w.std(), w.cumsum(axis=1), w.dot(w.T))

# %% operators
print(w + 1, 1 - w, w * w, w / 2, w // 2, w % 2, w**2, -w, abs(-w), w @ w.T)
print(w > 2, w == w, (w > 2) & (w < 4), ~(w > 2), divmod(jnp.arange(4), 3))

# %% numpy functions see arrays
print(np.sum(w), np.asarray(w).dtype, isinstance(w, jax.Array), isinstance(np.ones(2), jax.Array))
