"""The verifier: right programs of every level pass; each broken promise is named, at its place."""
from __future__ import annotations

import numpy as np
import pytest

from shardtrace.ir.diagnostics.errors import VerificationError
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.op import OPS
from shardtrace.ir.ops import dialect  # noqa: F401
from shardtrace.ir.program import Equation, Level, Literal, Program, Var
from shardtrace.ir.rules.factor_axes import canonical_axes, covered, factor_axes
from shardtrace.ir.source.location import Location
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.types import array_type
from shardtrace.ir.verify import verify

from ..rows import rows

DOT = "dot_general[dimension_numbers=(((1,), (0,)), ((), ()))]"

TRACED = f"""
mesh (X=2, Y=4, Z=2 auto)
mesh other = (X=2 auto, Y=4, Z=2 auto)

program @layer(x: f32[64@X,4], w: f32[4,16@Y], b: f32[16,64]) -> f32[64,16@Y] on other {{
  const c: f32[2] on () = [1.0, 2.0]
  h: f32[64@X,16@Y] = {DOT} x w    # train.py:9:9-14
  t: f32[64,16] = transpose[permutation=(1, 0)] b
  s: f32[64@X] = reduce_sum[axes=(1,)] x
  m: f32[64@X,16@Y] = mul h 2.0:~f32
  k: f32[64@X,16@Y] = mul m 2.0:~f32[]
  d: f32[2] on () = neg c
  o: f32[64,16@Y] on other = reshard[dst_sharding=sharding P(None, 'Y') on other] k
  p: f32[64,16@Y] on other = neg o
  j: f32[64@X,4] = jit[name='f'] x
    jaxpr = @f(a: f32[64@X,4]) -> f32[64@X,4] {{
      b: f32[64@X,4] = sin a
      return b
    }}
  return p
}}
"""

RESOLVED = f"""
mesh (X=2, Y=4)
level resolved

program @layer(x: f32[64@X,16@Y], w: f32[16,32@X]) -> f32[64,32] {{
  h: f32[64@Y,32@X] = {DOT} x w
  a: f32[64,32] = mul h 2.0:~f32
  b: f32[64@(X,Y),32] = add a h
  c: f32[64@Y:(1)2,32] = add a h
  return a
}}
"""

RESHARDED = f"""
mesh (X=2, Y=4)
level resharded

program @layer(x: f32[64@X,16@Y], w: f32[16@Y,32], v: f32[64@X]) -> f32[64@X,32] {{
  h: f32[64@X,32]{{U:Y}} = {DOT} x w
  n: f32[64@X,32]{{U:Y}} = neg h
  r: f32[64@X,32] = reshard[dst_sharding=sharding P('X', None)] n
  m: f32[64@X,32] = mul r 2.0:~f32
  s: f32[64@X]{{U:Y}} = reduce_sum[axes=(1,)] x
  t: f32[64@X] = reduce_max[axes=(1,)] x
  q: f32[16@Y] = reshape[dimensions=None, new_sizes=(16,)] u
  e: f32[2@X,32,16@Y] = reshape[dimensions=None, new_sizes=(2, 32, 16)] x
  return m
}}
""".replace("  q: f32[16@Y] = reshape[dimensions=None, new_sizes=(16,)] u\n", "")

LOCAL = f"""
mesh (X=2 manual, Y=4 manual)
level local

program @layer(x: f32[32,4]{{V:(X,Y)}} <- f32[64@X,16@Y], w: f32[4,32]{{V:Y}} <- f32[16@Y,32])
    -> f32[32,32]{{V:X}} => f32[64@X,32] {{
  h: f32[32,32]{{V:(X,Y)}} = {DOT} x w
  r: f32[32,32]{{V:X}} = psum_invariant[axes=('Y',)] h    # train.py:9:9-14
  m: f32[32,32]{{V:X}} = mul r 2.0:~f32[]
  s: f32[16,32]{{V:(X,Y)}} = all_slice[axes=('Y',), axis_size=4, dimension=0] big
  return m
}}
""".replace("  s: f32[16,32]{V:(X,Y)} = all_slice[axes=('Y',), axis_size=4, dimension=0] big\n", "")

TEXTS = {"traced": TRACED, "resolved": RESOLVED, "resharded": RESHARDED, "local": LOCAL}


@pytest.mark.parametrize("level", TEXTS)
def test_a_right_program_passes(level):
    program = parse_program(TEXTS[level])
    assert program.level.value == level
    verify(program)
    verify(program)


BROKEN = [
    # level, old, new, message, code
    ("traced", "h: f32[64@X,16@Y]", "h: f32[64@X,16]",
     "`dot_general` gives f32[64@X,16@Y], but the equation declares f32[64@X,16]", "result-type"),
    ("traced", "h: f32[64@X,16@Y]", "h: bf16[64@X,16@Y]", "`dot_general` gives f32", "result-type"),
    ("traced", "h: f32[64@X,16@Y]", "h: ~f32[64@X,16@Y]", "`dot_general` gives f32", "result-type"),
    ("traced", "h: f32[64@X,16@Y]", "h: f32[64@X,16@Y] on other", "`dot_general` ", "result-type"),
    ("traced", "neg c", "neg b", "`neg` gives f32[16,64]", "result-type"),
    ("traced", "mul h 2.0", "mul b 2.0", "`mul` gives f32[16,64], but", "result-type"),
    ("traced", "(((1,), (0,))", "(((0,), (0,))", "`dot_general` does not accept f32[64@X,4], "
     "f32[4,16@Y]: dot_general requires contracting dimensions to have the same shape",
     "bad-operands"),
    ("traced", "s: f32[64@X] = reduce_sum[axes=(1,)] x",
     "i, k: f32[64@X] = reduce_sum[axes=(1,)] x".replace("i, k", "i: f32[64@X], q"),
     "`reduce_sum` has one result, not 2", "result-count"),
    ("traced", "s: f32[64@X] = reduce_sum[axes=(1,)] x",
     "s: f32[64@X] = psum_invariant[axes=('X',)] x",
     "`psum_invariant` exchanges along axis X, which is no Manual axis", "collective-axis"),
    ("traced", "sin a", "cos a\n      c: f32[4] = sin a", "`sin` gives f32[64@X,4]", "result-type"),
    ("resolved", "h: f32[64@Y,32@X]", "h: f32[64@Y,30@X]", "`dot_general` gives float32[64, 32], "
     "but the equation declares f32[64@Y,30@X]", "result-type"),
    ("resolved", "a: f32[64,32]", "a: f32[64,32] on ()", None, None),
    ("resolved", "mesh (X=2, Y=4)", "mesh (X=2, Y=4 auto)\nmesh e = (X=2, Y=4)",
     "after propagation no axis is Auto", "mesh-axes"),
    ("resolved", "level resolved", "mesh e = (X=2, Y=4 manual)\nlevel resolved", None, None),
    ("resolved", "c: f32[64@Y:(1)2,32]", "c: f32[64,32] on e", "f32[64,32] is on the mesh",
     "mesh-mismatch"),
    ("resharded", "h: f32[64@X,32]{U:Y}", "h: f32[64@X,32]",
     "the result of `dot_general` is a pending sum over ['Y'], but the equation declares "
     "f32[64@X,32]", "unreduced-result"),
    ("resharded", "h: f32[64@X,32]{U:Y}", "h: f32[64,32]{U:Y}",
     "`dot_general`: operand 0 and result 0 do not agree on the axes of factor i", None),
    ("resharded", "w: f32[16@Y,32]", "w: f32[16,32]",
     "`dot_general`: operand 0 and operand 1 do not agree on the axes of factor", None),
    ("resharded", "r: f32[64@X,32]", "r: f32[64@X,32@Y]", "`reshard` to P('X', None) gives", None),
    ("resharded", "n: f32[64@X,32]{U:Y} = neg h", "n: f32[64@X,32]{U:Y} = sin h",
     "`sin` does not accept f32[64@X,32]{U:Y}: unreduced rule for sin is not implemented", None),
    ("resharded", "m: f32[64@X,32]", "o: f32[64@X,32]{U:Y} = neg r\n  m: f32[64@X,32]",
     "the result of `neg` is a pending sum over no axes", "unreduced-result"),
    ("resharded", "m: f32[64@X,32]", "o: f32[64@X,32]{U:Y} = add n r\n  m: f32[64@X,32]",
     "`add` does not accept f32[64@X,32]{U:Y}, f32[64@X,32]", "bad-operands"),
    ("resharded", "m: f32[64@X,32]", "o: f32[64@X,32]{U:Y} = mul n n\n  m: f32[64@X,32]",
     "`mul` does not accept f32[64@X,32]{U:Y}, f32[64@X,32]{U:Y}", "bad-operands"),
    ("resharded", "m: f32[64@X,32]", "o: f32[64,32] = neg r\n  m: f32[64@X,32]",
     "`neg`: operand 0 and result 0 do not agree on the axes of factor", "factor-conflict"),
    ("resharded", "m: f32[64@X,32]", "o: f32[64@X,32] = add r w\n  m: f32[64@X,32]",
     "`add` does not accept f32[64@X,32], f32[16@Y,32]", "bad-operands"),
    ("resharded", "m: f32[64@X,32]", "o: f32[64@X,30] = neg r\n  m: f32[64@X,32]",
     "`neg` gives float32[64, 32], but the equation declares f32[64@X,30]", "result-type"),
    ("resharded", "e: f32[2@X,32,16@Y]", "e: f32[2,32@X,16@Y]", "`reshape`: operand 0 and result 0"
     " do not agree on the axes of factor", "factor-conflict"),
    ("resharded", "t: f32[64@X] = reduce_max[axes=(1,)] x",
     "t: f32[64@X,16@Y] = sort[dimension=1, is_stable=True, num_keys=1] x",
     "`sort` cannot run with factor", "factor-kind"),
    ("local", "r: f32[32,32]{V:X}", "r: f32[32,32]{V:(X,Y)}",
     "`psum_invariant` gives f32[32,32]{V:X}, but the equation declares f32[32,32]{V:(X,Y)}",
     "result-type"),
    ("local", "axes=('Y',)", "axes=('Z',)", "`psum_invariant` exchanges along axis Z", None),
    ("local", "h: f32[32,32]{V:(X,Y)}", "h: f32[32,32]{V:X}", "`dot_general` gives f32[32", None),
    ("local", "  m: f32", "  o: f32[32,32]{V:(X,Y)} = neg r\n  m: f32",
     "`neg` gives f32[32,32]{V:X}, but", "result-type"),
    ("local", "  m: f32", "  o: bf16[32,32]{V:X} = neg r\n  m: f32",
     "`neg` gives f32[32,32]{V:X}, but", "result-type"),
    ("local", "  m: f32", "  o: f32[16,32]{V:X} = neg r\n  m: f32",
     "`neg` gives f32[32,32]{V:X}, but", "result-type"),
    ("local", "  m: f32", "  o: ~f32[32,32]{V:X} = neg r\n  m: f32",
     "`neg` gives f32[32,32]{V:X}, but", "result-type"),
    ("local", "mul r 2.0:~f32[]", "reshard[dst_sharding=None] r",
     "`reshard` cannot stand in a program of level local", "op-not-at-level"),
    ("local", "x: f32[32,4]{V:(X,Y)}", "x: f32[32,4]{V:X}",
     "parameter 0 is f32[32,4]{V:X}, but the blocks of f32[64@X,16@Y] differ over X, Y axes", None),
    ("local", "<- f32[64@X,16@Y]", "<- f32[64@X,32@Y]", "parameter 0 is a block f32[32,4]", None),
    ("local", "=> f32[64@X,32]", "=> f32[32,32]",
     "result 0 is f32[32,32]{V:X}, but the blocks of f32[32,32] differ over no axes", None),
    ("local", "mesh (X=2 manual, Y=4 manual)", "mesh (X=2 manual, Y=4)", None, None),
]


@rows("level, old, new, message, code", [
    row for row in BROKEN if row[3] is not None])
def test_a_broken_promise_is_named(level, old, new, message, code):
    text = TEXTS[level]
    if "on e" in new:
        text = text.replace("level resolved", "mesh e = (X=2, Y=4 manual)\nlevel resolved")
    assert old in text
    program = parse_program(text.replace(old, new, 1))
    with pytest.raises(VerificationError) as caught:
        verify(program)
    assert str(caught.value).startswith(message), str(caught.value)
    assert code is None or caught.value.diagnostic.code == code


def test_the_error_shows_the_users_line_and_the_equation_among_its_neighbours(
        tmp_path, monkeypatch):
    source = tmp_path / "train.py"
    monkeypatch.chdir(tmp_path)                 # a text may tell of files here
    source.write_text("\n" * 8 + "    h = x @ w\n")
    text = TRACED.replace("h: f32[64@X,16@Y]", "h: f32[64@X,16]")
    program = parse_program(text + f'file train.py = "{source}"\n')
    with pytest.raises(VerificationError) as caught:
        verify(program)
    assert str(caught.value) == f"""\
`dot_general` gives f32[64@X,16@Y], but the equation declares f32[64@X,16]
 --> train.py:9:9 in `layer`
  |
9 |     h = x @ w
  |         ^^^^^^ gives f32[64@X,16@Y]
  |
  = note: in program `layer`:
          > 0  h: f32[64@X,16] = {DOT} x w
            1  t: f32[64,16] = transpose[permutation=(1, 0)] b
            2  s: f32[64@X] = reduce_sum[axes=(1,)] x"""


# -- what text cannot say --------------------------------------------------------------------------

MESH = AbstractMesh((2, 4), ("X", "Y"), (AxisType.Explicit,) * 2)
F4 = array_type((4,), "float32")


def neg(x, y, op="neg", **params):
    return Equation(OPS[op], [x], [y], params, Location.at("t.py", 1))


def rejected(program, message):
    with pytest.raises(VerificationError, match=message) as caught:
        verify(program)
    return str(caught.value)


def test_an_operand_must_be_bound_before_it_is_used():
    x, y, z = (Var(F4, n) for n in "xyz")
    text = rejected(Program("f", [x], [neg(y, z), neg(x, y)], [z]), "used before it is bound")
    assert "> 0  z: f32[4] = neg y" in text


def test_a_variable_is_bound_once():
    x, y = Var(F4, "x"), Var(F4, "y")
    rejected(Program("f", [x], [neg(x, y), neg(x, y)], [y]), "`y` is bound twice")
    rejected(Program("f", [x], [neg(y, x)], [x], consts=[(y, np.zeros(4, np.float32))]),
             "`x` is bound twice")
    rejected(Program("f", [x, x], [], [x]), "`x` is bound twice")


def test_results_must_be_bound():
    x, y = Var(F4, "x"), Var(F4, "y")
    assert ">    return x, unbound_y" in rejected(
        Program("f", [x], [neg(x, Var(F4))], [x, y]), "result 1, `y`, is not bound")
    rejected(Program("f", [], [], [y]), "result 0")


def test_params_must_be_hashable():
    x, y = Var(F4, "x"), Var(F4, "y")
    rejected(Program("f", [x], [neg(x, y, axes=[0])], [y]), r"param axes of `neg` cannot be hashed")


def test_literals_are_scalars_of_their_type():
    y = Var(array_type((), "float32"), "y")
    f32 = array_type((), "float32")
    verify(Program("f", [], [neg(Literal(np.float32(1), f32), y)], [y]))
    rejected(Program("f", [], [neg(Literal(1.0, f32), y)], [y]), "is no numpy scalar of type f32")
    rejected(Program("f", [], [], [Literal(np.int32(1), f32)]), "is no numpy scalar of type f32")
    first, other = np.asarray(1, np.float32), np.asarray(1, np.int32)       # of one class
    rejected(Program("f", [], [neg(Literal(first, f32), y), neg(Literal(other, f32), Var(f32))],
                     [y]), "is no numpy scalar of type f32")


def test_constants_fit_their_types():
    x = Var(F4, "x")
    verify(Program("f", [], [], [x], consts=[(x, np.zeros(4, np.float32))]))
    for value in (np.zeros(5, np.float32), np.zeros(4, np.float64)):
        rejected(Program("f", [], [], [x], consts=[(x, value)]), "constant `x` of type f32")


def test_programs_in_params_are_verified_too():
    x, y, a, b = (Var(F4, n) for n in "xyab")
    body = Program("body", [a], [neg(b, Var(F4)), neg(a, b)], [b])
    text = rejected(Program("f", [x], [neg(x, y, "jit", jaxpr=body, name="body")], [y]),
                    "used before it is bound")
    assert "in program `body`" in text


def test_an_indivisible_type_cannot_be_written_at_all():
    with pytest.raises(ValueError, match="does not evenly divide"):
        parse_program("mesh (X=2)\nprogram @f(x: f32[3@X]) -> f32[3@X] {\n  return x\n}")


def test_ten_thousand_equations_need_no_recursion():
    x = value = Var(F4, "x")
    eqns = []
    for _ in range(10_000):
        y = Var(F4)
        eqns.append(neg(value, y))
        value = y
    verify(Program("f", [x], eqns, [value]))


def test_a_program_without_a_mesh_is_right_at_every_level():
    x, y = Var(F4, "x"), Var(F4, "y")
    for level in Level:
        verify(Program("f", [x], [neg(x, y)], [y], level=level))


@pytest.mark.parametrize("remade", [True, False])
def test_what_a_pass_changes_is_looked_at_where_the_program_before_was_sound(remade):
    x, y, z = Var(F4, "x"), Var(F4, "y"), Var(F4, "z")
    two = Literal(np.float32(2), array_type((), np.dtype(np.float32)))
    eqns = [neg(x, y), Equation(OPS["mul"], (y, two), (z,), {})]
    before = Program("f", [x], eqns, [z])
    verify(before)

    def after(**changes):
        made = before.replace(level=Level.RESOLVED, **changes)
        if remade:
            made = Program("f", made.invars, list(made.eqns), made.outvars, consts=made.consts,
                           mesh=made.mesh, level=made.level)
        return made

    verify(after(), before)
    wrong = Literal(2.0, F4)
    for broken, message in (
            (after(outvars=[Var(F4, "lost")]), "is not bound"),
            (after(invars=[]), "used before it is bound"),
            (after(invars=[x, y]), "bound twice"),
            (after(consts=[(y, np.zeros(4, np.float32))]), "bound twice"),
            (after(eqns=eqns[1:]), "used before it is bound"),
            (after(eqns=[*eqns, neg(x, y)]), "bound twice"),
            (after(eqns=[eqns[0], eqns[1].replace(invars=(y, wrong))]), "no numpy scalar")):
        with pytest.raises(VerificationError, match=message):
            verify(broken, before)
    auto = before.replace(level=Level.RESOLVED, mesh=AbstractMesh((2,), ("X",)))
    with pytest.raises(VerificationError, match="no axis is Auto"):
        verify(auto, before)


# -- axes of factors -------------------------------------------------------------------------------

AXES = AbstractMesh((2, 4, 8, 1), ("X", "Y", "Z", "one"), (AxisType.Explicit,) * 4)


@pytest.mark.parametrize(("axes", "sizes", "expected"), [
    ((), (4, 16), ((), ())),
    (("Y", "X"), (4, 16), ((("Y", 1, 4),), (("X", 1, 2),))),
    (("Z", "X"), (4, 16), ((("Z", 1, 4),), (("Z", 4, 2), ("X", 1, 2)))),
    (("X",), (4, 16), ((("X", 1, 2),), ())),
    (("Z",), (6, 16), None),
    (("Y:(1)2", "Y:(2)2"), (4,), ((("Y", 1, 4),),)),
    (("one", "X"), (4,), ((("X", 1, 2),),)),
    (("X",), (), None),
    (("one",), (), ()),
    (("Y",), (1, 8), ((), (("Y", 1, 4),))),
    (("Y",), (6,), ((("Y", 1, 4),),)),
])
def test_axes_of_a_dimension_are_told_apart_by_factor(axes, sizes, expected):
    assert factor_axes(axes, sizes, AXES) == expected


def test_sets_of_axes_have_one_form():
    assert canonical_axes({"Y"}, AXES) == canonical_axes({"Y:(1)2", "Y:(2)2", "one"}, AXES)
    assert canonical_axes({"Y:(1)2"}, AXES) != canonical_axes({"Y:(2)2"}, AXES)
    assert covered((("Y", 2, 2),), (("X", 1, 2), ("Y", 1, 4)))
    assert not covered((("Y", 1, 4),), (("Y", 2, 2),))
