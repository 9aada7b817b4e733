# %% setup
import numpy as np

import shardtrace as jax
import shardtrace.numpy as jnp
from shardtrace.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 8)

# %% make_mesh
mesh = jax.make_mesh((2, 4), ("x", "y"))
print(mesh)
print(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, dict(mesh.shape), mesh.size, mesh.empty)
print(mesh.shape["x"], mesh.shape_tuple, dict(mesh.shape))
mesh

# %% devices of a mesh
print(mesh.devices.shape, mesh.device_ids)
print(mesh.devices)

# %% explicit axes
em = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
print(em)
print(em.axis_types, AxisType.Explicit, str(AxisType.Auto), repr(AxisType.Manual))
print(em == mesh, em is jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2))

# %% mixed axes
mixed = jax.make_mesh((2, 2, 2), ("a", "b", "c"), axis_types=(AxisType.Auto, AxisType.Explicit, AxisType.Auto))
print(mixed)
x = jax.device_put(np.zeros((8, 4), np.float32), NamedSharding(mixed, P(("a", "b"), "c")))
print(jax.typeof(x), x.sharding.spec)

# %% a mesh of fewer devices than there are
small = jax.make_mesh((2, 2), ("x", "y"))
print(small.device_ids)
print(jax.make_mesh((2,), ("x",), devices=jax.devices()[4:6]).devices)

# %% abstract meshes
print(mesh.abstract_mesh.axis_names, dict(mesh.abstract_mesh.shape))
am = AbstractMesh((2, 4), ("x", "y"))
print(am.axis_sizes, am.axis_types, am.size)
am

# %% abstract mesh without devices
am.devices

# %% no context mesh
print(jax.sharding.get_mesh(), jax.sharding.get_abstract_mesh().empty)

# %% context mesh
with jax.set_mesh(em):
    print(jax.sharding.get_mesh() is em)
    print(jax.sharding.get_abstract_mesh().axis_names)
    print(jnp.zeros(4).sharding)
print(jax.sharding.get_mesh().empty)

# %% use_mesh
with jax.sharding.use_mesh(mesh):
    print(jax.sharding.get_mesh().axis_types)

# %% nested context meshes
with jax.set_mesh(em):
    with jax.set_mesh(mesh):
        print(jax.sharding.get_mesh().axis_types)
    print(jax.sharding.get_mesh().axis_types)

# %% specs
print(P("x", "y"), P("x", None), P(None, "y"), P(("x", "y"), None), P(), P(None), P(("x",)))
print(P("x") == P("x", None), P(("x",)) == P("x"), P("x") == P("x"), len(P("x", None)), P("x", "y")[1])
print(list(P("x", None)), tuple(P("x", "y")), P.UNCONSTRAINED, P(P.UNCONSTRAINED, "x"))
print(P("x", unreduced={"y"}), P(unreduced={"x"}), P(reduced={"x"}))
print(hash(P("x")) == hash(P("x")), {P("x"): 1}[P("x")], jax.P is P)
P("x", ("y", "z"))

# %% nested tuple in a spec
P((("x", "y"),))

# %% overlap in a spec
P("x", unreduced={"x"})

# %% named shardings
print(NamedSharding(mesh, P("x")))
print(NamedSharding(em, P(("x", "y"))))
print(NamedSharding(mesh, P("x")).shard_shape((4, 4)), NamedSharding(mesh, P(("x", "y"))).shard_shape((8, 3)))
NamedSharding(mesh, P(None, "x"))

# %% an axis unknown to the mesh
NamedSharding(mesh, P("z"))

# %% an axis used twice
NamedSharding(mesh, P("x", "x"))

# %% too many names
Mesh(np.array(jax.devices()), ("x", "y"))

# %% too many devices wanted
jax.make_mesh((4, 4), ("x", "y"))

# %% wrong number of axis types
jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,))

# %% a spec without a mesh
jax.device_put(np.ones(4), P("x"))

# %% major and minor order
for spec in (P(("x", "y")), P(("y", "x"))):
    a = jax.device_put(np.arange(8), NamedSharding(mesh, spec))
    print(spec, [int(s.data[0]) for s in a.addressable_shards])

# %% a sharding that does not divide
NamedSharding(mesh, P("x")).shard_shape((3, 4))

# %% updating the axis types
print(mesh.update(axis_types=(AxisType.Explicit,) * 2))
print(mesh.abstract_mesh.update_axis_types({"x": AxisType.Explicit}).axis_types)

# %% create_device_mesh
from shardtrace.experimental import mesh_utils

print(mesh_utils.create_device_mesh((4, 2)).shape)
print(Mesh(mesh_utils.create_device_mesh((8,)), axis_names=("i",)))

# %% a mesh as a context, the old way
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    with mesh:
        c = jax.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, P("x")))(np.arange(4.0))
print(c, c.sharding.spec)
