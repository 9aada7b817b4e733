"""Choices by cost: what is gathered, what is kept, and why a collective is there."""
from __future__ import annotations

import itertools

import pytest

from shardtrace.ir.ops.communication.collective_kinds import total_received
from shardtrace.ir.rules.rule import make_rule
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.partitioner.choice.layouts import LayoutTable
from shardtrace.partitioner.choice.strategies import StrategyTable, legal_strategy
from shardtrace.partitioner.collectives import collectives
from shardtrace.partitioner.cost.prices import Objective
from shardtrace.partitioner.factors import dim_axes, project, rule_info, tensor_entries
from shardtrace.partitioner.pipeline import partition

from ..building import Build, auto, literal
from ..lockstep import partitioned

M8 = auto(8, names="x")
M24 = auto(2, 4, names="xy")


def kinds(done):
    return [c.op for c in collectives(done.local)]


def test_two_free_dimensions_on_one_axis_move_the_small_operand():
    """64x1024 @ 1024x1024, both free dims on x: the weight is not gathered."""
    b = Build(M8)
    x, w = b.arg(64, 1024), b.arg(1024, 1024)
    done = partition(b.program(b.dot(x, w)), mesh=M8, in_shardings=[P("x"), P(None, "x")],
                     out_shardings=[P("x")])
    assert kinds(done) == ["all_gather_invariant", "all_to_all"]
    assert total_received(done.local) == 258_048


@pytest.mark.parametrize("mesh, f, specs, outs, want", [
    (M8, lambda b, x, y: b.dot(x, y), [P(None, "x"), P("x")], None, ["psum_invariant"]),
    (M8, lambda b, x, y: b.dot(x, y), [P(None, "x"), P("x")], [P("x")], ["reduce_scatter"]),
    (M8, lambda b, x, y: b.dot(x, y), [P(None, "x"), P()], None, ["all_gather_invariant"]),
    (M24, lambda b, x, y: b.dot(x, y), [P("x"), P(None, "y")], None, []),
    (M24, lambda b, x, y: b.op("add", x, y), [P("x"), P(None, "y")], None, []),
    (M24, lambda b, x, y: b.op("reduce_max", x, axes=(1,)), [P("x", "y"), P()], None, ["pmax"]),
    (M24, lambda b, x, y: b.op("reduce_min", x, axes=(0, 1)), [P("x", "y"), P()], None,
     ["pmin"]),
    (M8, lambda b, x, y: b.op("cumsum", x, axis=0, reverse=False), [P("x"), P()], None,
     ["all_gather_invariant"]),
    (M8, lambda b, x, y: b.op("sort", x, dimension=0, is_stable=True, num_keys=1)[0],
     [P("x"), P()], None, ["all_to_all", "all_to_all"]),
    (M8, lambda b, x, y: b.reshape(x, 1024), [P(None, "x"), P()], None, ["all_gather_invariant"]),
    (M8, lambda b, x, y: b.op("add", x, b.iota((32, 32), 0)), [P("x"), P()], None, []),
])
def test_collectives_of_single_ops(mesh, f, specs, outs, want):
    b = Build(mesh)
    x, y = b.arg(32, 32), b.arg(32, 32)
    done = partitioned(b.program(f(b, x, y)), specs, outs)
    assert kinds(done) == want


def test_a_value_is_brought_to_a_layout_once():
    b = Build(M8)
    x, y = b.arg(32, 32), b.arg(32, 32)
    one = b.op("sort", x, dimension=0, is_stable=True, num_keys=1)[0]
    two = b.op("rev", b.op("sort", x, dimension=0, is_stable=False, num_keys=1)[0], dimensions=(1,))
    done = partitioned(b.program(b.op("add", one, two), y), [P("x"), P()])
    assert kinds(done) == ["all_to_all"] * 3


def test_a_chain_of_constraints_is_one_move():
    b = Build(M24)
    x = b.arg(8, 8)
    y = b.constrain(b.constrain(b.constrain(x, "x", "y"), "y", "x"), None, "x")
    done = partitioned(b.program(y), [P("x")])
    assert kinds(done) == ["all_to_all"]
    b = Build(M24)
    x = b.arg(8, 8)
    y = b.constrain(b.constrain(x, None, "x"), "x", None)
    assert kinds(partitioned(b.program(y), [P("x")])) == []


def test_data_parallel_gradient_is_one_all_reduce_and_zero_is_a_reduce_scatter():
    def gradient(outs):
        b = Build(M8)
        x, g = b.arg(64, 16), b.arg(64, 24)
        return partitioned(b.program(b.dot(x, g, ((0,), (0,)))), [P("x"), P("x")], outs)

    assert kinds(gradient(None)) == ["psum_invariant"]
    assert kinds(gradient([P("x")])) == ["reduce_scatter"]


def test_every_collective_has_the_users_line_and_a_reason():
    b = Build(M24)
    x, w = b.arg(8, 8), b.arg(8, 8)
    h = b.dot(x, w)
    y = b.op("cumsum", b.sum(h, 1), axis=0, reverse=False)
    done = partitioned(b.program(y), [P("x", "y"), P("y")])
    records = collectives(done.local)
    assert [(r.op, r.axes, r.location.line) for r in records] == [
        ("psum_invariant", ("y",), 1), ("all_gather_invariant", ("x",), 3)]
    assert records[0].reason == ("`dot_general` leaves partial sums: dimension 1 of operand 0 is "
                                 "over y")
    assert records[1].reason == ("`cumsum` puts its blocks together: dimension 0 of operand 0 is "
                                 "over x")
    assert [r.bytes for r in records] == [2 * 3 * 4 * 4 // 4, 4]


def test_reasons_name_what_is_in_the_way():
    b = Build(M8)
    x, w = b.arg(8, 64), b.arg(64, 64)
    done = partition(b.program(b.dot(x, w)), mesh=M8, in_shardings=[P("x"), P(None, "x")])
    (record,) = collectives(done.local)
    assert record.reason.startswith((
        "`dot_general` takes dimension 0 of operand 0 whole: x splits dimension 1 of operand 1, ",
        "`dot_general` takes dimension 1 of operand 1 whole: x splits dimension 0 of operand 0, "))
    other = record.alternative
    assert other is not None
    assert record.reason.endswith(f"than {other.text} by {other.saved:,} of {other.price:,} B")


def test_options_are_laid_out_as_their_factors_say():
    layouts = LayoutTable(Objective.of("bytes").prices(auto(2, 2, names="xy")))
    rule = make_rule("i k, k j -> i j | k:sum", ((16, 16), (16, 16)), ((16, 16),))
    info = rule_info(rule)
    layouts.shapes.append(((16, 16), 4))
    layouts.sizes.append(256)
    table = StrategyTable(layouts, info, (0, 0, 0))
    specs = [((), ()), (("x",), ()), ((), ("x",)), (("x",), ("y",)), (("y",), ("x",))]
    for entries in itertools.product(specs, repeat=3):
        hints = [(layouts.numbers[e, frozenset()],) for e in entries]
        options = table.suggested(hints, (frozenset(),) * 2)
        assert options
        for option in options:
            spec = option.spec
            for dims, layout in zip(info.maps, spec.layouts, strict=True):
                assert tensor_entries(dims, (16, 16), info.factors, spec.axes_of,
                                      layouts.mesh.axis_size) == layout


def test_what_is_tried_are_the_factors_that_layouts_give_and_none():
    """x on i of one operand and on j of the other: each of them, none, and what both have stays."""
    layouts = LayoutTable(Objective.of("bytes").prices(M24))
    rule = make_rule("i k, k j -> i j | k:sum", ((16, 16), (16, 16)), ((16, 16),))
    layouts.shapes.append(((16, 16), 4))
    layouts.sizes.append(256)
    table = StrategyTable(layouts, rule_info(rule), (0, 0, 0))

    def tried(*entries):
        hints = [(layouts.numbers[e, frozenset()],) for e in entries]
        return [o.spec.axes_of for o in table.suggested(hints, (frozenset(),) * 2)]
    i, k, j = (next(f for f, factor in enumerate(rule.factors) if factor.name == n) for n in "ikj")
    whole = ((), ())
    assert tried((("x",), ()), ((), ("x",)), whole) == [{i: ("x",)}, {j: ("x",)}, {}]
    assert tried((("x",), ()), whole, (("x",), ())) == [{}, {i: ("x",)}]
    found = tried(((), ("y",)), (("y",), ()), whole)
    assert {k: ("y",)} in found and {i: ("y",)} in found and {} in found
    # axes that meet on a factor are in an order that some tensor has
    meet = tried((("y", "x"), ()), whole, (("y", "x"), ()))
    assert {i: ("y", "x")} in meet and {i: ("x", "y")} not in meet
    assert table.suggested([(layouts.numbers[whole, frozenset()],)] * 3, (frozenset(),) * 2)[0] \
        .spec.axes_of == {}


def test_projection_fills_factors_major_to_minor():
    rule = make_rule("(i j) -> i j", ((32,),), ((4, 8),), {"i": 4, "j": 8})
    info = rule_info(rule)
    size = M24.axis_size
    assert project(info.maps[0], info.factors, (("x", "y"),), size) == (
        {0: ("x",), 1: ()}, ("y",), {0, 1})           # 4 does not divide what x left of i
    assert project(info.maps[0], info.factors, (("y", "x"),), size) == (
        {0: ("y",), 1: ("x",)}, (), frozenset())
    assert dim_axes((0, 1), info.factors, {0: ("y",), 1: ("x",)}, size) == ("y", "x")
    assert dim_axes((0, 1), info.factors, {1: ("x",)}, size) is None
    assert info.kind == "structural"


def test_scalars_and_literals_need_nothing():
    b = Build(M24)
    x = b.arg(8, 8)
    s = b.sum(x, 0, 1)
    done = partitioned(
        b.program(b.op("mul", b.op("add", s, literal(1)), s), b.op("neg", x)), [P("x")])
    assert kinds(done) == ["psum_invariant"]


def test_a_factor_of_two_is_not_cut_in_four():
    """16 columns as 2 x 8: over x and y together they are cut in the second factor as well."""
    info = rule_info(make_rule("d0 d1 -> d0 (r1 d1)", [(5, 8)], [(5, 16)], {"r1": 2}))
    r1 = next(f for f, factor in enumerate(info.factors) if factor.name == "r1")
    cube = auto(2, 2, 2)
    layouts = LayoutTable(Objective.of().prices(cube))
    layouts.shapes += [((5, 8), 4), ((5, 16), 4)]
    layouts.sizes += [40, 80]
    table = StrategyTable(layouts, info, (0, 1))
    assert legal_strategy(table, {r1: ("x", "y")}, (frozenset(),)) is None
    assert legal_strategy(table, {r1: ("x",)}, (frozenset(),)) is not None
