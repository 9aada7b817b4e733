"""GSPMDSharding: index maps, equality, equivalence with named shardings; JAX's too."""

import copy
import pickle
import random

import numpy as np
import pytest

from shardtrace.ir.diagnostics.errors import IndivisibleError
from shardtrace.ir.meshes.device import Device, process_scope
from shardtrace.ir.meshes.mesh import AxisType, Mesh
from shardtrace.ir.shardings.gspmd import GSPMDSharding, from_named, named_on
from shardtrace.ir.shardings.hlo_sharding import HloSharding, OpSharding
from shardtrace.ir.shardings.sharding import NamedSharding, SingleDeviceSharding
from shardtrace.ir.spec import P

DEVICES = [Device(i) for i in range(8)]


def mesh_of(sizes, names, devices=DEVICES, kind=AxisType.Auto) -> Mesh:
    return Mesh(np.array(devices, dtype=object).reshape(sizes), names, (kind,) * len(names))


def gspmd(text: str, devices=DEVICES, **options) -> GSPMDSharding:
    return GSPMDSharding(devices, HloSharding.from_string(text), **options)


M42 = mesh_of((4, 2), ("x", "y"))
ODD = "{devices=[4,2]0,2,1,3,4,7,5,6}"      # no mesh of the devices in order has these tiles
TEXTS = [
    "{replicated}", "{devices=[8,1]<=[8]}", "{devices=[4,2]<=[8]}", "{devices=[2,4]<=[4,2]T(1,0)}",
    "{devices=[8,1]<=[4,2]T(1,0)}", "{devices=[4,1,2]<=[8] last_tile_dim_replicate}",
    "{devices=[1,2,4]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}", ODD,
    "{devices=[2,2,2]0,3,1,2,4,5,6,7 last_tile_dim_replicate}", "{devices=[2,4]7,6,5,4,3,2,1,0}",
    "{maximal device=3}",
]


def by_hand(sharding: GSPMDSharding, shape: tuple[int, int]) -> dict[Device, tuple[slice, ...]]:
    """The index map, from the meaning of a tile assignment alone."""
    tiles = sharding.hlo_sharding
    if not tiles.is_tiled():
        return dict.fromkeys(sharding.devices, (slice(None),) * 2)
    grid = np.array(tiles.tile_assignment_devices()).reshape(tiles.tile_assignment_dimensions())
    out = {}
    for place in np.ndindex(grid.shape):
        index = tuple(slice(None) if f == 1 else slice(place[d] * n // f, (place[d] + 1) * n // f)
                      for d, (n, f) in enumerate(zip(shape, grid.shape, strict=False)))
        out[sharding.devices[grid[place]]] = index[:2]
    return out


@pytest.mark.parametrize("text", TEXTS)
def test_index_map_is_what_the_assignment_says(text) -> None:
    sharding = gspmd(text)
    found = sharding.devices_indices_map((8, 16))
    assert found == by_hand(sharding, (8, 16)) and list(found) == DEVICES
    block = sharding.shard_shape((8, 16))
    for where in found.values():
        assert np.zeros((8, 16))[where].shape == block
    assert sharding.named().devices_indices_map((8, 16)) == found
    assert sharding.addressable_devices_indices_map((8, 16)) == found


def test_index_maps_agree_with_jax() -> None:
    jax = pytest.importorskip("jax")
    if jax.device_count() < 8:
        pytest.skip("needs 8 devices")
    impl = pytest.importorskip("jax._src.sharding_impls")
    theirs = pytest.importorskip("jax._src.lib").xla_client.HloSharding
    for text in TEXTS:
        other = impl.GSPMDSharding(jax.devices(), theirs.from_string(text))
        mine = gspmd(text)
        for shape in ((8, 8), (16, 8)):
            assert {d.id: i for d, i in mine.devices_indices_map(shape).items()} == {
                d.id: i for d, i in other.devices_indices_map(shape).items()}, text
            assert mine.shard_shape(shape) == other.shard_shape(shape)
        assert repr(mine) == repr(other)
        assert mine.is_fully_replicated == other.is_fully_replicated
        assert mine.num_devices == other.num_devices
    for a in TEXTS:
        for b in TEXTS:
            one = impl.GSPMDSharding(jax.devices(), theirs.from_string(a))
            two = impl.GSPMDSharding(jax.devices(), theirs.from_string(b))
            assert (gspmd(a) == gspmd(b)) == (one == two), (a, b)
            assert gspmd(a).is_equivalent_to(gspmd(b), 2) == one.is_equivalent_to(two, 2)


@pytest.mark.parametrize("text", TEXTS)
def test_equality_hash_copies_and_pickles(text) -> None:
    a, b = gspmd(text), gspmd(text)
    assert a == b and hash(a) == hash(b) and a is not b
    assert pickle.loads(pickle.dumps(a)) == a and copy.deepcopy(a) == a
    assert a != gspmd(text, DEVICES[::-1]) and a != a.with_memory_kind("pinned_host")
    assert repr(a) == f"GSPMDSharding({text}, memory_kind=device)"
    with pytest.raises(AttributeError):
        a.devices = ()  # type: ignore[misc]


def test_replicated_on_one_device_is_replicated() -> None:
    mesh = mesh_of((1, 1, 1), ("x", "y", "z"), DEVICES[:1])
    made = GSPMDSharding(mesh.device_tuple, NamedSharding(mesh, P("x", "y")).to_hlo_sharding(3))
    assert made == GSPMDSharding.get_replicated(mesh.device_tuple)
    one = SingleDeviceSharding(DEVICES[0])
    assert made.is_equivalent_to(one, 3) and one.is_equivalent_to(made, 3)
    assert not GSPMDSharding.get_replicated(DEVICES).is_equivalent_to(one, 2)


def test_equivalence_with_named_shardings_of_any_mesh() -> None:
    rng = random.Random(0)
    meshes = [M42, mesh_of((2, 2, 2), ("a", "b", "c")), mesh_of((8,), ("d",)),
              mesh_of((2, 4), ("e", "f"), DEVICES[::-1]),
              mesh_of((4, 2), ("x", "y"), [DEVICES[i] for i in (0, 2, 1, 3, 4, 7, 5, 6)])]
    shardings = [gspmd(t) for t in TEXTS] + [gspmd(t, DEVICES[::-1]) for t in TEXTS]
    for mesh in meshes:
        for _ in range(12):
            names = rng.sample(mesh.axis_names, rng.randint(0, len(mesh.axis_names)))
            cut = rng.randint(0, len(names))
            shardings.append(NamedSharding(mesh, P(tuple(names[:cut]), tuple(names[cut:]))))
    for a in shardings:
        maps = a.devices_indices_map((16, 16))
        for b in shardings:
            same = list(maps.items()) == list(b.devices_indices_map((16, 16)).items())
            assert a.is_equivalent_to(b, 2) == same, (a, b)


def test_named_sharding_and_back() -> None:
    for spec in (P("x"), P("y", "x"), P(None, ("y", "x")), P(), P(("x", "y"))):
        named = NamedSharding(M42, spec)
        tiles = GSPMDSharding(DEVICES, named.to_hlo_sharding(2))
        assert tiles.to_named(M42) == named and named_on(tiles, M42) == named
        assert from_named(named, 2, DEVICES) == tiles
    odd = gspmd(ODD)
    assert odd.named().mesh.device_tuple != odd.devices
    assert from_named(odd.named(), 2, odd.devices) == odd
    with pytest.raises(ValueError, match="No PartitionSpec on mesh"):
        odd.to_named(M42)
    with pytest.raises(ValueError, match="is on devices"):
        odd.to_named(mesh_of((4, 2), ("x", "y"), DEVICES[::-1]))


def test_records_and_other_objects() -> None:
    op = OpSharding(type=OpSharding.Type.OTHER, tile_assignment_dimensions=[4, 1, 2],
                    tile_assignment_devices=list(range(8)), replicate_on_last_tile_dim=True)
    made = GSPMDSharding(DEVICES, op)
    assert "{devices=[4,1,2]0,1,2,3,4,5,6,7 last_tile_dim_replicate}" in repr(made)
    assert made.is_equivalent_to(NamedSharding(M42, P("x")), 2)
    with pytest.raises(TypeError, match="HloSharding or an OpSharding"):
        GSPMDSharding(DEVICES, P("x"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Could not find memory addressable by device cpu"):
        gspmd(ODD, memory_kind="foo")


def test_shapes_that_do_not_fit() -> None:
    tiles = gspmd("{devices=[2,4]<=[8]}")
    with pytest.raises(IndivisibleError, match="array axis 1 is partitioned 4 times"):
        tiles.shard_shape((8, 6))
    with pytest.raises(ValueError, match="only valid for values of rank at least 2"):
        tiles.check_compatible_aval((8,))
    for shape in ((8,), (8, 8, 8)):
        with pytest.raises(ValueError, match="only valid for values of rank"):
            tiles.devices_indices_map(shape)
    with pytest.raises(ValueError, match="does not number each"):
        gspmd("{devices=[2,4]<=[8]}", DEVICES[:4]).devices_indices_map((8, 8))


def test_manual_and_unreduced_have_no_blocks_of_the_value() -> None:
    for text in ("{manual}", "{devices=[4,2]<=[8] last_tile_dims={manual}}", "{unknown}"):
        with pytest.raises(ValueError, match="does not say what part"):
            gspmd(text).shard_shape((8, 8))
    for text, block in (("{unreduced}", (8,)), ("{devices=[4,2]<=[8] last_tile_dims={unreduced}}",
                                                (2,))):
        assert gspmd(text).shard_shape((8,)) == block
        assert not gspmd(text).is_fully_replicated
        with pytest.raises(NotImplementedError, match="doesn't work with unreduced"):
            gspmd(text).devices_indices_map((8,))


def test_tiles_on_several_processes_are_addressable_in_part() -> None:
    devices = [Device(i, i // 4) for i in range(8)]
    tiles = gspmd(ODD, devices)
    assert not tiles.is_fully_addressable and tiles.addressable_devices == set(devices[:4])
    with process_scope(1):
        assert list(tiles.addressable_devices_indices_map((8, 8))) == devices[4:]
