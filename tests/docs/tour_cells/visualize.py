# %% setup
import numpy as np

import shardtrace as jax
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 8)
mesh = jax.make_mesh((2, 4), ("a", "b"))
line = jax.make_mesh((8,), ("i",))


def show(shape, spec, mesh=mesh, **options):
    jax.debug.visualize_array_sharding(jax.device_put(jnp.zeros(shape), NamedSharding(mesh, spec)), **options)


# %% one device
jax.debug.visualize_array_sharding(jnp.zeros((4, 8)))
jax.debug.visualize_array_sharding(jnp.zeros(8))
jax.debug.visualize_array_sharding(jax.device_put(jnp.zeros((4, 4)), jax.devices()[3]))

# %% two dimensions
show((8, 8), P("a", "b"))
show((8, 8), P("b", "a"))

# %% rows
show((8, 8), P("a"))
show((8, 8), P("b", None))

# %% columns
show((8, 8), P(None, "b"))
show((8, 8), P(None, "a"))

# %% replicated
show((8, 8), P())
show((8, 8), P(None, None))

# %% both axes on one dimension
show((8, 8), P(("a", "b")))
show((8, 8), P(("b", "a"), None))
show((8, 8), P(None, ("a", "b")))

# %% one dimension
show((16,), P("i"), line)
show((16,), P("a"))
show((16,), P("b"))
show((16,), P(("b", "a")))
show((16,), P())

# %% wide and tall
show((4, 32), P("a", "b"))
show((32, 4), P("a", "b"))
show((2, 128), P("a", "b"))
show((64, 8), P("b"))

# %% scale and width
show((8, 8), P("a", "b"), scale=0.5)
show((8, 8), P("a", "b"), min_width=4, scale=0.5)
show((8, 8), P("a"), scale=2.0)
show((16,), P("i"), line, min_width=5)

# %% without colour
show((8, 8), P("b", "a"), use_color=False)

# %% explicit axes are drawn alike
em = jax.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
show((4, 4), P("y", "x"), em)

# %% reversed devices
back = Mesh(np.array(jax.devices())[::-1].reshape(4, 2), ("a", "b"))
show((8, 8), P("a", "b"), back)

# %% a sharding without an array
jax.debug.visualize_sharding((8, 4), NamedSharding(mesh, P("a", "b")))

# %% three dimensions cannot be drawn
show((4, 4, 4), P("a"))

# %% results of computations
x = jax.device_put(jnp.arange(64.0).reshape(8, 8), NamedSharding(mesh, P("a", "b")))
jax.debug.visualize_array_sharding(jnp.sin(x))
jax.debug.visualize_array_sharding(x.T)
jax.debug.visualize_array_sharding(x.sum(axis=0))
jax.debug.visualize_array_sharding(x @ x.T)

# %% inspect
jax.debug.inspect_array_sharding(x, callback=print)
