"""vmap: one example at a time outside, all of them inside.

Values are those of a loop over examples; texts of errors are JAX 0.10.2's.
"""
from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
import shardtrace.random as random
from shardtrace import lax, nn

from ...rows import rows
from .examplewise import agree, ints, loop, same

X, Y, V = ints(3, 4), ints(3, 4), ints(4)


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


@rows("name", UNARY)
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


@rows("name", BINARY)
def test_operands_may_be_unmapped(name):
    f = BINARY[name]
    agree(st.vmap(f)(X, Y), loop(f, 0, X, Y))
    agree(st.vmap(f, in_axes=(0, None))(X, V), loop(f, (0, None), X, V))
    agree(st.vmap(f, in_axes=(None, 1))(jnp.asarray(V), Y.T), loop(f, (None, 1), V, Y.T))


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


@pytest.mark.usefixtures("only_own_objects")
def test_a_leaked_tracer_is_an_error():
    kept = []
    st.vmap(kept.append)(X)
    with pytest.raises(st.errors.UnexpectedTracerError, match="unexpected tracer"):
        kept[0] + 1
    with st.checking_leaks(), pytest.raises(Exception, match="Leaked trace VmapBuilder of `f`"):
        def f(x):
            kept.append(x)
            return x * 2
        st.vmap(f)(X)
    kept.clear()
    with st.checking_leaks():
        same(st.vmap(st.vmap(st.grad(jnp.sin)))(X), np.cos(X))


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
    "most": (ValueError, lambda: st.vmap(lambda a, b, c: a)(X, X, {"k": V}), "vmap got "
             "inconsistent sizes for array axes to be mapped:\n  * most axes (2 of them) had size "
             "3, e.g. axis 0 of argument a of type float32[3,4];\n  * one axis had size 4: axis 0 "
             "of argument c['k'] of type float32[4]"),
    "keyword": (ValueError, lambda: st.vmap(lambda a, b: a)(X, b=V), "  * one axis had size 4: "
                "axis 0 of kwargs['b'] of type float32[4]"),
    "axis_size": (ValueError, lambda: st.vmap(lambda a: a, axis_size=5)(X), "  * the `axis_size` "
                  "argument was 5;\n  * one axis had size 3"),
    "out None": (ValueError, lambda: st.vmap(lambda a: {"p": (a, a)}, 0, {"p": (0, None)})(X),
                 "at vmap out_axes['p'][1], got axis spec None but output was batched on axis 0"),
    "out range": (ValueError, lambda: st.vmap(lambda a: a, 0, 3)(X), "axis 3 is out of bounds for "
                  "array of dimension 2"),
    "result": (TypeError, lambda: st.vmap(lambda a: "s")(X), "Output from batched function 's' "
               "with type <class 'str'> is not a valid JAX type"),
    "callable": (TypeError, lambda: st.vmap(3), "Expected a callable value, got 3"),
    "unbound": (NameError, lambda: st.vmap(lambda a: lax.psum(a, "i"))(X), "Found an unbound axis "
                "name: i. To fix this, please call psum under `st.shard_map`."),
    "groups": (NotImplementedError, lambda: st.vmap(lambda a: lax.psum(
        a, "i", axis_index_groups=[[0, 1], [2]]), axis_name="i")(X), "axis_index_groups not "
        "supported in vmap collectives"),
    "permutation": (AssertionError, lambda: st.vmap(lambda a: lax.ppermute(a, "i", [(0, 1)]),
                                                    axis_name="i")(X),
                    "Permutation doesn't match the axis size!"),
}


@rows("name", IDENTITY)
def test_errors_are_jax_s(name):
    kind, run, text = IDENTITY[name]
    with pytest.raises(kind) as error:
        run()
    assert text in str(error.value)


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
