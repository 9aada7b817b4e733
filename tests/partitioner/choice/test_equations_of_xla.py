"""The exchanges of one equation, or of a few, of JAX 0.10.2, by the layouts of what they read."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

LINE, GRID, CUBE = {"x": 8}, {"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2}
START = ((), P(), "int32")


def exchanges(f: Callable[..., Any], axes: dict[str, int], args: list[tuple], out: P) -> list[str]:
    mesh = st.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
    shapes = [st.ShapeDtypeStruct(shape, *(dtype or ("float32",)),
                                  sharding=NamedSharding(mesh, spec))
              for shape, spec, *dtype in args]
    compiled = st.jit(f, out_shardings=NamedSharding(mesh, out),
                      compiler_options={"objective": "xla"}).lower(*shapes).compile()
    return sorted([f"{r.count} {r.kind} {','.join(sorted(r.mesh_axes))}"
                   for r in compiled.collectives()])


def join(*pieces: Any) -> Any:
    return jnp.concatenate(pieces, 1)


@pytest.mark.parametrize("axes, args, out, found", [
    (CUBE, [((16, 64), P(("y", "z"), "x")), ((16, 64), P(("x", "z", "y")))], P(None, "x"),
     ["1 all-gather x,y,z", "1 all-to-all x", "1 collective-permute x,y"]),
    (GRID, [((64, 2048), P("y", "x")), ((64, 2048), P(None, ("y", "x")))], P("y"),
     ["1 all-gather x", "1 all-to-all x", "1 all-to-all x,y"]),
    (GRID, [((16, 64), P(("x", "y"))), ((16, 64), P(("y", "x")))], P(),
     ["1 all-gather x,y", "1 collective-permute x,y"])])
def test_pieces_are_joined_in_the_layout_that_most_of_them_have(
        axes: dict[str, int], args: Any, out: P, found: list[str]) -> None:
    """The axes of the dimension that grows go to another one."""
    assert exchanges(join, axes, args, out) == found


@pytest.mark.parametrize("f, args, out, found", [
    (lambda a: a[:, -1], [((256, 16, 1024), P("x", "y"))], P("x", "y"), ["1 all-to-all y"]),
    (lambda a: a[:, :32], [((64, 64), P("x", "y"))], P("y"),
     ["1 all-gather x", "1 all-to-all y", "1 collective-permute y", "1 collective-permute y"]),
    (lambda a, i: lax.dynamic_slice_in_dim(a, i, 8, 1), [((16, 16, 512), P(None, "x")), START],
     P("x", "y"), ["1 all-gather x"]),
    (lambda a, i: lax.dynamic_slice_in_dim(a, i, 8, 1), [((16, 16, 256), P(None, "y", "x")), START],
     P(None, "y", "x"), ["1 all-gather x", "1 all-gather y"])])
def test_rows_are_taken_in_the_layout_of_more_tiles_and_at_an_index_from_the_whole(
        f: Callable[..., Any], args: Any, out: P, found: list[str]) -> None:
    assert exchanges(f, GRID, args, out) == found


def test_operands_are_moved_unless_all_of_them_are_laid_out_alike() -> None:
    half = ((64, 64), P("x"))
    assert exchanges(lambda a, b, c: jnp.where(a > 0, b, c), GRID,
                     [half, half, ((64, 64), P("y"))], P("y")) == [
        "1 collective-permute x,y:(1)2,y:(2)2"] * 2


def test_what_is_brought_to_a_layout_and_back_stays_there_for_the_next_reader() -> None:
    assert exchanges(lambda a: jnp.sort(jnp.sort(a, 1), 1), GRID, [((16, 64), P("y", "x"))],
                     P("y", "x")) == ["1 all-to-all x"] * 2


def test_what_a_group_of_devices_gathers_is_gathered_again_outside_of_it() -> None:
    def f(h: Any, w: Any) -> Any:
        return st.grad(lambda w: ((h @ w) ** 2).sum())(w)
    assert exchanges(f, GRID, [((256, 64), P("x", "y")), ((64, 256), P("x", "y"))],
                     P("x", "y")) == [
        "1 all-gather x", "1 all-gather y", "1 all-gather y", "1 reduce-scatter x"]


def test_what_a_loop_stacks_is_laid_out_as_it_is_asked_for() -> None:
    def f(h: Any, w: Any) -> Any:
        def run(w: Any) -> Any:
            return lax.scan(lambda h, w: (h + jnp.tanh(h @ w), None), h, w)[0].sum()
        return st.grad(run)(w)
    assert exchanges(f, LINE, [((128, 64), P()), ((4, 64, 64), P(None, "x"))], P(None, "x")) == [
        "4 all-gather x", "4 reduce-scatter x"]


def test_what_a_loop_carries_has_one_layout_inside_and_after_it() -> None:
    def f(h: Any, w: Any) -> Any:
        return lax.scan(lambda c, x: (jnp.tanh(c @ w + x),) * 2, h[0], h)[1]
    args = [((16, 256, 64), P("z", "x", "y")), ((64, 64), P("z", ("y", "x")))]
    assert exchanges(f, CUBE, args, P("z", "x", "y")) == [
        "1 all-gather x", "1 all-gather z", "1 all-gather z", "1 all-reduce z", "16 all-reduce z",
        "16 collective-permute y,z"]
