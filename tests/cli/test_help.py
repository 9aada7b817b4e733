"""`shardtrace help`: topics, commands, pages of errors; docs/ir.md is one of them."""
import re

import pytest

from shardtrace.cli.commands.help import FOLDER, TOPICS, error_classes, op_page
from shardtrace.ir.op import OPS
from shardtrace.ir.ops.communication.collective_kinds import KINDS as COLLECTIVES
from shardtrace.ir.ops.communication.variadic import VARIADIC
from shardtrace.ir.rules.factor import KINDS as KINDS_OF_FACTORS
from shardtrace.ir.rules.factor import REDUCERS
from shardtrace.ir.text.parse import parse_program
from shardtrace.report.warnings.warnings import KINDS

from ..paths import DOCS


@pytest.mark.parametrize("topic", [*TOPICS, "check", "help", *list(error_classes())[:3]])
def test_every_topic_has_a_page_that_fits(said, topic):
    status, out, _ = said("help", topic, "--width", "80")
    assert status == 0 and len(out.splitlines()) > 2
    assert all(len(line) <= 80 for line in out.splitlines())


def test_without_a_topic_it_lists_what_there_is(said):
    status, out, _ = said("help")
    assert status == 0 and all(name in out for name in (*TOPICS, "explain", "partition"))


def test_without_a_word_the_command_lists_what_it_does(said):
    status, out, _ = said()
    assert status == 2 and all(f"\n    {verb} " in out for verb in ("explain", "run", "help"))


def test_a_topic_that_there_is_not(said):
    status, _, err = said("help", "bugdets")
    assert status == 2 and "did you mean `budgets`?" in err


@pytest.mark.parametrize("page", ["ir.md", "rules.md", "warnings.md"])
def test_the_page_of_the_documentation_is_the_topic(page):
    assert (DOCS / page).read_text() == (FOLDER / page).read_text()


def test_every_op_has_a_page_with_its_rules(said):
    for name, op in OPS.items():
        page = op_page(name)
        assert page.startswith(f"{name}: ") and len(page.splitlines()) > 1, name
        assert op.doc in page
    assert said("help", "dot_general")[1].count("i k, k j -> i j | k:sum") == 1


def test_the_words_of_rules_are_told():
    told = {word for words, *_ in rows("rules.md", "word") for word in re.findall(r"`(\w+)", words)}
    assert told == {*KINDS_OF_FACTORS, *REDUCERS} - {"reduce"}


def rows(page, heading):
    """The rows of the table that begins with that heading, cells without blanks about them."""
    text = (FOLDER / page).read_text().partition(f"| {heading} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")]
            for line in text.splitlines()[2:]]


def test_every_kind_of_warning_is_told():
    assert [kind.strip("`") for kind, _, _ in rows("warnings.md", "kind")] == list(KINDS)


def test_every_collective_is_in_the_table_of_collectives():
    told = {(op, kind) for kind, ops, _ in rows("ir.md", "kind")
            for op in re.findall(r"`(\w+)`", ops)}
    declared = {(op.name, op.collective.kind) for op in OPS.values()
                if op.collective is not None and op.collective.kind in COLLECTIVES
                and op not in VARIADIC.values()}
    assert told == {*declared, ("retile", "all-to-all"),
                    ("retile", "collective-permute")}


def test_its_example_is_a_program():
    example = (FOLDER / "ir.md").read_text().split("```")[1]
    program = parse_program(example)
    assert program.name == "layer" and len(program.eqns) == 3


def test_dumps_point_to_it(said, write, tmp_path):
    path = write("""
@st.jit
def f(x):
    return x.sum(0)

f(put((64, 8), "X"))
""")
    said("partition", path, "--dump", tmp_path / "dumps")
    said("trace", path, "-o", tmp_path / "f.st")
    files = [*(tmp_path / "dumps").glob("*.st"), tmp_path / "f.st"]
    assert len(files) == 7
    for file in files:
        assert "# how to read this: shardtrace help ir\n" in file.read_text()
        assert said("show", file)[0] == 0
    _, out, _ = said("collectives", path)
    assert "all-reduce over X" in out and "psum" not in out
