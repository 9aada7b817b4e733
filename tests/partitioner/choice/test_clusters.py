"""Clusters: what hangs together is decided together, what does not apart, and layers once."""
from __future__ import annotations

import gc

import numpy as np
import pytest

from shardtrace.ir.ops.communication.collective_kinds import total_received
from shardtrace.ir.program import Program
from shardtrace.ir.rules.rule import make_rule
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.ir.support.caches import forget
from shardtrace.partitioner.choice import lookahead
from shardtrace.partitioner.choice.decisions import Decision, groups_of
from shardtrace.partitioner.choice.layout_costs import with_layout
from shardtrace.partitioner.choice.layouts import LayoutTable
from shardtrace.partitioner.choice.strategies import Strategy
from shardtrace.partitioner.collectives import collectives
from shardtrace.partitioner.cost.prices import Objective
from shardtrace.partitioner.pipeline import partition

from .. import lockstep
from ..building import Build, auto

M8 = auto(8, names="x")
M24 = auto(2, 4, names="xy")


class Counted:
    """How often steps of clusters are worked out, and the most rows that any leaves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = self.rows = 0
        original = lookahead.step

        def step(*args):
            self.steps += 1
            found = original(*args)
            self.rows = max(self.rows, len(found.parents))
            return found
        monkeypatch.setattr(lookahead, "step", step)


def layers(count: int) -> tuple[Program, list]:
    b = Build(M24)
    x, specs = b.arg(64, 64), [P("x")]
    for _ in range(count):
        w1, w2 = b.arg(64, 128), b.arg(128, 64)
        specs += [P(None, "y"), P("y")]
        x = b.op("add", x, b.dot(b.op("neg", b.dot(x, w1)), w2))
    return b.program(x), specs


def work(program: Program, specs: list, monkeypatch: pytest.MonkeyPatch) -> Counted:
    forget("partitioner.choice.layouts.TableHolder")
    with monkeypatch.context() as patched:
        counted = Counted(patched)
        partition(program, mesh=program.mesh, in_shardings=specs)
    return counted


def test_layers_that_repeat_are_worked_out_once(monkeypatch):
    few = work(*layers(60), monkeypatch)
    many = work(*layers(120), monkeypatch)
    assert many.steps == few.steps


@pytest.mark.usefixtures("only_own_objects")
def test_a_forgotten_table_goes_without_the_garbage_collector():
    def alive() -> int:
        kinds = LayoutTable, Decision, Strategy
        return len([o for o in gc.get_objects() if isinstance(o, kinds)])

    program, specs = layers(3)
    forget("partitioner.choice.layouts.TableHolder")
    gc.collect()
    gc.disable()
    try:
        before = alive()
        partition(program, mesh=program.mesh, in_shardings=specs)
        assert alive() > before
        forget("partitioner.choice.layouts.TableHolder")
        assert alive() == before
    finally:
        gc.enable()


def test_what_agrees_is_not_searched(monkeypatch):
    b = Build(M24)
    x, w = b.arg(64, 64), b.arg(64, 128)
    y = b.op("neg", b.dot(b.op("neg", x), w))
    assert work(b.program(y), [P("x"), P(None, "y")], monkeypatch).steps == 0


def test_decisions_that_do_not_meet_do_not_multiply(monkeypatch):
    """A conflict on each of ten pairs: as many rows as for one, and each decided as if alone."""
    def pairs(count):
        b = Build(M8)
        results = [b.op("mul", b.arg(64, 64), b.arg(64, 64)) for _ in range(count)]
        return b.program(*results), [P("x"), P(None, "x")] * count
    one, ten = pairs(1), pairs(10)
    assert work(*ten, monkeypatch).rows <= max(1, work(*one, monkeypatch).rows)
    received = [total_received(partition(p, mesh=M8, in_shardings=s).local) for p, s in (one, ten)]
    assert received[1] == 10 * received[0]


def test_values_behind_one_barrier_are_laid_out_apart():
    b = Build(M8)
    x, y = b.arg(64, 32, dtype=np.float32), b.arg(32, 64, dtype=np.float32)
    u, v = b.op("optimization_barrier", b.op("neg", x), b.op("neg", y))
    program = b.program(b.op("neg", u), b.op("neg", v))
    done = partition(program, mesh=M8, in_shardings=[P("x"), P(None, "x")])
    assert not collectives(done.local)
    assert done.out_specs == (P("x", None), P(None, "x"))
    args = [np.arange(2048, dtype=np.float32).reshape(v.aval.shape) for v in program.invars]
    for got, want in zip(lockstep.run_local(done.local, args), lockstep.evaluate(program, args),
                         strict=True):
        lockstep.close(got, want)


@pytest.mark.parametrize("text, operands, results, want", [
    ("i j, k -> i j, k", [(4, 4), (8,)], [(4, 4), (8,)], [((0,), (0,)), ((1,), (1,))]),
    ("i j, i -> i j, i", [(4, 4), (4,)], [(4, 4), (4,)], [((0, 1), (0, 1))]),
    ("i j, k -> i, k | j:sum", [(4, 4), (8,)], [(4,), (8,)], [((0, 1), (0, 1))]),
])
def test_parts_of_an_equation_share_no_factor(text, operands, results, want):
    assert groups_of(make_rule(text, operands, results)) == want


def test_a_preference_is_worth_no_more_than_going_there():
    layouts = LayoutTable(Objective.of().prices(M8))
    aval = Build(M8).arg(64, 64, dtype=np.float32).aval
    kind, home = layouts.kinds_of[aval], layouts.homes[aval]
    split = layouts.numbers[(("x",), ()), frozenset()]
    there, back = layouts.costs[kind, home, split], layouts.costs[kind, split, home]
    assert there == 0 < back
    (preference,) = layouts.combined_preference(kind, home, ((split, -5),), ((split, -7),), False)
    assert preference == (split, 0)                      # cutting it is free: nothing can be gained
    assert layouts.expected[kind, home, ()][split,] == back
    assert layouts.expected[kind, home, ((split, 3),)][split,] == 3


def test_what_a_value_is_held_in_is_bounded_and_keeps_its_own_layout():
    held = (7,)
    for n in range(6):
        held = with_layout(held, n)
    assert held[0] == 7 and held[-1] == 5 and len(held) == 4
