"""The example in the docstrings of the partitioner's folders is what the stages really give."""
from __future__ import annotations

import importlib
import re
import textwrap

import pytest

from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.text.print import print_program
from shardtrace.partitioner.choice.comparisons import Comparison
from shardtrace.partitioner.choice.decisions import DecisionBuilder
from shardtrace.partitioner.choice.layouts import LayoutTable
from shardtrace.partitioner.choice.lookahead import LookaheadSearch
from shardtrace.partitioner.cost.prices import Objective
from shardtrace.partitioner.pipeline import Options, partition
from shardtrace.partitioner.redistribution.redistribute import plan

SOURCE = """mesh (x=4 auto)
level traced

program @f(a: f32[8,16], w: f32[16,32]) -> f32[8,32] {
  %b: f32[8,32] = dot_general[dimension_numbers=(((1,), (0,)), ((), ())),
      preferred_element_type=f32] a w
  %c: f32[8,32] = max %b 0.0:f32[]
  return %c
}
"""


@pytest.fixture(scope="module")
def done():
    program = parse_program(SOURCE)
    return partition(program, mesh=program.mesh, in_shardings=[P(None, "x"), P("x", None)],
                     out_shardings=[P("x")], options=Options(objective="bytes"))


def docstring(room: str) -> str:
    return importlib.import_module(f"shardtrace.partitioner.{room}").__doc__


def one_line(text: str) -> str:
    return " ".join(text.replace("#", " ").split())


@pytest.mark.parametrize("room, stages", [
    ("propagation", ["inlined", "resolved"]), ("choice", ["resolved"]),
    ("resharding", ["resharded"]), ("lowering", ["local"])])
def test_programs_in_docstrings_are_those_of_the_stages(done, room, stages):
    written = re.findall(r"^    program @f.*?^    }$", docstring(room), re.M | re.S)
    real = [print_program(done.stages[s]) for s in stages]
    assert [one_line(textwrap.dedent(w)) for w in written] == [
        one_line(text[text.index("program @f"):]) for text in real]


def test_strategies_in_the_docstring_have_the_costs_that_are_compared(done):
    program = done.resolved
    layouts = LayoutTable(Objective.of("bytes").prices(program.mesh))
    fixed = frozenset(program.outvars)
    decisions = DecisionBuilder(layouts, fixed).of(program.eqns)
    taken = LookaheadSearch(layouts, program, decisions, {}, dict).run()[0]
    dot = decisions[0]
    rows = Comparison(layouts, dot, taken, tuple((n,) for n in dot.var_homes), dot.results).rows
    costs = {tuple(r.strategy.spec.axes_of.items()): round(r.cost / 10 ** 9) for r in rows}
    written = re.findall(r"^    ([ikj]|unsplit) .*?([\d,]+) B$", docstring("choice"), re.M)
    assert [(f, int(cost.replace(",", ""))) for f, cost in written] == [
        ("k", costs[(1, ("x",)),]), ("j", costs[(2, ("x",)),]), ("i", costs[(0, ("x",)),]),
        ("unsplit", costs[()])]
    assert taken.spec.axes_of == {1: ("x",)}


def test_moves_in_the_docstring_are_those_of_the_plan(done):
    said = []
    for target in ((("x",), ()), ((), ())):
        found = plan(done.mesh, (8, 32), ((), ()), target, frozenset("x"), frozenset())
        (move,) = found.moves
        where = f" onto dimension {move.dim}" if move.dim >= 0 else ""
        said.append(f"{move.kind} over {', '.join(move.axes)}{where}, "
                    f"{found.received:.0f} elements received")
    assert re.findall(r"^    (.* received)$", docstring("redistribution"), re.M) == said
