"""Layouts: rearranging an array moves every block to where the new layout says it is."""
from __future__ import annotations

import itertools
import math

import hypothesis
import numpy as np
from hypothesis import strategies as st

from shardtrace.arrays.axes import MeshAtoms, linear_index
from shardtrace.ir.meshes.mesh import AbstractMesh
from shardtrace.runtime.layout import Layout, array_shape, label_sizes, rearrangement, whole

SIZE = {"X": 2, "Y": 3, "Z": 2}


def block(array, layout, local, at):
    """What the device at these coordinates holds, found by walking the layout's definition."""
    index = [at[a] for a in layout.stack]
    for axes, n in zip(layout.split, local, strict=True):
        i = 0
        for a in axes:
            i = i * SIZE[a] + at[a]
        index.append(slice(i * n, (i + 1) * n))
    return array[tuple(index)]


@st.composite
def layouts(draw, axes, rank):
    order = draw(st.permutations(axes))
    places = [draw(st.integers(-1, rank - 1)) for _ in order]
    stack = tuple(a for a, p in zip(order, places, strict=True) if p < 0)
    split = tuple(tuple(a for a, p in zip(order, places, strict=True) if p == d)
                  for d in range(rank))
    return Layout(stack, split)


@hypothesis.given(st.data())
def test_every_device_keeps_its_block(data):
    rank = data.draw(st.integers(0, 3))
    local = tuple(data.draw(st.integers(1, 3)) for _ in range(rank))
    axes = data.draw(st.sets(st.sampled_from("XYZ")).map(sorted))
    more = data.draw(st.sets(st.sampled_from("XYZ")).map(sorted))
    have = data.draw(layouts(axes, rank))
    want = data.draw(layouts(sorted({*axes, *more}), rank))
    array = np.arange(math.prod(array_shape(have, local, SIZE))).reshape(
        array_shape(have, local, SIZE))
    function = rearrangement(have.dims, want.dims, label_sizes(
        (*have.dims, *want.dims), local, SIZE))
    new = array if function is None else function(array)
    assert new.shape == array_shape(want, local, SIZE)
    for place in itertools.product(*(range(n) for n in SIZE.values())):
        at = dict(zip(SIZE, place, strict=True))
        np.testing.assert_array_equal(block(new, want, local, at), block(array, have, local, at))


def test_what_needs_no_copy_is_a_view():
    local = (4, 6)
    in_place, stacked = Layout((), (("X",), ("Y",))), Layout(("X", "Y"), ((), ()))
    array = np.zeros(array_shape(in_place, local, SIZE))
    sizes = label_sizes((*in_place.dims, *stacked.dims), local, SIZE)
    there = rearrangement(in_place.dims, stacked.dims, sizes)(array)
    assert np.shares_memory(there, array)
    back = rearrangement(stacked.dims, in_place.dims, sizes)(there)
    assert np.shares_memory(back, array)


def test_nothing_to_do_is_no_function():
    layout = Layout(("X",), (("Y",), ()))
    assert rearrangement(layout.dims, layout.dims, label_sizes(layout.dims, (2, 2), SIZE)) is None
    assert whole(2).atoms == set()


def test_atoms_are_the_coarsest_common_parts():
    mesh = AbstractMesh((8, 1, 3), ("X", "Y", "Z"))
    plain = MeshAtoms(mesh)
    assert plain.order == ("X", "Z") and plain.of("Y") == () and plain.of("X") == ("X",)
    cut = MeshAtoms(mesh, ["X:(2)4", "X:(1)4"])
    assert cut.order == ("X:(1)2", "X:(2)2", "X:(4)2", "Z")
    assert cut.of("X") == ("X:(1)2", "X:(2)2", "X:(4)2")
    assert cut.of("X:(2)4") == ("X:(2)2", "X:(4)2") and cut.of("X:(1)4") == ("X:(1)2", "X:(2)2")
    assert cut.of_all(("Z", "X:(4)2")) == ("Z", "X:(4)2") and cut.count(("Z", "X:(1)2")) == 6
    assert cut.sort({"Z", "X:(4)2", "X:(1)2"}) == ("X:(1)2", "X:(4)2", "Z")


def test_linear_index_counts_the_first_name_most():
    mesh = AbstractMesh((2, 3), ("X", "Y"))
    at = dict(zip(mesh.axis_names, np.indices(mesh.axis_sizes, sparse=True), strict=True))
    np.testing.assert_array_equal(linear_index(mesh, ("Y", "X"), at), [[0, 2, 4], [1, 3, 5]])
    np.testing.assert_array_equal(linear_index(mesh, ("X", "Y"), at), [[0, 1, 2], [3, 4, 5]])


def test_empty_arrays_are_rearranged_whatever_they_were():
    move = rearrangement((("x",), ()), (("x",), (1,)), (("x", 8), (1, 0)))
    assert move is not None and move(np.empty((8, 0), np.float32)).shape == (8, 0)
