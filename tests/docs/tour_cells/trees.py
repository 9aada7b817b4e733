# %% setup
import dataclasses
from functools import partial
from typing import NamedTuple

import numpy as np

import shardtrace as jax
import shardtrace.numpy as jnp
from shardtrace import tree_util
from shardtrace.sharding import AxisType, NamedSharding, PartitionSpec as P

jax.config.update("jax_num_cpu_devices", 8)
mesh = jax.make_mesh((4, 2), ("x", "y"))
params = {"w": np.ones((4, 2), np.float32), "b": [np.zeros(2, np.float32), 3]}

# %% leaves and structure
leaves, treedef = jax.tree.flatten(params)
print(len(leaves), treedef == jax.tree.structure(params), treedef.num_leaves)
print(jax.tree.leaves({"b": 1, "a": (2, None)}))
print(jax.tree.unflatten(treedef, [1, 2, 3]))

# %% map
print(jax.tree.map(lambda v: v + 1, {"a": 1, "b": (2, 3)}), tree_util.tree_map(lambda a, b: a + b, [1, 2], [10, 20]))
print(jax.tree.map(lambda s: 0, {"p": P("x"), "q": None}))

# %% map over different trees
# phrase: pytree structure error: different lengths of list at key path
jax.tree.map(lambda a, b: a, [1, 2], [1, 2, 3])

# %% reduce, all, transpose
print(jax.tree.reduce(lambda a, b: a + b, {"a": 1, "b": 2}), jax.tree.all([True, False]))
print(jax.tree.transpose(jax.tree.structure([0, 0]), jax.tree.structure({"a": 0}), [{"a": 1}, {"a": 2}]))

# %% paths
for path, leaf in tree_util.tree_flatten_with_path(params)[0]:
    print(tree_util.keystr(path), np.shape(leaf))
print(tree_util.tree_map_with_path(lambda p, v: tree_util.keystr(p), {"a": [1, 2]}))

# %% place a tree
placed = jax.tree.map(lambda v: jax.device_put(v, NamedSharding(mesh, P())), params)
print(jax.tree.map(lambda v: v.sharding.spec, placed))
specs = {"w": P("x", "y"), "b": [P("y"), P()]}
sharded = jax.tree.map(lambda v, s: jax.device_put(v, NamedSharding(mesh, s)), params, specs)
print(jax.tree.map(lambda v: v.sharding.spec, sharded))

# %% a tree through jit
out = jax.jit(lambda p, x: {"y": x @ p["w"] + p["b"][0] * p["b"][1]})(sharded, np.ones((3, 4), np.float32))
print(out)


# %% classes as trees
class Point(NamedTuple):
    x: object
    y: object


print(jax.tree.map(lambda v: v * 2, Point(1, 2)), jax.jit(lambda p: Point(p.y, p.x))(Point(1, 2)))


@tree_util.register_pytree_node_class
class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def tree_flatten(self):
        return (self.a, self.b), None

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children)


print(jax.jit(lambda p: p.a + p.b)(Pair(1, 2)), jax.tree.leaves(Pair(3, (4, 5))))


@partial(tree_util.register_dataclass, data_fields=["w"], meta_fields=["name"])
@dataclasses.dataclass
class Layer:
    w: object
    name: str


print(jax.tree.map(lambda v: v + 1, Layer(1, "first")))

# %% static arguments are part of the key
traces = []


@partial(jax.jit, static_argnames=("n",))
def f(x, n=2):
    traces.append(n)
    return x * n


print(f(1.0), f(2.0, n=3), f(5.0), f(5.0, 2), traces)

# %% unhashable static argument
jax.jit(lambda x, n: x, static_argnums=1)(1.0, [1])

# %% keyword arguments and defaults
print(jax.jit(lambda x, *, y=2.0: x + y)(1.0), jax.jit(lambda x, *, y: x + y)(1.0, y=5))

# %% outputs that are not arrays
print(jax.jit(lambda x: (x, 3, None, True))(1.0))
jax.jit(lambda x: "text")(1.0)

# %% inputs that are not arrays
# phrase: The problematic value is of type <class 'str'> and was passed to the function at path x
jax.jit(lambda x: x)("text")

# %% a Python branch on a traced value
jax.jit(lambda x: x if x > 0 else -x)(1.0)

# %% numpy on a traced value
jax.jit(lambda x: np.sin(x))(np.ones(3))

# %% a traced value as an index or a size
jax.jit(lambda n: jnp.zeros(n))(3)

# %% range over a traced value
jax.jit(lambda n: [i for i in range(n)])(3)

# %% a leaked tracer
kept = []
jax.jit(lambda x: kept.append(x))(1.0)
kept[0] + 1

# %% shapes of a program
print(jax.eval_shape(lambda x: {"s": x.sum(), "t": x.T}, jax.ShapeDtypeStruct((2, 3), jnp.float32)))
print(jax.ShapeDtypeStruct((2, 3), jnp.bfloat16))

# %% equations of a program
jaxpr = jax.make_jaxpr(lambda x: jnp.sin(x) * 2 + x)(1.0)
print([e.primitive.name for e in jaxpr.eqns])
print([v.aval.str_short(short_dtypes=True) for e in jaxpr.eqns for v in e.outvars])

# %% equations of a sharded program
em = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
with jax.set_mesh(em):
    a = jax.device_put(np.ones((8, 4), np.float32), P("x"))
    b = jax.device_put(np.ones((4, 2), np.float32), P(None, "y"))
    traced = jax.jit(lambda a, b: jnp.tanh(a @ b)).trace(a, b)
for e in traced.jaxpr.eqns:
    print(e.primitive.name, [v.aval.str_short(short_dtypes=True) for v in (*e.invars, *e.outvars)])

# %% stages
lowered = traced.lower()
compiled = lowered.compile()
print(type(lowered).__name__, type(compiled).__name__, compiled(a, b).sharding.spec)
print(jax.tree.map(lambda o: (o.shape, o.dtype.name), traced.out_info))

# %% a compiled program wants the types it was compiled for
compiled(a, jax.device_put(np.ones((4, 4), np.float32), NamedSharding(em, P(None, "y"))))

# %% debug printing
# needs: debug.print
jax.debug.print("x is {x}", x=jnp.arange(3))
jax.jit(lambda x: jax.debug.print("{} inside", x))(4);
