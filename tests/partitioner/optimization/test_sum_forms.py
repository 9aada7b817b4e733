"""Sums take the form in which they have company: two steps, or cut after they are added."""
from __future__ import annotations

import numpy as np

import shardtrace as st
from shardtrace import config
from shardtrace import numpy as jnp
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("x", "y"))
A, B = (np.random.default_rng(k).normal(size=(8, 16)).astype(np.float32) for k in (0, 1))


def placed(value, *spec):
    return st.device_put(value, NamedSharding(MESH, P(*spec)))


def collectives(f, *args, objective="time"):
    with config.override(shardtrace_objective=objective):
        return st.jit(f).lower(*args).compile().collectives()


def axes_of(f, *args, objective="time"):
    return [c.mesh_axes for c in collectives(f, *args, objective=objective)]


def both(a, b):
    return a.sum(), b.sum(0)


def test_a_sum_joins_one_over_some_of_its_axes_once_it_is_summed_over_the_rest():
    args = placed(A, "x", "y"), placed(B, "x")
    assert axes_of(both, *args) == [("y",), ("x",)]
    with config.override(shardtrace_engine="per_device", shardtrace_objective="time"):
        total, columns = st.jit(both)(*args)
    np.testing.assert_allclose(np.asarray(total), A.sum(), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(columns), B.sum(0), rtol=1e-5)


def test_a_sum_without_company_is_one_exchange():
    assert axes_of(lambda a: a.sum(), placed(A, "x", "y")) == [("x", "y")]
    assert axes_of(lambda a, b: (a.sum(), jnp.max(b, 0)), placed(A, "x", "y"),
                   placed(B, "x")).count(("x", "y")) == 1


def test_where_bytes_count_sums_stay_as_they_are():
    args = placed(A, "x", "y"), placed(B, "x")
    assert axes_of(both, *args, objective="bytes") == [("x", "y"), ("x",)]


def kinds_of(*args, objective="time"):
    return [c.kind for c in collectives(columns, *args, objective=objective)]


def both_sums(a, b):
    return a.sum(0), b.sum(0)


columns = st.jit(both_sums, out_shardings=(NamedSharding(MESH, P("x")), NamedSharding(MESH, P())))


def test_a_sum_that_is_scattered_joins_one_over_its_axes_and_is_cut_afterwards():
    args = placed(A, "x"), placed(B, "x")
    assert kinds_of(*args) == ["all-reduce"]
    assert kinds_of(*args, objective="bytes") == ["reduce-scatter", "all-reduce"]
    with config.override(shardtrace_engine="per_device", shardtrace_objective="time"):
        for found, x in zip(columns(*args), (A, B), strict=True):
            np.testing.assert_allclose(np.asarray(found), x.sum(0), rtol=1e-5)


def test_it_does_so_also_where_its_blocks_are_in_another_order_of_axes():
    args = placed(A, ("x", "y")), placed(B, ("x", "y"))
    turned = NamedSharding(MESH, P(("y", "x")))
    with config.override(shardtrace_engine="per_device", shardtrace_objective="time"):
        compiled = st.jit(both_sums, out_shardings=(turned, NamedSharding(MESH, P()))
                          ).lower(*args).compile()
        assert [c.kind for c in compiled.collectives()] == ["all-reduce"]
        for found, x in zip(compiled(*args), (A, B), strict=True):
            np.testing.assert_allclose(np.asarray(found), x.sum(0), rtol=1e-5)


def test_a_large_sum_stays_scattered():
    large = st.ShapeDtypeStruct((2, 2**22), "float32", sharding=NamedSharding(MESH, P("x")))
    assert sorted(kinds_of(large, placed(B, "x"))) == ["all-reduce", "reduce-scatter"]
