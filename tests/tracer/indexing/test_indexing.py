"""x[index] and x.at[index]: values as numpy's, ops as JAX's, and what cannot be an index."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax

from ...rows import rows

SHAPE = (3, 4, 2)
X = np.arange(24, dtype=np.float32).reshape(SHAPE)


# -- any index of numpy's --------------------------------------------------------------------------

def positions(size):
    """An int, a slice, an index array or a mask for a dimension of this size."""
    bound = some.none() | some.integers(-size - 1, size + 1)
    arrays = some.lists(some.integers(-size, size - 1), min_size=2, max_size=2)
    return some.one_of(
        some.integers(-size, size - 1), some.builds(slice, bound, bound),
        some.builds(slice, bound, bound, some.sampled_from([1, 2, -1, -2])),
        arrays.map(np.array), arrays.map(lambda v: np.array(v)[:, None]))


@some.composite
def indices(draw):
    count = draw(some.integers(0, 3))
    index = [draw(positions(n)) for n in SHAPE[:count]]
    if count < 3 and draw(some.booleans()):
        index.append(Ellipsis)
    for _ in range(draw(some.integers(0, 2))):
        index.insert(draw(some.integers(0, len(index))), None)
    return tuple(index)


def as_traced(index):
    return tuple(jnp.asarray(i) if isinstance(i, np.ndarray) else i for i in index)


@given(indices())
def test_reading_gives_what_numpy_gives(index):
    want = X[index]
    np.testing.assert_array_equal(jnp.asarray(X)[index], want)
    np.testing.assert_array_equal(st.jit(lambda x: x[as_traced(index)])(X), want)


@given(indices(), some.sampled_from(["set", "add", "multiply", "min"]))
def test_writing_gives_what_numpy_gives(index, how):
    want = X.copy()
    values = np.linspace(-5, 30, want[index].size, dtype=np.float32).reshape(want[index].shape)
    if how == "set":
        if np.unique(np.arange(24).reshape(SHAPE)[index]).size < want[index].size:
            return                              # which of two values stays is not defined
        want[index] = values
    else:
        {"add": np.add, "multiply": np.multiply, "min": np.minimum}[how].at(want, index, values)
    got = st.jit(lambda x, v: getattr(x.at[as_traced(index)], how)(v))(X, values)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@given(some.lists(some.booleans(), min_size=3, max_size=3), some.booleans())
def test_masks_give_what_numpy_gives(mask, behind):
    index = (slice(None), np.array([*mask, True])) if behind else np.array(mask)
    np.testing.assert_array_equal(jnp.asarray(X)[index], X[index])
    np.testing.assert_array_equal(st.jit(lambda x: x[index])(X), X[index])
    want = X.copy()
    want[index] = -1
    np.testing.assert_array_equal(jnp.asarray(X).at[index].set(-1), want)


# -- ops -------------------------------------------------------------------------------------------

OPS = [
    ("x[1]", "slice squeeze"),
    ("x[-1, 1:3]", "slice squeeze"),
    ("x[:, ::2]", "slice"),
    ("x[::-1]", "rev"),
    ("x[None, ..., 0]", "slice squeeze broadcast_in_dim"),
    ("x[i]", "lt add select_n dynamic_slice squeeze"),
    ("x[:, i, 1:]", "lt add select_n dynamic_slice squeeze"),
    ("x[v]", "lt add select_n broadcast_in_dim gather"),
    ("x[v, v]", "lt add select_n lt add select_n broadcast_in_dim broadcast_in_dim concatenate "
                "gather"),
    ("x[u]", "convert_element_type broadcast_in_dim gather"),
    ("x[True]", "broadcast_in_dim broadcast_in_dim gather"),
    ("x.at[0].get()", "slice squeeze"),
    ("x.at[1].set(2.)", "broadcast_in_dim broadcast_in_dim scatter"),
    ("x.at[v].add(1.)", "lt add select_n broadcast_in_dim broadcast_in_dim scatter-add"),
]


@rows("expression, ops", OPS)
def test_an_index_becomes_the_cheapest_op_that_can_do_it(expression, ops):
    f = eval(f"lambda x, i, v, u: {expression}")
    program = st.make_jaxpr(f)(X, np.int32(1), np.array([0, 2]), np.array([1], np.uint8)).jaxpr
    names = [e.op.name for e in program.eqns if any(v.aval.shape for v in e.outvars)
             or e.op.name in ("lt", "add", "select_n")]
    wanted = ops.replace("scatter-add", "scatter_add").split()
    assert [n.replace("-", "_") for n in names] == wanted


# -- options of .at[] ------------------------------------------------------------------------------

V = np.arange(4.0, dtype=np.float32)


@rows("expression, want", [
    ("v.at[jnp.array([0, 9])].get(mode='fill')", [0, np.nan]),
    ("v.at[jnp.array([0, 9])].get(mode='fill', fill_value=-1)", [0, -1]),
    ("v.at[jnp.array([0, 9])].get(mode='clip')", [0, 3]),
    ("v.at[jnp.array([-1])].get()", [3]),
    ("v.at[jnp.array([-1])].get(mode='fill', fill_value=7, wrap_negative_indices=False)", [7]),
    ("v.at[jnp.array([1, 9])].set(5)", [0, 5, 2, 3]),
    ("v.at[jnp.array([1, 9])].set(5, mode='clip')", [0, 5, 2, 5]),
    ("v.at[jnp.array([1, 1])].add(5)", [0, 11, 2, 3]),
    ("v.at[jnp.array([1, 1])].subtract(5)", [0, -9, 2, 3]),
    ("v.at[jnp.array([2, 2])].mul(3)", [0, 1, 18, 3]),
    ("v.at[1:3].divide(2)", [0, 0.5, 1, 3]),
    ("v.at[2].power(3)", [0, 1, 8, 3]),
    ("v.at[:2].max(0.5)", [0.5, 1, 2, 3]),
    ("v.at[2:].min([0, 9])", [0, 1, 0, 3]),
    ("v.at[1].apply(jnp.exp)", [0, np.e, 2, 3]),
    ("v.at[jnp.array([1, 1])].apply(lambda x: x + 10)", [0, 21, 2, 3]),
    ("v.at[np.array([True, False, False, True])].set(-1)", [-1, 1, 2, -1]),
])
def test_out_of_range_and_repeated_positions(expression, want):
    f = eval(f"lambda v: {expression}", {"jnp": jnp, "np": np})
    np.testing.assert_allclose(f(jnp.asarray(V)), want, rtol=1e-6)
    np.testing.assert_allclose(st.jit(f)(V), want, rtol=1e-6)


def test_a_value_of_another_dtype_is_cut_with_a_warning():
    with pytest.warns(FutureWarning, match="cannot safely cast value from dtype=float32"):
        out = jnp.arange(3).at[0].set(np.float32(2.7))
    assert out.dtype == jnp.int32 and out.tolist() == [2, 1, 2]


# -- errors ----------------------------------------------------------------------------------------

@pytest.mark.parametrize(("expression", "error", "text"), [
    ("v[4:][0]", IndexError, "index is out of bounds for axis 0 with size 0"),
    ("v[1.0]", TypeError, "Indexer must have integer or boolean type"),
    ("v['a']", TypeError, "JAX does not support string indexing"),
    ("v[0, 0]", IndexError, "Too many indices: array is 1-dimensional, but 2 were indexed"),
    ("v[..., ...]", IndexError, "an index can only have a single ellipsis"),
    ("v[[0, 1]]", TypeError, "Using a non-tuple sequence for multidimensional indexing"),
    ("v[np.array([True, False])]", IndexError, "boolean index did not match shape"),
    ("v[0.5:]", TypeError, "cannot be interpreted as an integer"),
    ("v.at[0].set(np.ones(2, np.float32))", ValueError, "Cannot broadcast to shape with fewer"),
    ("v.at[0:2].set(np.ones(3, np.float32))", ValueError, "Incompatible types for broadcasting"),
    ("v.at[0].set(1., mode='other')", ValueError, "Unknown gather mode"),
    ("v.__setitem__(0, 1)", TypeError, "JAX arrays are immutable"),
])
def test_what_cannot_be_an_index_is_refused(expression, error, text):
    with pytest.raises(error, match=text):
        eval(expression, {"v": jnp.asarray(V), "np": np, "jnp": jnp})


def test_a_traced_mask_has_no_size():
    with pytest.raises(IndexError, match="Array boolean indices must be concrete"):
        st.jit(lambda v, m: v[m])(V, V > 1)


def test_a_traced_bound_of_a_slice_is_refused():
    with pytest.raises(IndexError, match="Slice entries must be static integers"):
        st.jit(lambda v, i: v[i:i + 2])(V, 1)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "uint32"])
def test_starts_in_one_dimension_may_have_any_integer_dtype(kind):
    """The other dimensions start at 0 in the same dtype, as JAX has it."""
    x = jnp.arange(12.).reshape(4, 3)
    at = jnp.asarray(2, kind)
    for f in (lambda x, at: lax.dynamic_index_in_dim(x, at, keepdims=False),
              lambda x, at: lax.dynamic_slice_in_dim(x, at, 2),
              lambda x, at: lax.dynamic_update_index_in_dim(x, x[0], at, 0),
              lambda x, at: lax.dynamic_update_slice_in_dim(x, x[:1], at, 0)):
        eqn = next(e for e in reversed(st.make_jaxpr(f)(x, at).jaxpr.eqns)
                   if e.op.name.startswith("dynamic"))
        assert {str(v.aval.dtype) for v in eqn.invars[-2:]} == {kind}
        np.testing.assert_array_equal(f(x, at), f(x, 2))
    np.testing.assert_array_equal(lax.dynamic_index_in_dim(x, at, 0, keepdims=False), [6, 7, 8])


@pytest.mark.parametrize(("how", "kept", "given"), [
    ("max", [0, 1, 1, 1, 1, 0.5, 0], [1, 0, 0.5, 0]),
    ("min", [1, 1, 0, 1, 1, 0.5, 0], [0, 1, 0.5, 0])])
def test_slopes_of_extremes_with_nan_are_those_of_jax(how, kept, given):
    """What is not written passes its derivative on, NaN too; a NaN that is written does not."""
    x = np.array([1, np.nan, 5, np.inf, -np.inf, 3, np.nan], np.float32)
    rows = np.array([0, 2, 5, 6])
    _, back = st.vjp(lambda v, u: getattr(v.at[rows], how)(u), x, np.full(4, 3, np.float32))
    for got, want in zip(back(jnp.ones(7)), (kept, given), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32"])
def test_negative_positions_count_from_the_end_of_dimensions_longer_than_their_dtype_holds(kind):
    line = jnp.arange(40000.0)
    places = np.array([100, -1, -128]).astype(kind)
    wanted = np.arange(40000)[places.astype(int)]
    for mode in (None, "clip", "fill"):
        np.testing.assert_array_equal(
            jnp.take_along_axis(line, jnp.asarray(places), 0, mode=mode), wanted)
    part = lax.dynamic_slice(line.reshape(20000, 2), tuple(jnp.array([100, 1], kind)), (2, 1))
    np.testing.assert_array_equal(part, [[201], [203]])


@rows("kind", ["int8", "uint8", "int16", "int4"])
@rows("use", {
    "one_hot": lambda x, i: st.nn.one_hot(i, 300), "wrap": lambda x, i: jnp.take(x, i, mode="wrap"),
    "put": lambda x, i: jnp.put(x, i, 9, mode="wrap", inplace=False),
    "clip": lambda x, i: jnp.put(x, i, 9, mode="clip", inplace=False),
    "unravel": lambda x, i: jnp.stack(jnp.unravel_index(i, (4000, 10))).astype("int32"),
    "ravel": lambda x, i: jnp.ravel_multi_index((i, i), (300, 400), mode="wrap"),
    "ravel_clip": lambda x, i: jnp.ravel_multi_index((i, i), (300, 400), mode="clip"),
    "repeat": lambda x, i: jnp.repeat(x[:5], i.clip(0), total_repeat_length=600),
}.values())
def test_positions_of_small_dtypes_mean_what_those_of_int32_do(kind, use):
    places = jnp.array([7, 100, -1, -100, 120]).astype(kind)
    x = jnp.arange(40000.0)
    np.testing.assert_array_equal(use(x, places), use(x, places.astype("int32")))


def test_repeating_to_a_length_takes_memory_for_the_result_alone():
    counts = np.arange(300_000) % 3
    found = jnp.repeat(jnp.arange(300_000), jnp.array(counts), total_repeat_length=400_000)
    whole = np.repeat(np.arange(300_000), counts)
    np.testing.assert_array_equal(found, np.pad(whole, (0, 100_000), constant_values=299_999))
    few = jnp.repeat(jnp.arange(3), jnp.array([1, -2, 2]), total_repeat_length=4)
    assert few.tolist() == [0, 1, 1, 2]         # as JAX, for counts that mean nothing


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype .*int64")
@pytest.mark.parametrize("kind", ["int64", "uint64"])
def test_positions_kept_from_x64_mode_serve_outside_of_it(kind):
    with st.enable_x64():
        places = jnp.array([1, 2], kind)
    x = jnp.arange(4.0)
    for found in (x[places], jnp.take(x, places), lax.dynamic_slice(x, places[:1], (2,)),
                  st.jit(lambda i: x[i])(places), x.at[places].get()):
        np.testing.assert_array_equal(found, [1, 2])
    np.testing.assert_array_equal(x.at[places].add(1.0), [0, 2, 3, 3])


def test_complex_numbers_that_are_nan_in_part_are_one_nan_in_sets():
    x = np.array([complex(np.inf, 1), 0, complex(1, np.nan), complex(np.nan, 2), 1j], np.complex64)
    want = np.array([0, 1j, complex(np.inf, 1), np.nan], np.complex64)
    np.testing.assert_array_equal(jnp.unique(x), want)
    np.testing.assert_array_equal(st.jit(lambda x: jnp.unique(x, size=4))(x), want)
    values, counts = jnp.unique(x, return_counts=True, equal_nan=False)
    np.testing.assert_array_equal(values, [*want, np.nan])
    np.testing.assert_array_equal(counts, np.ones(5))
