"""The cheapest choice in a model and its bound, beside all choices there are; prices of moves."""
from __future__ import annotations

import itertools
from typing import Any

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.driver.analysis.applied_changes import inlined
from shardtrace.ir.values.typeof import typeof
from shardtrace.partitioner.choice.layouts import TableHolder
from shardtrace.partitioner.cost.prices import Objective, exchanges_of
from shardtrace.partitioner.redistribution.redistribute import plan
from shardtrace.planning.model.bounds import Bound
from shardtrace.planning.model.groups import Groups
from shardtrace.planning.model.model import Model
from shardtrace.planning.model.moves import Moves
from shardtrace.planning.model.solve import descend, solve
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from .models import SMALL


def forward(x: Any, up: Any, down: Any) -> Any:
    return jnp.tanh(x @ up) @ down


def slopes(x: Any, up: Any, down: Any) -> Any:
    return st.grad(lambda w: (forward(x, *w) ** 2).mean())((up, down))


@pytest.mark.parametrize("f", [forward, slopes])
def test_the_answer_and_the_bound_are_the_least_of_all_choices(f: Any) -> None:
    mesh = AbstractMesh((4,), ("data",))
    args = [st.ShapeDtypeStruct(s, "float32", sharding=NamedSharding(mesh, P()))
            for s in ((512, 256), (256, 1024), (1024, 256))]
    program = inlined(st.jit(f).trace(*args).jaxpr, padded=False)
    model = Model(Groups(program), mesh, Objective.of("time", "v5p"))
    least = min(map(model.cost, itertools.product(*[range(len(x)) for x in model.layouts])))
    found = solve(model, (0,) * len(model.groups))
    assert found is not None
    assert found.cost == pytest.approx(least) and found.bound == pytest.approx(least)


@pytest.mark.parametrize("name", ["attention", "transformer", "convolutions", "recommender"])
def test_the_bound_is_the_cost_where_prices_settle_and_keeps_what_is_best(name: str) -> None:
    """Of each group's layouts the one of the cheapest choice is left, and of others some are not:
    what raises the bound above the cost by which it is judged.
    """
    case = SMALL[name]()
    mesh = AbstractMesh((2, 2, 2), ("a", "b", "c"))
    args = [st.tree.map(lambda x: st.ShapeDtypeStruct(
        x.shape, x.dtype, sharding=NamedSharding(mesh, P())), a) for a in case.args]
    program = inlined(st.jit(case.fun).trace(*args).jaxpr, padded=False)
    model = Model(Groups(program), mesh, Objective.of("time", "h100"))
    found = solve(model, descend(model, [0] * len(model.groups)))
    assert found is not None
    bound = Bound(model, found.cost)
    assert bound.value == pytest.approx(found.bound)
    kept = [bound.kept_layouts(g) for g in range(len(model.groups))]
    assert all(own[n] for own, n in zip(kept, found.choice, strict=True))
    assert sum(own.sum() for own in kept) < sum(map(len, kept))
    loose = Bound(model, 2 * found.cost)
    assert loose.value <= found.cost * (1 + 1e-9)
    assert all((own <= other).all() for own, other in zip(
        kept, map(loose.kept_layouts, range(len(kept))), strict=True))


def test_moves_that_are_alike_have_the_price_of_their_own_plan() -> None:
    """Over axes of one size, along dimensions in any order, beside what stays split. (Of plans that
    receive as much, one may gather two axes at once, and by other names the other one is made.)
    """
    mesh = AbstractMesh((2, 2, 2), ("a", "b", "c"))
    prices = Objective.of("time", "h100").prices(mesh)
    table = TableHolder(prices).layouts
    value = typeof(st.ShapeDtypeStruct(
        (16, 32, 64), "float32", sharding=NamedSharding(mesh, P())))
    kind = table.kinds_of[value]
    ways = [tuple([tuple([x for x, own in zip("abc", dims, strict=True) if own == d])
                   for d in range(3)]) for dims in itertools.product(range(-1, 3), repeat=3)]
    moves = Moves(prices, table)
    compared = others = 0
    for have, want in itertools.product(ways, ways):
        for sums in (frozenset(), frozenset("abc") - {a for e in (*have, *want) for a in e}):
            source, target = table.numbers[have, sums], table.numbers[want, frozenset()]
            if source == target or not sums and len(
                    {a for x, y in zip(have, want, strict=True) for a in {*x} ^ {*y}}) < 2:
                continue
            planned = plan(mesh, (16, 32, 64), have, want, sums).moves
            own = sum([prices.exchange(name, axes).of(n * 4) for name, axes, n in exchanges_of(
                mesh, (16, 32, 64), planned, have)])
            compared += 1
            others += moves.price(kind, source, target) != pytest.approx(own, rel=1e-6)
    assert compared > 7000 and others < 0.005 * compared
