"""Declared rewrites: each before and after, in text; and what the engine promises of all."""
from __future__ import annotations

import importlib
import pkgutil

import pytest

import shardtrace.ir.ops.dialect
import shardtrace.partitioner
import shardtrace.runtime.rewrites
from shardtrace.ir.facts import COMMUTES
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.op import OPS
from shardtrace.ir.program import Level, Program
from shardtrace.ir.rewriting.pattern import read
from shardtrace.ir.rewriting.rewrite import Rewrite, Rewrites, Shape, finder
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.verify import verify
from shardtrace.partitioner.cost.prices import Objective
from shardtrace.partitioner.passes import PREPARE, SIMPLIFY, PartitionRequest
from shardtrace.runtime.rewrites.pipeline import EXECUTION

from ...paths import TESTS

FOLDER = TESTS / "programs" / "rewrites"


def declared() -> dict[str, Rewrites]:
    """By the name of each rewrite of the partitioner and the executor, those it is applied with."""
    found = {}
    for package in (shardtrace.partitioner, shardtrace.runtime.rewrites):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, Rewrites):
                    found.update({r.name: value for r in value.rewrites})
    return found


DECLARED = declared()


def test_each_has_a_program_before_and_after_and_says_why():
    assert sorted(DECLARED) == sorted(path.stem for path in FOLDER.glob("*.st"))
    for rewrites in DECLARED.values():
        assert all(r.why for r in rewrites.rewrites)


@pytest.mark.parametrize("name", DECLARED)
def test_before_and_after(name):
    before, after = map(parse_program, (FOLDER / f"{name}.st").read_text().split("# -----"))
    verify(before)
    made = DECLARED[name](before)
    verify(made)
    assert programs_equal(made, after), str(made)
    assert DECLARED[name](made) is made or name == "padding-between-elements"


@pytest.mark.parametrize("name", DECLARED)
def test_each_is_the_one_that_changes_its_program(name):
    before = parse_program((FOLDER / f"{name}.st").read_text().split("# -----")[0])
    others = [r for r in DECLARED[name].rewrites if r.name != name]
    after = parse_program((FOLDER / f"{name}.st").read_text().split("# -----")[1])
    assert not others or not programs_equal(Rewrites(*others)(before), after)


def exchanged(program: Program) -> Program:
    """The program with the operands of all ops that commute in the other order."""
    return program.replace(eqns=[
        e.replace(invars=e.invars[::-1]) if COMMUTES in e.op.facts else e for e in program.eqns])


@pytest.mark.parametrize("name", [
    name for name, rewrites in DECLARED.items()
    if [r for r in rewrites.rewrites if r.name == name and len(r.orders) > 1]])
def test_operands_of_ops_that_commute_are_found_in_either_order(name):
    before = exchanged(parse_program((FOLDER / f"{name}.st").read_text().split("# -----")[0]))
    verify(before)
    alone = Rewrites(*[r for r in DECLARED[name].rewrites if r.name == name])
    assert alone(before) is not before


# Left where nothing is cut out: the pass is for blocks that are, and looks at no other program.
BESIDE_A_SLICE = {"sum-of-one"}


@pytest.mark.parametrize("name", sorted({*DECLARED} - BESIDE_A_SLICE))
def test_passes_change_no_program_without_their_ops(name):
    before = parse_program((FOLDER / f"{name}.st").read_text().split("# -----")[0])
    for step in EXECUTION if before.level is Level.LOCAL else ():
        if step.ops and step.ops.isdisjoint(before.op_names):
            assert programs_equal(step.run(before), before), step.name
    request = PartitionRequest(before.mesh, (None,) * len(before.invars),
                               (None,) * len(before.outvars), Objective.of())
    for step in PREPARE if before.level is Level.TRACED else SIMPLIFY:
        if step.ops and step.ops.isdisjoint(before.op_names):
            assert programs_equal(step.run(before, request), before), step.name


# -- the engine ------------------------------------------------------------------------------------

HALVES = Rewrites(Rewrite("halves", "half = div x 2\nout = div half 2", lambda m: m.emit(
    OPS["sqrt"], m.x), why="shorter"))


def program(body: str, result: str = "f32[4]"):
    return parse_program(f"program @f(x: f32[4], y: f32[4]) -> {result} {{\n{body}}}\n")


def names(p) -> list[str]:
    return [e.op.name for e in p.eqns]


def test_a_program_without_the_shape_is_itself():
    p = program("  %a: f32[4] = div x 2.0:f32[]\n  %b: f32[4] = div %a 3.0:f32[]\n  return %b\n")
    assert HALVES(p) is p


def test_what_is_read_elsewhere_stays_and_names_places_and_results_are_kept():
    p = program("  h: f32[4] = div x 2.0:f32[]\n  q: f32[4] = div h 2.0:f32[]\n"
                "  return h, q\n", "(f32[4], f32[4])")
    after = HALVES(p)
    assert names(after) == ["div", "sqrt"] and after.outvars == p.outvars
    assert after.eqns[1].outvars == p.eqns[1].outvars
    assert after.eqns[1].location is p.eqns[1].location
    once = Rewrites(Rewrite("halves", HALVES.rewrites[0].pattern, "x", why="",
                            single_use=("half",)))
    assert once(p) is p


def test_what_a_rewrite_makes_is_rewritten_in_turn():
    p = program("".join(f"  h{i + 1}: f32[4] = neg {'x' if not i else f'h{i}'}\n"
                        for i in range(7)) + "  return h7\n")
    twice = Rewrites(Rewrite("twice", "a = neg x\nout = neg a", "x", why="itself"))
    assert names(twice(p)) == ["neg"]
    assert twice(program("  %a: f32[4] = neg x\n  %b: f32[4] = neg %a\n  return %b\n")
                 ).outvars[0].name == "x"


def test_a_name_that_stands_twice_is_one_value():
    double = Rewrites(Rewrite("double", "out = sub x x", "out = neg x", why=""))
    p = program("  %a: f32[4] = sub x y\n  %b: f32[4] = sub %a %a\n  return %b\n")
    assert names(double(p)) == ["sub", "neg"]


def test_one_that_changes_the_type_or_does_not_end_is_at_fault():
    p = program("  %a: f32[4] = neg x\n  return %a\n")
    other = Rewrites(Rewrite("other", "out = neg x", lambda m: m.emit(
        OPS["reduce_sum"], m.x, axes=(0,)), why=""))
    with pytest.raises(AssertionError, match="instead of"):
        other(p)
    endless = Rewrites(Rewrite("endless", "out = neg x", "out = neg x", why=""))
    with pytest.raises(AssertionError, match="rewrite endless does not end"):
        endless(p)


@pytest.mark.parametrize("text", ["out = ", "out is neg x", "out = neg x {axes=}"])
def test_what_is_no_pattern_is_refused(text):
    with pytest.raises(ValueError, match="of a pattern"):
        read(text)


def test_a_shape_is_found_behind_a_value_whose_names_it_gives():
    program = parse_program("""
        mesh (x=2) of cpu

        program @f(x: f32[4], y: f32[4]) -> (f32[4], f32[4]) {
          %a: f32[4] = neg x
          %b: f32[4] = mul %a y
          %c: f32[4] = neg y
          %d: f32[4] = mul %c %c
          return %b, %d
        }
    """)
    shape = Shape("minus = neg value\nout = mul minus other", single_use=("minus",))
    first, second = program.outvars
    made_as = finder(program)
    found = made_as(first, [shape])
    assert found is not None and (found.value, found.other) == tuple(program.invars)
    assert found.out is first
    assert made_as(second, [shape]) is None          # its negation is read twice
    assert made_as(program.invars[0], [shape]) is None
