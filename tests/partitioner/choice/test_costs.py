"""Prices of changes of layout."""
from __future__ import annotations

import math

import pytest

from shardtrace.ir.types import Entries
from shardtrace.partitioner.choice.costs import transfer
from shardtrace.partitioner.cost.prices import Objective, exchanges_of
from shardtrace.partitioner.redistribution.effects import tile_count
from shardtrace.partitioner.redistribution.redistribute import plan
from shardtrace.sharding import AbstractMesh

MESH = AbstractMesh((8, 4, 3), ("x", "y", "z"))
MAJOR, MINOR = "x:(1)2", "x:(2)4"


@pytest.mark.parametrize(("source", "target"), [
    (((MAJOR,), ("y",), ()), ((), ("y",), (MINOR,))),
    (((MINOR,), (), ("y", "z"), (MAJOR,)), ((MAJOR,), (), ("y", "z"), (MINOR,))),
    (((), (MAJOR, "z"), (), ("y",)), ((), ("z", MINOR), (), ("y",))),
], ids=str)
def test_a_change_of_parts_of_axes_has_the_price_of_its_plan(source: Entries, target: Entries
                                                             ) -> None:
    price = Objective.of("time").prices(MESH).exchange
    shape = tuple([tile_count(MESH, a) * tile_count(MESH, b)
                   for a, b in zip(source, target, strict=True)])
    wanted = [(price(kind, axes), n / math.prod(shape)) for kind, axes, n in exchanges_of(
        MESH, shape, plan(MESH, shape, source, target).moves, source)]
    assert wanted
    found = transfer(price, MESH, source, target)
    assert found.fixed == sum(one.fixed for one, _ in wanted)
    assert found.slope == pytest.approx(sum(one.slope * share for one, share in wanted), rel=1e-12)
