"""Views of references, `ref.at[idx]`, and references to what regions cut, as arguments."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))


def add_one(v):
    v[...] += 1.0
    return v[0] * 10


CALLS = {
    "jit": lambda f: st.jit(f),
    "checkpoint": lambda f: st.checkpoint(f),
    "cond": lambda f: lambda *args: lax.cond(jnp.array(True), f, f, *args),
    "switch": lambda f: lambda *args: lax.switch(1, [f, f, f], *args),
    "shard_map": lambda f: st.shard_map(f, mesh=MESH, in_specs=P(), out_specs=P()),
    "grad": lambda f: lambda *args: st.jit(lambda s: f(*args) * s)(1.0),
}


@pytest.mark.parametrize("traced", [False, True], ids=["at once", "in jit"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_a_function_writes_to_a_view_is_in_the_reference(call, traced):
    def run():
        ref = st.new_ref(jnp.arange(6.0))
        result = call(add_one)(ref.at[2:5])
        return result, call(lambda v: v[...])(ref.at[jnp.array([0, 4])]), ref[...]

    result, read, whole = (st.jit(run) if traced else run)()
    assert float(result) == 30.0
    np.testing.assert_array_equal(read, [0.0, 5.0])
    np.testing.assert_array_equal(whole, [0.0, 1.0, 3.0, 4.0, 5.0, 5.0])


def test_views_of_views_within_containers_and_of_traced_positions():
    ref = st.new_ref(jnp.arange(6.0))
    assert float(st.jit(lambda d: add_one(d["v"]))({"v": ref.at[2:5].at[1:]})) == 40.0
    np.testing.assert_array_equal(ref[...], [0, 1, 2, 4, 5, 5])
    st.jit(lambda i: st.jit(lambda v: v.addupdate(1.0))(ref.at[i]))(5)
    assert float(ref[5]) == 6.0
    lax.scan(lambda c, row: (c, row.set(row[...] * c)), 2.0, ref.at[:2])
    np.testing.assert_array_equal(ref[...], [0, 2, 2, 4, 5, 6])


def test_a_view_says_what_it_is():
    rows = NamedSharding(MESH, P("x"))
    ref = st.new_ref(st.device_put(np.arange(6.0, dtype=np.float32), rows))
    view = ref.at[2:5]
    assert str(view.aval) == "Ref{float32[3]}" and (view.shape, view.ndim) == ((3,), 1)
    assert view.committed and view.sharding.device_set == rows.device_set


def test_a_reference_has_one_name_in_a_function_also_by_its_views():
    ref = st.new_ref(jnp.arange(6.0))
    for others in ((ref,), (ref.at[:1],)):
        with pytest.raises(ValueError, match=r"type Ref\{float32\[6\]\} appeared at both v and w"):
            st.jit(lambda v, w: add_one(v))(ref.at[2:5], *others)
    with pytest.raises(ValueError, match="both closed over and passed as the argument v"):
        st.jit(lambda v: add_one(v) + ref[0])(ref.at[2:5])


def test_a_view_is_neither_returned_nor_mapped():
    ref = st.new_ref(jnp.arange(6.0))
    for call in (st.jit, st.checkpoint, lambda f: lambda v: lax.cond(True, f, f, v)):
        with pytest.raises(ValueError, match="mutable array references cannot be returned"):
            call(lambda v: v)(ref.at[2:5])
    with pytest.raises(TypeError, match="vmap, TransformedRefs are not allowed, but .* name v"):
        st.vmap(add_one)(ref.at[2:5])


# -- regions ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("around", [lambda f: f, st.jit], ids=["at once", "in jit"])
def test_a_region_reads_and_writes_its_blocks(around):
    def double(scale, ref):
        ref[...] *= scale
        return ref[:1]

    region = st.shard_map(double, mesh=MESH, in_specs=(P(), P("x")), out_specs=P("x"))
    ref = st.new_ref(jnp.arange(6.0))
    np.testing.assert_array_equal(around(region)(2.0, ref), [0.0, 6.0])
    np.testing.assert_array_equal(ref[...], 2 * np.arange(6.0))
    np.testing.assert_array_equal(around(region)(3.0, ref.at[::3]), [0.0, 18.0])
    np.testing.assert_array_equal(ref[...], [0, 2, 4, 18, 8, 10])


def test_a_region_that_writes_what_differs_to_a_whole_reference_is_refused():
    def number(ref):
        ref[...] = lax.axis_index("x") + jnp.zeros(2, jnp.int32)

    region = st.shard_map(number, mesh=MESH, in_specs=P(), out_specs=None)
    with pytest.raises(ValueError, match="out_specs"):
        region(st.new_ref(jnp.zeros(2, jnp.int32)))
    region = st.shard_map(lambda ref: ref, mesh=MESH, in_specs=P("x"), out_specs=P("x"))
    with pytest.raises(ValueError, match="traced for shard_map returned a mutable array reference"):
        region(st.new_ref(jnp.zeros(2)))


def test_regions_with_references_are_differentiated_and_looped_over():
    def add(ref, v):
        ref[...] += v
        return ref[...].sum()[None]

    region = st.shard_map(add, mesh=MESH, in_specs=(P("x"), P()), out_specs=P("x"))

    def f(v):
        ref = st.new_ref(jnp.arange(4.0))
        v, sums = lax.scan(lambda c, _: (c, region(ref, c)), v, None, length=2)
        return sums.sum(), ref[...]

    (total, after), slope = st.value_and_grad(st.jit(f), has_aux=True)(2.0)
    assert (float(total), float(slope)) == (36.0, 12.0)
    np.testing.assert_array_equal(after, np.arange(4.0) + 4)
