# %% [markdown]
# # A tour of sharding
#
# An array may be larger than one device. Sharding says which device holds which block of it, and
# there are three ways to say so: leave it to the compiler (Auto), write it into the types
# (Explicit), or program each device (Manual). This tour walks through the three on simulated
# devices, compares them on one small layer, and then opens the box: the types while they are
# made, and the program at every stage.
#
# Run it with `python examples/sharding_tour.py`, or cell by cell as a notebook. Steps 1 to 5 are
# plain JAX programs with their imports changed.

# %%
import functools
import pathlib
import tempfile

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

# %% [markdown]
# ## 1. Devices, and where an array lives
#
# Ask for twelve simulated devices before the first array is made. Without further words, an array
# lives on the first.

# %%
st.config.update("jax_num_cpu_devices", 12)
for device in st.devices():
    print(repr(device))

# %%
arr = jnp.arange(32.0).reshape(4, 8)
print(arr)
print(arr.devices())
print(arr.sharding)

# %% [markdown]
# A picture says which device holds which block. One device holds everything, so there is one
# cell.

# %%
st.debug.visualize_array_sharding(arr)

# %% [markdown]
# ## 2. Auto: you place the inputs, the compiler places the rest
#
# A mesh names the directions of a grid of devices. A spec names, for each dimension of an array,
# the mesh axis that cuts it. Both together are a sharding.

# %%
mesh = st.make_mesh((2, 4), ("x", "y"))
sharding = NamedSharding(mesh, P("x", "y"))
print(mesh)
print(sharding)

# %%
arr_sharded = st.device_put(arr, sharding)
print(arr_sharded)
st.debug.visualize_array_sharding(arr_sharded)


# %% [markdown]
# An elementwise function needs no communication, and its result stays where its input was.

# %%
@st.jit
def f_elementwise(x):
    return 2 * jnp.sin(x) + 1


result = f_elementwise(arr_sharded)
print("shardings match:", result.sharding == arr_sharded.sharding)
print(result)


# %% [markdown]
# A sum over the rows crosses the devices of one column. Afterwards both hold the same block of
# the result: it is cut over `y` and replicated over `x`, so devices 0 and 4 share a cell, as do 1
# and 5, 2 and 6, 3 and 7.

# %%
@st.jit
def f_contract(x):
    return x.sum(axis=0)


result = f_contract(arr_sharded)
print(result.sharding)
print(result)
st.debug.visualize_array_sharding(result)

# %% [markdown]
# Two more layouts: rows only, and fully replicated.

# %%
by_row = st.device_put(arr, NamedSharding(mesh, P("x")))
print(by_row.sharding.spec)
st.debug.visualize_array_sharding(by_row)

# %%
everywhere = st.device_put(arr, NamedSharding(mesh, P()))
print(everywhere.sharding.spec, everywhere.is_fully_replicated)
st.debug.visualize_array_sharding(everywhere)

# %% [markdown]
# The shards are arrays themselves, each with its device and the part of the whole that it holds.

# %%
for shard in result.addressable_shards:
    print(shard.device, shard.index, shard.replica_id, shard.data)

# %% [markdown]
# ## 3. Explicit: the sharding is part of the type
#
# `typeof` tells the type of a value, and works on tracers too: what it prints inside a traced
# function is what the program will be compiled for.

# %%
some_array = np.arange(8)
print("type of some_array:", st.typeof(some_array))


# %%
@st.jit
def twice(x):
    print("type of x while tracing:", st.typeof(x))
    return x + x


print(twice(some_array))

# %% [markdown]
# On a mesh with Explicit axes the type also says how each dimension is cut: `4@X` is a dimension
# of size 4 over `X`.

# %%
mesh = st.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Explicit, AxisType.Explicit))
replicated = np.arange(8).reshape(4, 2)
sharded = st.device_put(replicated, NamedSharding(mesh, P("X", None)))
print("type of replicated:", st.typeof(replicated))
print("type of sharded:", st.typeof(sharded))
print("device 0 holds:", sharded.addressable_shards[0].data)

# %% [markdown]
# The type of a result follows from the types of the operands, equation by equation. Here a column
# cut over `X` meets a row cut over `Y`.

# %%
column = st.device_put(np.arange(4).reshape(4, 1), NamedSharding(mesh, P("X", None)))
row = st.device_put(np.arange(8).reshape(1, 8), NamedSharding(mesh, P(None, "Y")))


@st.jit
def add(x, y):
    total = x + y
    print("x:", st.typeof(x))
    print("y:", st.typeof(y))
    print("x + y:", st.typeof(total))
    return total


with st.sharding.use_mesh(mesh):
    total = add(column, row)
print(total)
print(total.sharding)

# %% [markdown]
# Under a mesh context a bare spec is enough.

# %%
with st.set_mesh(mesh):
    weights = st.device_put(np.ones((8, 4), np.float32), P("Y", None))
    print(st.typeof(weights))
    print(st.typeof(st.reshard(weights, P(None, "X"))))

# %% [markdown]
# What has no single right answer is an error at the line that asks for it. Two operands that cut
# one dimension differently:

# %%
over_x = st.device_put(np.ones((4, 4), np.float32), NamedSharding(mesh, P("X", None)))
over_y = st.device_put(np.ones((4, 4), np.float32), NamedSharding(mesh, P("Y", None)))
try:
    over_x + over_y
except Exception as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# And a product whose contracted dimension is cut on both sides. Should the sum be gathered,
# scattered, or left unreduced? `out_sharding` answers.

# %%
lhs = st.device_put(np.ones((4, 8), np.float32), NamedSharding(mesh, P(None, "Y")))
rhs = st.device_put(np.ones((8, 4), np.float32), NamedSharding(mesh, P("Y", None)))
try:
    lhs @ rhs
except Exception as error:
    print(f"{type(error).__name__}: {error}")

# %%
with st.set_mesh(mesh):
    product = jnp.dot(lhs, rhs, out_sharding=P("X", None))
print(st.typeof(product))
print(product)

# %% [markdown]
# ## 4. Manual: you write the program of one device
#
# `shard_map` hands each device its block. The shapes inside are local.

# %%
mesh = st.make_mesh((8,), ("x",))
numbers = jnp.arange(32)


@functools.partial(st.shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
def double_blocks(block):
    print("local shape:", block.shape)
    return block * 2


print("global shape:", numbers.shape)
doubled = st.jit(double_blocks)(numbers)
print(doubled)
print(doubled.sharding)


# %% [markdown]
# A sum inside is a sum of the block. Eight devices give eight sums, stacked along `x` on the way
# out.

# %%
def block_sum(block):
    return jnp.sum(block, keepdims=True)


print(st.shard_map(block_sum, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(numbers))

# %% [markdown]
# Forget `keepdims` and there is no dimension to stack along:

# %%
try:
    st.shard_map(lambda b: jnp.sum(b), mesh=mesh, in_specs=P("x"), out_specs=P("x"))(numbers)
except Exception as error:
    print(f"{type(error).__name__}: {error}")

# %% [markdown]
# Claim that the result is the same everywhere, and the claim is checked:

# %%
try:
    st.shard_map(block_sum, mesh=mesh, in_specs=P("x"), out_specs=P())(numbers)
except Exception as error:
    print(f"{type(error).__name__}: {error}")


# %% [markdown]
# `psum` adds over the devices of an axis, and then the claim holds. Stacked over `x` instead, the
# same number comes out once for each device.

# %%
def total_sum(block):
    return lax.psum(jnp.sum(block, keepdims=True), "x")


print(st.shard_map(total_sum, mesh=mesh, in_specs=P("x"), out_specs=P())(numbers))
print(st.shard_map(total_sum, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(numbers))

# %% [markdown]
# ## 5. One layer, four ways
#
# The same layer, unsharded and in the three modes. The numbers agree; what differs is who decides
# where the sum over the contracted dimension happens.

# %%
rng = np.random.default_rng(seed=0)
x = rng.normal(size=(32,)).astype(np.float32)
weights = rng.normal(size=(32, 4)).astype(np.float32)
bias = rng.normal(size=(4,)).astype(np.float32)


@st.jit
def layer(x, weights, bias):
    return nn.sigmoid(x @ weights + bias)


print("unsharded:", layer(x, weights, bias))


# %%
@st.jit
def layer_auto(x, weights, bias):
    print("auto:", st.typeof(x), st.typeof(weights), st.typeof(bias))
    return nn.sigmoid(x @ weights + bias)


mesh = st.make_mesh((8,), ("x",))
x_auto = st.device_put(x, NamedSharding(mesh, P("x")))
weights_auto = st.device_put(weights, NamedSharding(mesh, P("x")))
print("auto:", layer_auto(x_auto, weights_auto, bias))


# %%
@st.jit
def layer_explicit(x, weights, bias):
    print("explicit:", st.typeof(x), st.typeof(weights), st.typeof(bias))
    h = jnp.dot(x, weights, out_sharding=P())
    print("explicit, x @ weights:", st.typeof(h))
    return nn.sigmoid(h + bias)


explicit_mesh = st.make_mesh((8,), ("X",), axis_types=(AxisType.Explicit,))
x_explicit = st.device_put(x, NamedSharding(explicit_mesh, P("X")))
weights_explicit = st.device_put(weights, NamedSharding(explicit_mesh, P("X", None)))
with st.set_mesh(explicit_mesh):
    print("explicit:", layer_explicit(x_explicit, weights_explicit, bias))


# %%
@st.jit
@functools.partial(
    st.shard_map, mesh=mesh, in_specs=(P("x"), P("x", None), P(None)), out_specs=P(None)
)
def layer_manual(x, weights, bias):
    print("manual:", st.typeof(x), st.typeof(weights), st.typeof(bias))
    h = lax.psum(x @ weights, "x")
    print("manual, psum(x @ weights):", st.typeof(h))
    return nn.sigmoid(h + bias)


print("manual:", layer_manual(x, weights, bias))

# %% [markdown]
# ## 6. Watching the types
#
# From here on the tour shows what shardtrace adds. `show_types` prints every value while it is
# traced: its source line, its name, its type, and the op that made it. Setting the environment
# variable `SHARDTRACE_DEBUG=trace` does the same for a whole program.

# %%
mesh = st.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Explicit,) * 2)
st.set_mesh(mesh)


@st.jit
def two_layers(x, w1, w2):
    hidden = jnp.tanh(x @ w1)
    scores = jnp.dot(hidden, w2, out_sharding=P("X", None))
    return jnp.maximum(scores, 0)


x = st.device_put(rng.normal(size=(8, 16)).astype(np.float32), P("X", None))
w1 = st.device_put(rng.normal(size=(16, 8)).astype(np.float32), P(None, "Y"))
w2 = st.device_put(rng.normal(size=(8, 4)).astype(np.float32), P("Y", None))
with st.debug.show_types():
    traced = two_layers.trace(x, w1, w2)
st.set_mesh(None)

# %% [markdown]
# Over Auto axes a type is silent while tracing, and the watcher says which axes are still open.

# %%
@st.jit
def two_layers_auto(x, w1, w2):
    hidden = jnp.tanh(x @ w1)
    scores = hidden @ w2
    return jnp.maximum(scores, 0)


auto_mesh = st.make_mesh((2, 4), ("x", "y"))
x_auto = st.device_put(x, NamedSharding(auto_mesh, P("x", None)))
w1_auto = st.device_put(w1, NamedSharding(auto_mesh, P(None, "y")))
w2_auto = st.device_put(w2, NamedSharding(auto_mesh, P("y", None)))
with st.debug.show_types():
    traced_auto = two_layers_auto.trace(x_auto, w1_auto, w2_auto)

# %% [markdown]
# ## 7. The dumps
#
# A jitted function goes through three stages, and each is a program that prints. First, as it was
# traced: every equation with its type and its source line.

# %%
print(traced_auto.jaxpr)

# %% [markdown]
# Second, resolved: every open axis has been decided, from the inputs forward and from the outputs
# back. The program is still about whole arrays.

# %%
lowered = traced_auto.lower()
print(lowered.as_text())

# %% [markdown]
# Third, the program of one device: local shapes, and the collectives written out. Each says over
# which mesh axes it goes, how many bytes a device receives, which line it serves, and why it
# exists.

# %%
compiled = lowered.compile()
print(compiled.as_text())

# %% [markdown]
# The text is the program: each of the three parses back to a program equal to the one printed.

# %%
for program in (traced_auto.jaxpr, lowered.program, compiled.program):
    print(program.level.name, st.programs_equal(st.parse_program(str(program)), program))

# %% [markdown]
# The compiled program runs on the simulated devices, and gives what numpy gives.

# %%
result = compiled(x_auto, w1_auto, w2_auto)
expected = np.maximum(np.tanh(np.asarray(x) @ np.asarray(w1)) @ np.asarray(w2), 0)
print(result.sharding.spec, np.allclose(result, expected, atol=1e-5))

# %% [markdown]
# With `SHARDTRACE_DUMP=folder` in the environment, or the setting below, every stage of every
# function is written to a file of its own, ready to be read, edited and run again.

# %%
with tempfile.TemporaryDirectory() as folder, st.config.override(shardtrace_dump=folder):
    st.jit(lambda x, w: jnp.tanh(x @ w)).lower(x_auto, w1_auto)
    for file in sorted(pathlib.Path(folder).rglob("*.st")):
        print(file.name)
