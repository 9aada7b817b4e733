"""What a wrong text is answered with: the place, the mistake, and the way out."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from shardtrace.ir.diagnostics.errors import ProgramSyntaxError
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.text.parse import (
    load_program,
    parse_mesh,
    parse_params,
    parse_program,
    parse_type,
)

from ...rows import rows

TEXT = '''\
mesh (X=2, Y=4)

program @layer(x: f32[64@X,4], w: f32[64@X,4]) -> f32[4,64@X] {
  const c: f32[2] = [1.0, 2.0]
  h: f32[64@X,4] = mul x 2.0:f32[]        # train.py:9:9-14
  y: f32[4,64@X] = transpose[permutation=(1, 0)] h
  z: f32[8] = jit[name='f'] x
    jaxpr = @f(a: f32[64@X,4]) -> f32[8] {
      b: f32[8] = sin a
      return b
    }
  return y
}
'''

# What is written instead of what: line, column (from 1), message, and part of the rest.
MISTAKES = [
    ("mul x 2.0", "mull x 2.0", 5, 20, "no op is called `mull`", "did you mean `mul`?"),
    ("mul x 2.0", "mul xx 2.0", 5, 24, "no variable is called `xx`", "did you mean `x`?"),
    ("mul x 2.0", "mul y 2.0", 5, 24, "no variable is called `y`", "not bound before this line"),
    ("y: f32", "h: f32", 6, 3, "variable `h` is bound twice", "give this one another name"),
    ("w: f32", "x: f32", 3, 32, "variable `x` is bound twice", ""),
    ("const c", "const x", 4, 9, "variable `x` is bound twice", ""),
    ("b: f32[8]", "a: f32[8]", 9, 7, "variable `a` is bound twice", ""),
    ("sin a", "sin x", 9, 23, "no variable is called `x`", ""),
    ("h: f32[", "h: float32[", 5, 6, "no dtype is called `float32`", "write it `f32`"),
    ("h: f32[", "h: f23[", 5, 6, "no dtype is called `f23`", ""),
    ("h: f32[64@X", "h: f32[64@Z", 5, 13, "the mesh has no axis `Z`", "its axes are X, Y"),
    ("h: f32[64@X", "h: f32[64@x", 5, 13, "the mesh has no axis `x`", "its axes are X, Y"),
    ("h: f32[64@X,4]", "h: f32[64@X,4]{V:Y}", 5, 6, "a value varies over Manual axes only", ""),
    ("h: f32[64@X,4]", "h: f32[64@X,4]{W:Y}", 5, 18, "`W` names no set of axes", "V is varying"),
    ("h: f32[64@X,4]", "h: f32[63@X,4]", 5, 6, "Sharding spec ('X',) implies", ""),
    ("h: f32[64@X,4]", "h: f32[64@X,4@X]", 5, 6, "A single NamedSharding spec", ""),
    ("h: f32[64@X,4]", "h: f32[64@X,4] on m1", 5, 21, "no mesh is called `m1`", "in the heading"),
    ("h: f32[64@X,4]", "h", 5, 5, "the result of an equation needs its type", "name: f32[8,4]"),
    ("h: f32[64@X,4] =", "h: =", 5, 6, "a type is expected here", "a scalar `f32[]`"),
    ("h: f32[64@X,4] =", "h: f32 =", 5, 6, "a type is expected here", ""),
    ("2.0:f32[]", "2.0", 5, 26, "an operand is a name, or a literal", "`2.0:f32[]`"),
    ("2.0:f32[]", "two:f32[]", 5, 26, "`two` is no f32", ""),
    ("2.0:f32[]", "2.0:i32[]", 5, 26, "`2.0` is no i32", ""),
    ("2.0:f32[]", "300:i8[]", 5, 26, "`300` is no i8: 300 does not fit in i8", ""),
    ("2.0:f32[]", "x,", 5, 27, "an operand is a name, or a literal", "separated by spaces"),
    ("(1, 0)]", "(1, 0]", 6, 47, "unexpected `]`", "expected `)` or `,`"),
    ("(1, 0)]", "(1, 0)", 6, 29, "params begin with `[` but do not end", "close them"),
    ("permutation=(1, 0)", "a=1, a=2", 6, 35, "param `a` is given twice", ""),
    ("permutation=(1, 0)", "a=Foo.BAR", 6, 32, "no class of params is called `Foo`", ""),
    ("permutation=(1, 0)", "a=Level.FOO", 6, 38, "Level has no member `FOO`", ""),
    ("permutation=(1, 0)", "a=Foo(1)", 6, 32, "no class of params is called `Foo`", ""),
    ("permutation=(1, 0)", "a=foo", 6, 32, "no dtype is called `foo`", ""),
    ("permutation=(1, 0)", "a=@op(\"mull\")", 6, 36, "no op is called `mull`", "`mul`"),
    ("permutation=(1, 0)", "a=@foo(\"x\")", 6, 33, "cannot read `@foo(\"x\")`", "@python"),
    ("y: f32[4,64@X]", "y", 6, 7, "the result of an equation needs its type", "nested program"),
    ("permutation=(1, 0)", "a=sharding P('Z')", 6, 29, "Resource axis: Z", ""),
    ("  return y\n", "", 12, 1, "a program ends with `return`", "before `}`"),
    ("  return y\n}\n", "", 11, 6, "the text ends within a program", "close it"),
    ("  return y\n}\n", "  return y\n", 12, 11, "the text ends within a program", "with `}`"),
    ("  return y\n}", "  return y\n  k: f32[4] = sin y\n}", 13, 3, "`return` is the last line", ""),
    ("return y", "return h", 12, 10, "`h` is returned as f32[4,64@X], but is f32[64@X,4]", ""),
    ("return y", "return y, h", 12, 14, "2 results are returned where the heading of `layer`", ""),
    ("program @layer", "progam @layer", 3, 1, "a text begins with `mesh`, `level` or", ""),
    ("program @layer", "program layer", 3, 9, "unexpected `layer", "such as `@layer`"),
    ("X=2, Y=4", "X=2, X=4", 1, 12, "the mesh names axis `X` twice", ""),
    ("X=2, Y=4", "X=2 foo", 1, 11, "`foo` is no kind of axis", "auto or manual"),
    ("\n\nprogram", "\nlevel foo\nprogram", 2, 7, "no level is called `foo`", "levels are traced"),
    ("\n\nprogram", "\nlevel locl\nprogram", 2, 7, "no level is called", "did you mean `local`?"),
    ("[1.0, 2.0]", "[1.0]", 4, 21, "1 numbers for the type f32[2]", ""),
    ("[1.0, 2.0]", "[[1.0, 2.0]]", 4, 21, "the brackets do not fit the type f32[2]", ""),
    ("[1.0, 2.0]", "[1.0, a]", 4, 21, "could not convert string to float", ""),
    ("[1.0, 2.0]", 'zlib "xx"', 4, 26, "", ""),
    ("[1.0, 2.0]", "seed x", 4, 26, "a seed is a number, not x", ""),
    ("[1.0, 2.0]", 'npz "a.npz":c', 4, 25, "'a.npz' is to be read from the folder", ""),
    ("jaxpr = @f", "jaxpr.1 = @f", 8, 5, "blocks of `jaxpr` are numbered from 0", ""),
    ("jit[name='f']", "jit[name='f', jaxpr=3]", 8, 5, "this block has no place", "{...}"),
]


@rows("old, new, line, column, message, rest", MISTAKES)
def test_a_mistake_is_found_where_it_is(old, new, line, column, message, rest):
    assert old in TEXT
    text = TEXT.replace(old, new, 1)
    with pytest.raises(ProgramSyntaxError) as caught:
        parse_program(text, filename="<t>")
    error = caught.value
    first, place, *_ = str(error).split("\n")
    assert (error.line, error.column) == (line, column), str(error)
    assert first.startswith(message), str(error)
    assert rest in str(error)
    assert place.strip() == f"--> <t>:{line}:{column}"
    if line <= text.count("\n"):
        assert text.split("\n")[line - 1].strip() in str(error)


def test_the_line_is_shown_with_a_caret_and_a_way_out():
    with pytest.raises(ProgramSyntaxError) as caught:
        parse_program(TEXT.replace("transpose", "transpoze"))
    assert str(caught.value) == """\
no op is called `transpoze`
 --> <program>:6:20
  |
6 |   y: f32[4,64@X] = transpoze[permutation=(1, 0)] h
  |                    ^^^^^^^^^
  |
  = help: did you mean `transpose`?"""


def test_the_file_is_named(tmp_path):
    path = tmp_path / "layer.st"
    path.write_text(TEXT.replace("mul x", "mull x"))
    with pytest.raises(ProgramSyntaxError) as caught:
        load_program(path)
    assert caught.value.filename == str(path)
    assert "layer.st:5:20" in str(caught.value)


MESH = AbstractMesh((2, 4), ("X", "Y"), (AxisType.Explicit,) * 2)


@pytest.mark.parametrize(("read", "text", "column", "message"), [
    (parse_type, "f32[4", 6, "the text ends too early"),
    (parse_type, "f32[4@Z]", 7, "the mesh has no axis `Z`"),
    (parse_type, "[4]", 1, "unexpected `[4]`"),
    (parse_mesh, "(X=2", 5, "the text ends too early"),
    (parse_mesh, "(X)", 3, "unexpected `)`"),
    (parse_params, "[a=]", 4, "unexpected `]`"),
    (parse_params, "[a=1", 5, "the text ends too early"),
    (parse_params, "[a=1, a=2]", 7, "param `a` is given twice"),
])
def test_small_texts_have_the_same_errors(read, text, column, message):
    with pytest.raises(ProgramSyntaxError) as caught:
        read(text, MESH) if read is not parse_mesh else read(text)
    assert str(caught.value).startswith(message)
    assert caught.value.column == column


@given(some.text(max_size=60))
def test_no_text_crashes_the_parser(text):
    with pytest.raises(ProgramSyntaxError):
        parse_program("mesh (X=2)\n" + text)


@given(some.integers(0, len(TEXT) - 1), some.sampled_from("([{}])\"' =,:@#x1\n"))
def test_no_edit_crashes_the_parser(place, letter):
    for text in (TEXT[:place] + letter + TEXT[place:], TEXT[:place] + letter + TEXT[place + 1:],
                 TEXT[:place] + TEXT[place + 1:], TEXT[:place]):
        try:
            parse_program(text)
        except ProgramSyntaxError as error:
            assert error.line >= 1 and "-->" in str(error)


def test_after_an_error_the_parser_reads_on():
    with pytest.raises(ProgramSyntaxError):
        parse_program(TEXT.replace("mul x", "mull x"))
    assert len(parse_program(TEXT).eqns) == 3


def test_local_parameters_are_all_blocks_of_global_values_or_none():
    text = """mesh (X=2 manual)
level local

program @f(x: f32[4] <- f32[8@X], w: f32[4]) -> f32[4] {
  return x
}
"""
    with pytest.raises(ProgramSyntaxError, match="either all parameters"):
        parse_program(text)
