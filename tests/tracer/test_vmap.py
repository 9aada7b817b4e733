"""vmap: one example at a time outside, all of them inside.

Values are those of a loop over examples. Types, and the texts of errors, are what JAX 0.10.2 says
of the same program; where JAX is installed it is asked.
"""
from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
import shardtrace.random as random
from shardtrace import lax, nn
from shardtrace.errors import ShardingTypeError
from shardtrace.sharding import AxisType, NamedSharding, auto_axes, reshard
from shardtrace.sharding import PartitionSpec as P

EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto
RNG = np.random.default_rng(0)


def ints(*shape):
    """Small whole numbers as floats: sums in any order are exact."""
    return RNG.integers(-5, 6, shape).astype(np.float32)


X, Y, V = ints(3, 4), ints(3, 4), ints(4)


def same(a, b):
    np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=2e-5,
                               atol=2e-5)


def loop(f, in_axes, *args):
    """The results of f for each index, stacked along a new first dimension."""
    axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
    size = next(x.shape[d] for x, d in zip(args, axes, strict=True) if d is not None)
    runs = [f(*(jnp.asarray(x if d is None else np.take(x, i, d))
                for x, d in zip(args, axes, strict=True))) for i in range(size)]
    first, treedef = st.tree.flatten(runs[0])
    flat = [st.tree.leaves(r) for r in runs]
    return st.tree.unflatten(treedef, [np.stack([np.asarray(r[i]) for r in flat])
                                       for i in range(len(first))])


def agree(a, b):
    leaves, treedef = st.tree.flatten(a)
    others, other = st.tree.flatten(b)
    assert treedef == other
    for x, y in zip(leaves, others, strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        same(x, y)


# -- values ----------------------------------------------------------------------------------------

UNARY = {
    "sin": jnp.sin, "sum": jnp.sum, "max": jnp.max, "argmax": jnp.argmax, "sort": jnp.sort,
    "cumsum": jnp.cumsum, "flip": jnp.flip, "prod": jnp.prod, "var": jnp.var,
    "index": lambda a: a[0], "slice": lambda a: a[1:3], "reverse": lambda a: a[::-1],
    "gather": lambda a: a[jnp.array([2, 0])], "reshape": lambda a: a.reshape(2, 2),
    "new-dim": lambda a: a[:, None], "concatenate": lambda a: jnp.concatenate([a, jnp.ones(2)]),
    "stack": lambda a: jnp.stack([a, a * 2, jnp.zeros(4)]),
    "where": lambda a: jnp.where(a > 0, a, jnp.arange(4.0)), "pad": lambda a: jnp.pad(a, (1, 2)),
    "tile": lambda a: jnp.tile(a, 2), "outer": lambda a: jnp.outer(a, a), "dot": lambda a: a @ a,
    "matvec": lambda a: jnp.ones((2, 4)) @ a, "einsum": lambda a: jnp.einsum("i,j->ij", a, V),
    "clip": lambda a: jnp.clip(a, -1, 1), "broadcast": lambda a: jnp.broadcast_to(a, (2, 4)),
    "set": lambda a: a.at[1].set(7.0), "add-at": lambda a: a.at[1].add(a[0]),
    "split": lambda a: jnp.split(a, 2), "astype": lambda a: a.astype(jnp.int32),
    "dynamic-slice": lambda a: lax.dynamic_slice(a, (1,), (2,)),
    "top-k": lambda a: lax.top_k(a, 2), "rank-up": lambda a: a + jnp.arange(8.0).reshape(2, 4),
    "softmax": nn.softmax, "norm": jnp.linalg.norm, "fft": lambda a: jnp.fft.fft(a).real,
    "convolve": lambda a: jnp.convolve(a, jnp.ones(2)), "median": jnp.median,
    "window": lambda a: lax.reduce_window(a, -np.inf, lax.max, (2,), (1,), "VALID"),
    "dict": lambda a: {"p": (a, a.sum())}, "constant": lambda a: jnp.ones(2),
}


@pytest.mark.parametrize("name", UNARY)
def test_a_function_is_mapped_as_a_loop_does(name):
    f = UNARY[name]
    agree(st.vmap(f)(X), loop(f, 0, X))
    agree(st.vmap(f, in_axes=1)(X.T), loop(f, 0, X))
    agree(st.jit(st.vmap(st.vmap(f)))(np.stack([X, Y])),
          loop(lambda a: loop(f, 0, a), 0, np.stack([X, Y])))


def start(b):
    return jnp.abs(b[0]).astype(int) % 3


BINARY = {
    "add": jnp.add, "dot": jnp.dot, "where": lambda a, b: jnp.where(a > b, a, b),
    "gather": lambda a, b: a[b.astype(int) % 4], "set": lambda a, b: a.at[start(b)].set(b[1]),
    "along": lambda a, b: jnp.take_along_axis(a, b.astype(int) % 4, 0), "outer": jnp.outer,
    "scalar": lambda a, b: a.sum() * b,
    "slice": lambda a, b: lax.dynamic_slice(a, (start(b),), (2,)),
    "update": lambda a, b: lax.dynamic_update_slice(a, b[:2], (start(b),)),
    "pad": lambda a, b: lax.pad(a, b[0], ((1, 0, 0),)), "convolve": jnp.convolve,
    "clamp": lambda a, b: lax.clamp(b[0], a, b[1] + 9), "search": lambda a, b: jnp.searchsorted(
        jnp.sort(a), b), "sort": lambda a, b: lax.sort((a, b), num_keys=1),
    "select": lambda a, b: jnp.select([a > 0, b > 0], [a, b], 0.0),
}


@pytest.mark.parametrize("name", BINARY)
def test_operands_may_be_unmapped(name):
    f = BINARY[name]
    agree(st.vmap(f)(X, Y), loop(f, 0, X, Y))
    agree(st.vmap(f, in_axes=(0, None))(X, V), loop(f, (0, None), X, V))
    agree(st.vmap(f, in_axes=(None, 1))(V, Y.T), loop(f, (None, 1), V, Y.T))


def test_linear_algebra_and_convolution():
    m = ints(2, 3, 3) + 20 * np.eye(3, dtype=np.float32)
    for f in (jnp.linalg.inv, jnp.linalg.det, jnp.trace, jnp.transpose,
              lambda a: jnp.linalg.cholesky(a @ a.T), lambda a: jnp.linalg.solve(a, jnp.ones(3))):
        agree(st.vmap(f)(m), loop(f, 0, m))
    images, kernels = ints(2, 1, 2, 5, 5), ints(2, 3, 2, 2, 2)

    def conv(a, k):
        return lax.conv(a, k, (1, 1), "SAME")

    for axes, a, k in ((0, images, kernels), ((0, None), images, kernels[0]),
                       ((None, 0), images[0], kernels)):
        agree(st.vmap(conv, axes)(a, k), loop(conv, axes, a, k))


def test_random_functions_draw_for_each_key_what_they_draw_alone():
    keys = random.split(random.key(0), 3)
    for f in (random.normal, lambda k: random.uniform(k, (2,)), lambda k: random.permutation(k, 4),
              lambda k: random.categorical(k, jnp.zeros(5))):
        drawn = st.vmap(f)(keys)
        for i in range(3):
            same(drawn[i], f(keys[i]))


def test_axes_are_given_for_trees_and_results():
    f = st.vmap(lambda d, s: {"sum": d["a"] + d["b"] * s, "same": d["b"]},
                in_axes=({"a": 1, "b": None}, None), out_axes={"sum": -1, "same": None})
    out = f({"a": X.T, "b": V}, 2)
    same(out["sum"], (X + V * 2).T)
    same(out["same"], V)
    same(st.vmap(lambda a, *, k: a + k)(X, k=Y), X + Y)
    same(st.vmap(lambda a: a, in_axes=-1, out_axes=1)(X), X)
    assert st.vmap(lambda: jnp.arange(2), axis_size=3)().shape == (3, 2)
    assert str(st.typeof(st.vmap(lambda a: 1.0)(X))) == "~float32[3]"


# -- Python sees one example -----------------------------------------------------------------------

def test_types_inside_are_those_of_one_example(capsys):
    st.vmap(lambda a: print(a, st.typeof(a.sum())))(X)
    assert capsys.readouterr().out == (
        "VmapTracer(aval=float32[4], batched=float32[3,4]) float32[]\n")


def test_what_is_not_mapped_is_concrete():
    def f(a, n):
        m = n + 1
        assert not isinstance(m, type(a)) and float(jnp.ones(2).sum()) == 2
        return a * 2 if m > 3 else a

    same(st.vmap(f, (0, None))(X, jnp.array(3)), X * 2)
    with pytest.raises(st.errors.TracerBoolConversionError, match="boolean conversion of traced"):
        st.vmap(lambda a: a if a.sum() > 0 else -a)(X)
    with pytest.raises(st.errors.TracerArrayConversionError):
        st.vmap(np.asarray)(X)


def test_a_leaked_tracer_is_an_error():
    kept = []
    st.vmap(kept.append)(X)
    with pytest.raises(st.errors.UnexpectedTracerError, match="unexpected tracer"):
        kept[0] + 1


def test_a_call_stays_one_call_and_equations_say_where_they_come_from():
    @st.jit
    def inner(b):
        return jnp.sin(b) + jnp.ones(4)

    program = st.make_jaxpr(st.vmap(lambda a: inner(a) * 2))(X)
    assert [e.op.name for e in program.eqns] == ["jit", "mul"]
    body = program.eqns[0].params["jaxpr"]
    assert [e.op.name for e in body.eqns] == ["sin", "broadcast_in_dim", "broadcast_in_dim", "add"]
    assert all(e.location.transform == "batch" for e in (*program.eqns, *body.eqns))
    assert body.eqns[0].location.text() == "jnp.sin(b)"
    same(st.vmap(inner)(X), np.sin(X) + 1)
    same(st.vmap(st.jit(lambda a, n: a * n), (0, None))(X, 2.0), X * 2)
    captured = st.vmap(lambda a: st.jit(lambda b: b * a.sum() + jnp.asarray(V))(V))(X)
    same(captured, V * X.sum(1, keepdims=True) + V)


# -- errors ----------------------------------------------------------------------------------------

PREFIX = "vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional "
IDENTITY = {
    "rank": (ValueError, lambda: st.vmap(lambda a: a, 2)(X), "vmap was requested to map its "
             "argument along axis 2, which implies that its rank should be at least 3, but is only "
             "2 (its shape is (3, 4))"),
    "scalar": (ValueError, lambda: st.vmap(lambda a, b: a)(X, 3.0), "vmap was requested to map its "
               "argument along axis 0, which implies that its rank should be at least 1"),
    "float": (TypeError, lambda: st.vmap(lambda a: a, 0.5), PREFIX + "arguments passed to the "
              "function, but got 0.5."),
    "leaf": (TypeError, lambda: st.vmap(lambda a: a, (0.5,)), "vmap in_axes must be an int, None, "
             "or (nested) container with those types as leaves, but got (0.5,)."),
    "out leaf": (TypeError, lambda: st.vmap(lambda a: a, 0, "q"), "vmap out_axes must be an int, "
                 "None, or (nested) container with those types as leaves, but got q."),
    "length": (ValueError, lambda: st.vmap(lambda a: a, (0, 0))(X), PREFIX + "arguments passed to "
               "the function, but got len(in_axes)=2, len(args)=1"),
    "none": (ValueError, lambda: st.vmap(lambda a: a, None)(X), "vmap must have at least one "
             "non-None value in in_axes or axis_size must be specified"),
    "empty": (ValueError, lambda: st.vmap(lambda: 1)(), "vmap wrapped function must be passed at "
              "least one argument containing an array or axis_size must be specified, got empty "
              "*args=() and **kwargs={}"),
    "prefix": (ValueError, lambda: st.vmap(lambda a: a, ((0, 0),))((X,)), "vmap in_axes "
               "specification must be a tree prefix of the corresponding value"),
    "out prefix": (ValueError, lambda: st.vmap(lambda a: a, 0, (0, 0))(X), "vmap out_axes "
                   "specification must be a tree prefix of the corresponding value"),
    "sizes": (ValueError, lambda: st.vmap(lambda a, b: a)(X, V), "vmap got inconsistent sizes for "
              "array axes to be mapped:\n  * one axis had size 3: axis 0 of argument a of type "
              "float32[3,4];\n  * one axis had size 4: axis 0 of argument b of type float32[4]"),
    "most": (ValueError, lambda: st.vmap(lambda a, b, c: a)(X, X, {"k": V}), "vmap got inconsistent "
             "sizes for array axes to be mapped:\n  * most axes (2 of them) had size 3, e.g. axis "
             "0 of argument a of type float32[3,4];\n  * one axis had size 4: axis 0 of argument "
             "c['k'] of type float32[4]"),
    "keyword": (ValueError, lambda: st.vmap(lambda a, b: a)(X, b=V), "  * one axis had size 4: axis "
                "0 of kwargs['b'] of type float32[4]"),
    "axis_size": (ValueError, lambda: st.vmap(lambda a: a, axis_size=5)(X), "  * the `axis_size` "
                  "argument was 5;\n  * one axis had size 3"),
    "out None": (ValueError, lambda: st.vmap(lambda a: {"p": (a, a)}, 0, {"p": (0, None)})(X),
                 "at vmap out_axes['p'][1], got axis spec None but output was batched on axis 0"),
    "out range": (ValueError, lambda: st.vmap(lambda a: a, 0, 3)(X), "axis 3 is out of bounds for "
                  "array of dimension 2"),
    "result": (TypeError, lambda: st.vmap(lambda a: "s")(X), "Output from batched function 's' with "
               "type <class 'str'> is not a valid JAX type"),
    "callable": (TypeError, lambda: st.vmap(3), "Expected a callable value, got 3"),
    "unbound": (NameError, lambda: st.vmap(lambda a: lax.psum(a, "i"))(X), "Found an unbound axis "
                "name: i. To fix this, please call psum under `jax.shard_map`."),
    "groups": (NotImplementedError, lambda: st.vmap(lambda a: lax.psum(
        a, "i", axis_index_groups=[[0, 1], [2]]), axis_name="i")(X), "axis_index_groups not "
        "supported in vmap collectives"),
    "permutation": (AssertionError, lambda: st.vmap(lambda a: lax.ppermute(a, "i", [(0, 1)]),
                                                    axis_name="i")(X),
                    "Permutation doesn't match the axis size!"),
}


@pytest.mark.parametrize("name", IDENTITY)
def test_errors_are_jax_s(name):
    kind, run, text = IDENTITY[name]
    with pytest.raises(kind) as error:
        run()
    assert text in str(error.value)


# -- collectives over a mapped axis ----------------------------------------------------------------

def named(f, **kwargs):
    return st.vmap(f, axis_name="i", **kwargs)


def test_reductions_over_a_mapped_axis_are_reductions_of_the_array():
    same(named(lambda a: lax.psum(a, "i"))(X), np.tile(X.sum(0), (3, 1)))
    same(named(lambda a: lax.pmean(a, "i"), out_axes=None)(X), X.mean(0))
    same(named(lambda a: a - lax.pmax(a, "i"))(X), X - X.max(0))
    same(named(lambda a: lax.pmin(a, "i"), out_axes=None)(X), X.min(0))
    same(named(lambda a: lax.psum(jnp.ones(2), "i"), out_axes=None)(X), [3, 3])
    assert named(lambda a: lax.psum(1, "i"), out_axes=None)(X) == 3
    assert named(lambda a: lax.axis_size("i"), out_axes=None)(X) == 3
    same(named(lambda a: lax.axis_index("i") * jnp.ones(2))(X), [[0, 0], [1, 1], [2, 2]])
    counted = named(lambda a: lax.psum(a > 0, "i"), out_axes=None)(X)
    assert counted.dtype == np.int32
    same(counted, (X > 0).sum(0))


def test_exchanges_over_a_mapped_axis_are_indexing():
    m = ints(3, 2, 6)
    same(named(lambda a: lax.all_gather(a, "i"), out_axes=None)(X), X)
    same(named(lambda a: lax.all_gather(a, "i", axis=1), out_axes=None)(X), X.T)
    same(named(lambda a: lax.all_gather(a, "i", tiled=True), out_axes=None)(X), X.ravel())
    same(named(lambda a: lax.all_gather(V, "i"), out_axes=None)(X), np.tile(V, (3, 1)))
    same(named(lambda a: lax.ppermute(a, "i", [(0, 1), (1, 2), (2, 0)]))(X), X[[2, 0, 1]])
    same(named(lambda a: lax.pshuffle(a, "i", [1, 2, 0]))(X), X[[1, 2, 0]])
    same(named(lambda a: lax.psum_scatter(a, "i", scatter_dimension=1, tiled=True))(m),
         m.sum(0).reshape(2, 3, 2).transpose(1, 0, 2))
    square = ints(3, 3)
    same(named(lambda a: lax.psum_scatter(a, "i"))(square), square.sum(0))
    same(named(lambda a: lax.all_to_all(a, "i", 0, 0))(square), square.T)
    same(named(lambda a: lax.all_to_all(a, "i", 1, 0, tiled=True))(m),
         m.reshape(3, 2, 3, 2).transpose(2, 0, 1, 3).reshape(3, 6, 2))


def test_a_collective_inside_a_call_and_over_two_mapped_axes():
    centre = st.jit(lambda a: a - lax.pmean(a, "i"))
    same(named(centre)(X), X - X.mean(0))
    more = ints(5, 4)
    same(named(centre)(more), more - more.mean(0))          # another size: another trace
    m = ints(2, 3, 4)

    def both(f, out_axes=0):
        return st.vmap(named(f, out_axes=out_axes), axis_name="j", out_axes=out_axes)(m)

    same(both(lambda a: lax.psum(a, ("i", "j")), None), m.sum((0, 1)))
    same(both(lambda a: lax.axis_index(("i", "j"))), np.arange(6).reshape(3, 2).T)
    same(both(lambda a: lax.all_gather(a, ("j", "i")), None), m.reshape(6, 4))
    same(st.vmap(named(lambda a: lax.psum(a, "i")), axis_name="i")(m),
         np.broadcast_to(m.sum(1, keepdims=True), m.shape))     # the inner axis has the name


# -- Explicit meshes -------------------------------------------------------------------------------

@pytest.fixture
def explicit():
    with st.set_mesh(st.make_mesh((2, 4), ("x", "y"), axis_types=(EXPLICIT,) * 2)):
        yield


def put(value, *spec):
    return st.device_put(np.asarray(value), P(*spec))


A, Q = ints(4, 8), ints(8, 8)


def test_the_mapped_dimension_keeps_its_axes(explicit):
    x, w = put(A, "x", "y"), put(A, "x", None)
    inside = []
    out = st.vmap(lambda a: inside.append(str(st.typeof(a))) or a.sum())(x)
    assert inside == ["float32[8@y]"] and str(st.typeof(out)) == "float32[4@x]"
    same(out, A.sum(1))
    cases = [
        (jnp.sin, x, "float32[4@x,8@y]"), (lambda a: jnp.zeros(3), x, "float32[4@x,3]"),
        (lambda a: jnp.outer(a, a), w, "float32[4@x,8,8]"), (jnp.cumsum, w, "float32[4@x,8]"),
        (lambda a: a @ put(Q, None, "y"), w, "float32[4@x,8@y]"),
        (lambda a: a.at[0].set(0.0), w, "float32[4@x,8]"), (lambda a: a[2], w, "float32[4@x]"),
        (lambda a: jnp.where(a > 0, a, 0), x, "float32[4@x,8@y]"),
        (lambda a: jnp.stack([a, a]), x, "float32[4@x,2,8@y]"), (lambda a: 1.0, x, "~float32[4]"),
        (st.jit(lambda a: a + jnp.ones(8)), x, "float32[4@x,8@y]"),
        (st.vmap(jnp.sin), x, "float32[4@x,8@y]"),
        (st.vmap(lambda a: jnp.zeros(2)), x, "float32[4@x,8@y,2]"),
    ]
    for f, arg, wanted in cases:
        assert str(st.typeof(st.vmap(f)(arg))) == wanted
    moved = st.vmap(lambda a: a, in_axes=1, out_axes=0)(put(Q, "x", "y"))
    assert str(st.typeof(moved)) == "float32[8@y,8@x]"


def test_shardings_named_inside_are_those_of_one_example(explicit):
    x, w, q = put(A, "x", "y"), put(A, "x", None), put(Q, None, "y")
    cases = [
        (lambda a: jnp.dot(a, q, out_sharding=P("y")), w, "float32[4@x,8@y]"),
        (lambda a: reshard(a, P(None)), x, "float32[4@x,8]"),
        (lambda a: a.reshape(2, 4, out_sharding=P(None, "y")), w, "float32[4@x,2,4@y]"),
        (lambda a: jnp.zeros(8, out_sharding=P("y")), w, "float32[4@x,8@y]"),
        (lambda a: jnp.broadcast_to(a, (2, 8), out_sharding=P(None, "y")), w,
         "float32[4@x,2,8@y]"),
        (lambda a: lax.with_sharding_constraint(a, P("y")), x, "float32[4@x,8@y]"),
        (st.jit(lambda a: reshard(a, P(None))), x, "float32[4@x,8]"),
        (auto_axes(lambda a: a[0] + jnp.cumsum(a), out_sharding=P("y")), x, "float32[4@x,8@y]"),
    ]
    for f, arg, wanted in cases:
        assert str(st.typeof(st.vmap(f)(arg))) == wanted
        assert str(st.typeof(st.jit(st.vmap(f))(arg))) == wanted
    same(st.vmap(cases[-1][0])(x), A[:, :1] + A.cumsum(1))
    with pytest.raises(Exception, match="multiple times|more than one|duplicate|at most"):
        st.vmap(lambda a: reshard(a, P("x")))(x)


def test_mapped_arguments_are_split_alike_and_unmapped_ones_otherwise(explicit):
    x, w, r, u = put(A, "x", "y"), put(A, "x", None), put(A, None, "y"), put(V, "x")
    with pytest.raises(ValueError, match="Mapped away dimension of inputs passed to vmap should be "
                       "sharded the same. Got inconsistent axis specs: x vs None"):
        st.vmap(jnp.add)(x, r)
    with pytest.raises(ValueError) as error:
        st.vmap(lambda a, b: a, (0, None))(w, u)
    assert ("Unmapped values passed to vmap cannot be sharded along the mesh axis you are vmapping "
            "over. Got type: f32[4@x], in_axes: None and vmapped mesh axis: ('x',)"
            ) in str(error.value)
    with pytest.raises(ShardingTypeError, match="incompatible shardings"):
        st.vmap(lambda a, b: a + b, (0, None))(put(A, None, "x"), put(ints(8), "y"))
    with pytest.raises(ValueError) as error:
        st.vmap(jnp.sin, spmd_axis_name="y")(x)
    assert ("Only one of spmd_axis_name or arrays sharded on `Explicit` mesh axis type is allowed. "
            "Got spmd_axis_name=('y',) and arrays sharded on explicit_mesh_axis=('x',)"
            ) in str(error.value)
    same(st.vmap(jnp.sin, spmd_axis_name="x")(x), np.sin(A))


def test_collectives_over_a_split_mapped_axis(explicit):
    x = put(A, "x", "y")
    total = named(lambda a: lax.psum(a, "i"), out_axes=None)(x)
    assert str(st.typeof(total)) == "float32[8@y]"
    same(total, A.sum(0))
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    turned = named(lambda a: lax.ppermute(a, "i", ring))(x)
    assert str(st.typeof(turned)) == "float32[4@x,8@y]"
    same(turned, np.roll(A, 1, 0))
    same(named(lambda a: lax.all_gather(a, "i"), out_axes=None)(x), A)


# -- shard_map -------------------------------------------------------------------------------------

def test_shard_map_is_about_the_other_axes_of_a_split_vmap(explicit):
    x = put(A, "x", "y")
    total = st.vmap(st.shard_map(lambda b: lax.psum(b, "y"), out_specs=P()))(x)
    assert str(st.typeof(total)) == "float32[4@x,2]"
    same(total, A.reshape(4, 4, 2).sum(1))
    doubled, ones = st.jit(st.vmap(st.shard_map(
        lambda b: (b * 2, jnp.ones(2)), in_specs=P("y"), out_specs=(P("y"), P()))))(x)
    same(doubled, A * 2)
    assert str(st.typeof(ones)) == "float32[4@x,2]"
    with pytest.raises(ValueError):
        st.vmap(st.shard_map(lambda b: b, in_specs=P("x"), out_specs=P("x")))(x)


def test_shard_map_and_vmap_in_each_other():
    with st.set_mesh(st.make_mesh((2, 4), ("x", "y"), axis_types=(AUTO,) * 2)):
        blocks = {"in_specs": P("x", "y"), "out_specs": P("x")}
        same(st.shard_map(st.vmap(lambda b: lax.psum(b, "y")), **blocks)(A),
             A.reshape(4, 4, 2).sum(1))
        centred = st.shard_map(st.vmap(lambda b: b - lax.pmean(b, ("i", "x")), axis_name="i"),
                               in_specs=P("x", "y"), out_specs=P("x", "y"))
        same(centred(A), A - A.mean(0))
        summed = st.vmap(st.shard_map(lambda b: lax.psum(b, ("y", "i")), in_specs=P("y"),
                                      out_specs=P()), axis_name="i", out_axes=None)
        same(summed(A), A.reshape(4, 4, 2).sum((0, 1)))
        shuffles = [
            (lambda b: lax.all_gather(b, "y", tiled=True), P("y"), P("y"), np.tile(A, (1, 4))),
            (lambda b: lax.psum_scatter(b, "y", tiled=True), P(None), P("y"), A * 4),
            (lambda b: lax.all_to_all(b, "y", 0, 0, tiled=True), P("y"), P("y"), None),
            (lambda b: lax.ppermute(b, "y", [(0, 1)]), P("y"), P("y"),
             np.concatenate([0 * A[:, :2], A[:, :2], 0 * A[:, 4:]], 1)),
        ]
        for f, in_spec, out_spec, wanted in shuffles:
            one = st.shard_map(f, in_specs=in_spec, out_specs=out_spec)
            if wanted is None:
                with pytest.raises(ValueError, match="divisible"):
                    st.vmap(one)(A)
                continue
            same(st.vmap(one)(A), wanted)


def test_spmd_axis_name_splits_the_mapped_dimension():
    mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(AUTO,) * 2)
    with st.set_mesh(mesh):
        def constrained(axes):
            return st.vmap(lambda a: lax.with_sharding_constraint(a * 2, P(axes)),
                           spmd_axis_name="x")

        out = st.jit(constrained("y"))(A)
        assert out.sharding.spec == P("x", "y")
        same(out, A * 2)
        with pytest.raises(ValueError) as error:
            constrained("x")(A)
        assert ("vmap spmd_axis_name ('x',) cannot appear in with_sharding_constraint spec, but got "
                "spec P('x',)") in str(error.value)
        region = st.vmap(st.shard_map(lambda b: lax.psum(b, "y"), in_specs=P("y"), out_specs=P()),
                         spmd_axis_name="x")
        same(region(A), A.reshape(4, 4, 2).sum(1))
        program = st.make_jaxpr(region)(A)
        assert program.eqns[-1].params["in_specs"] == (P("x", "y"),)
        with pytest.raises(ValueError, match="spmd_axis_name cannot appear in shard_map in_specs"):
            st.vmap(st.shard_map(lambda b: b, in_specs=P("x"), out_specs=P("x")),
                    spmd_axis_name="x")(A)
        with pytest.raises(ValueError, match="cannot be named by a collective"):
            st.vmap(st.shard_map(lambda b: lax.psum(b, "x"), in_specs=P("y"), out_specs=P("y")),
                    spmd_axis_name="x")(A)


def test_a_mesh_that_only_the_body_names_gives_the_devices():
    mesh = st.make_mesh((4,), ("d",), axis_types=(AUTO,))
    x = ints(3, 8)
    region = st.shard_map(lambda b: lax.psum(b, "d"), mesh=mesh, in_specs=P("d"), out_specs=P())
    same(st.vmap(region)(x), x.reshape(3, 4, 2).sum(1))
    same(st.vmap(lambda a: lax.with_sharding_constraint(a, NamedSharding(mesh, P("d"))))(x), x)


# -- control flow, derivatives ---------------------------------------------------------------------

LOOPS = {
    "scan": lambda a: lax.scan(lambda c, t: (c + t, c * t), 0.0, a),
    "carry becomes mapped": lambda a: lax.scan(lambda c, t: (c + t * a.sum(), (c, jnp.ones(2))),
                                               jnp.zeros(4), jnp.arange(8.0).reshape(2, 4)),
    "while, mapped test": lambda a: lax.while_loop(
        lambda c: c[0].sum() < 20, lambda c: (c[0] + jnp.abs(a) + 1, c[1] + 1), (a, 0)),
    "while": lambda a: lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0] + a, c[1] + 1),
                                      (jnp.zeros(4), 0)),
    "fori": lambda a: lax.fori_loop(0, 3, lambda i, c: c.at[i].set(a[i]), jnp.zeros(4)),
    "cond, mapped": lambda a: lax.cond(a.sum() > 0, lambda q: q * 2, lambda q: -q, a),
    "cond": lambda a: lax.cond(jnp.array(True), lambda q: (q, 1.0), lambda q: (jnp.ones(4), q[0]),
                               a),
    "switch": lambda a: lax.switch(a[0].astype(int), [lambda q: q, lambda q: q * 2,
                                                      lambda q: q * 3.0], a),
    "map": lambda a: lax.map(lambda t: t * 2, a),
    "associative scan": lambda a: lax.associative_scan(jnp.add, a),
}


@pytest.mark.parametrize("name", LOOPS)
def test_control_flow_is_mapped(name, explicit):
    f = LOOPS[name]
    agree(st.vmap(f)(X), loop(f, 0, X))
    agree(st.jit(st.vmap(f))(X), loop(f, 0, X))
    x = ints(4, 4)
    split = st.vmap(f)(put(x, "x", None))
    agree(split, loop(f, 0, x))


def test_a_trip_count_or_a_branch_for_each_index():
    counts = np.array([1, 4, 0], np.int32)

    def repeat(a, k):
        return lax.fori_loop(0, k, lambda i, c: c * 2 + i, a)

    agree(st.vmap(repeat)(X, counts), loop(repeat, 0, X, counts))
    agree(st.vmap(repeat, (None, 0))(V, counts), loop(repeat, (None, 0), V, counts))

    def branch(a, k):
        return lax.switch(k, [lambda q: (q, 1.0), lambda q: (V, q[0]), lambda q: (q * 3.0, 2.0)], a)

    agree(st.vmap(branch)(X, counts), loop(branch, 0, X, counts))
    agree(st.vmap(branch, (0, None))(X, 1), loop(branch, (0, None), X, 1))


def test_derivatives_and_vmap_in_each_other():
    def h(a):
        return (jnp.sin(a) ** 2).sum()

    wanted = 2 * np.sin(X) * np.cos(X)
    same(st.vmap(st.grad(h))(X), wanted)
    same(st.grad(lambda q: st.vmap(h)(q).sum())(X), wanted)
    same(st.jit(st.vmap(st.grad(st.checkpoint(h))))(X), wanted)
    same(st.grad(lambda q: st.vmap(st.checkpoint(h))(q).sum())(X), wanted)
    w = ints(2, 4)
    same(st.grad(lambda w: st.vmap(lambda a: (w @ a).sum())(X).sum())(w), np.tile(X.sum(0), (2, 1)))
    branch = st.vmap(lambda a, k: st.grad(lambda z: (z ** 2).sum() if k > 1 else z.sum())(a),
                     (0, None))
    same(branch(X, 2), 2 * X)


def test_rules_of_custom_derivatives_see_one_example():
    @st.custom_jvp
    def scaled(a, b):
        return a * b

    @scaled.defjvp
    def _(primals, tangents):
        (a, b), (da, db) = primals, tangents
        assert a.shape == b.shape == (4,)
        return a * b, 7.0 * da * b + db * a

    def product(f, q, r, axes=0):
        return st.vmap(f, axes)(q, r).sum()

    same(st.vmap(scaled, (0, None))(X, V), X * V)
    same(st.grad(lambda q: product(scaled, q, Y))(X), 7 * Y)
    same(st.grad(lambda v: product(scaled, X, v, (0, None)))(V), X.sum(0))

    @st.custom_vjp
    def total(a, b):
        return a * b.sum()

    def backward(residuals, ct):
        a, b = residuals
        assert a.shape == b.shape == ct.shape == (4,)
        return ct * b.sum() * 5, jnp.ones(4) * (ct * a).sum() * 3

    total.defvjp(lambda a, b: (a * b.sum(), (a, b)), backward)
    rows = Y.sum(1, keepdims=True)
    same(st.grad(lambda q: product(total, q, Y))(X), 5 * rows * np.ones_like(X))
    same(st.grad(lambda v: product(total, X, v, (0, None)))(V), np.full(4, 3 * X.sum()))
    same(st.jit(st.grad(lambda v: product(total, v, Y, (None, 0))))(V), np.full(4, 5 * rows.sum()))


# -- vectorize -------------------------------------------------------------------------------------

def test_vectorize_broadcasts_over_loop_dimensions():
    matvec = partial(jnp.vectorize, signature="(n,m),(m)->(n)")(jnp.dot)
    a, b = ints(5, 1, 3, 4), ints(2, 4)
    same(matvec(a, b), np.einsum("abnm,bm->abn", np.broadcast_to(a, (5, 2, 3, 4)), b))
    assert jnp.vectorize(jnp.add)(ints(1, 3), ints(2, 1)).shape == (2, 3)
    pair = jnp.vectorize(lambda a: (a, a.sum()), signature="(n)->(n),()")(X)
    same(pair[1], X.sum(1))
    same(jnp.vectorize(lambda a, k: a * k, excluded={1})(X, 3), X * 3)
    assert jnp.vectorize(lambda a: jnp.ones(3) * a)(X).shape == (3, 4, 3)


@pytest.mark.parametrize("kind,signature,args,text", [
    (ValueError, "(n),(n)->()", (ints(2, 3), V), "inconsistent size for core dimension 'n'"),
    (ValueError, "(n)->()", (np.float32(1),), "does not have enough dimensions for all core"),
    (ValueError, "(n)->()", (V,), "output shape (4,) does not match core dimensions ()"),
    (ValueError, "(n->()", (V,), "not a valid gufunc signature: (n->()"),
    (TypeError, "(n)->(n),()", (V,), "output must be a tuple when multiple outputs are expected"),
    (TypeError, "(n)->(n)", (V, V), "wrong number of positional arguments: expected 1, got 2"),
])
def test_vectorize_checks_shapes_against_the_signature(kind, signature, args, text):
    with pytest.raises(kind) as error:
        jnp.vectorize(lambda a, *rest: a, signature=signature)(*args)
    assert text in str(error.value)


# -- against JAX -----------------------------------------------------------------------------------

PROGRAMS = """
vmap(jnp.sin)(xy)                       vmap(jnp.sum)(xy)            vmap(jnp.sum)(x)
vmap(lambda a: jnp.zeros(3))(xy)        vmap(jnp.cumsum)(x)          vmap(jnp.cumsum)(xy)
vmap(lambda a: (a, 1.0))(xy)            vmap(lambda a: a[2])(x)      vmap(lambda a: a[2])(xy)
vmap(jnp.add)(xy, y)                    vmap(jnp.add)(xy, x)         vmap(jnp.add)(y, y)
vmap(jnp.add, (0, None))(x, y[0])       vmap(jnp.dot)(xy, xy)        vmap(jnp.outer)(x, x)
vmap(jnp.add, (0, None), 1)(x, v)       vmap(jnp.dot, (0, None))(x, v)
vmap(lambda a: a, 1, 0)(xy)             vmap(lambda a: a, 0, -1)(xy) vmap(vmap(jnp.sin))(xy)
vmap(lambda a: jax.sharding.reshard(a, P(None)))(xy)
vmap(lambda a: jax.sharding.reshard(a, P('x')))(xy)
vmap(lambda a: jnp.dot(q, a, out_sharding=P('y')))(x)
vmap(lambda a: jnp.zeros(8, out_sharding=P('y')))(x)
vmap(lambda a: lax.with_sharding_constraint(a, P('x')))(xy)
vmap(lambda a: lax.with_sharding_constraint(a, P('y')))(xy)
vmap(lambda a: lax.psum(a, 'i'), axis_name='i')(xy)
vmap(lambda a: lax.psum(a, 'i'), axis_name='i', out_axes=None)(xy)
vmap(jnp.sin, spmd_axis_name='y')(xy)   vmap(jnp.sin, spmd_axis_name='x')(xy)
vmap(jax.shard_map(lambda b: lax.psum(b, 'y'), out_specs=P()))(xy)
vmap(jax.shard_map(lambda b: b * 2, in_specs=P('x'), out_specs=P('x')))(xy)
vmap(jax.jit(lambda a: (jnp.ones(2), a)))(xy)
jax.jit(vmap(lambda a: jnp.take(a, jnp.array([0, 1]))))(x)
"""


def outcome(library, numpy, lax, spec, axis_type, devices, program):
    """Types of the results, or the class and first words of the error, of a program's text."""
    mesh = library.make_mesh((2, 4), ("x", "y"), axis_types=(axis_type.Explicit,) * 2)
    with library.set_mesh(mesh):
        names = {"jax": library, "jnp": numpy, "lax": lax, "P": spec, "vmap": library.vmap}
        for name, dims in (("x", ("x", None)), ("y", (None, "y")), ("xy", ("x", "y")),
                           ("v", (None,)), ("q", (None, None))):
            value = {1: A[0], 2: A}[len(dims)] if name != "q" else Q
            names[name] = library.device_put(value, spec(*dims))
        try:
            results = eval(program, names)
        except Exception as e:
            return type(e).__name__, str(e).split(":")[0][:40]
        leaves = results if isinstance(results, tuple) else (results,)
        return [str(library.typeof(r)).removeprefix("~") for r in leaves]


@pytest.mark.parametrize("program", [p for line in PROGRAMS.strip().splitlines()
                                     for p in line.split("  ") if p.strip()])
def test_types_and_errors_are_jax_s(program):
    jax = pytest.importorskip("jax")
    if jax.device_count() < 8:
        pytest.skip("JAX has fewer than 8 devices")
    from jax.sharding import AxisType as JaxAxisType     # noqa: PLC0415
    theirs = outcome(jax, jax.numpy, jax.lax, jax.P, JaxAxisType, jax.devices(), program)
    assert outcome(st, jnp, lax, P, AxisType, st.devices(), program) == theirs
