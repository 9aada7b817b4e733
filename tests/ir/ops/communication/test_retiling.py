"""Tilings and the pieces of tiles, against sets of elements."""
from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from shardtrace.ir.diagnostics.errors import VerificationError
from shardtrace.ir.meshes.manual_state import ManualState
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.op import OPS
from shardtrace.ir.ops.communication.retile import retile_kind
from shardtrace.ir.ops.communication.retiling import (
    coordinates,
    disjoint_axes,
    merged_axes,
    place,
    received,
    retiled_shape,
    tile_pieces,
)
from shardtrace.ir.rules.factor_axes import axes_without, axis_set
from shardtrace.ir.shardings.normalized import unsharded
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.text.print import print_program
from shardtrace.ir.types import array_type
from shardtrace.ir.verify import verify

from ....rows import rows

SIZE = {"x": 4, "y": 2, "z": 3}
TILINGS = [((), ()), (("x",), ()), (("z",), ("x",)), (("x", "z"), ()), ((), ("z", "x")),
           (("y",), ("x",)), (("x",), ("y",)), (("z", "y"), ("x",)), (("y", "x"), ("z",))]


def elements(tiling, at):
    """The flat elements of a 24 x 24 value that are in the tile at these coordinates."""
    grid = np.arange(24 * 24).reshape(24, 24)
    where = []
    for axes in tiling:
        n = 24 // math.prod(SIZE[a] for a in axes)
        i = place(axes, at, SIZE)
        where.append(slice(i * n, (i + 1) * n))
    return grid[tuple(where)]


@rows("target", TILINGS)
@rows("source", TILINGS)
def test_pieces_are_what_is_needed_and_come_from_who_has_them(source, target):
    axes = tuple(SIZE)
    devices = [dict(zip(axes, c, strict=True)) for c in itertools.product(*map(range, (4, 2, 3)))]
    shape = elements(source, devices[0]).shape
    most = 0
    senders: dict[tuple, int] = {}
    for at in devices:
        have, want = elements(source, at), elements(target, at)
        assert want.shape == retiled_shape(shape, source, target, SIZE)
        out = np.full(want.shape, -1)
        away = 0
        for where, there, here in tile_pieces(shape, source, target, axes, SIZE, at):
            out[here] = elements(source, where)[there]
            if where != at:
                away += out[here].size
                key = tuple(where.values())
                senders[key] = senders.get(key, 0) + out[here].size
        np.testing.assert_array_equal(out, want)
        assert away == len(np.setdiff1d(want, have)), "what a device has comes from itself"
        most = max(most, away)
    assert most == received(shape, source, target, SIZE)
    if math.prod(shape) == math.prod(retiled_shape(shape, source, target, SIZE)):
        assert max(senders.values(), default=0) <= math.prod(shape), "nobody sends more than a tile"


def test_a_tile_without_elements_is_made_of_nothing():
    at = {"x": 1, "y": 0}
    found = list(tile_pieces((0, 2), (("x",), ()), ((), ("y",)), ("x", "y"), {"x": 2, "y": 2}, at))
    assert found == [(at, (slice(0, 0), slice(0, 1)), (slice(0, 0), slice(0, 1)))]


def test_places_and_coordinates_are_inverse():
    for index in range(24):
        assert place(("z", "x", "y"), coordinates(index, ("z", "x", "y"), SIZE), SIZE) == index


def test_axes_are_cut_into_common_parts_and_joined_again():
    mesh = {"x": 8, "y": 4}
    a, b = disjoint_axes([(("x",), ()), (("y",), ("x:(1)2",))], mesh)
    assert a == (("x:(1)2", "x:(2)4"), ()) and b == (("y",), ("x:(1)2",))
    assert disjoint_axes([(("y",),)], mesh, {"y": [2]}) == [(("y:(1)2", "y:(2)2"),)]
    assert merged_axes([a, b], mesh) == [a, b]
    assert merged_axes([a, a], mesh) == [(("x",), ())] * 2
    assert merged_axes([(("x:(2)2", "x:(4)2", "y"),)], mesh) == [(("x:(2)4", "y"),)]
    assert merged_axes([(("x:(4)2", "x:(2)2"),)], mesh) == [(("x:(4)2", "x:(2)2"),)]
    with pytest.raises(ValueError, match="cannot be cut"):
        disjoint_axes([(("x:(1)2",),), (("x:(1)3",),)], {"x": 6})


def test_sets_of_axes_have_one_form():
    mesh = AbstractMesh((8, 4, 1), ("x", "y", "one"))
    assert axis_set({"x:(1)2", "x:(2)4"}, mesh) == {"x"}
    assert axis_set({"x", "x:(2)2", "one"}, mesh) == {"x", "one"}
    assert axis_set({"x:(1)2", "x:(2)2", "y"}, mesh) == {"x:(1)4", "y"}
    assert axes_without({"x", "y"}, {"x:(2)2"}, mesh) == {"x:(1)2", "x:(4)2", "y"}
    assert axes_without({"x:(1)4", "one"}, {"x:(2)4"}, mesh) == {"x:(1)2", "one"}
    assert axes_without({"x"}, {"x:(1)2", "x:(2)4"}, mesh) == frozenset()


# -- the op ---------------------------------------------------------------------------------------

MESH = AbstractMesh((2, 4), ("x", "y"), (AxisType.Manual,) * 2)


def block(shape, varying):
    return array_type(shape, np.dtype(np.float32), sharding=unsharded(len(shape), MESH),
                      manual=ManualState(varying))


def params(source, target, axes=("x", "y"), sizes=(2, 4)):
    return {"axes": axes, "axis_sizes": sizes, "source": source, "target": target}


@pytest.mark.parametrize("shape, source, target, kind", [
    ((8, 4), (("x",), ("y",)), (("y",), ("x",)), ("collective-permute", 8)),
    ((4, 8), (("x", "y"), ()), (("y", "x"), ()), ("collective-permute", 8)),
    ((4, 8), (("x", "y"), ()), ((), ("y", "x")), ("all-to-all", 8)),
    ((4, 8), (("y",), ()), ((), ()), ("all-gather", 4)),
    ((4, 8), ((), ()), (("y",), ()), ("", 1)),
])
def test_the_kind_of_an_exchange(shape, source, target, kind):
    assert retile_kind(shape, params(source, target)) == kind


def test_a_value_over_two_parts_of_an_axis_is_over_the_axis():
    assert block((4,), {"y:(1)2", "y:(2)2"}) is block((4,), {"y"})
    assert block((4,), {"y:(1)2", "x"}).varying == {"y:(1)2", "x"}


TEXT = """mesh (x=2 manual, y=4 manual)
level local

program @change(
    a: f32[8,4]{V:(x,y)} <- f32[16@x,16@y],
) -> f32[4,8]{V:(x,y)} => f32[16@y,16@x] {
  b: f32[4,8]{V:(x,y)} = retile[axes=('x', 'y'), axis_sizes=(2, 4), source=(('x',), ('y',)), \
target=(('y',), ('x',))] a
  return b
}
"""


def test_it_is_printed_read_and_verified():
    program = parse_program(TEXT)
    verify(program)
    assert "collective-permute over x,y, 128 B received per device" in print_program(program)
    assert print_program(parse_program(print_program(program))) == print_program(program)


@pytest.mark.parametrize("before, after, message", [
    ("axis_sizes=(2, 4)", "axis_sizes=(2, 2)", "axis y has size 2"),
    ("target=(('y',), ('x',))", "target=(('y',), ('y',))", "each once"),
    ("target=(('y',), ('x',))", "target=(('y',),)", "has 1 dimensions"),
    ("source=(('x',), ('y',))", "source=(('x',), ())", "varies over axes"),
])
def test_what_makes_no_sense_is_refused(before, after, message):
    with pytest.raises(VerificationError, match=message):
        verify(parse_program(TEXT.replace(before, after)))


def test_the_op_holds_no_list_of_devices():
    large = AbstractMesh((256, 256), ("x", "y"), (AxisType.Manual,) * 2)
    t = array_type((256, 256), np.dtype(np.float32), sharding=unsharded(2, large),
                   manual=ManualState({"x", "y"}))
    p = params((("x",), ("y",)), (("y",), ("x",)), sizes=(256, 256))
    op = OPS["retile"]
    assert op.infer(t, **p)[0] == (256, 256)
    assert op.collective.wire(t, 1 << 16, p) == 4 << 16
