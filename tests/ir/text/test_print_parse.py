"""Text is a program: what is printed reads back equal, and the text itself does not change.

By examples, whose texts stand here, and by random programs over real ops.
"""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardtrace.ir.inference.infer import infer
from shardtrace.ir.meshes.device import Device
from shardtrace.ir.meshes.manual_state import ManualState
from shardtrace.ir.meshes.mesh import AbstractMesh, Mesh
from shardtrace.ir.op import OPS
from shardtrace.ir.program import Equation, Level, Literal, Program, Var
from shardtrace.ir.reasons import read_reason
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.source.location import Location
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.ir.types import array_type

from ...paths import TESTS
from . import round_trips
from .round_trips import F32, MESH, A, E, M, t

CONCRETE = Mesh(np.array([Device(1), Device(0)]), ("X",), (E,))
PROGRAMS = sorted((TESTS / "programs").glob("*.st"))


def round_trip(program: Program, **kwargs: Any) -> Program:
    """Print and read; the law holds, the text is its own text, and places stay."""
    again = round_trips.round_trip(program, **kwargs)
    assert same_places(again, program), str(program)
    return again


def same_places(a: Program, b: Program) -> bool:
    """Are locations and reasons equal, in nested programs too?"""
    def place(location):
        return (location.file, location.line, location.column, location.end_line,
                location.end_column, location.function, location.transform)

    for x, y in zip(a.eqns, b.eqns, strict=True):
        if place(x.location) != place(y.location) or x.reason != y.reason:
            return False
    return all(same_places(x, y) for (_, _, x), (_, _, y)
               in zip(a.subprograms(), b.subprograms(), strict=True))


# -- programs --------------------------------------------------------------------------------------

def equation(name, operands, params=None, types=None, mesh=MESH, reason="", **kwargs):
    op = OPS[name]
    params = params or {}
    if types is None:
        types = infer(op, tuple(a.aval for a in operands), params, mesh)
    names = kwargs.pop("names", [None] * len(types))
    out = [Var(a, n) for a, n in zip(types, names, strict=True)]
    return Equation(op, operands, out, params, reason=read_reason(reason), **kwargs)


def test_a_program_reads_like_the_function_it_was():
    x, w = Var(t((64, 4), ("X",)), "x"), Var(t((64, 4), ("X",)), "w")
    h = equation("add", [x, w], names=["h"], location=Location.at("train.py", 9, 8, 9, 13, "layer"))
    y = equation("transpose", h.outvars, {"permutation": (1, 0)}, reason="of x",
                 location=Location.at("train.py", 10, 4, 10, 9, "other"))
    program = Program("layer", [x, w], [h, y], y.outvars, mesh=MESH, arg_names=("x", "w"))
    assert str(program) == '''\
mesh (X=2, Y=4)

program @layer(x: f32[64@X,4], w: f32[64@X,4]) -> f32[4,64@X] {
  h: f32[64@X,4] = add x w                              # train.py:9:9-13
  %a: f32[4,64@X] = transpose[permutation=(1, 0)] h     # train.py:10:5-9 in other
      # because of x
  return %a
}
'''
    round_trip(program)


def test_a_per_device_program_shows_whole_types_and_what_collectives_cost():
    local = AbstractMesh((2, 4), ("X", "Y"), (M, M))
    x = Var(t((32, 4), mesh=local, manual=ManualState({"X"})), "x")
    total = equation("psum_invariant", [x], {"axes": ("X",)}, mesh=local, names=["y"],
                     location=Location.at("train.py", 9, 8, 9, 13, "layer"),
                     reason="w is whole over X")
    program = Program("layer", [x], [total], total.outvars, mesh=local, level=Level.LOCAL,
                      global_in=[t((64, 4), ("X",))], global_out=[t((32, 4))], arg_names=("x",))
    assert str(program) == '''\
mesh (X=2 manual, Y=4 manual)
level local

program @layer(x: f32[32,4]{V:X} <- f32[64@X,4]) -> f32[32,4] => f32[32,4] {
  y: f32[32,4] = psum_invariant[axes=('X',)] x
      # all-reduce over X, 512 B received per device, train.py:9:9-13
      # because w is whole over X
  return y
}
'''
    round_trip(program)


def test_long_headings_are_broken_and_read_back():
    xs = [Var(t((64, 4), ("X",)), f"a_long_parameter_{i}") for i in range(8)]
    program = Program("f", xs, [], xs, mesh=MESH, result_names=[f"['out{i}']" for i in range(8)])
    text = str(program)
    assert max(len(line) for line in text.splitlines() if "return" not in line) <= 100
    assert round_trip(program).result_names == program.result_names


def test_parameters_keep_their_paths_beside_the_names():
    x = Var(t((4,)))
    program = Program("f", [x], [], [x], mesh=MESH, arg_names=("params['w'][0]",))
    assert "params.w.0 \"params['w'][0]\": f32[4]" in str(program)
    assert round_trip(program).arg_names == ("params['w'][0]",)


@pytest.mark.parametrize("name", ["<lambda>", "jit(f)", "f", "f.<locals>.g", "é", "on", 'a"b'])
def test_any_program_name_reads_back(name):
    x = Var(t((4,)), "x")
    assert round_trip(Program(name, [x], [], [x], mesh=MESH)).name == name


@pytest.mark.parametrize("hint", ["return", "const", "x y", "3", "x", "params['w']", "é", "", None])
def test_any_variable_hint_gives_a_usable_name(hint):
    x, y = Var(t((4,)), "x"), Var(t((4,)), hint)
    add = equation("add", [x, y], names=[hint])
    round_trip(Program("f", [x, y], [add], add.outvars, mesh=MESH))


def test_literals_say_their_type_and_mesh():
    here = array_type((), F32, True, NamedSharding(MESH, P()))
    nowhere = array_type((), F32, True)
    x = Var(t((4,)), "x")
    rows = [equation("mul", [x, Literal(np.float32(2), here)]),
            equation("mul", [x, Literal(np.float32(2), nowhere)]),
            equation("mul", [x, Literal(np.float32("nan"), here)])]
    program = Program("f", [x], rows, [Literal(np.int32(3), array_type((), "int32")), x], mesh=MESH)
    text = str(program)
    assert "mul x 2.0:~f32[]\n" in text and "mul x 2.0:~f32\n" in text
    assert "return 3:i32, x" in text
    round_trip(program)


def test_types_on_another_mesh_name_it():
    auto = AbstractMesh((2, 4), ("X", "Y"), (A, E))
    x = Var(t((64, 4), ("X",)), "x")
    moved = NamedSharding(auto, P(None, "Y"))
    row = equation("reshard", [x], {"dst_sharding": moved})
    assert row.outvars[0].aval.mesh is auto
    program = Program("f", [x], [row], row.outvars, mesh=MESH)
    text = str(program)
    assert "mesh m1 = (X=2 auto, Y=4)" in text
    assert "%a: f32[64,4@Y] on m1 = reshard[dst_sharding=sharding P(None, 'Y') on m1] x" in text
    round_trip(program)


def nested_program():
    inner_mesh = AbstractMesh((2, 4), ("X", "Y"), (M, E))
    b = Var(t((4,), mesh=inner_mesh), "b")
    inner = equation("sin", [b], mesh=inner_mesh,
                     location=Location.at("body.py", 3, 4, 3, 9, "body"))
    body = Program("body", [b], [inner], inner.outvars, mesh=inner_mesh)
    x = Var(t((8,)), "x")
    return body, x


def test_nested_programs_state_what_differs():
    body, x = nested_program()
    call = equation("jit", [x], {"jaxpr": body, "name": "body"}, types=[t((8,))],
                    location=Location.at("main.py", 1, 0, 1, 5, "f"))
    program = Program("f", [x], [call], call.outvars, mesh=MESH)
    assert str(program) == '''\
mesh (X=2, Y=4)

program @f(x: f32[8]) -> f32[8] {
  %a: f32[8] = jit[name='body'] x   # main.py:1:1-5
    jaxpr = mesh (X=2 manual, Y=4) @body(b: f32[4]) -> f32[4] {
      %a: f32[4] = sin b    # body.py:3:5-9
      return %a
    }
  return %a
}
'''
    round_trip(program)


def test_programs_stand_anywhere_in_tuples_of_params():
    body, x = nested_program()
    other = Program("other", [], [], [], mesh=MESH)
    params = {"jaxpr": other, "branches": (body, other), "mixed": (1, (other, None), "a"),
              "empty": ()}
    call = equation("jit", [x], params, types=[])
    text = str(Program("f", [x], [call], [x], mesh=MESH))
    assert "jit[empty=(), mixed=(1, ({...}, None), 'a')] x" in text
    for label in ("branches.0", "branches.1", "jaxpr", "mixed.1.0"):
        assert f"    {label} = " in text
    again = round_trip(Program("f", [x], [call], [x], mesh=MESH))
    assert again.eqns[0].params["mixed"][1][1] is None


def test_params_with_their_usual_value_are_not_shown():
    x = Var(t((8, 4), ("X",)), "x")
    params = {"dimension_numbers": (((1,), (0,)), ((), ())), "precision": None,
              "preferred_element_type": None, "out_sharding": None}
    w = Var(t((4, 8)), "w")
    program = Program("f", [x, w], [equation("dot_general", [x, w], params)], [x], mesh=MESH)
    text = str(program)
    assert "dot_general[dimension_numbers=(((1,), (0,)), ((), ()))] x w" in text
    assert round_trip(program).eqns[0].params == params


def test_a_param_that_is_missing_reads_back_as_missing():
    x = Var(t((8, 4), ("X",)), "x")
    row = equation("dot_general", [x, x], {"dimension_numbers": ()}, types=[t((4,))])
    program = Program("f", [x], [row], [x], mesh=MESH)
    assert "precision=absent" in str(program)
    assert set(round_trip(program).eqns[0].params) == {"dimension_numbers"}


def test_equal_params_of_different_text_are_told_apart():
    x = Var(t((8,)), "x")
    values = [1, True, 1.0, 0.0, -0.0, (1,), (True,), np.float32(1), np.int32(1), float("nan")]
    rows = [equation("sin", [x], {"p": v}, types=[t((8,))]) for v in values]
    again = round_trip(Program("f", [x], rows, [x], mesh=MESH))
    assert [repr(e.params["p"]) for e in again.eqns] == [repr(v) for v in values]


def test_op_names_may_have_dashes():
    x = Var(t((8,)), "x")
    row = equation("scatter-add", [x, x, x], {"a": 1}, types=[t((8,))])
    round_trip(Program("f", [x], [row], row.outvars, mesh=MESH))


def test_equations_without_results_read_back():
    x = Var(t((8,)), "x")
    body = Program("g", [], [], [], mesh=MESH)
    row = equation("jit", [x], {"jaxpr": body, "name": "g"}, types=[])
    round_trip(Program("f", [x], [row], [], mesh=MESH))


def test_captured_parameters_come_before_those_with_names():
    captured, x = Var(t((8,))), Var(t((8,)), "x")
    program = Program("f", [captured, x], [], [x], mesh=MESH, arg_names=("x",))
    assert "program @f(%a: f32[8], x: f32[8])" in str(program)
    round_trip(program)


def test_device_orders_are_kept_unless_usual():
    usual = Mesh(np.array([Device(0), Device(1)]), ("X",), (E,))
    x = Var(t((8,)), "x")
    program = Program("f", [x], [], [x], mesh=MESH)
    program.attributes["meshes"] = (usual, CONCRETE)
    text = str(program)
    assert "devices (X=2) at (1, 0)\n" in text and text.count("devices") == 1
    assert round_trip(program).attributes["meshes"] == (CONCRETE,)


# -- names -----------------------------------------------------------------------------------------

def test_no_name_is_used_twice_and_none_that_the_printer_makes_up_can_be_a_users():
    xs = [Var(t((4,)), name) for name in ("x", "x", "x_1", "x", "a", None)]
    rows = [equation("add", xs[:2]), equation("add", xs[:2], names=["x"])]
    program = Program("f", xs, rows, rows[1].outvars, mesh=MESH)
    assert ("@f(x: f32[4], x%1: f32[4], x_1: f32[4], x%2: f32[4], a: f32[4], %a: f32[4])"
            in str(program))
    assert "  %b: f32[4] = add x x%1\n" in str(program)
    assert "  x%3: f32[4] = add x x%1\n" in str(program)
    round_trip(program)


def test_what_the_printer_made_up_is_forgotten_when_it_is_read():
    x = Var(t((4,)), "x")
    rows = [equation("sin", [x]), equation("cos", [x], names=["y"]),
            equation("tanh", [x], names=["y"])]
    program = Program("f", [x], rows, [r.outvars[0] for r in rows], mesh=MESH, arg_names=("x",))
    again = round_trip(program)
    assert [e.outvars[0].name for e in again.eqns] == [None, "y", "y"]
    assert str(again.replace(eqns=again.eqns[1:], outvars=again.outvars[2:])) == str(
        program.replace(eqns=rows[1:], outvars=program.outvars[2:]))
