"""Reasons as data: every sentence has a text that is read back as what it was."""
from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as some

from shardtrace.ir import reasons
from shardtrace.ir.reasons import (
    AS_XLA,
    ASKED_AT,
    ASKED_HERE,
    BRINGING,
    COUNT,
    EXCHANGES,
    EXCHANGING,
    HAS,
    LEAVES,
    LEAVES_RESULTS,
    MOVING,
    OVER,
    PADDED,
    RESULT,
    SAID,
    SUMMING,
    TAKES,
    Alternative,
    Clause,
    Sentence,
    operand,
    read_reason,
    reason_text,
)
from shardtrace.partitioner.reasons import padded_share, paddings, shown_reasons

from ..rows import rows

SENTENCES = {name: s for name, s in vars(reasons).items() if isinstance(s, Sentence)}
VALUES = {"op": ["dot_general", "add"], "d": [0, 3], "i": [1], "n": [5, 63], "size": [64],
          "tensor": [operand(0), operand(2), RESULT, RESULT._replace(number=1)],
          "axis": ["X"], "axes": ["X", "X, Y"], "over": ["whole", "over X", "over X, Y"],
          "wanted": ["whole", "over X, Y"], "inside": ["body needs", "branches need"],
          "turns": ["iterations", "branches"], "holding": ["giving", "carrying", "stacking"],
          "place": ["train.py:3:1"], "spec": ["P('X', None)", "P()", "P(('X', 'Y'),)"],
          "who": ["the frozen plan"], "which": ["the result", "result ['a']"],
          "text": ["w is whole over X"]}
ENDINGS = [None, ASKED_HERE(), ASKED_AT("train.py:3:1"), AS_XLA(),
           Alternative((BRINGING(operand(0), "P('X', None)"), MOVING(RESULT, "P()")), 4096, 1024),
           Alternative((EXCHANGING(),), 12, 0, "B"),
           Alternative((SUMMING(RESULT, "X, Y"),), 10, -5),
           Alternative((SUMMING(RESULT, "X, Y"),), -1661, -34048, "B")]


@some.composite
def clauses(draw):
    sentence = draw(some.sampled_from(list(SENTENCES.values())))
    values = [draw(some.sampled_from(VALUES[blank])) for blank in reasons.blanks(sentence)]
    because = ()
    if sentence in (TAKES, LEAVES, EXCHANGES):
        because = draw(some.sampled_from([(), (OVER(1, operand(0), "X, Y"),)]))
    return sentence(*values, because=because, ending=draw(some.sampled_from(ENDINGS)))._replace(
        place=draw(some.sampled_from(["", "layer.py:12:21"])))


@given(some.lists(clauses(), max_size=4))
def test_a_reason_reads_back_from_its_text(found: list[Clause]) -> None:
    assert read_reason(reason_text(tuple(found))) == tuple(found)


@rows("name", SENTENCES)
def test_each_sentence_reads_back(name: str) -> None:
    sentence = SENTENCES[name]
    clause = sentence(*[VALUES[blank][-1] for blank in reasons.blanks(sentence)])
    assert read_reason(str(clause)) == (clause,)
    assert read_reason(str(clause))[0].sentence is sentence
    assert copy.deepcopy(clause) == clause


@given(some.text(min_size=1))
def test_any_text_is_a_reason(text: str) -> None:
    assert reason_text(read_reason(text)) == text


def test_a_sentence_of_nobody_is_what_was_said() -> None:
    assert read_reason("w is whole; really") == (SAID("w is whole"), SAID("really"))
    assert read_reason("") == ()


def test_what_a_clause_is_because_of_is_read_clause_by_clause() -> None:
    text = ("`reduce_max` leaves partial results: dimension 0 of operand 0 is over X, Y, "
            "dimension 1 of operand 0 is over Z")
    assert read_reason(text) == (LEAVES_RESULTS("reduce_max", because=(
        OVER(0, operand(0), "X, Y"), OVER(1, operand(0), "Z"))),)


def test_tensors_can_have_other_names() -> None:
    clause = TAKES("add", 0, operand(1), "over X", because=(HAS(operand(0), 0, "over X"),))
    assert clause.in_words(lambda v: {operand(0): "`x`", operand(1): "`y`"}.get(v, str(v))) == (
        "`add` takes dimension 0 of `y` over X: `x` has dimension 0 over X")


def test_reasons_say_what_is_padding() -> None:
    reason = COUNT(63, 64, 0), COUNT(3, 4, 1), COUNT(63, 64, 2), PADDED(1, "add", 3, 4)
    assert padded_share(reason) == 1 - 63 / 64 * 3 / 4
    assert list(paddings(reason)) == [(1, 3, 4)]


def test_of_many_reasons_the_first_are_shown() -> None:
    many = [(SAID(f"reason {i}"), SAID("again")) for i in range(9)]
    assert reason_text(shown_reasons(many)) == (
        "reason 0; again; reason 1; reason 2; reason 3; reason 4; reason 5; reason 6; and 2 more")
