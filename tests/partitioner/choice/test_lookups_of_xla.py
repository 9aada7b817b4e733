"""The exchanges of one lookup of JAX 0.10.2, by the layouts of its operands and its result."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

LINE, GRID, CUBE = {"x": 8}, {"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2}


def rows_of(table: Any, i: Any) -> Any:
    return table[i]


def one_of_each(table: Any, i: Any) -> Any:
    return jnp.take_along_axis(table, i[..., None], -1)[..., 0]


def exchanges(axes: dict[str, int], f: Callable[..., Any], table: Any,
              indices: tuple[tuple[int, ...], P], out: P) -> list[str]:
    """table: shape and layout of it, or of several arrays."""
    mesh = st.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
    def typed(dtype: str, shape: tuple[int, ...], spec: P) -> Any:
        return st.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec))
    tables = (tuple([typed("float32", *t) for t in table]) if isinstance(table, list)
              else typed("float32", *table))
    args = tables, typed("int32", *indices)
    compiled = st.jit(f, out_shardings=NamedSharding(mesh, out),
                      compiler_options={"objective": "xla"}).lower(*args).compile()
    return sorted([f"{r.kind} {','.join(sorted({a.partition(':')[0] for a in r.mesh_axes}))}"
                   for r in compiled.collectives() for _ in range(r.count)])


@pytest.mark.parametrize("axes, table, indices, out, found", [
    (GRID, P("y"), P(("y", "x")), P(("x", "y")),
     ["all-gather y", "collective-permute x,y", "reduce-scatter y"]),
    (CUBE, P("z", ("x", "y")), P(("x", "z")), P("z", ("y", "x")),
     ["all-gather x", "all-gather z", "collective-permute x,y", "collective-permute x,z",
      "reduce-scatter z"]),
    (CUBE, P("y", ("x", "z")), P(("x", "y")), P(("y", "z"), "x"),
     ["all-gather x", "all-gather y", "all-to-all z", "collective-permute x,y",
      "reduce-scatter y"])])
def test_indices_lend_devices_what_copies_lack(axes: dict[str, int], table: P, indices: P, out: P,
                                               found: list[str]) -> None:
    assert exchanges(axes, rows_of, ((512, 64), table), ((64,), indices), out) == found


@pytest.mark.parametrize("axes, table, indices, out, found", [
    (GRID, P(("y", "x")), P("x"), P("x", "y"), ["all-gather x", "reduce-scatter y"]),
    (CUBE, P(("x", "y")), P("z"), P(("x", "z"), "y"),
     ["collective-permute x,z", "reduce-scatter x,y"]),
    (CUBE, P(None, "z"), P(("z", "y", "x")), P("x", ("z", "y")),
     ["all-gather z", "all-to-all x,y", "collective-permute x,y,z"])])
def test_a_small_table_is_looked_up_where_it_is(axes: dict[str, int], table: P, indices: P, out: P,
                                                found: list[str]) -> None:
    assert exchanges(axes, rows_of, ((64, 64), table), ((256,), indices), out) == found


@pytest.mark.parametrize("axes, shape, table, indices, out, found", [
    (GRID, (64, 512), P(("x", "y")), P(("x", "y")), P(("y", "x")), ["collective-permute x,y"] * 2),
    (GRID, (64, 512), P(None, ("y", "x")), P("x"), P(),
     ["all-gather x", "all-gather x", "all-reduce x,y"]),
    (CUBE, (64, 512), P("y", "z"), P(("z", "y")), P(("x", "y")),
     ["all-reduce x", "collective-permute x,y,z", "collective-permute x,z",
      "collective-permute x,z"]),
    (LINE, (16, 32, 512), P("x"), P(None, "x"), P("x"), ["all-to-all x"] * 3),
    (CUBE, (16, 32, 512), P(None, None, ("y", "z", "x")), P(None, "x"), P(("z", "y"), "x"),
     ["all-gather x", "all-gather y,z", "reduce-scatter x,y,z"])])
def test_what_lies_outside_is_masked_apart(axes: dict[str, int], shape: tuple[int, ...], table: P,
                                           indices: P, out: P, found: list[str]) -> None:
    assert exchanges(axes, one_of_each, (shape, table), (shape[:-1], indices), out) == found


def test_a_result_leaves_a_group_in_the_layout_that_the_group_was_asked_for() -> None:
    """Its rows are gathered and cut again, to be split as they were (JAX 0.10.2)."""
    assert exchanges(GRID, rows_of, ((4096, 256), P(None, "y")), ((64, 16), P("y", "x")),
                     P("y", "x")) == [
        "all-gather x", "all-gather y", "all-to-all x", "all-to-all y"]


@pytest.mark.parametrize("axes, table, shape, indices, new, found", [
    (GRID, P("y"), (4096, 256), P(("y", "x")), P(("y", "x")),
     ["all-gather y", "all-gather y", "all-reduce x", "collective-permute x,y",
      "collective-permute x,y"]),
    (CUBE, P(None, "x"), (512, 1024), P(("x", "z")), P(None, ("x", "z")),
     ["all-gather z", "all-gather z", "all-reduce y,z", "collective-permute x,y"]),
    (CUBE, P("z", "x"), (512, 256), P(("z", "x", "y")), P("y", "x"),
     ["all-gather x", "all-gather z", "all-reduce y", "collective-permute x,y,z"])])
def test_rows_are_written_as_they_are_looked_up(
        axes: dict[str, int], table: P, shape: tuple[int, int], indices: P, new: P,
        found: list[str]) -> None:
    def add(given: tuple[Any, Any], i: Any) -> Any:
        return given[0].at[i].add(given[1])
    assert exchanges(axes, add, [(shape, table), ((64, shape[1]), new)], ((64,), indices),
                     table) == found


@pytest.mark.parametrize("table, out, found", [
    (P(None, "y"), P("x", ("y", "z")), ["all-gather x"]),
    (P(None, "y"), P("x", "z"), ["all-gather x", "collective-permute y,z"]),
    (P(None, ("y", "z")), P("x", "y"), ["all-gather z"])])
def test_indices_are_whole_where_a_window_has_other_tiles_in_the_table_than_in_the_result(
        table: P, out: P, found: list[str]) -> None:
    assert exchanges(CUBE, rows_of, ((64, 512), table), ((512,), P("x")), out) == found


@pytest.mark.parametrize("axes, shape, table, indices, out, found", [
    (GRID, (4096, 512), P("y"), ((16, 128), P("x")), P("x", None, "y"),
     ["all-gather x", "all-to-all x", "collective-permute x,y", "reduce-scatter y"]),
    (CUBE, (4096, 512), P("y"), ((512,), P("x")), P("x", ("y", "z")),
     ["all-gather x", "all-to-all x", "collective-permute x,y", "collective-permute x,z",
      "reduce-scatter y"]),
    (CUBE, (4096, 512), P("y"), ((512,), P(("x", "y"))), P("z", ("x", "y")),
     ["all-gather x,z", "all-to-all x,z", "collective-permute y,z", "collective-permute y,z",
      "reduce-scatter y"]),
    (CUBE, (512, 512), P(("x", "y")), ((512,), P("z")), P("z", ("y", "x")),
     ["all-gather z", "all-to-all z", "collective-permute x,y,z", "reduce-scatter x,y"]),
    (GRID, (512, 512), P("y"), ((64, 8), P("x")), P("y", "x"),
     ["all-to-all x", "all-to-all x", "reduce-scatter y"])])
def test_what_other_devices_have_is_masked_where_the_sum_is_taken(
        axes: dict[str, int], shape: tuple[int, ...], table: P,
        indices: tuple[tuple[int, ...], P], out: P, found: list[str]) -> None:
    assert exchanges(axes, rows_of, (shape, table), indices, out) == found


@pytest.mark.parametrize("axes, table, indices, out", [
    (GRID, P("y"), P("x"), P("x", "y")), (CUBE, P(("x", "y")), P("z"), P("z", ("y", "x"))),
    (CUBE, P("y"), P(("x", "y")), P("z", ("x", "y")))])
@pytest.mark.parametrize("mode", ["clip", "fill", "wrap"])
def test_values_of_lookups_that_are_masked_apart(axes: dict[str, int], table: P, indices: P,
                                                 out: P, mode: str) -> None:
    mesh = st.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
    x = np.arange(2048 * 8, dtype=np.float32).reshape(2048, 8)
    i = np.random.default_rng(0).integers(-2500, 4000, (2048,)).astype(np.int32)

    def f(x: Any, i: Any) -> Any:
        return jnp.take(x, i, axis=0, mode=mode)
    put = [st.device_put(a, NamedSharding(mesh, spec)) for a, spec in ((x, table), (i, indices))]
    with st.config.override(shardtrace_engine="per_device"):
        step = st.jit(f, out_shardings=NamedSharding(mesh, out),
                      compiler_options={"objective": "xla"})
        assert "all-to-all" in {r.kind for r in step.lower(*put).compile().collectives()}
        got = np.asarray(step(*put))
    np.testing.assert_array_equal(got, np.asarray(f(jnp.asarray(x), jnp.asarray(i))))


@pytest.mark.parametrize("axes, rows, indices, new, out, found", [
    (GRID, 4096, ((16, 128), P("x")), ((16, 128, 512), P("x", None, "y")), P("y"),
     ["all-gather y", "all-gather y", "all-reduce x", "all-to-all x", "collective-permute x,y"]),
    (GRID, 1024, ((16, 128), P("x")), ((16, 128, 512), P("x", None, "y")), P("y"),
     ["all-reduce x", "all-to-all y"]),
    (LINE, 4096, ((512,), P()), ((512, 64), P(None, "x")), P("x"), ["all-gather x"]),
    (LINE, 256, ((512,), P()), ((512, 64), P(None, "x")), P("x"), ["all-to-all x"])])
def test_zeros_that_are_written_into_are_laid_out_as_the_larger_of_result_and_rows(
        axes: dict[str, int], rows: int, indices: tuple, new: tuple, out: P, found: list[str]
        ) -> None:
    def add(given: tuple[Any], i: Any) -> Any:
        return jnp.zeros((rows, given[0].shape[-1])).at[i].add(given[0])
    assert exchanges(axes, add, [new], indices, out) == found


@pytest.mark.parametrize("axes, table, indices, new, found", [
    (GRID, ((4096, 64), P("y")), ((512,), P("x")), ((512, 64), P("x", "y")),
     ["all-gather x", "all-gather x", "all-gather y", "all-gather y", "collective-permute x,y"]),
    (GRID, ((4096, 64), P("y", "x")), ((512,), P("x")), ((512, 64), P("x")),
     ["all-gather x", "all-to-all x"]),
    (CUBE, ((4096, 64), P("x", "y")), ((512,), P("z")), ((512, 64), P("z", "y")),
     ["all-gather z", "all-gather z"]),
    (GRID, ((4096, 64), P(None, "x")), ((512,), P("y")), ((512, 64), P("y")),
     ["all-gather y", "all-gather y"])])
def test_rows_that_replace_others_are_written_by_the_device_that_has_them(
        axes: dict[str, int], table: tuple, indices: tuple, new: tuple, found: list[str]) -> None:
    """Of several for one place the last counts, so that indices and rows are whole."""
    def put(given: tuple[Any, Any], i: Any) -> Any:
        return given[0].at[i].set(given[1])
    assert exchanges(axes, put, [table, new], indices, table[1]) == found


@pytest.mark.parametrize("axes, cache, at, new, found", [
    (GRID, P("x", None, "y"), P("x"), P("x", "y"), ["all-gather x", "all-gather x"]),
    (GRID, P("x", "y"), P("x"), P("x"), ["all-gather x", "all-gather x"]),
    (LINE, P(None, "x"), P(), P(), []),
    (CUBE, P("x", None, ("y", "z")), P("x"), P("x", "y"),
     ["all-gather x", "all-to-all x", "collective-permute x,z"])])
def test_one_row_of_each_sequence_is_written_in_place(axes: dict[str, int], cache: P, at: P, new: P,
                                                      found: list[str]) -> None:
    def put(given: tuple[Any, Any], i: Any) -> Any:
        return given[0].at[jnp.arange(16), i].set(given[1])
    assert exchanges(axes, put, [((16, 256, 8, 64), cache), ((16, 8, 64), new)], ((16,), at),
                     cache) == found


def test_the_largest_of_old_and_new_rows_is_found_as_sums_are() -> None:
    def put(given: tuple[Any, Any], i: Any) -> Any:
        return given[0].at[i].max(given[1])
    assert exchanges(GRID, put, [((4096, 64), P("y")), ((512, 64), P("x", "y"))], ((512,), P("x")),
                     P("y")) == ["all-gather y", "all-gather y", "all-reduce x", "all-to-all x",
                                 "collective-permute x,y"]
