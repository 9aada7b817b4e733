"""Shardings: shard shapes, index maps, equivalence, checks; against JAX and by brute force."""

import copy
import itertools
import math
import pickle
import random

import numpy as np
import pytest

from shardtrace.ir.diagnostics.errors import DuplicateSpecError, IndivisibleError
from shardtrace.ir.meshes.device import Device, process_scope
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType, Mesh
from shardtrace.ir.shardings.sharding import (
    NamedSharding,
    Sharding,
    SingleDeviceSharding,
    dim_factors,
    make_single_device_sharding,
    named_sharding_abstract,
    tile_index,
)
from shardtrace.ir.spec import P

from ...rows import rows

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit


def make_mesh(sizes, names, axis_type=EXPLICIT, order=None):
    count = math.prod(sizes)
    grid = np.empty(count, dtype=object)
    grid[:] = [Device(i) for i in (order or range(count))]
    return Mesh(grid.reshape(sizes), names, (axis_type,) * len(sizes))


M42 = make_mesh((4, 2), ("x", "y"))
M22 = make_mesh((2, 2), ("x", "y"))
M412 = make_mesh((4, 1, 2), ("x", "z", "y"))
A222 = AbstractMesh((2, 2, 2), ("a", "b", "c"))
A42 = AbstractMesh((4, 2), ("x", "y"), (EXPLICIT, EXPLICIT))


# --------------------------------------------------------------------------- identity, printing


def test_equality_is_identity():
    s = NamedSharding(M42, P("x"))
    assert NamedSharding(M42, P(("x",))) is s
    assert NamedSharding(mesh=M42, spec=P("x"), memory_kind="device") is s
    assert NamedSharding(M42, P("x", None)) != s
    assert s.with_memory_kind("pinned_host") != s
    assert s.with_memory_kind("pinned_host").with_memory_kind("device") is s
    assert s.update(spec=P("y")) is NamedSharding(M42, P("y"))
    assert s.update(spec=("y",)) is NamedSharding(M42, P("y"))
    assert s.update(mesh=M22).mesh is M22
    assert named_sharding_abstract(A42, P("x", None)) is NamedSharding(A42, P("x", None))
    assert make_single_device_sharding(Device(0)) is SingleDeviceSharding(Device(0))
    assert isinstance(s, Sharding)


@pytest.mark.parametrize("s", [
    NamedSharding(M42, P("x", unreduced={"y"})), NamedSharding(A42, P(None, "y")),
    NamedSharding(M42, P("x"), memory_kind="pinned_host"),
    SingleDeviceSharding(Device(3), memory_kind="unpinned_host"),
], ids=repr)
def test_copies_and_pickles_are_the_same_object(s):
    for again in (copy.copy(s), copy.deepcopy(s), pickle.loads(pickle.dumps(s))):
        assert again is s


def test_shardings_print_mesh_spec_and_memory():
    assert repr(NamedSharding(M42, P("x"))) == (
        "NamedSharding(mesh=Mesh('x': 4, 'y': 2, axis_types=(Explicit, Explicit)), "
        "spec=P('x',), memory_kind=device)")
    assert repr(NamedSharding(A42, P("x"))) == (
        "NamedSharding(mesh=AbstractMesh('x': 4, 'y': 2, axis_types=(Explicit, Explicit)), "
        "spec=P('x',))")
    assert repr(SingleDeviceSharding(Device(0))) == (
        "SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device)")


def test_no_field_can_be_assigned():
    with pytest.raises(AttributeError, match="cannot assign"):
        NamedSharding(M42, P("x")).spec = P()


# --------------------------------------------------------------------------- mistakes


# (construct or call, class, message); runs in JAX too
MISTAKES = [
    (lambda N, P, m, a: N(m, P("z")), "ValueError",
     "Resource axis: z of P('z',) is not found in mesh: ('x', 'y')."),
    (lambda N, P, m, a: N(m, P(("x", None))), "ValueError",
     "Resource axis: None of P(('x', None),) is not found in mesh: ('x', 'y')."),
    (lambda N, P, m, a: N(m, P("x", "x")), "DuplicateSpecError",
     "A single NamedSharding spec specification can map every mesh axis to at most one positional "
     "dimension, but P('x', 'x') has duplicate entries for `x`"),
    (lambda N, P, m, a: N(a, P(("y", "x"), "x", "y")), "DuplicateSpecError",
     "A single NamedSharding spec specification can map every mesh axis to at most one positional "
     "dimension, but P(('y', 'x'), 'x', 'y') has duplicate entries for `x`, `y`"),
    (lambda N, P, m, a: N(m, P(P.UNCONSTRAINED)), "ValueError",
     "P(UNCONSTRAINED,) cannot contain `P.UNCONSTRAINED` when no mesh axis_types are `Auto`. Got "
     "mesh axis_types: (Explicit, Explicit)"),
    (lambda N, P, m, a: N(m, P(unreduced={"z"})), "ValueError",
     "Unreduced axes z is not found in mesh.axis_names=('x', 'y'). Got pspec=P(unreduced={'z'})"),
    (lambda N, P, m, a: N(m, P(reduced={"z"})), "ValueError",
     "Reduced axes z is not found in mesh.axis_names=('x', 'y'). Got pspec=P(reduced={'z'})"),
    (lambda N, P, m, a: N(m.update(axis_types=(m.axis_types[0], type(m.axis_types[0]).Auto)),
                          P(unreduced={"y"})), "ValueError",
     "Unreduced axes can only refer to mesh axes that is of type `Explicit`. Got unreduced axes: "
     "frozenset({'y'}) and mesh: Mesh('x': 4, 'y': 2, axis_types=(Explicit, Auto))"),
    (lambda N, P, m, a: N(a.update_axis_types({"y": type(m.axis_types[0]).Manual}),
                          P(reduced={"y"})), "ValueError",
     "Reduced axes can only refer to mesh axes that is of type `Explicit`. Got reduced axes: "
     "frozenset({'y'}) and mesh: AbstractMesh('x': 4, 'y': 2, axis_types=(Explicit, Manual))"),
    (lambda N, P, m, a: N(m, P("x"), memory_kind="foo"), "ValueError",
     "Could not find memory addressable by device cpu. Device cpu can address the following "
     "memory kinds: device, pinned_host, unpinned_host. Got memory kind: foo"),
    (lambda N, P, m, a: N(m, P("x")).shard_shape((6, 2)), "IndivisibleError",
     "Sharding NamedSharding(mesh=Mesh('x': 4, 'y': 2, axis_types=(Explicit, Explicit)), "
     "spec=P('x',), memory_kind=device) implies that array axis 0 is partitioned 4 times, but the "
     "dimension size is 6 (full shape: (6, 2), per-dimension tiling factors: [4, 1] should evenly "
     "divide the shape)"),
    (lambda N, P, m, a: N(m, P(None, "x")).shard_shape((8,)), "IndexError",
     "list index out of range"),
    (lambda N, P, m, a: N(m, P("x", None)).check_compatible_aval((8,)), "ValueError",
     "Sharding NamedSharding(mesh=Mesh('x': 4, 'y': 2, axis_types=(Explicit, Explicit)), "
     "spec=P('x', None), memory_kind=device) is only valid for values of rank at least 2, but was "
     "applied to a value of rank 1."),
    (lambda N, P, m, a: N(m, P("x")).check_compatible_aval(()), "ValueError",
     "applied to a value of rank 0. For scalars the PartitionSpec should be P()"),
    (lambda N, P, m, a: N(m, P(unreduced={"x"})).devices_indices_map((8,)), "NotImplementedError",
     "device_indices_map doesn't work with unreduced."),
    (lambda N, P, m, a: N(a, P("x")).device_set, "ValueError",
     "device_set is not implemented for `jax.sharding.AbstractMesh`."),
    (lambda N, P, m, a: N(a, P("x")).is_fully_addressable, "ValueError",
     "is_fully_addressable is not implemented for `jax.sharding.AbstractMesh`."),
    (lambda N, P, m, a: N(a, P("x")).addressable_devices, "ValueError",
     "addressable_devices is not implemented for `jax.sharding.AbstractMesh`."),
    (lambda N, P, m, a: N(a, P("x")).devices_indices_map((8,)), "ValueError",
     "_device_assignment is not implemented for `jax.sharding.AbstractMesh`."),
]


def raised_by(f):
    try:
        f()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@rows("make, error, message", MISTAKES)
def test_mistakes_are_reported_in_jax_s_words(make, error, message):
    raised = raised_by(lambda: make(NamedSharding, P, M42, A42))
    assert type(raised).__name__ == error
    assert message in str(raised)


@pytest.fixture(scope="module")
def jax():
    jax = pytest.importorskip("jax")
    try:
        jax.config.update("jax_num_cpu_devices", 8)
    except RuntimeError:
        pass  # the backend runs already
    if len(jax.devices()) < 8:
        pytest.skip("needs 8 devices in jax")
    return jax


@pytest.mark.parametrize(("make", "error", "message"), MISTAKES)
def test_jax_reports_the_same_mistakes(jax, make, error, message):
    js = jax.sharding
    explicit = (js.AxisType.Explicit,) * 2
    mesh = js.Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"), explicit)
    abstract = js.AbstractMesh((4, 2), ("x", "y"), explicit)
    raised = raised_by(lambda: make(js.NamedSharding, jax.P, mesh, abstract))
    assert type(raised).__name__ == error
    assert message in str(raised)


def test_a_tuple_is_no_spec():
    for spec in (("x",), "x", None):
        with pytest.raises(TypeError, match="NamedSharding needs a Mesh"):
            NamedSharding(M42, spec)


@pytest.mark.parametrize(("spec", "error", "message"), [
    (P("x", "x:(1)2"), DuplicateSpecError, "duplicate entries for `x:(1)2`, `x`"),
    (P("x:(1)2", "x:(1)4"), DuplicateSpecError, "duplicate entries"),
    (P("x:(1)8"), ValueError, "does not divide mesh axis x of size 4"),
    (P("z:(1)2"), ValueError, "Resource axis: z:(1)2 of P('z:(1)2',) is not found in mesh"),
    (P("x:(1)2", unreduced={"x"}), ValueError, "partitions cannot overlap with unreduced axes"),
    (P("x:(1)2", unreduced={"x:(1)2:(1)2"}), ValueError, "is not found in mesh"),
])
def test_a_sub_axis_overlaps_its_axis(spec, error, message):
    with pytest.raises(error) as caught:
        NamedSharding(M42, spec)
    assert message in str(caught.value)


def test_disjoint_sub_axes_of_one_axis_are_accepted():
    s = NamedSharding(M42, P("x:(1)2", "x:(2)2"))
    assert s.shard_shape((8, 8)) == (4, 4)
    starts = {d.id: tuple(i.start for i in index)
              for d, index in s.devices_indices_map((8, 8)).items()}
    assert starts == {0: (0, 0), 1: (0, 0), 2: (0, 4), 3: (0, 4), 4: (4, 0), 5: (4, 0), 6: (4, 4),
                      7: (4, 4)}


# --------------------------------------------------------------------------- arithmetic


def test_the_first_name_of_an_entry_is_most_significant():
    index = NamedSharding(M22, P(("y", "x"))).devices_indices_map((8,))
    assert [(d.id, i[0].start, i[0].stop) for d, i in index.items()] == [
        (0, 0, 2), (1, 4, 6), (2, 2, 4), (3, 6, 8)]


def test_index_maps_show_whole_dimensions_as_empty_slices():
    assert NamedSharding(M22, P()).devices_indices_map(()) == dict.fromkeys(M22.device_tuple, ())
    index = NamedSharding(M22, P("x")).devices_indices_map((4, 3))
    assert index[Device(3)] == (slice(2, 4), slice(None))
    index.clear()  # a copy: the cached map is not the caller's to change
    assert len(NamedSharding(M22, P("x")).devices_indices_map((4, 3))) == 4


def test_unreduced_axes_do_not_divide():
    s = NamedSharding(M42, P("x", unreduced={"y"}))
    assert s.shard_shape((8, 3)) == (2, 3)
    assert not s.is_fully_replicated
    assert not NamedSharding(M42, P(unreduced={"y"})).is_fully_replicated
    assert NamedSharding(M42, P(reduced={"y"})).is_fully_replicated


def test_a_sharding_is_replicated_where_no_axis_larger_than_1_splits_it():
    assert NamedSharding(M42, P()).is_fully_replicated
    assert not NamedSharding(M42, P(None, "y")).is_fully_replicated
    one = make_mesh((4, 1), ("x", "y"))
    assert NamedSharding(one, P("y")).is_fully_replicated
    assert NamedSharding(make_mesh((1,), "x"), P(unreduced={"x"})).is_fully_replicated
    assert NamedSharding(M42, P("x")).replicated_axes == {"y"}


def test_tile_index_takes_arrays_of_coordinates():
    shape = {"a": 2, "b": 3, "c": 4}
    entries = (("c:(2)2", "a"), (), ("b",))
    grids = np.indices((2, 3, 4))
    many = np.broadcast_arrays(*tile_index(shape, entries, tuple(grids)))
    for at in itertools.product(range(2), range(3), range(4)):
        alone = tile_index(shape, entries, at)
        assert alone == (at[2] % 2 * 2 + at[0], 0, at[1])
        assert alone == tuple(m[at] for m in many)
        assert alone == tile_index(shape, entries, dict(zip("abc", at, strict=True)))
    assert dim_factors(shape, entries) == (4, 1, 3)


def test_sub_axes_place_data_as_the_split_axis_does():
    whole = make_mesh((8,), "x")
    split = make_mesh((2, 2, 2), ("a", "b", "c"))
    names = {"a": "x:(1)2", "b": "x:(2)2", "c": "x:(4)2"}
    for dims in itertools.product([None, "a", "b", "c", ("a", "b"), ("c", "a")], repeat=2):
        used = [n for d in dims for n in (d or ())]
        if len(set(used)) < len(used):
            continue
        renamed = [tuple(names[n] for n in d) if d else None for d in dims]
        one, other = NamedSharding(split, P(*dims)), NamedSharding(whole, P(*renamed))
        assert one.devices_indices_map((8, 8)) == other.devices_indices_map((8, 8))
        assert one.is_equivalent_to(other, 2)


def test_addressable_devices_are_those_of_the_process_that_asks():
    grid = np.empty(4, dtype=object)
    grid[:] = [Device(i, process_index=i // 2) for i in range(4)]
    s = NamedSharding(Mesh(grid, "x"), P("x"))
    assert not s.is_fully_addressable and len(s.device_set) == 4
    assert [d.id for d in s.addressable_devices_indices_map((8,))] == [0, 1]
    with process_scope(1):
        assert [d.id for d in s.addressable_devices_indices_map((8,))] == [2, 3]
        assert {d.id for d in s.addressable_devices} == {2, 3}
    with process_scope(2):
        assert not s.has_addressable_devices
    single = SingleDeviceSharding(grid[2])
    assert not single.is_fully_addressable and single.device_set == {grid[2]}


def test_a_single_device_holds_everything():
    s = SingleDeviceSharding(Device(1))
    assert s.shard_shape((3, 4)) == (3, 4)
    assert s.devices_indices_map((3, 4)) == {Device(1): (slice(None), slice(None))}
    assert s.is_fully_replicated and s.is_fully_addressable and s.num_devices == 1
    s.check_compatible_aval(())
    with pytest.raises(ValueError, match="Could not find memory"):
        s.with_memory_kind("foo")


# --------------------------------------------------------------------------- equivalence


@rows("a, b, ndim, same", [
    (NamedSharding(M42, P("x")), NamedSharding(M42, P("x", None)), 2, True),
    (NamedSharding(M42, P(("x", "y"))), NamedSharding(make_mesh((8,), "a"), P("a")), 1, True),
    (NamedSharding(M42, P(("y", "x"))), NamedSharding(make_mesh((8,), "a"), P("a")), 1, False),
    (NamedSharding(M42, P("x")), NamedSharding(M42, P("y")), 1, False),
    (NamedSharding(M42, P("x")), NamedSharding(M42, P(None, "x")), 2, False),
    (NamedSharding(M42, P("x")), NamedSharding(M42, P("x"), memory_kind="pinned_host"), 1, False),
    (NamedSharding(make_mesh((1,), "x"), P("x")), SingleDeviceSharding(Device(0)), 1, True),
    (NamedSharding(make_mesh((1,), "x"), P("x")), SingleDeviceSharding(Device(1)), 1, False),
    (NamedSharding(M42, P()), NamedSharding(make_mesh((8,), "a", order=range(7, -1, -1)), P()), 1,
     False),
    (NamedSharding(M42, P()), NamedSharding(make_mesh((8,), "a", AUTO), P()), 1, True),
    (NamedSharding(M412, P(("x", "z"))), NamedSharding(M42, P("x")), 1, True),
    (NamedSharding(M42, P(unreduced={"x"})), NamedSharding(M42, P()), 1, False),
    (NamedSharding(M42, P(reduced={"x"})), NamedSharding(M42, P()), 1, True),
    (NamedSharding(A42, P("x")), NamedSharding(A222, P(("a", "b"))), 1, True),
    (NamedSharding(A42, P("x")), NamedSharding(A42, P("y")), 1, False),
])
def test_equivalence_is_about_devices_and_tiles(a, b, ndim, same):
    assert a.is_equivalent_to(b, ndim) is same
    assert b.is_equivalent_to(a, ndim) is same


def random_spec(rng, names, ndim):
    """Axes at random: each splits a dimension, or is left out."""
    dims = [[] for _ in range(ndim)]
    names = list(names)
    rng.shuffle(names)
    for name in names:
        place = rng.randrange(ndim + 1)
        if place < ndim:
            dims[place].append(name)
    return [tuple(d) for d in dims]


def random_cases(seed, count):
    rng = random.Random(seed)
    shapes = [((8,), "a"), ((4, 2), "ab"), ((2, 4), "ab"), ((2, 2, 2), "abc"), ((2, 1, 4), "abc"),
              ((1, 8), "ab")]
    for _ in range(count):
        sizes, names = rng.choice(shapes)
        yield sizes, tuple(names), random_spec(rng, names, 2)


def test_equivalence_of_random_shardings_is_that_of_their_index_maps():
    shardings = [NamedSharding(make_mesh(s, n), P(*d)) for s, n, d in random_cases(0, 60)]
    shardings.append(NamedSharding(M42, P("x:(2)2", ("x:(1)2", "y"))))
    for a, b in itertools.combinations(shardings, 2):
        same = a.devices_indices_map((64, 64)) == b.devices_indices_map((64, 64))
        assert a.is_equivalent_to(b, 2) is same, (a, b)


def test_random_shardings_agree_with_jax(jax):
    js = jax.sharding
    pairs = []
    for sizes, names, dims in random_cases(1, 60):
        devices = np.array(jax.devices()[:8]).reshape(sizes)
        theirs = js.NamedSharding(js.Mesh(devices, names), jax.P(*dims))
        ours = NamedSharding(make_mesh(sizes, names, AUTO), P(*dims))
        assert repr(ours) == repr(theirs)
        assert ours.shard_shape((64, 64)) == theirs.shard_shape((64, 64))
        index = {d.id: i for d, i in ours.devices_indices_map((64, 64)).items()}
        expected = {d.id: i for d, i in theirs.devices_indices_map((64, 64)).items()}
        assert list(index.items()) == list(expected.items())
        assert ours.is_fully_replicated == theirs.is_fully_replicated
        assert ours.replicated_axes == theirs.replicated_axes
        pairs.append((ours, theirs))
    for (a, a_jax), (b, b_jax) in itertools.combinations(pairs, 2):
        assert a.is_equivalent_to(b, 2) == a_jax.is_equivalent_to(b_jax, 2), (a, b)


def test_random_unreduced_and_manual_shardings_agree_with_jax(jax):
    js = jax.sharding
    rng = random.Random(2)
    pairs = []
    for sizes, names, dims in random_cases(3, 80):
        free = [n for n in names if not any(n in d for d in dims)]
        unreduced = {n for n in free if rng.random() < 0.4}
        reduced = {n for n in free if n not in unreduced and rng.random() < 0.3}
        manual = [n not in unreduced | reduced and n in free and rng.random() < 0.3 for n in names]
        types = [AxisType.Manual if m else EXPLICIT for m in manual]
        theirs = js.NamedSharding(
            js.AbstractMesh(sizes, names, tuple(js.AxisType[t.name] for t in types)),
            jax.P(*dims, unreduced=unreduced, reduced=reduced))
        ours = NamedSharding(AbstractMesh(sizes, names, tuple(types)),
                             P(*dims, unreduced=unreduced, reduced=reduced))
        if not any(manual):  # JAX has no shard shape for these
            assert ours.shard_shape((64, 64)) == theirs.shard_shape((64, 64))
        assert ours.is_fully_replicated == theirs.is_fully_replicated
        pairs.append((ours, theirs))
    for (a, a_jax), (b, b_jax) in itertools.combinations(pairs, 2):
        assert a.is_equivalent_to(b, 2) == a_jax.is_equivalent_to(b_jax, 2), (a, b)


def test_indivisible_sizes_are_value_errors():
    with pytest.raises(IndivisibleError) as caught:
        NamedSharding(M42, P(("x", "y"))).shard_shape((12,))
    assert isinstance(caught.value, ValueError)
    assert "partitioned 8 times" in str(caught.value)
