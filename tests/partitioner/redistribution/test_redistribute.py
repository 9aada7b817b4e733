"""Plans are run, move by move, on one small array per device, and compared with the target."""
from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from shardtrace.ir.meshes.axes import axis_factor
from shardtrace.ir.meshes.mesh import AbstractMesh
from shardtrace.ir.shardings.tiling import tile_index
from shardtrace.partitioner.redistribution.joint_axes import JointAxes
from shardtrace.partitioner.redistribution.redistribute import Plan, plan

from ...specs import specs

M222 = AbstractMesh((2, 2, 2), ("x", "y", "z"))
M24 = AbstractMesh((2, 4), ("x", "y"))
M23 = AbstractMesh((2, 3), ("x", "y"))
M212 = AbstractMesh((2, 1, 2), ("x", "y", "z"))
M122 = AbstractMesh((1, 2, 2), ("x", "y", "z"))
M423 = AbstractMesh((4, 2, 3), ("x", "y", "z"))
# Meshes with shapes that all specs divide, of rank 2 and 3.
SWEEPS = [(M24, (8, 16)), (M24, (8, 8, 8)), (M222, (16, 8)), (M222, (8, 8, 8)), (M423, (24, 24)),
          (M423, (24, 24, 24))]


def blocks(mesh, value, entries, pending=()):
    """The block of every device, by its coordinates; pending: partial sums that add up."""
    rng = np.random.default_rng(0)
    out = {}
    total: dict = {}
    for device in itertools.product(*map(range, mesh.axis_sizes)):
        index = tile_index(mesh.shape, entries, device)
        local = tuple(n // math.prod(mesh.axis_size(a) for a in e)
                      for n, e in zip(value.shape, entries, strict=True))
        part = value[tuple(slice(i * n, (i + 1) * n) for i, n in zip(index, local, strict=True))]
        if pending:
            at = tuple(c for c, a in zip(device, mesh.axis_names, strict=True) if a not in pending)
            last = all(c == n - 1 for c, n, a in
                       zip(device, mesh.axis_sizes, mesh.axis_names, strict=True) if a in pending)
            share = part - total.get(at, 0) if last else rng.integers(-9, 9, part.shape)
            total[at] = total.get(at, 0) + share
            part = share
        out[device] = part
    return out


def group(mesh, device, axes):
    """Devices of the replica group, in the order of `axes`, first one most significant."""
    parts = [axis_factor(a, mesh.shape) for a in axes]
    members = []
    for c in itertools.product(*(range(size) for _, _, size, _ in parts)):
        member = list(device)
        for (base, _, size, rest), k in zip(parts, c, strict=True):
            i = mesh.axis_names.index(base)
            member[i] += (k - member[i] // rest % size) * rest
        members.append(tuple(member))
    return members


def tile(mesh, tiling, device, shape):
    index = tile_index(mesh.shape, tiling, device)
    return tuple(slice(i * n, (i + 1) * n) for i, n in zip(index, shape, strict=True))


def retiled(mesh, held, move, device):
    """The new tile of a device, and how much of it the device lacks; by elements, one by one."""
    members = group(mesh, device, move.axes)
    have = held[device].shape
    counts = [[math.prod(mesh.axis_size(a) for a in axes) for axes in t]
              for t in (move.source, move.target)]
    whole = np.full([n * k for n, k in zip(have, counts[0], strict=True)], -1)
    for m in members:
        whole[tile(mesh, move.source, m, have)] = held[m]
    own = np.zeros(whole.shape, bool)
    own[tile(mesh, move.source, device, have)] = True
    shape = [n // k for n, k in zip(whole.shape, counts[1], strict=True)]
    where = tile(mesh, move.target, device, shape)
    return whole[where], int((~own[where]).sum())


def run_move(mesh, held, move):
    """One move on all devices; (blocks, most elements received by a device)."""
    out, received = {}, 0
    for device in held:
        members = group(mesh, device, move.axes)
        i, n = members.index(device), len(members)
        mine = held[device]
        if move.kind == "all_slice":
            out[device] = np.split(mine, n, move.dim)[i]
        elif move.kind == "view":
            out[device] = mine.reshape(move.shape)
        elif move.kind == "all_gather":
            out[device] = np.concatenate([held[m] for m in members], move.dim)
            received = max(received, out[device].size - mine.size)
        elif move.kind == "all_to_all":
            parts = [np.split(held[m], n, move.to_dim)[i] for m in members]
            out[device] = np.concatenate(parts, move.dim)
            received = max(received, mine.size - mine.size // n)
        elif move.kind == "reduce_scatter":
            out[device] = np.split(sum(held[m] for m in members), n, move.dim)[i]
            received = max(received, out[device].size * (n - 1))
        elif move.kind == "psum":
            out[device] = sum(held[m] for m in members)
            received = max(received, -(-2 * mine.size * (n - 1) // n))
        elif move.kind == "retile":
            out[device], lacking = retiled(mesh, held, move, device)
            received = max(received, lacking)
        elif move.kind == "place":
            if move.dim < 0:
                out[device] = mine if i == 0 else np.zeros_like(mine)
            else:
                out[device] = np.concatenate(
                    [mine if j == i else np.zeros_like(mine) for j in range(n)], move.dim)
        else:
            raise AssertionError(move)
    return out, received


def check(mesh, value, a, b, pending_a=frozenset(), pending_b=frozenset()) -> Plan:
    """Run the plan: it ends at the target, its figures are those of the run, and no block is
    larger than both ends."""
    p = plan(mesh, value.shape, a, b, pending_a, pending_b)
    held = blocks(mesh, value, a, pending_a)
    wanted = blocks(mesh, value, b)
    ends = [next(iter(x.values())).size for x in (held, wanted)]
    largest, together, received = ends[0], ends[0], 0
    for move in p.moves:
        before = next(iter(held.values())).size
        held, got = run_move(mesh, held, move)
        received += got
        after = next(iter(held.values())).size
        largest = max(largest, after)
        if move.kind != "view":
            together = max(together, before + after)
    assert received == p.received, (a, b, p)
    if p.moves:
        assert largest == p.largest <= max(ends), (a, b, p)
        assert together <= p.peak <= together + max(ends) // 2, (a, b, p)
    if pending_b:
        summed = {}
        for device in held:
            members = group(mesh, device, sorted(pending_b))
            summed[device] = sum(held[m] for m in members)
        held = summed
    for device, want in wanted.items():
        assert np.array_equal(held[device], want), (a, b, p.moves, device)
    return p


def element_bound(mesh, value, a, b):
    """The most elements of its target that a device does not have, counted."""
    have, want = blocks(mesh, value, a), blocks(mesh, value, b)
    return max(len(np.setdiff1d(want[d], have[d], assume_unique=True)) for d in have)


def sweep(mesh, shape, count=None):
    """All pairs of different specs, or some of them."""
    every = specs(mesh, len(shape))
    pairs = [(a, b) for a in every for b in every if a != b]
    return pairs if count is None else random.Random(7).sample(pairs, min(count, len(pairs)))


@pytest.mark.parametrize("mesh, shape", [
    *SWEEPS, (M23, (6, 12)), (AbstractMesh((4,), ("x",)), (4, 8, 4)), (M212, (12, 4)),
    (M122, (12, 4))])
def test_plans_reach_their_target_at_the_bound_and_within_memory(mesh, shape):
    value = np.arange(math.prod(shape)).reshape(shape)
    for a, b in sweep(mesh, shape, 110):
        p = check(mesh, value, a, b)
        assert p.received == p.bound == element_bound(mesh, value, a, b), (a, b, p)
        assert p.exchanges <= 3
        assert bool(p.exchanges) == bool(p.bound)


@pytest.mark.parametrize("mesh, shape", SWEEPS)
def test_every_pair_of_specs_is_planned_at_the_bound(mesh, shape):
    """The planner's own figures, which the test above checks on some of the pairs."""
    for a, b in sweep(mesh, shape, 2400):
        p = plan(mesh, shape, a, b)
        blocks_of = [math.prod(shape) // math.prod(mesh.axis_size(x) for axes in e for x in axes)
                     for e in (a, b)]
        assert p.received == p.bound, (a, b, p)
        assert p.largest <= max(blocks_of), (a, b, p)
        assert p.peak <= 2 * max(blocks_of) + max(blocks_of) // 2, (a, b, p)


@pytest.mark.slow
@pytest.mark.parametrize("mesh, shape", SWEEPS)
def test_all_pairs_of_specs_reach_their_targets(mesh, shape):
    """All pairs are planned; all of rank 2, and many of rank 3, are run as well."""
    value = np.arange(math.prod(shape)).reshape(shape)
    for a, b in sweep(mesh, shape):
        p = plan(mesh, shape, a, b)
        assert p.received == p.bound, (a, b, p)
    for a, b in sweep(mesh, shape, 2400 if len(shape) == 2 else 500):
        p = check(mesh, value, a, b)
        assert p.received == p.bound == element_bound(mesh, value, a, b), (a, b, p)


def test_specs_over_parts_of_axes():
    value = np.arange(8 * 16).reshape(8, 16)
    mesh = AbstractMesh((2, 8), ("x", "y"))
    layouts = [(("y:(1)2",), ("x",)), (("y:(2)4", "x"), ()), (("y",), ()), (("x",), ("y:(4)2",)),
               (("y:(2)2",), ("y:(1)2", "x")), ((), ("y:(1)4", "x"))]
    for a, b in itertools.product(layouts, layouts):
        if a != b:
            p = check(mesh, value, a, b)
            assert p.received == p.bound == element_bound(mesh, value, a, b)


def test_every_pair_with_pending_sums():
    value = np.arange(64).reshape(8, 8)
    for mesh in (M24, AbstractMesh((2, 2), ("x", "y"))):
        axes = mesh.axis_names
        pendings = [frozenset(s) for k in range(3) for s in itertools.combinations(axes, k)]
        for pa, pb in itertools.product(pendings, pendings):
            for a, b in itertools.product(specs(mesh, 2), specs(mesh, 2)):
                used_a = {x for e in a for x in e}
                used_b = {x for e in b for x in e}
                if not used_a & pa and not used_b & pb:
                    check(mesh, value, a, b, pa, pb)


@pytest.mark.parametrize("mesh, shape", [(M222, (8, 16)), (M222, (16,)), (M423, (24, 48)),
                                         (AbstractMesh((3, 2, 2), ("x", "y", "z")), (12, 24))])
def test_pairs_with_pending_sums_over_axes_that_go_together(mesh, shape):
    """Rows of axes are planned for as one; where a part of such a row is meant, it is named."""
    rng = random.Random(11)
    value = np.arange(math.prod(shape)).reshape(shape)
    axes, every = mesh.axis_names, specs(mesh, len(shape))
    for _ in range(150):
        a, b = rng.choice(every), rng.choice(every)
        pa = {x for x in axes if all(x not in e for e in a) and rng.random() < 0.5}
        pb = {x for x in axes if all(x not in e for e in b) and rng.random() < 0.5}
        check(mesh, value, a, b, frozenset(pa), frozenset(pb))


@pytest.mark.parametrize("a, b, kinds, received", [
    ("x|", "|", ["all_gather"], 512),
    ("|", "x|", ["all_slice"], 0),
    ("x|", "|x", ["all_to_all"], 256),
    ("xy|", "yx|", ["retile"], 128),
    ("xy|", "x|y", ["all_to_all"], 96),
    ("x|", "|yx", ["all_slice", "all_to_all"], 64),
    ("x|", "|xy", ["view", "all_slice", "all_to_all", "view"], 64),
    ("xy|", "|xy", ["all_to_all"], 112),
    ("xy|", "|yx", ["retile"], 112),
    ("xy|", "y|", ["retile", "all_gather"], 256),
    ("x|y", "y|x", ["retile"], 128),
    ("xy|", "|x", ["view", "all_to_all", "all_gather", "view"], 448),
    ("x|", "y|", ["all_slice", "retile"], 256),
])
def test_known_plans_on_2x4(a, b, kinds, received):
    def entries(text):
        return tuple(tuple(t) for t in text.split("|"))

    p = plan(M24, (32, 32), entries(a), entries(b))
    assert [m.kind for m in p.moves] == kinds
    assert p.received == received


def test_a_pending_sum_goes_straight_onto_the_dimension_that_wants_it():
    p = plan(M24, (8, 8), ((), ()), ((), ("y",)), frozenset("y"), frozenset())
    assert [(m.kind, m.axes, m.dim) for m in p.moves] == [("reduce_scatter", ("y",), 1)]
    p = plan(M24, (8, 8), ((), ()), ((), ()), frozenset("xy"), frozenset())
    assert [(m.kind, m.axes) for m in p.moves] == [("psum", ("x", "y"))]


@pytest.mark.parametrize("entries", [(("x",), ("y",)), (("y",), ("x",))])
def test_sums_are_over_minor_axes_first_and_gathers_last_whatever_dimension_they_split(entries):
    scattered = plan(M24, (8, 8), ((), ()), entries, frozenset("xy")).moves
    assert [(m.kind, m.axes, m.dim) for m in scattered] == [
        ("reduce_scatter", (a,), entries.index((a,))) for a in "yx"]
    gathered = plan(M24, (8, 8), entries, ((), ())).moves
    assert [(m.kind, m.axes, m.dim) for m in gathered] == [
        ("all_gather", (a,), entries.index((a,))) for a in "xy"]


def test_plans_name_axes_and_do_not_grow_with_the_number_of_devices():
    """Each pair has the same moves on 8 and on 65,536 devices."""
    small, large = M24, AbstractMesh((128, 512), ("x", "y"))
    for a, b in sweep(small, (1, 1)):
        before = plan(small, (1 << 20, 1 << 20), a, b)
        after = plan(large, (1 << 20, 1 << 20), a, b)
        assert after.received == after.bound
        assert [m.kind for m in before.moves] == [m.kind for m in after.moves], (a, b)
        assert len(repr(after)) < 4 * len(repr(before)) + 400


def test_a_rotation_of_axes_on_many_devices_is_one_exchange():
    mesh = AbstractMesh((16, 16, 16, 16), ("a", "b", "c", "d"))
    p = plan(mesh, (256, 256, 256, 256), (("a",), ("b",), ("c",), ("d",)),
             (("d",), ("a",), ("b",), ("c",)))
    (move,) = p.moves
    assert move.kind == "retile" and move.axes == ("a", "b", "c", "d")
    assert p.received == p.bound == 16 ** 4


@pytest.mark.parametrize(("source", "target", "axes"), [
    ("yxz", "zxy", "yz"), ("xzy", "zxy", "xz"), ("xyz", "yzx", "xyz"), ("wyxz", "wzxy", "yz")])
def test_axes_along_which_nothing_moves_are_not_named(source, target, axes):
    mesh = AbstractMesh((2, 2, 2, 2), tuple("wxyz"))
    (move,) = plan(mesh, (64,), (tuple(source),), (tuple(target),)).moves
    assert move.kind == "retile" and set(move.axes) == set(axes)


def test_parts_of_joint_axes_are_named_by_their_own_axes():
    joint = JointAxes(AbstractMesh((2, 4, 3), ("x", "y", "z")), (("x", "y"),))
    assert joint.spelled(("(x,y)", "z")) == ("x", "y", "z")
    assert joint.spelled(("(x,y):(1)2", "(x,y):(2)2", "(x,y):(4)2")) == ("x", "y:(1)2", "y:(2)2")
    assert joint.spelled(("(x,y):(1)4", "z:(1)3")) == ("x", "y:(1)2", "z:(1)3")
    odd = JointAxes(AbstractMesh((3, 2), ("x", "y")), (("x", "y"),))
    with pytest.raises(ValueError, match="no parts"):
        odd.spelled(("(x,y):(1)2",))
