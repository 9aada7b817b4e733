"""Locations in the text of programs, and the laws that all texts keep."""
from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.meshes.mesh import AbstractMesh, empty_abstract_mesh
from shardtrace.ir.op import OPS
from shardtrace.ir.ops import dialect
from shardtrace.ir.program import Literal, Program, Var
from shardtrace.ir.reasons import read_reason, reason_text
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.source.location import UNKNOWN, Location
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.ir.text.parse import load_program, parse_program
from shardtrace.ir.text.print import print_program
from shardtrace.ir.types import array_type
from shardtrace.ir.verify import verify

from ...rows import rows
from .round_trips import MESH, A, E, t
from .test_print_parse import PROGRAMS, equation, round_trip

# -- locations -------------------------------------------------------------------------------------

PLACES = [
    UNKNOWN,
    Location.at("/home/me/train.py", 9, 8, 9, 13, "layer"),
    Location.at("/home/me/train.py", 9, 8, 12, 3, "layer"),
    Location.at("/home/me/train.py", 9, 8),
    Location.at("/home/you/train.py", 9, 8, 9, 13, "<lambda>"),
    Location.at("/home/me/a b.py", 9, 8, 9, 13, "<module>"),
    Location.at("<stdin>", 1, 0, 1, 5, "<module>"),
    Location.at("<ipython-input-3-0a>", 1, 0, 1, 5, "f"),
    Location.at("C:\\me\\x.py", 1, 0, 1, 5, "f"),
    Location.at("/home/me/é, \"x\".py", 1, 0, 1, 5, "two words"),
    Location.at("train.py", 9, 8, 9, 13, "f").under("jvp").under("transpose"),
    Location.at("train.py", 9, 8, 9, 13, "f").under("for each, of x:"),
]
REASONS = ["", "w is whole over X", "x: y, z", " spaces ", '"quoted"', "two\nlines", "# hash"]


@rows("place", PLACES)
@rows("reason", REASONS)
def test_locations_and_reasons_read_back(place, reason):
    x = Var(t((4,)), "x")
    rows = [equation("sin", [x], location=p, reason=reason) for p in (place, PLACES[1], PLACES[4])]
    round_trip(Program("f", [x], rows, [x], mesh=MESH))
    body = Program("layer", [x], rows, [x], mesh=MESH)
    call = equation("jit", [x], {"jaxpr": body, "name": "layer"}, types=[t((4,))], location=place)
    round_trip(Program("f", [x], [call], [x], mesh=MESH))


def test_files_of_one_name_are_told_apart():
    x = Var(t((4,)), "x")
    rows = [equation("sin", [x], location=p) for p in (PLACES[1], PLACES[4], PLACES[1])]
    text = str(Program("f", [x], rows, [x], mesh=MESH))
    assert "# train.py:9:9-13 in layer" in text and "# you/train.py:9:9-13" in text
    assert text.endswith('file train.py = "/home/me/train.py"\n'
                         'file you/train.py = "/home/you/train.py"\n')


def test_locations_can_be_left_out():
    x = Var(t((4,)), "x")
    program = Program("f", [x], [equation("sin", [x], location=PLACES[1])], [x], mesh=MESH)
    text = print_program(program, locations=False)
    assert "#" not in text and "file" not in text
    assert programs_equal(parse_program(text), program)


def test_a_file_without_locations_is_its_own_source(tmp_path):
    path = tmp_path / "hand.st"
    path.write_text("program @f(x: f32[4]) -> f32[4] {\n  y: f32[4] = sin x   # by hand\n"
                    "  return y\n}\n")
    place = load_program(path).eqns[0].location
    assert (place.file, place.line, place.column) == (str(path), 2, 2)
    assert place.text() == "y: f32[4] = sin x"


# -- laws ------------------------------------------------------------------------------------------

UNARY = ("sin", "exp", "tanh", "neg", "sign", "floor", "stop_gradient")
BINARY = ("add", "mul", "sub", "max", "min")


@some.composite
def programs(draw):
    """Programs of elementwise ops, transposes, contractions and reductions on Explicit axes."""
    mesh = draw(some.sampled_from([MESH, AbstractMesh((2, 4), ("X", "Y"), (E, A)),
                                   empty_abstract_mesh]))
    axes = mesh.explicit_axes
    specs = [P(), *(P(a) for a in axes), *(P(None, a) for a in axes)]
    if len(axes) > 1:
        specs += [P("X", "Y"), P(("X", "Y")), P("Y", "X")]
    dtype = np.dtype(draw(some.sampled_from(["float32", "float16", ml_dtypes.bfloat16])))
    count = draw(some.integers(1, 3))
    values = [Var(array_type((16, 16), dtype, False, NamedSharding(mesh, draw(
        some.sampled_from(specs)))), draw(some.sampled_from(["x", "w", None, "b['c']"])))
        for _ in range(count)]
    invars, eqns, consts = list(values), [], []
    if draw(some.booleans()):
        value = np.arange(256).reshape(16, 16).astype(dtype)
        var = Var(array_type((16, 16), dtype, False, NamedSharding(mesh, P())))
        consts.append((var, value))
        values.append(var)
    for _ in range(draw(some.integers(0, 12))):
        kind = draw(some.sampled_from(["unary", "binary", "literal", "transpose", "dot", "sum"]))
        x = draw(some.sampled_from(values))
        params: dict[str, Any] = {}
        if kind == "unary":
            name, operands = draw(some.sampled_from(UNARY)), [x]
        elif kind == "binary":
            name = draw(some.sampled_from(BINARY))
            operands = [x, draw(some.sampled_from([v for v in values if v.aval is x.aval]))]
        elif kind == "literal":
            number = draw(some.floats(width=16))
            aval = array_type((), dtype, draw(some.booleans()), draw(some.sampled_from(
                [None, NamedSharding(mesh, P())])))
            name, operands = "mul", [x, Literal(dtype.type(number), aval)]
        elif kind == "transpose":
            name, operands, params = "transpose", [x], {"permutation": (1, 0)}
        elif kind == "dot":
            name, operands = "dot_general", [x, draw(some.sampled_from(values))]
            params = {"dimension_numbers": (((1,), (0,)), ((), ())), "precision": None,
                      "preferred_element_type": None, "out_sharding": None}
        else:
            name, operands = "reduce_sum", [x]
            params = {"axes": (1,), "out_sharding": None}
        try:
            row = equation(name, operands, params, mesh=mesh, location=draw(
                some.sampled_from(PLACES)), reason=draw(some.sampled_from(REASONS)))
        except (ValueError, TypeError, AssertionError):
            continue
        except Exception as error:
            if type(error).__name__ != "ShardingTypeError":
                raise
            continue
        eqns.append(row)
        values += [v for v in row.outvars if v.aval.ndim == 2]
    outvars = draw(some.lists(some.sampled_from(values), max_size=3))
    return Program("f", invars, eqns, outvars, consts=consts, mesh=mesh)


@given(programs())
def test_printing_and_reading_is_the_identity(program):
    round_trip(program)


@given(programs(), some.sampled_from((30, 60, 80, 160)))
def test_a_program_is_the_same_at_every_width(program, width):
    text = print_program(program, width=width)
    again = parse_program(text)
    assert programs_equal(again, program)
    assert [(e.reason, str(e.location)) for e in again.eqns] == [
        (e.reason, str(e.location)) for e in program.eqns]
    assert print_program(again, width=width) == text
    assert str(again) == str(program)


def test_lines_are_broken_where_the_parser_reads_on():
    reason = "`concatenate` puts its blocks together: dimension 0 of operand 0 is over X"
    xs = [Var(t((64, 4), ("X",)), f"a_long_parameter_{i}") for i in range(8)]
    y = equation("concatenate", xs, {"dimension": 0}, names=["y"], reason=reason,
                 location=Location.at("folder/a_long_name_of_a_file.py", 9, 8, 9, 13, "other"))
    z = equation("transpose", y.outvars, {"permutation": (1, 0)}, names=["z"])
    program = Program("f", xs, [y, z], [*z.outvars, *xs[:5]], mesh=MESH)
    for width in (40, 60, 80):
        text = print_program(program, width=width)
        assert max(len(x) for x in text.splitlines() if not x.startswith("file ")) <= width
        again = parse_program(text)
        assert programs_equal(again, program)
        assert again.eqns[0].reason == read_reason(reason)
        assert again.eqns[0].location.file == "folder/a_long_name_of_a_file.py"
    assert ("\n      # because `concatenate` puts its blocks together: dimension 0 of operand 0\n"
            "      #   is over X\n") in print_program(program, width=80)


def test_a_comment_below_an_equation_stays_a_comment():
    program = parse_program("program @f(x: f32[]) -> f32[] {\n  y: f32[] = sin x  # f.py:1:2\n"
                            "  # looks at x\n  #   twice\n  z: f32[] = cos y\n"
                            "      # because it is so\n      #   and so on\n      # really\n"
                            "  return z\n}\n")
    assert [reason_text(e.reason) for e in program.eqns] == ["", "it is so and so on"]
    assert program.eqns[0].location.line == 1


@given(programs())
def test_blank_lines_comments_and_spaces_mean_nothing(program):
    lines = []
    for line in str(program).splitlines():
        indented = "    " + line if line.startswith(" ") else line
        lines += ["", "   # a comment", indented + "  "]
    assert programs_equal(parse_program("\n".join(lines)), program)


@given(programs())
def test_a_program_survives_with_windows_line_ends(program):
    assert programs_equal(parse_program(str(program).replace("\n", "\r\n")), program)


def test_ten_thousand_nested_uses_need_no_recursion():
    x = Var(t((4,)), "x")
    eqns, value = [], x
    for _ in range(10_000):
        row = equation("sin", [value])
        eqns.append(row)
        value = row.outvars[0]
    program = Program("f", [x], eqns, [value], mesh=MESH)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        round_trip(program)
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("path", PROGRAMS, ids=[p.stem for p in PROGRAMS])
def test_programs_in_files_are_right_and_read_back(path):
    program = load_program(path)
    verify(program)
    assert programs_equal(parse_program(str(program)), program)
    assert str(parse_program(str(program))) == str(program)


def test_all_ops_can_be_named():
    assert len(dialect.OPS) > 100
    for name in OPS:
        x = Var(t((4,)), "x")
        params = dict.fromkeys(OPS[name].subprograms, Program("g", [], [], []))
        row = equation(name, [x], {"p": 1, **params}, types=[t((4,))])
        round_trip(Program("f", [x], [row], [x], mesh=MESH))


def test_the_place_of_a_type_is_not_torn_from_it():
    """However little room there is: in programs far inside others, for example."""
    text = ("mesh (X=2)\nprogram @f(y: f32[4] on (), z: f32[4] on ()) -> f32[4] on () {\n"
            "  return y\n}\n")
    program = parse_program(text)
    for width in range(4, 60):
        assert programs_equal(parse_program(print_program(program, width=width)), program)
