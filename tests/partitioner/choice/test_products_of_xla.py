"""The exchanges of one product of JAX 0.10.2, by the layouts of its operands and its result."""
from __future__ import annotations

import functools
from typing import Any

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

LINE, GRID, CUBE = {"x": 8}, {"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2}
ROWS, BATCH, WEIGHTS = "ik,kj->ij", "bik,bkj->bij", "bsi,bsj->ij"
SIZES = {ROWS: ((64, 128), (128, 32)), BATCH: ((16, 32, 64), (16, 64, 32)),
         WEIGHTS: ((16, 32, 64), (16, 32, 128)), "bik,kj->bij": ((16, 32, 64), (64, 128))}
LARGE, SMALL = ((64, 64), (64, 256)), ((256, 256), (256, 16))


def exchanges(axes: dict[str, int], product: Any, shapes: Any, specs: list[P], out: P) -> list[str]:
    """product: a function of two arrays, or the text of an einsum."""
    mesh = st.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
    args = [st.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, spec))
            for shape, spec in zip(shapes, specs, strict=True)]
    if isinstance(product, str):
        product = functools.partial(jnp.einsum, product)
    compiled = st.jit(product, out_shardings=NamedSharding(mesh, out),
                      compiler_options={"objective": "xla"}).lower(*args).compile()
    return sorted([f"{r.kind} {','.join(sorted({a.partition(':')[0] for a in r.mesh_axes}))}"
                   for r in compiled.collectives() for _ in range(r.count)])


@pytest.mark.parametrize("axes, specs, out, found", [
    (GRID, [P(None, "x"), P(("x", "y"))], P("y"), ["all-gather x", "all-gather x,y"]),
    (GRID, [P(None, "y"), P("y", "x")], P("y"), ["all-gather x", "reduce-scatter y"]),
    (GRID, [P("x", "y"), P("y", "x")], P(None, ("x", "y")),
     ["all-gather x", "all-gather x", "all-reduce y"]),
    (CUBE, [P(None, ("x", "y")), P("x")], P(("z", "x"), "y"),
     ["all-to-all x", "all-to-all x,y", "collective-permute x,y", "collective-permute x,y,z"]),
    (CUBE, [P(("x", "z", "y")), P(("x", "z"), "y")], P("x", "y"),
     ["all-gather x,z", "all-gather y", "all-gather z"])])
def test_devices_that_share_tiles_are_taken_off_in_groups(axes: dict[str, int], specs: list[P],
                                                          out: P, found: list[str]) -> None:
    assert exchanges(axes, ROWS, SIZES[ROWS], specs, out) == found


@pytest.mark.parametrize("axes, shapes, specs, out, found", [
    (CUBE, LARGE, [P(None, ("y", "z", "x")), P(("y", "z"))], P("x", ("y", "z")),
     ["all-gather x,y,z", "all-to-all y,z"]),
    (GRID, LARGE, [P("x"), P("y")], P(None, ("x", "y")), ["all-gather x", "all-to-all y"]),
    (GRID, SMALL, [P(("x", "y")), P("y", "x")], P(None, "x"), ["all-gather x,y", "all-reduce y"]),
    (GRID, SMALL, [P("x", "y"), P(("x", "y"))], P(),
     ["all-gather x", "all-gather x", "all-reduce y", "collective-permute x,y"]),
    (GRID, SMALL, [P(None, ("x", "y")), P("y", "x")], P(("y", "x")),
     ["all-gather x", "all-gather y", "all-to-all x,y", "collective-permute x,y"])])
def test_the_operand_moves_that_is_smaller(axes: dict[str, int], shapes: Any, specs: list[P],
                                           out: P, found: list[str]) -> None:
    assert exchanges(axes, ROWS, shapes, specs, out) == found


@pytest.mark.parametrize("axes, text, shapes, specs, out, found", [
    (GRID, "bik,kj->bij", ((16, 32, 64), (64, 16)), [P("x", None, "y"), P("y")], P("y"),
     ["all-reduce y", "collective-permute x,y"]),
    (GRID, ROWS, ((32, 128), (128, 64)), [P(None, "y"), P("y", "x")], P(None, "y"),
     ["all-reduce y", "collective-permute x,y"]),
    (CUBE, ROWS, SIZES[ROWS], [P("z", ("x", "y")), P(("x", "y"))], P(("x", "y")),
     ["all-reduce x,y", "collective-permute x,y,z"]),
    # in another order than the sum; larger than the operand; of a dimension that is whole
    (CUBE, ROWS, SIZES[ROWS], [P("z", ("x", "y")), P(("x", "y"))], P(("y", "x")),
     ["all-gather z", "reduce-scatter x,y"]),
    (GRID, ROWS, ((64, 32), (32, 128)), [P("x", "y"), P("y")], P("y"),
     ["all-gather x", "reduce-scatter y"]),
    (GRID, ROWS, SIZES[ROWS], [P("x", "y"), P("y")], P(None, "y"),
     ["all-gather x", "reduce-scatter y"])])
def test_a_result_moves_whose_sum_was_over_its_axes(axes: dict[str, int], text: str, shapes: Any,
                                                    specs: list[P], out: P, found: list[str]
                                                    ) -> None:
    """The product keeps the axes of its operand, if its result is no larger (Shardy's reshard)."""
    assert exchanges(axes, text, shapes, specs, out) == found


@pytest.mark.parametrize("axes, text, specs, out, found", [
    (LINE, "bik,kj->bij", [P("x"), P("x")], P(None, None, "x"), ["all-gather x", "all-to-all x"]),
    (GRID, BATCH, [P("y", None, "x"), P(None, None, "x")], P("x"),
     ["all-gather y", "all-gather y", "all-to-all x", "collective-permute x,y"]),
    (GRID, BATCH, [P("x", None, "y"), P(None, "x", "y")], P("y", "x"),
     ["all-gather x", "all-to-all x", "all-to-all y", "all-to-all y"]),
    (GRID, WEIGHTS, [P("x", "y"), P(None, "x")], P(("y", "x")),
     ["all-gather x", "all-gather x", "all-gather y"]),
    (CUBE, WEIGHTS, [P(None, ("z", "y", "x")), P(("y", "z"), None, "x")], P(None, ("z", "y", "x")),
     ["all-gather x,y,z", "all-to-all y,z", "collective-permute x,z"]),
    (CUBE, WEIGHTS, [P(("z", "x"), "y"), P(None, "z", "x")], P(None, ("y", "z")),
     ["all-gather x,y", "all-reduce z", "collective-permute x,y,z", "collective-permute x,y,z"])])
def test_batch_goes_first_and_sums_last(axes: dict[str, int], text: str, specs: list[P], out: P,
                                        found: list[str]) -> None:
    assert exchanges(axes, text, SIZES[text], specs, out) == found


@pytest.mark.parametrize("axes, text, shapes, specs, out, found", [
    (GRID, ROWS, LARGE, [P("y"), P(None, "y")], P("x", "y"), ["all-gather y"]),
    (GRID, ROWS, SMALL, [P("y"), P(None, "y")], P("y", "x"), ["all-gather y"]),
    (CUBE, ROWS, SMALL, [P("y", "x"), P("y", "z")], P(("y", "z"), "x"),
     ["all-gather y", "all-to-all z", "collective-permute x,z", "collective-permute x,z"]),
    (CUBE, ROWS, SIZES[ROWS], [P("x", "y"), P("x", "z")], P("z", ("y", "x")),
     ["all-gather y", "all-to-all x", "collective-permute x,z", "collective-permute y,z"]),
    (GRID, "bik,kj->bij", SIZES["bik,kj->bij"], [P("x", "y"), P("x")], P(None, None, "y"),
     ["all-gather x", "all-gather y", "all-to-all y", "collective-permute x,y"]),
    (CUBE, BATCH, SIZES[BATCH], [P(None, "z", "x"), P("y", None, ("x", "z"))], P(None, "x", "z"),
     ["all-gather x", "all-gather y", "all-gather z", "collective-permute x,z",
      "collective-permute x,z"])])
def test_operands_take_the_way_of_the_groups(axes: dict[str, int], text: str, shapes: Any,
                                             specs: list[P], out: P, found: list[str]) -> None:
    """What a group lacks is gathered before the devices of the group cut it."""
    assert exchanges(axes, text, shapes, specs, out) == found


@pytest.mark.parametrize("out, found", [
    (P("x"), ["all-gather x", "all-to-all x"]), (P(None, "x"), ["all-gather x", "all-to-all x"]),
    (P(), ["all-reduce x", "all-to-all x"])])
def test_sums_over_dimensions_of_which_each_operand_has_another_split_are_left_to_a_whole_result(
        out: P, found: list[str]) -> None:
    shapes = ((64, 64, 64), (64, 64, 64))
    assert exchanges(LINE, "abc,abd->cd", shapes, [P("x"), P(None, "x")], out) == found


@pytest.mark.parametrize("shapes, specs, out, found", [
    (((256, 256), (256, 256)), [P(("x", "y")), P(None, "x")], P(("x", "y")),
     ["all-gather z", "collective-permute x,y,z"]),
    (((64, 32), (32, 256)), [P(None, ("y", "z")), P("z", "y")], P(None, "y"),
     ["all-gather y", "all-reduce z", "collective-permute x,y,z", "collective-permute x,z"])])
def test_tiles_come_from_the_copy_that_has_their_number_in_the_group(
        shapes: Any, specs: list[P], out: P, found: list[str]) -> None:
    """Of the last case the second permutation is inside of groups along y, where y stays."""
    assert exchanges(CUBE, ROWS, shapes, specs, out) == found


def test_a_convolution_by_a_kernel_of_size_1_is_a_product() -> None:
    found = exchanges(
        {"x": 2, "y": 2}, lambda a, w: lax.conv_general_dilated(a, w, (1, 1), "VALID"),
        ((2, 4, 6, 1), (4, 4, 1, 1)), [P("y", None, "x"), P(("x", "y"))], P(None, "x", "y"))
    assert found == ["all-gather x", "all-gather y", "collective-permute x,y"]
