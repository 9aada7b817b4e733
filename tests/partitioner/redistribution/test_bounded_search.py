"""Searches for ways to finish sums: bounded, and as good as without bounds where axes are few."""
from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from shardtrace.ir.meshes.mesh import AbstractMesh
from shardtrace.ir.ops.communication.retiling import received
from shardtrace.partitioner.redistribution import partial_sums, redistribute, shortest
from shardtrace.partitioner.redistribution.redistribute import plan


def random_case(rng, axes, sizes):
    """(mesh, shape, source, target, pending of the source), any axis anywhere."""
    names = "abcdefgh"[:axes]
    mesh = AbstractMesh(tuple(int(rng.choice(sizes)) for _ in names), tuple(names))
    rank = int(rng.integers(1, 4))

    def layout(some):
        entries = [[] for _ in range(rank + 1)]
        for a in rng.permutation(list(some)):
            entries[int(rng.integers(0, rank + 1))].append(str(a))
        return tuple(map(tuple, entries[:rank]))

    pending = frozenset(a for a in names if rng.random() < 0.5)
    shape = (2 * math.prod(mesh.shape.values()),) * rank
    return mesh, shape, layout([a for a in names if a not in pending]), layout(names), pending


def planned(case):
    for known in (redistribute._plan, shortest.shortest):
        known.cache_clear()
    return plan(*case)


def counted(patch, case):
    """How many states the search for sums takes up."""
    taken = []
    steps = partial_sums._Search.steps
    patch.setattr(partial_sums._Search, "steps",
                  lambda self, *state: taken.append(state) or steps(self, *state))
    planned(case)
    return len(taken)


@pytest.mark.parametrize("axes", range(1, 9))
def test_a_search_takes_up_few_states(axes):
    rng = np.random.default_rng(axes)
    names = "abcdefgh"[:axes]
    mesh = AbstractMesh((2,) * axes, tuple(names))
    first, *others = [(a,) for a in names]
    turned = (mesh, (4,) * axes, (*others, ()), (*others[::-1], ()), frozenset(first))
    with pytest.MonkeyPatch.context() as patch:
        assert counted(patch, turned) <= (partial_sums.STATES if axes <= 5 else
                                          shortest.STATES_OF_MANY_AXES)
    for _ in range(5):          # axes that always go together are one, so that there may be fewer
        with pytest.MonkeyPatch.context() as patch:
            assert counted(patch, random_case(rng, axes, [2])) <= partial_sums.STATES


@pytest.mark.parametrize("axes", range(1, 9))
def test_a_plan_moves_no_more_than_the_sum_first_and_then_its_layout(axes):
    rng = np.random.default_rng(10 + axes)
    for _ in range(12):
        mesh, shape, source, target, pending = random_case(rng, axes, [2, 2, 3])
        summed = planned((mesh, shape, source, source, pending)).received
        moved = planned((mesh, shape, source, target)).received
        found = planned((mesh, shape, source, target, pending))
        assert found.received <= summed + moved
        whole = [math.prod(shape) // math.prod(mesh.axis_size(a) for e in layout for a in e)
                 for layout in (source, target)]
        assert found.largest <= max(whole)


@pytest.mark.parametrize("axes", range(1, 5))
def test_few_axes_are_searched_to_the_end(axes):
    rng = np.random.default_rng(20 + axes)
    for _ in range(25):
        case = random_case(rng, axes, [2, 3, 4])
        found = planned(case)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(partial_sums, "STATES", 10 ** 6)
            patch.setattr(partial_sums._Search, "path", _only_sum_first(partial_sums._Search.path))
            wanted = planned(case)
        assert (found.received, found.exchanges) <= (wanted.received, wanted.exchanges)
    for known in (redistribute._plan, shortest.shortest):
        known.cache_clear()


def _only_sum_first(path):
    """Nothing is known of better paths: the search has to find them."""
    return lambda self, cuts: path(self, "nowhere")


def test_what_a_device_lacks_is_the_bound_of_retilings():
    rng = np.random.default_rng(3)
    for _, axes in itertools.product(range(30), range(1, 5)):
        mesh, shape, source, target, _ = random_case(rng, axes, [1, 2, 3])
        sizes = dict(mesh.shape)
        local = tuple(n // math.prod(sizes[a] for a in e) for n, e in
                      zip(shape, source, strict=True))
        lacks = shortest._Lacks(shape, target, sizes)
        assert lacks[source] == received(local, source, target, sizes)
