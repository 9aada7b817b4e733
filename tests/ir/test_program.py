"""What a copy of a program keeps: its attributes, and of its memo what still holds."""
from __future__ import annotations

from shardtrace.ir.program import Level
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.text.print import print_program

TEXT = """\
mesh (X=2, Y=4)
devices (X=2, Y=4) at (7, 6, 5, 4, 3, 2, 1, 0)
without dedupe
objective bytes

program @f(x: f32[8,4] donated) -> f32[8,4] {
  y: f32[8,4] = sin x
  return y
}
"""


def test_a_copy_keeps_what_the_text_says() -> None:
    program = parse_program(TEXT)
    attributes = program.attributes
    assert len(attributes) >= 4
    copy = program.replace(name="g", eqns=program.eqns)
    assert copy.attributes == attributes
    assert print_program(copy) == print_program(program).replace("@f", "@g")


def test_attributes_of_a_copy_are_its_own() -> None:
    program = parse_program(TEXT)
    copy = program.replace()
    copy.attributes["mine"] = True
    assert "mine" not in program.attributes


def test_a_program_of_another_level_has_none_of_them() -> None:
    assert parse_program(TEXT).replace(level=Level.RESOLVED).attributes == {}


def test_a_copy_with_other_equations_computes_anew() -> None:
    program = parse_program(TEXT)
    assert program.op_names == {"sin"}
    assert program.replace(mesh=program.mesh).memo["op_names"] == {"sin"}
    assert program.replace(eqns=()).op_names == frozenset()
