"""Programs that anybody may have written: how little their text can make its reader do."""
from __future__ import annotations

import os
import pickle
import re

import numpy as np
import pytest

import shardtrace as st
from shardtrace.cli.main import main
from shardtrace.ir.diagnostics.diagnostic import visible
from shardtrace.ir.text.parse import load_program
from shardtrace.ir.verify import verify

from ...mutants.corpus import corpus
from ...mutants.survey import survey
from ...rows import rows

PRINT = """mesh (X=1)
program @f(x: f32[2]) -> f32[2] {{
  debug_print[fmt={fmt!r}, in_tree=None, keywords=('x',), static_args=(), axes=()] x
  return x
}}
"""


@pytest.mark.parametrize("fmt", [
    "{x.__class__}", "{x.__class__.__init__.__globals__}", "{x.sharding}", "{x[0].__doc__}",
    "{x:1000000000}", "{x:{x}}", "{x!r:>1000000}", "{x:.99999}", "{x:>{x.shape[0]}}"])
def test_debug_prints_of_texts_look_up_arguments_only(fmt: str) -> None:
    with pytest.raises(st.errors.VerificationError, match="debug"):
        verify(st.parse_program(PRINT.format(fmt=fmt)))


@pytest.mark.parametrize("fmt", ["{x}", "{x!r:>20}", "{x.shape}", "{x[0]}", "{x.dtype} {{}}"])
def test_plain_fields_of_debug_prints_are_right(fmt: str) -> None:
    verify(st.parse_program(PRINT.format(fmt=fmt)))


def test_a_traced_debug_print_is_refused_where_it_is_written() -> None:
    with pytest.raises(ValueError, match="looks up more than an argument"):
        st.jit(lambda x: st.debug.print("{x.__class__}", x=x))(1.0)


TOLD = """mesh (X=1 manual)
level local
program @f(x: f32[2]) -> f32[2] {{
  y: f32[2] = neg x  # {place}
  return y
}}

file s.py = "{file}"
"""


def _line(file: str, folder, place: str = "s.py:1:1-4") -> str:
    (folder / "p.st").write_text(TOLD.format(file=file, place=place))
    program = load_program(folder / "p.st")
    return program.eqns[0].location.source_line()


def test_sources_are_read_under_the_folder_of_a_text_or_the_current_one_only(tmp_path, monkeypatch
                                                                             ) -> None:
    inside, outside, here = tmp_path / "in", tmp_path / "out", tmp_path / "here"
    for folder in (inside, outside, here):
        folder.mkdir()
        (folder / "s.py").write_text("the source\n")
    monkeypatch.chdir(here)
    assert _line(str(inside / "s.py"), inside) == "the source"
    assert _line(str(here / "s.py"), inside) == "the source"
    assert _line(str(outside / "s.py"), inside) == ""
    assert _line("/etc/passwd", inside) == ""
    (inside / "link.py").symlink_to(outside / "s.py")
    assert _line(str(inside / "link.py"), inside) == ""
    os.mkfifo(inside / "pipe.py")
    assert _line(str(inside / "pipe.py"), inside) == ""
    assert _line("/dev/zero", inside) == ""


def test_columns_beyond_a_line_are_clipped(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").write_text("x = 1\n")
    (tmp_path / "p.st").write_text(
        TOLD.format(file="s.py", place="s.py:1:900000000-999999999").replace("neg x", "neg x x"))
    assert main(["show", "p.st"]) != 0
    assert len(capsys.readouterr().err) < 4_000


def test_control_characters_of_a_text_are_shown_escaped(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.py").write_text("x = '\x1b]0;title\x07' \x9b \u202e\n")
    text = TOLD.format(file="s.py", place="s.py:1:1-4").replace(
        "@f", '@"\\x1b[2J"').replace("  return", "  # \x1b[31m\n  return")
    (tmp_path / "p.st").write_text(text)
    (tmp_path / "bad.st").write_text(text.replace("neg x", "neg x x"))
    (tmp_path / "worse.st").write_text(text.replace("neg x", "neg \x1b[2J"))
    for name in ("p.st", "bad.st", "worse.st"):
        for command in ("show", "explain", "run", "partition", "fmt"):
            main([command, name])
            said = capsys.readouterr()
            for character in said.out + said.err:
                assert character in "\n\t" or character.isprintable(), (command, name)


def test_text_that_can_be_printed_stays() -> None:
    assert visible("é \t\n 漢 \\x") == "é \t\n 漢 \\x" and visible("\x1b\u202e") == "\\x1b\\u202e"


# -- texts that no program has ---------------------------------------------------------------------

def _with(params: str) -> str:
    return f"program @f(x: f32[2]) -> f32[2] {{\n y: f32[2] = reshape[{params}] x\n return y\n}}\n"


CONST = "program @f() -> {0} {{\n  const c: {0} = {1}\n  return c\n}}\n"


@rows("text", [
    _with("new_sizes=" + "(" * 1000 + "2," + ")" * 1000),
    _with("new_sizes=" + "(" * 100_000 + "2," + ")" * 100_000),
    _with("new_sizes=('\\xz',)"), _with("new_sizes=('\\N{no name}',)"),
    _with("new_sizes=(" + "9" * 10_000 + ",)"), _with("new_sizes=" + "1," * 300_000),
    "mesh (X=0)\n" + _with("new_sizes=(2,)"), "mesh (X=-1)\n" + _with("new_sizes=(2,)"),
    f"mesh (X={2**62}, Y={2**62})\n" + _with("new_sizes=(2,)"),
    CONST.format("f32[-1]", "full 0"), CONST.format(f"f32[{2**64}]", "full 0"),
    CONST.format(f"f32[{2**62},{2**62}]", "full 0"), CONST.format("f32[2]", "seed -7"),
    CONST.format(f"f32[{2**40}]", "zlib 'abc'"), CONST.format("f32[2]", "npz '../x.npz':c"),
    CONST.format("i32[2]", f"[{'9' * 5000}, 1]"), "x" * 1_000_000, "(" * 1_000_000, '"' * 99_999,
    _with("new_sizes=(2,)") + 'file x = "\\x"\n', "program @" + "f(" * 1000])
def test_what_is_no_program_is_refused_with_its_place_in_few_words(text: str) -> None:
    with pytest.raises(st.errors.ProgramSyntaxError) as refused:
        verify(st.parse_program(text))
    assert refused.value.line >= 1 and len(str(refused.value)) < 6_000


def test_bytes_that_are_no_text_are_named_with_their_line(tmp_path) -> None:
    (tmp_path / "p.st").write_bytes(b"# one\n# two \xff\n")
    with pytest.raises(st.errors.ProgramSyntaxError, match="0xff") as refused:
        load_program(tmp_path / "p.st")
    assert (refused.value.line, refused.value.column) == (2, 7)


def test_a_byte_order_mark_is_no_part_of_a_program(tmp_path) -> None:
    text = CONST.format("f32[2]", "full 0.5")
    (tmp_path / "p.st").write_text(text, encoding="utf-8-sig")
    assert str(load_program(tmp_path / "p.st")) == str(st.parse_program("\ufeff" + text))


def test_a_value_larger_than_memory_is_refused_when_the_program_runs(tmp_path, capsys) -> None:
    (tmp_path / "p.st").write_text(
        f"program @f(x: f32[{2**50}]) -> f32[{2**50}] {{\n  y: f32[{2**50}] = neg x\n  return y\n"
        "}\n")
    assert main(["run", str(tmp_path / "p.st")]) == 3
    assert "RESOURCE_EXHAUSTED" in capsys.readouterr().err


def test_a_value_of_more_dimensions_than_arrays_have_is_refused_when_it_runs(tmp_path, capsys
                                                                             ) -> None:
    wide = f"f32[{','.join(['1'] * 500)}]"
    (tmp_path / "p.st").write_text(
        f"program @f(x: {wide}) -> {wide} {{\n  y: {wide} = neg x\n  return y\n}}\n")
    assert main(["run", str(tmp_path / "p.st")]) == 3
    assert "has 500 dimensions, and an array 64 at most" in capsys.readouterr().err


def test_archives_of_arguments_hold_arrays_by_name(tmp_path, capsys) -> None:
    (tmp_path / "p.st").write_text(
        "program @f(x: f32[2]) -> f32[2] {\n  y: f32[2] = neg x\n  return y\n}\n")
    np.savez(tmp_path / "object.npz", x=np.array([{}], object))
    np.save(tmp_path / "one.npy", np.ones(2))
    (tmp_path / "junk.npz").write_bytes(b"PK\x03\x04junk")
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps([1]))
    (tmp_path / "empty.npz").write_bytes(b"")
    for name in ("object.npz", "one.npy", "junk.npz", "pickle.npz", "empty.npz", "none.npz"):
        assert main(["run", str(tmp_path / "p.st"), "--load", str(tmp_path / name)]) == 2
        assert name in capsys.readouterr().err.replace("\n  ", "")


@pytest.mark.parametrize(("name", "text"), [
    ("b.json", "[" * 100_000), ("b.toml", "a = " + "[" * 5_000), ("b.toml", "\x00"),
    ("b.json", '{"max_bytes": ' + "9" * 5_000 + "}"), ("b.json", '{"max_bytes": 1e999}'),
    ("b.json", '{"max_bytes": -' + "9" * 1_000 + "}"), ("b.toml", f'{"a" * 100_000} = 1')])
def test_budgets_of_strangers_are_refused_in_few_words(name: str, text: str, tmp_path, capsys
                                                       ) -> None:
    (tmp_path / "p.st").write_text(_with("new_sizes=(2,), dimensions=None, sharding=None"))
    (tmp_path / name).write_text(text)
    assert main(["check", str(tmp_path / "p.st"), "--budget", str(tmp_path / name)]) == 2
    assert name in (said := capsys.readouterr().err) and len(said) < 6_000


def test_a_budget_may_be_larger_than_any_float(tmp_path) -> None:
    (tmp_path / "p.st").write_text(_with("new_sizes=(2,), dimensions=None, sharding=None"))
    (tmp_path / "b.json").write_text('{"max_bytes": ' + "9" * 1_000 + "}")
    assert main(["check", str(tmp_path / "p.st"), "--budget", str(tmp_path / "b.json")]) == 0


def test_archives_hold_arrays_of_the_stated_size_and_no_pickles(tmp_path) -> None:
    np.savez(tmp_path / "a.npz", c=np.array([{"an": "object"}], object), d=np.zeros(1 << 20, "u1"))
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 no archive")
    for where in ("'a.npz':c", "'a.npz':d", "'a.npz':e", "'pipe.npz':c", "'bad.npz':c"):
        (tmp_path / "p.st").write_text(CONST.format("f32[2]", f"npz {where}"))
        with pytest.raises(st.errors.ProgramSyntaxError):
            load_program(tmp_path / "p.st")


@rows("mesh, equation", [
    ("(X=2 manual)", "psum x"), ("(X=2 manual)", "psum[axes=('Y',)] x"), ("(X=2)", "add x"),
    ("(X=2 manual)", "ppermute[axis_name='X', perm=((0, 7),)] x"), ("(X=2)", "neg x x"),
    ("(X=2 manual)", "ppermute[axis_name='X', perm=(0, 1)] x"), ("(X=2)", "custom_vjp_call x"),
    ("(X=2)", "custom_jvp_call x"), ("(X=2)", "shard_map x"), ("(X=2)", "scan x"),
    ("(X=2)", "cond x x"), ("(X=2)", "mul x x x"), ("(X=2)", "add[nothing=1] x x x"),
    ("(X=2)", "reshard[dst_sharding=sharding P('nowhere')] x")])
def test_equations_that_lack_what_their_op_needs_are_refused_with_their_line(
        mesh: str, equation: str) -> None:
    text = (f"mesh {mesh}\nprogram @f(x: f32[2]) -> f32[2] {{\n"
            f"  y: f32[2] = {equation}\n  return y\n}}\n")
    with pytest.raises(st.errors.ShardtraceError) as refused:
        verify(st.parse_program(text, filename="p.st"))
    assert refused.value.diagnostic.location.line == 3


def test_mutants_of_programs_are_refused_or_run() -> None:
    counts, failures = survey(300, 20, [corpus()])
    assert not failures, "\n".join(next(iter(failures.values())))
    assert counts["ran alone"] and counts["refused"] and counts["invalid"]



# -- what a terminal sees --------------------------------------------------------------------------

MARKED = PRINT.format(fmt="\x1b[2J{x}").replace("@f", r'@"[/x] [red]\x1b[31m"').replace(
    "\n  return", "\n  y: f32[2] = exp x\n  return")


@pytest.mark.parametrize("words", [
    ("run",), ("run", "--profile", "--color", "always"), ("explain", "--table"),
    ("run", "--compare"), ("explain", "--color", "always"), ("reduce", "--error", "nothing"),
    ("diff", "p.st")])
def test_names_and_prints_of_a_text_are_neither_mark_up_nor_terminal_codes(
        words: tuple[str, ...], tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.st").write_text(MARKED)
    assert main([words[0], "p.st", *words[1:]]) in (0, 1)
    said = capsys.readouterr()
    shown = re.sub(r"\x1b\[[\d;]*m", "", said.out) if "always" in words else said.out
    assert "\x1b" not in shown + said.err and "\x1b[31m[bold" not in said.out
    if words[0] == "run":
        assert "\\x1b[2J[" in said.out


def test_bytes_that_are_no_text_are_named_by_fmt_too(tmp_path, capsys) -> None:
    (tmp_path / "p.st").write_bytes(b"# one\n# two \xff\n")
    assert main(["fmt", str(tmp_path / "p.st")]) == 2
    assert "byte 0xff" in capsys.readouterr().err


@pytest.mark.parametrize("axes", ["None", "7", "('X', None)", "((),)"])
def test_fmt_prints_collectives_that_are_not_right(axes: str, tmp_path) -> None:
    (tmp_path / "p.st").write_text(
        "mesh (X=2 manual)\nlevel local\nprogram @f(x: f32[2]) -> f32[2] {\n"
        f"  y: f32[2] = psum[axes={axes}] x\n  return y\n}}\n")
    assert main(["fmt", "--check", str(tmp_path / "p.st")]) in (0, 1)


def test_only_files_of_a_folder_are_formatted(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe.st")
    assert main(["fmt", str(tmp_path)]) == 0


def test_axes_may_be_numbers(tmp_path) -> None:
    (tmp_path / "p.st").write_text(
        "mesh (4=2)\nlevel resharded\nprogram @f(x: f32[4,6]) -> f32[4,6] {\n"
        "  y: f32[4,6] = erf_inv x\n  return y\n}\n")
    assert main(["explain", str(tmp_path / "p.st")]) == 0


@pytest.mark.parametrize("equation", [
    "roll[dimension=None, shift=1] x", "cummax[axis=0.5, reverse=False] x",
    "cummax[axis=0, reverse=2] x", f"roll[dimension=0, shift={2**70}] x",
    "transpose[permutation=(0, 'X')] x", "transpose[permutation=0] x"])
def test_params_of_another_class_than_the_op_declares_are_refused(equation: str) -> None:
    text = f"program @f(x: f32[2,2]) -> f32[2,2] {{\n  y: f32[2,2] = {equation}\n  return y\n}}\n"
    with pytest.raises(st.errors.VerificationError, match="of type|does not accept") as refused:
        verify(st.parse_program(text, filename="p.st"))
    assert refused.value.diagnostic.location.line == 2


@pytest.mark.parametrize("inside", ["integer_pow a b", "psum[axes=('X',)] a", "add a"])
def test_programs_in_any_param_are_verified(inside: str) -> None:
    text = ("mesh (X=2)\nprogram @f(x: f32[4,6], i: f32[]) -> f32[] {\n"
            "  y: f32[] = reduce[dimensions=(0, 1)] x i\n"
            "    jaxpr = mesh () level traced @sum(a: f32[], b: f32[]) -> f32[] {\n"
            f"      c: f32[] = {inside}\n      return c\n    }}\n  return y\n}}\n")
    with pytest.raises(st.errors.ShardtraceError):
        verify(st.parse_program(text, filename="p.st"))
