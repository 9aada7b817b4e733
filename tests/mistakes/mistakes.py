"""Typical mistakes of users, as programs that run with shardtrace and with JAX.

`st` is the package, `x` f32[4,4], `v` f32[4], `n` i32[4], `k` a key, `mesh` has x=2, y=4 (Auto),
`explicit` the same axes (Explicit). EXPRESSIONS are tried at once and under jit; the last line of
each of PROGRAMS is the one that is wrong.
"""
from __future__ import annotations

SETUP = """
import numpy as np
from functools import partial
jnp, lax, P = st.numpy, st.lax, st.sharding.PartitionSpec
NamedSharding, AxisType = st.sharding.NamedSharding, st.sharding.AxisType
mesh = st.make_mesh((2, 4), ('x', 'y'), axis_types=(AxisType.Auto,) * 2)
explicit = st.make_mesh((2, 4), ('x', 'y'), axis_types=(AxisType.Explicit,) * 2)
x, v, n, k = jnp.ones((4, 4)), jnp.ones(4), jnp.arange(4), st.random.key(0)
"""

EXPRESSIONS = {
    # shapes
    "add-shapes": "x + jnp.ones(3)",
    "where-shapes": "jnp.where(x > 0, x, jnp.ones((3, 3)))",
    "matmul-sizes": "x @ jnp.ones((3, 2))",
    "matmul-scalar": "x @ 2.0",
    "dot-sizes": "jnp.dot(x, jnp.ones(3))",
    "tensordot-sizes": "jnp.tensordot(x, jnp.ones((3, 4)), axes=1)",
    "einsum-sizes": "jnp.einsum('ij,jk->ik', x, jnp.ones((3, 2)))",
    "einsum-operands": "jnp.einsum('ij,jk->ik', x)",
    "einsum-ranks": "jnp.einsum('ijk->i', x)",
    "einsum-output": "jnp.einsum('ij->k', x)",
    "reshape-size": "x.reshape(3, 5)",
    "reshape-function": "jnp.reshape(x, (3, 3))",
    "reshape-two-unknown": "x.reshape(-1, -1)",
    "reshape-float": "x.reshape(2.0, 8)",
    "reshape-str": "jnp.reshape(x, 'ab')",
    "broadcast-to": "jnp.broadcast_to(x, (3, 4))",
    "concatenate-sizes": "jnp.concatenate([x, jnp.ones((4, 3))], axis=0)",
    "concatenate-array": "jnp.concatenate(2.0)",
    "concatenate-none": "jnp.concatenate([])",
    "stack-sizes": "jnp.stack([x, v])",
    "stack-none": "jnp.stack([])",
    "split-sizes": "jnp.split(x, 3)",
    "transpose-axes": "x.transpose(0, 0)",
    "transpose-rank": "jnp.transpose(x, (0, 1, 2))",
    "swapaxes": "jnp.swapaxes(x, 0, 5)",
    "moveaxis": "jnp.moveaxis(x, 3, 0)",
    "squeeze": "jnp.squeeze(x, axis=0)",
    "expand-dims": "jnp.expand_dims(x, 7)",
    "tile-str": "jnp.tile(x, 'a')",
    "repeat-str": "jnp.repeat(x, 'a')",
    "pad-width": "jnp.pad(x, ((1, 1), (1, 1), (1, 1)))",
    "pad-mode": "jnp.pad(x, 1, mode='nothing')",
    "roll-axis": "jnp.roll(x, 1, axis=4)",
    "negative-shape": "jnp.zeros((-1, 2))",
    "float-shape": "jnp.zeros((2.5,))",
    "str-shape": "jnp.ones('ab')",
    "none-shape": "jnp.zeros((None, 2))",
    # axes
    "sum-axis": "jnp.sum(x, axis=2)",
    "sum-axis-str": "jnp.sum(x, axis='x')",
    "max-axis-method": "x.max(axis=3)",
    "mean-axes-twice": "jnp.mean(x, axis=(0, 0))",
    "argmax-axis": "jnp.argmax(x, axis=2)",
    "cumsum-axis": "jnp.cumsum(x, axis=2)",
    "sort-axis": "jnp.sort(x, axis=2)",
    "softmax-axis": "st.nn.softmax(x, axis=3)",
    "one-hot-float": "st.nn.one_hot(n, 2.5)",
    "norm-ord": "jnp.linalg.norm(x, ord='bad')",
    # kinds of arguments
    "add-none": "x + None",
    "add-str": "x + 'a'",
    "add-list": "x + [1, 2, 3, 4]",
    "radd-none": "None + x",
    "mul-dict": "x * {}",
    "less-none": "x < None",
    "matmul-none": "x @ None",
    "sin-none": "jnp.sin(None)",
    "sin-str": "jnp.sin('a')",
    "sin-list": "jnp.sin([1.0, 2.0])",
    "add-function-list": "jnp.add([1, 2], x)",
    "sum-list": "jnp.sum([1, 2, 3])",
    "matmul-list": "jnp.matmul([[1.0]], x)",
    "sqrt-dict": "jnp.sqrt({})",
    "array-none": "jnp.array(None)",
    "array-str": "jnp.array('a')",
    "array-ragged": "jnp.array([[1, 2], [3]])",
    "array-object": "jnp.asarray(object())",
    "maximum-one": "jnp.maximum(x)",
    "exp-two": "jnp.exp(x, x, x)",
    "sum-unknown": "jnp.sum(x, dim=0)",
    "zeros-nothing": "jnp.zeros()",
    "where-two": "jnp.where(x > 0, x)",
    "clip-str": "jnp.clip(x, 'a', 'b')",
    "linspace-one": "jnp.linspace(0)",
    "arange-str": "jnp.arange('U')",
    "dtype-name": "x.astype('float33')",
    "dtype-nonsense": "jnp.zeros(3, dtype='nothing')",
    "dtype-none": "jnp.ones(3, dtype=object)",
    "shift-floats": "x << 1",
    "and-floats": "x & x",
    "invert-float": "~x",
    "integer-power": "lax.integer_pow(x, 'a')",
    "attribute": "x.nothing",
    "method-argument": "x.sum(nothing=1)",
    # indexing
    "set-item": "x.__setitem__(0, 1.0)",
    "index-str": "x['a']",
    "index-float": "x[1.5]",
    "index-many": "x[0, 0, 0]",
    "index-list": "x[[0, 1]]",
    "index-float-array": "x[v]",
    "index-ellipses": "x[..., ...]",
    "mask-shape": "x[jnp.ones(3, bool)]",
    "slice-step": "x[::0]",
    "slice-float": "x[0.0:2]",
    "at-str": "x.at['a'].set(1)",
    "at-set-shape": "x.at[0].set(jnp.ones(3))",
    "at-set-none": "x.at[0].set(None)",
    "at-set-str": "x.at[0].set('a')",
    "at-call": "x.at(0)",
    "at-equals": "x.at[0].nothing(1)",
    "at-mode": "x.at[0].set(1, mode='nothing')",
    "take-float": "jnp.take(x, v)",
    "dynamic-slice": "lax.dynamic_slice(x, (0,), (2, 2))",
    "dynamic-slice-size": "lax.dynamic_slice(x, (0, 0), (5, 2))",
    "iterate-scalar": "list(jnp.float32(1.0))",
    "len-scalar": "len(jnp.sum(x))",
    # values
    "float-of-array": "float(x)",
    "int-of-array": "int(v)",
    "bool-of-array": "bool(x)",
    "if-array": "1 if x > 0 else 2",
    "range-of-array": "range(v)",
    # lax
    "lax-add-shapes": "lax.add(x, v)",
    "lax-add-dtypes": "lax.add(x, jnp.ones((4, 4), int))",
    "lax-concatenate": "lax.concatenate([x, v], 0)",
    "lax-dot-general": "lax.dot_general(x, x, (((0,), (2,)), ((), ())))",
    "lax-psum-axis": "lax.psum(x, 'nothing')",
    "lax-transpose": "lax.transpose(x, (0, 2))",
    "lax-broadcast-in-dim": "lax.broadcast_in_dim(x, (4, 3), (0, 1))",
    "lax-conv": "lax.conv(x, x, (1, 1), 'SAME')",
    "cond-branches": "lax.cond(True, lambda: x, lambda: v)",
    "cond-predicate": "lax.cond(x, lambda: 1, lambda: 2)",
    "cond-operands": "lax.cond(True, lambda a: a, lambda a: a)",
    "cond-none": "lax.cond(None, lambda: 1, lambda: 2)",
    "cond-trees": "lax.cond(True, lambda: (x, x), lambda: x)",
    "switch-none": "lax.switch(0, [])",
    "scan-carry": "lax.scan(lambda c, a: (c + v, a), 0.0, v)",
    "scan-result": "lax.scan(lambda c, a: c + a, 0.0, v)",
    "scan-lengths": "lax.scan(lambda c, a: (c, a), 0.0, (v, jnp.ones(3)))",
    "scan-nothing": "lax.scan(lambda c, a: (c, a), 0.0, None)",
    "scan-length": "lax.scan(lambda c, a: (c, a), 0.0, v, length=3)",
    "scan-scalar": "lax.scan(lambda c, a: (c, a), 0.0, 1.0)",
    "while-carry": "lax.while_loop(lambda c: c < 3, lambda c: c + 1.5, 0)",
    "while-condition": "lax.while_loop(lambda c: c, lambda c: c, v)",
    "fori-carry": "lax.fori_loop(0, 3, lambda i, c: c + v, 0.0)",
    "fori-float": "lax.fori_loop(0, 2.5, lambda i, c: c, 0.0)",
    "map-scalar": "lax.map(lambda a: a, 1.0)",
    "associative-scan": "lax.associative_scan(jnp.add, 1.0)",
    "top-k": "lax.top_k(v, 9)",
    # transformations
    "grad-matrix": "st.grad(lambda a: a)(x)",
    "grad-int": "st.grad(lambda a: a * 1.0)(3)",
    "grad-int-array": "st.grad(lambda a: a.sum())(n)",
    "grad-tuple": "st.grad(lambda a: (a.sum(), a.sum()))(x)",
    "grad-none-result": "st.grad(lambda a: None)(x)",
    "grad-argnums": "st.grad(lambda a: a.sum(), argnums=3)(x)",
    "grad-str": "st.grad(lambda a: a)('a')",
    "grad-function": "st.grad(x)",
    "grad-missing": "st.grad(lambda a, b: a)(1.0)",
    "grad-aux": "st.grad(lambda a: a.sum(), has_aux=True)(x)",
    "value-and-grad-matrix": "st.value_and_grad(lambda a: a * 2)(x)",
    "jvp-shapes": "st.jvp(jnp.sin, (x,), (v,))",
    "jvp-list": "st.jvp(jnp.sin, x, x)",
    "jvp-dtypes": "st.jvp(jnp.sin, (x,), (jnp.ones((4, 4), int),))",
    "vjp-cotangent": "st.vjp(jnp.sin, x)[1](v)",
    "jacfwd-int": "st.jacfwd(lambda a: a * 1.0)(n)",
    "hessian-int": "st.hessian(lambda a: a.sum())(n)",
    "vmap-sizes": "st.vmap(jnp.add)(x, jnp.ones(3))",
    "vmap-axes": "st.vmap(jnp.add, in_axes=(0,))(x, x)",
    "vmap-scalar": "st.vmap(jnp.sin)(1.0)",
    "vmap-axis": "st.vmap(jnp.sin, in_axes=2)(x)",
    "vmap-none": "st.vmap(lambda a: a, in_axes=None)(x)",
    "vmap-no-args": "st.vmap(lambda: 1)()",
    "vmap-str": "st.vmap(lambda a: a)('ab')",
    "vmap-out-axes": "st.vmap(lambda a: a, out_axes=3)(x)",
    "vmap-in-axes-str": "st.vmap(lambda a: a, in_axes='a')(x)",
    "jit-of-array": "st.jit(x)",
    "jit-missing": "st.jit(lambda a, b: a)(x)",
    "jit-too-many": "st.jit(lambda a: a)(x, x)",
    "jit-str": "st.jit(lambda a: a)('text')",
    "jit-object": "st.jit(lambda a: a)(object())",
    "jit-returns-str": "st.jit(lambda a: 'text')(x)",
    "jit-unhashable": "st.jit(lambda a, b: a, static_argnums=1)(x, [1])",
    "jit-static-array": "st.jit(lambda a, b: a, static_argnums=1)(x, v)",
    "jit-static-range": "st.jit(lambda a: a, static_argnums=5)(x)",
    "jit-static-name": "st.jit(lambda a: a, static_argnames='b')(x)",
    "jit-option": "st.jit(lambda a: a, nothing=1)",
    "checkpoint-policy": "st.checkpoint(lambda a: a.sum())('text')",
    "eval-shape": "st.eval_shape(lambda a: a, 'text')",
    # random
    "old-key": "st.random.normal(0, (3,))",
    "key-array": "st.random.normal(x, (3,))",
    "key-none": "st.random.uniform(None)",
    "key-shape": "st.random.normal(k, 3.5)",
    "key-float": "st.random.key(1.5)",
    "key-str": "st.random.key('a')",
    "key-add": "k + 1",
    "key-impl": "st.random.key(0, impl='nothing')",
    "normal-int": "st.random.normal(k, (3,), dtype=int)",
    "randint-missing": "st.random.randint(k, (3,))",
    "split-many": "st.random.split(st.random.split(k, 3))",
    "choice-size": "st.random.choice(k, 3, (5,), replace=False)",
    "permutation-float": "st.random.permutation(k, 2.5)",
    "categorical-axis": "st.random.categorical(k, x, axis=4)",
    "bernoulli-str": "st.random.bernoulli(k, 'U')",
    # pytrees
    "tree-map-trees": "st.tree.map(jnp.add, (x, x), (x,))",
    "tree-map-keys": "st.tree.map(lambda a, b: a, {'a': x}, {'b': x})",
    "tree-unflatten": "st.tree.unflatten(st.tree.structure((1, 2)), [1])",
    "tree-transpose": "st.tree.transpose(st.tree.structure([1]), st.tree.structure((1, 2)), [1])",
    # placement
    "spec-axis": "lax.with_sharding_constraint(x, NamedSharding(mesh, P('z')))",
    "spec-twice": "lax.with_sharding_constraint(x, NamedSharding(mesh, P('x', 'x')))",
    "spec-rank": "lax.with_sharding_constraint(x, NamedSharding(mesh, P('x', None, 'y')))",
    "spec-no-mesh": "lax.with_sharding_constraint(x, P('x'))",
    "spec-str": "lax.with_sharding_constraint(x, 'x')",
    "reshard-no-mesh": "st.sharding.reshard(x, P('x'))",
    "reshard-auto": "st.sharding.reshard(x, NamedSharding(mesh, P('x')))",
    "reshard-str": "st.sharding.reshard(x, 'x')",
    "put-divide": "st.device_put(jnp.ones(3), NamedSharding(mesh, P('x')))",
    "put-str": "st.device_put('text')",
    "put-device": "st.device_put(x, 'cpu')",
    "put-rank": "st.device_put(v, NamedSharding(mesh, P(None, 'x')))",
    "sharding-no-spec": "NamedSharding(mesh)",
    "sharding-tuple": "NamedSharding(mesh, ('x',))",
    "sharding-no-mesh": "NamedSharding(None, P('x'))",
    "spec-number": "P(1)",
    "mesh-devices": "st.make_mesh((3, 5), ('x', 'y'))",
    "mesh-names": "st.make_mesh((2, 4), ('x',))",
    "mesh-twice": "st.make_mesh((2, 4), ('x', 'x'))",
    "mesh-types": "st.make_mesh((2, 4), ('x', 'y'), axis_types=(AxisType.Auto,))",
    "mesh-type-str": "st.make_mesh((2,), ('x',), axis_types=('auto',))",
    "mesh-str": "st.make_mesh('ab', ('x', 'y'))",
    "shard-map-specs": "st.shard_map(lambda a: a, mesh=mesh, in_specs=(P('x'), P()), "
                       "out_specs=P('x'))(x)",
    "shard-map-axis": "st.shard_map(lambda a: a, mesh=mesh, in_specs=P('z'), out_specs=P('x'))(x)",
    "shard-map-divide": "st.shard_map(lambda a: a, mesh=mesh, in_specs=P('x'), out_specs=P('x'))"
                        "(jnp.ones(3))",
    "shard-map-rank": "st.shard_map(lambda a: a, mesh=mesh, in_specs=P(None, 'x'), "
                      "out_specs=P('x'))(v)",
    "shard-map-out": "st.shard_map(lambda a: a, mesh=mesh, in_specs=P('x'), out_specs=P())(v)",
    "shard-map-out-tree": "st.shard_map(lambda a: a, mesh=mesh, in_specs=P('x'), "
                          "out_specs=(P('x'), P('x')))(v)",
    "shard-map-no-specs": "st.shard_map(lambda a: a, mesh=mesh)(v)",
    "shard-map-no-mesh": "st.shard_map(lambda a: a, in_specs=P('x'), out_specs=P('x'))(v)",
    "shard-map-psum": "st.shard_map(lambda a: lax.psum(a, 'z'), mesh=mesh, in_specs=P('x'), "
                      "out_specs=P('x'))(v)",
    "shard-map-str": "st.shard_map(lambda a: a, mesh=mesh, in_specs='x', out_specs=P('x'))(v)",
    "jit-sharding-spec": "st.jit(lambda a: a, in_shardings=P('x'))(x)",
    "jit-sharding-length": "st.jit(lambda a: a, in_shardings=(NamedSharding(mesh, P()),) * 2)(x)",
    "axis-index": "lax.axis_index('x')",
}

PROGRAMS = {
    "set-item": "x[0] = 1.0",
    "add-to-item": "x[0] += 1.0",
    "attribute-set": "x.shape = (2, 8)",
    "delete-item": "del x[0]",
    "if-traced": "@st.jit\ndef f(a):\n    if a > 0:\n        return a\nf(1.0)",
    "while-traced": "@st.jit\ndef f(a):\n    while a > 0:\n        a = a - 1\n    return a\nf(1.0)",
    "numpy-traced": "@st.jit\ndef f(a):\n    return np.asarray(a)\nf(x)",
    "float-traced": "@st.jit\ndef f(a):\n    return float(a)\nf(1.0)",
    "range-traced": "@st.jit\ndef f(a):\n    return sum(range(a))\nf(3)",
    "shape-traced": "@st.jit\ndef f(a):\n    return jnp.zeros(a)\nf(3)",
    "mask-traced": "@st.jit\ndef f(a):\n    return a[a > 0]\nf(v)",
    "nonzero-traced": "@st.jit\ndef f(a):\n    return jnp.nonzero(a)\nf(v)",
    "unique-traced": "@st.jit\ndef f(a):\n    return jnp.unique(a)\nf(v)",
    "item-traced": "@st.jit\ndef f(a):\n    return a.item()\nf(1.0)",
    "sharding-traced": "@st.jit\ndef f(a):\n    return a.sharding\nf(v)",
    "leaked": "kept = []\nst.jit(lambda a: kept.append(a))(x)\nkept[0] + 1",
    "leaked-numpy": "kept = []\nst.jit(lambda a: kept.append(a))(x)\njnp.sin(kept[0])",
    "deleted": "x.delete()\nx + 1",
    "deleted-numpy": "x.delete()\nnp.asarray(x)",
    "donated": "y = st.device_put(x, st.devices()[0])\nst.jit(lambda a: a + 1, donate_argnums=0)"
               "(y)\ny + 1",
    "donated-jit": "y = st.device_put(x, st.devices()[0])\nf = st.jit(lambda a: a + 1, "
                   "donate_argnums=0)\nf(y)\nf(y)",
    "explicit-add": "with st.set_mesh(explicit):\n    a = st.device_put(x, P('x'))\n"
                    "    b = st.device_put(x, P('y'))\n    a + b",
    "explicit-matmul": "with st.set_mesh(explicit):\n    a = st.device_put(x, P(None, 'x'))\n"
                       "    a @ a.T",
    "explicit-reshape": "with st.set_mesh(explicit):\n    a = st.device_put(x, P(None, 'x'))\n"
                        "    a.reshape(16)",
    "explicit-wsc": "with st.set_mesh(explicit):\n    a = st.device_put(x, P('x'))\n"
                    "    lax.with_sharding_constraint(a, P('y'))",
    "mesh-mix": "a = st.device_put(x, NamedSharding(mesh, P('x')))\n"
                "b = st.device_put(x, st.devices()[1])\nst.jit(jnp.add)(a, b)",
    "mesh-two": "other = st.make_mesh((4, 2), ('p', 'q'), devices=st.devices()[::-1])\n"
                "a = st.device_put(x, NamedSharding(mesh, P('x')))\n"
                "b = st.device_put(x, NamedSharding(other, P('p')))\na + b",
    "set-mesh-none": "st.set_mesh(None)",
    "config-name": "st.config.update('nothing', 1)",
    "callback-fails": "def f(a):\n    raise KeyError('mine')\nst.jit(f)(x)",
    "own-error": "@st.jit\ndef f(a):\n    assert a.shape == (3,), 'three'\n    return a\nf(x)",
    "in-helper": "def helper(a):\n    return a.reshape(3, 3)\n@st.jit\ndef f(a):\n"
                 "    return helper(a)\nf(x)",
    "in-grad": "def loss(w):\n    return jnp.sum(w @ jnp.ones(3))\nst.grad(loss)(x)",
    "in-scan": "def step(c, a):\n    return c + a.reshape(3), a\nlax.scan(step, v, x)",
    "in-vmap": "def one(a):\n    return a @ x[:3]\nst.vmap(one)(x)",
    "in-shard-map": "def f(a):\n    return a + jnp.ones(7)\nst.shard_map(f, mesh=mesh, "
                    "in_specs=P('x'), out_specs=P('x'))(v)",
    "custom-vjp": "f = st.custom_vjp(lambda a: a)\nst.grad(f)(1.0)",
    "custom-vjp-bwd": "f = st.custom_vjp(lambda a: a)\nf.defvjp(lambda a: (a, None), "
                      "lambda r, g: g)\nst.grad(f)(1.0)",
    "compiled-type": "f = st.jit(lambda a: a).lower(x).compile()\nf(v)",
    "lower-missing": "st.jit(lambda a, b: a).lower(x)",
    "static-traced": "f = st.jit(lambda a, b: a, static_argnums=1)\nst.jit(lambda a: f(a, a))(x)",
    "make-array": "st.make_array_from_callback((4,), NamedSharding(mesh, P('x')), "
                  "lambda i: np.ones(3))",
}

# Of those who port training loops.
PROGRAMS |= {
    "p-axis": "st.device_put(x, NamedSharding(mesh, P('data')))",
    "p-axis-jit": "st.jit(lambda a: a, in_shardings=NamedSharding(mesh, P('model')))(x)",
    "wsc-axis":
        "st.jit(lambda a: lax.with_sharding_constraint(a, NamedSharding(mesh, "
        "P('batch'))))(x)",
    "wsc-no-mesh": "st.jit(lambda a: lax.with_sharding_constraint(a, P('x')))(x)",
    "pmap-too-many": "st.pmap(lambda a: a)(jnp.ones((99, 2)))",
    "pmap-axis": "st.pmap(lambda a: lax.pmean(a, 'batch'))(jnp.ones((8, 2)))",
    "pmean-outside": "lax.pmean(x, 'batch')",
    "bool-and": "@st.jit\ndef f(a):\n    return a > 0 and a < 1\nf(1.0)",
    "int-traced": "@st.jit\ndef f(a):\n    return [1, 2, 3][a]\nf(1)",
    "assert-traced": "@st.jit\ndef f(a):\n    assert jnp.all(a > 0)\n    return a\nf(x)",
    "np-sum-traced": "@st.jit\ndef f(a):\n    return np.linalg.norm(a)\nf(x)",
    "tolist-traced": "@st.jit\ndef f(a):\n    return a.tolist()\nf(x)",
    "leak-global":
        "state = {}\n@st.jit\ndef f(a):\n    state['h'] = a * 2\n    return a\nf(x)\n"
        "state['h'].sum()",
    "scan-carry-type": "lax.scan(lambda c, a: (c.astype(jnp.int32), a), jnp.zeros(()), v)",
    "scan-carry-shape": "lax.scan(lambda c, a: (c[:2], a), v, x)",
    "scan-carry-tree": "lax.scan(lambda c, a: ((c, c), a), v, x)",
    "scan-carry-dict": "lax.scan(lambda c, a: ({'h': c['h']}, None), {'h': v, 'i': 0}, x)",
    "scan-no-pair": "lax.scan(lambda c, a: c, v, x)",
    "port-scan-lengths": "lax.scan(lambda c, a: (c, None), v, (x, jnp.ones(3)))",
    "port-scan-length": "lax.scan(lambda c, a: (c, None), v, x, length=5)",
    "while-pred": "lax.while_loop(lambda c: c < 3, lambda c: c + 1, v)",
    "port-fori-carry": "lax.fori_loop(0, 3, lambda i, c: (c, c), v)",
    "port-cond-trees": "lax.cond(True, lambda a: (a, a), lambda a: a, v)",
    "cond-types": "lax.cond(True, lambda a: a, lambda a: a.astype(jnp.int32), v)",
    "cond-shapes": "lax.cond(True, lambda a: a, lambda a: a[:2], v)",
    "cond-args": "lax.cond(True, lambda a, b: a, lambda a: a, v)",
    "switch-index": "lax.switch(v, [lambda a: a, lambda a: a], v)",
    "vmap-axes-tree": "st.vmap(lambda p, a: p['w'] @ a, in_axes=({'b': 0}, None))({'w': x}, v)",
    "vmap-axes-len": "st.vmap(lambda a, b: a + b, in_axes=(0,))(x, x)",
    "vmap-axes-range": "st.vmap(lambda a: a, in_axes=3)(x)",
    "port-vmap-out-axes": "st.vmap(lambda a: a, out_axes=4)(x)",
    "port-vmap-sizes": "st.vmap(lambda a, b: a * b)(x, jnp.ones(3))",
    "vmap-axes-none": "st.vmap(lambda a: a, in_axes=None)(x)",
    "donate-reuse":
        "y = st.device_put(x, NamedSharding(mesh, P('x')))\n"
        "f = st.jit(lambda p: p * 2, donate_argnums=(0,))\nf(y)\nprint(y + 1)",
    "key-int": "st.random.normal(0, (3,))",
    "key-numpy": "st.random.normal(np.zeros(2), (3,))",
    "port-key-add": "k + 1",
    "key-shape-arg": "st.random.normal(k, 3.5)",
    "in-shardings-tree":
        "st.jit(lambda p, a: a, in_shardings=({'w': NamedSharding(mesh, P())}, "
        "None))({'v': x}, x)",
    "out-shardings-tree":
        "st.jit(lambda a: {'y': a}, out_shardings={'z': NamedSharding(mesh, P('x'))})(x)",
    "in-shardings-rank":
        "st.jit(lambda a: a, in_shardings=NamedSharding(mesh, P('x', 'y', None)))(x)",
    "in-shardings-mismatch":
        "a = st.device_put(x, NamedSharding(mesh, P('x')))\n"
        "st.jit(lambda a: a, in_shardings=NamedSharding(mesh, P('y')))(a)",
    "mesh-size": "st.make_mesh((3, 4), ('x', 'y'))",
    "port-mesh-names": "st.make_mesh((2, 4), ('x',))",
    "mesh-direct": "st.sharding.Mesh(np.array(st.devices()).reshape(2, 4), ('x',))",
    "mesh-list": "st.sharding.Mesh(st.devices(), ('x', 'y'))",
    "uneven-put": "st.device_put(jnp.ones((6, 3)), NamedSharding(mesh, P('y')))",
    "uneven-jit":
        "st.jit(lambda a: a, out_shardings=NamedSharding(mesh, P('y')))(jnp.ones((6, 3)))",
    "port-spec-twice": "NamedSharding(mesh, P('x', 'x'))",
    "sm-out-specs":
        "st.shard_map(lambda a: a.sum(), mesh=mesh, in_specs=P('x'), out_specs=P('x'))(v)",
    "sm-in-len":
        "st.shard_map(lambda a, b: a, mesh=mesh, in_specs=(P('x'),), "
        "out_specs=P('x'))(v, v)",
    "sm-uneven":
        "st.shard_map(lambda a: a, mesh=mesh, in_specs=P('y'), "
        "out_specs=P('y'))(jnp.ones(6))",
    "sm-axis": "st.shard_map(lambda a: a, mesh=mesh, in_specs=P('z'), out_specs=P('z'))(v)",
    "sm-not-psummed":
        "st.shard_map(lambda a: a.sum(), mesh=mesh, in_specs=P('x'), out_specs=P())(v)",
    "sm-ppermute":
        "st.shard_map(lambda a: lax.ppermute(a, 'x', [(0, 1), (1, 1)]), mesh=mesh, "
        "in_specs=P('x'), out_specs=P('x'))(v)",
    "sm-scan-carry":
        "def body(a):\n"
        "    return lax.scan(lambda c, r: (c + r, None), jnp.zeros(()), a)[0]\n"
        "st.shard_map(lambda a: body(a)[None], mesh=mesh, in_specs=P('x'), "
        "out_specs=P('x'))(v)",
    "static-list": "st.jit(lambda a, s: a, static_argnums=1)(x, [1, 2])",
    "static-array": "st.jit(lambda a, s: a, static_argnums=1)(x, v)",
    "static-name": "st.jit(lambda a, n: a, static_argnames='m')(x, n=2)",
    "port-at-set-shape": "x.at[0].set(jnp.ones(3))",
    "port-at-str": "x.at['a'].set(1)",
    "dtype-str": "x.astype('flot32')",
    "dtype-zeros": "jnp.zeros(3, 'double32')",
    "neg-axis": "x.mean(axis=-3)",
    "concat-axis": "jnp.concatenate([x, x], axis=2)",
    "einsum-letters": "jnp.einsum('bij,bjk->bik', x, x)",
    "einsum-comma": "jnp.einsum('ij jk->ik', x, x)",
    "vjp-arity":
        "@st.custom_vjp\ndef f(a, b):\n    return a * b\n"
        "f.defvjp(lambda a, b: (a * b, (a, b)), lambda r, g: (g * r[1],))\n"
        "st.grad(f)(1.0, 2.0)",
    "vjp-fwd":
        "@st.custom_vjp\ndef f(a):\n    return a\n"
        "f.defvjp(lambda a: a, lambda r, g: (g,))\nst.grad(f)(1.0)",
    "jvp-shape": "st.jvp(jnp.sin, (x,), (v,))",
    "port-grad-int": "st.grad(lambda a: a * 2)(3)",
    "port-grad-aux": "st.grad(lambda a: (a, a))(1.0)",
    "port-grad-argnums": "st.grad(lambda a: a, argnums=1)(1.0)",
    "value-and-grad-vector": "st.value_and_grad(lambda w: x @ w)(v)",
    "remat-policy":
        "st.grad(lambda a: st.checkpoint(lambda b: jnp.sin(b), policy='dots')(a))(1.0)",
    "tree-map-structure": "st.tree.map(lambda a, b: a - b, {'w': x}, {'v': x})",
    "tree-map-len": "st.tree.map(lambda a, b: a - b, [x, x], [x])",
    "tree-map-none": "st.tree.map(lambda a, b: a - b, {'w': x, 'b': None}, {'w': x, 'b': v})",
    "tree-map-call": "st.tree.map({'w': x}, lambda a: a)",
    "port-put-rank": "st.device_put(v, NamedSharding(mesh, P('x', 'y')))",
    "put-spec": "st.device_put(x, P('x'))",
    "port-put-str": "st.device_put(x, 'cpu:0')",
    "put-none-arg": "jnp.asarray(None)",
    "port-add-none": "x + None",
    "str-arg": "st.jit(lambda a, mode: a)(x, 'train')",
    "list-arith": "[x, x] * x",
    "matmul-batch": "jnp.ones((2, 3, 4)) @ jnp.ones((3, 4, 5))",
    "take-axis": "jnp.take(x, 0, axis=5)",
    "argmax-kw": "jnp.argmax(x, dim=1)",
    "sum-dim": "jnp.sum(x, dim=1)",
    "tensor-view": "x.view(2, 8)",
    "one-hot": "st.nn.one_hot(v, 3.5)",
    "port-softmax-axis": "st.nn.softmax(x, axis=3)",
    "dyn-slice": "lax.dynamic_slice(x, (0,), (2, 2))",
    "explicit-dot":
        "with st.set_mesh(explicit):\n    a = st.device_put(x, P('x', 'y'))\n"
        "    a @ st.device_put(x, P('y', 'x'))",
    "explicit-out":
        "with st.set_mesh(explicit):\n    a = st.device_put(x, P('x', None))\n"
        "    jnp.dot(a, a, out_sharding=P('x', 'x'))",
    "port-reshard-auto": "st.sharding.reshard(x, NamedSharding(mesh, P('x')))",
    "two-meshes":
        "a = st.device_put(x, NamedSharding(mesh, P('x')))\n"
        "b = st.device_put(x, NamedSharding(st.make_mesh((2,), ('x',), "
        "devices=st.devices()[:2]), P('x')))\nst.jit(lambda a, b: a + b)(a, b)",
    "unconstrained-out":
        "st.jit(lambda a: a, out_shardings=NamedSharding(mesh, P(P.UNCONSTRAINED)))(x)",
    "cb-shape":
        "st.pure_callback(lambda a: np.ones(3, np.float32), st.ShapeDtypeStruct((4,), "
        "np.float32), v)",
}


def sources() -> dict[str, str]:
    """Every mistake by its name: its program, without SETUP."""
    found = {f"{name}-now": text for name, text in EXPRESSIONS.items()}
    found |= {f"{name}-jit": f"st.jit(lambda x, v, n: {text})(x, v, n)"
              for name, text in EXPRESSIONS.items()}
    return found | PROGRAMS
