"""Reasons: why an equation exists that the user did not write.

A reason is a tuple of clauses. A clause is a sentence whose blanks have values, then what that is
because of, then the alternative, or where the user asked for it:

    LEAVES("dot_general", because=(OVER(1, operand(0), "X"),))

    `dot_general` leaves partial sums: dimension 1 of operand 0 is over X

The table below has every sentence, once, with what it means. Texts are written and read back from
this table alone: passes and reports ask clauses for their sentence, values and kind. What stands in
a program text and is no sentence of the table is a clause all the same, `SAID` with these words.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .support.caches import cached
from .support.lazy import lazy_pattern
from .support.named_tuple import NamedTuple

ASKED, NEEDED, CHOSEN = "asked", "needed", "chosen"


class Tensor(NamedTuple):
    """What a clause is about: an operand or result of its equation, or the value that is moved.
    number: -1 of the only result, and of the moved value.
    """
    role: str
    number: int = -1

    def __str__(self) -> str:
        return self.role if self.number < 0 else f"{self.role} {self.number}"


OPERAND = "operand"


def operand(i: int) -> Tensor:
    return Tensor(OPERAND, i)


RESULT = Tensor("its result")


def result(k: int, count: int) -> Tensor:
    """Result k of so many."""
    return RESULT if count == 1 else RESULT._replace(number=k)


MOVED = Tensor("this value")


class Sentence(NamedTuple):
    """A sentence of reasons. words: with blanks in braces, by the names of `_BLANKS`. kind: of an
    exchange that has no other reason. sums: it is about a sum. remark: it says something about an
    exchange that there is for other reasons. of_result: it is about the result of an equation.
    """
    words: str
    kind: str = NEEDED
    sums: bool = False
    remark: bool = False
    of_result: bool = False

    __hash__, __eq__ = object.__hash__, object.__eq__       # each is one of the table

    def __deepcopy__(self, memo: dict[int, Any]) -> Sentence:
        return self

    def __call__(self, *values: Any, because: tuple[Clause, ...] = (),
                 ending: Clause | Alternative | None = None) -> Clause:
        """The clause with these values, in the order of the blanks."""
        return Clause(self, values, because, ending)


class Clause(NamedTuple):
    """One reason. place: the line that it is of, where an equation stands for several."""
    sentence: Sentence
    values: tuple[Any, ...] = ()
    because: tuple[Clause, ...] = ()
    ending: Clause | Alternative | None = None
    place: str = ""

    @property
    def alternative(self) -> Alternative | None:
        """The best plan without the exchange, if it was chosen."""
        return self.ending if isinstance(self.ending, Alternative) else None

    @property
    def kind(self) -> str:
        """Was the exchange asked for, needed, or chosen?"""
        ending = self.ending
        if self.sentence.kind == ASKED or ending is None:
            return self.sentence.kind
        return CHOSEN if isinstance(ending, Alternative) else ending.sentence.kind

    @property
    def op(self) -> str:
        """The name of the op that the sentence begins with; "" if it begins with something else."""
        return self.values[0] if self.sentence.words.startswith("`{op}`") else ""

    @property
    def bare(self) -> Clause:
        """Without the alternative, and without the place where it was asked for."""
        return self if self.ending in (None, AS_XLA()) else self._replace(ending=None)

    def in_words(self, shown: Callable[[Any], str] = str) -> str:
        """The clause as text. shown: how to write a value."""
        words = self.sentence.words.format_map({blank: shown(value) for blank, value in zip(
            blanks(self.sentence), self.values, strict=True)})
        if self.because:
            words += ": " + ", ".join([c.in_words(shown) for c in self.because])
        if self.ending is not None:
            words += f", {self.ending.in_words(shown)}"
        return f"{words} ({self.place})" if self.place else words

    def __str__(self) -> str:
        return self.in_words()


Reason = tuple[Clause, ...]
"""Empty for what the user wrote."""


class Alternative(NamedTuple):
    """The best plan without an exchange.

    steps: what it does. price: of the part that differs, in the unit by which plans are judged
    (partitioner/cost/prices.py). saved: how much of that the chosen plan saves; negative if it pays
    off only later. unit: "ns" or "B".
    """
    steps: tuple[Clause, ...]
    price: int
    saved: int
    unit: str = "ns"

    @property
    def text(self) -> str:
        """What it does."""
        return self.does()

    def does(self, shown: Callable[[Any], str] = str) -> str:
        """What it does. shown: how to write a value."""
        return " and ".join([step.in_words(shown) for step in self.steps])

    def in_words(self, shown: Callable[[Any], str] = str) -> str:
        """How the chosen plan compares."""
        does, unit = self.does(shown), self.unit
        if self.saved > 0:
            return f"cheaper than {does} by {self.saved:,} of {self.price:,} {unit}"
        if self.saved < 0:
            return (f"better for what follows than {does}, which costs {self.price:,} {unit} here, "
                    f"not {self.price - self.saved:,} {unit}")
        return f"no more expensive than {does}: {self.price:,} {unit} either way"

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        if self.unit == "B":
            return {"text": self.text, "bytes": self.price, "saved_bytes": self.saved}
        return {"text": self.text, "seconds": self.price / 1e9, "saved_seconds": self.saved / 1e9}

    def __str__(self) -> str:
        return self.in_words()


# -- the table -------------------------------------------------------------------------------------

SAID = Sentence("{text}")

# The user, or what the user wrote, asked for it.
WRITTEN = Sentence("`{op}` is written here", ASKED)
WRITTEN_TO = Sentence("`{op}` to {spec} is written here", ASKED)
ONE_OF = Sentence("`{op}`", ASKED)              # of several that are written, and one exchange
RESULT_ASKED = Sentence("{which} is asked for as {spec}", ASKED)
TAKES_AS = Sentence("`{op}` takes {tensor} as {spec}", ASKED)
WANTS = Sentence("`{op}` wants its operands so", ASKED)
SAYS_SAME = Sentence("`{op}` says that result {i} is the same along {axes}", ASKED)
CLAIMS_SAME = Sentence("out_specs claim that this result is the same along {axes}", ASKED)
GIVES_ASKED = Sentence("`{op}` gives dimension {d} {over}, {tensor} is asked for {wanted}", ASKED,
                       of_result=True)
ASKS = Sentence("`{op}` asks for {spec}", ASKED)
OTHER_ASKS = Sentence("{who} asks for {spec}", ASKED)
FROZEN = Sentence("the frozen plan")

# An equation takes an operand otherwise than it is laid out. What is `needed` has no alternative.
NEEDS_SUM = Sentence("`{op}` needs the finished sum over {axes}", sums=True, remark=True)
TAKES_SUM = Sentence("`{op}` takes the finished sum over {axes}", sums=True, remark=True)
NEEDS = Sentence("`{op}` needs dimension {d} of {tensor} {over}")
TAKES = Sentence("`{op}` takes dimension {d} of {tensor} {over}")
NEEDS_OTHER = Sentence("`{op}` needs {tensor} in another layout")
TAKES_OTHER = Sentence("`{op}` takes {tensor} in another layout")
WORKS_ALONG = Sentence("it works along that dimension")
CONTIGUOUS = Sentence("a block of a merged or split dimension must be contiguous")
SPLITS = Sentence("{axis} splits dimension {d} of {tensor}")
HAS = Sentence("{tensor} has dimension {d} {over}")

# An equation gives a result otherwise than it is wanted.
LEAVES = Sentence("`{op}` leaves partial sums", sums=True, of_result=True)
LEAVES_RESULTS = Sentence("`{op}` leaves partial results", sums=True, of_result=True)
GIVES = Sentence("`{op}` gives dimension {d} {over}, {tensor} is laid out {wanted}",
                 of_result=True)
GIVES_SO = Sentence("`{op}` gives its result so", of_result=True)
PENDING = Sentence("the result of `{op}` is a pending sum by its type")
DECIDED = Sentence("the type of this result is decided")
LEAVES_SO = Sentence("the result leaves `shard_map` in this layout")
SPLITS_FURTHER = Sentence("the planner, which splits {which} further")
CAPTURED = Sentence("the uses of this captured array want blocks of it")

# An equation exchanges something itself.
EXCHANGES = Sentence("`{op}` puts its blocks together")
OVER = Sentence("dimension {d} of {tensor} is over {axes}")
SOMEWHERE_OVER = Sentence("a dimension is over {axes}")
NO_CASE = Sentence("XLA's partitioner has no case for `{op}`")

# Loops and branches.
KEEPS = Sentence("`{op}` keeps {tensor} in one layout")
SLICES = Sentence("`{op}` takes its slices so")
HOLDS = Sentence("`{op}` holds this value as its {inside} it")
CARRIES = Sentence("`{op}` carries this sum and finishes it at its end")
CARRIED = Sentence("the sum that the loop carries is needed in its body")
WAITS = Sentence("the sum that a loop carries waits")
RUNS_BEFORE = Sentence("`{op}` runs before the reshard of another operand")

# What is more to say of an exchange.
SAME_IN_ALL = Sentence("the same in every iteration of `{op}`", remark=True)
FINISHED_ONCE = Sentence("finished once for all {turns} of `{op}`", remark=True)
ONE_SENDS = Sentence("one device sends all that is read", remark=True)
PADDED = Sentence("dimension {d} of `{op}` has {n} rows, padded to {size}", remark=True)
COUNT = Sentence("{n} of {size} rows of dimension {d} count", remark=True)
MORE = Sentence("and more", remark=True)
AND_MORE = Sentence("and {n} more", remark=True)
OPEN = Sentence("?{n}")                         # given once all is known (resharding/open_reasons)

# Endings.
ASKED_HERE = Sentence("asked for here", ASKED)
ASKED_SO = Sentence("as asked for", ASKED)
ASKED_AT = Sentence("asked for at {place}", ASKED)
AS_XLA = Sentence("as in XLA")

# The steps of alternatives.
BRINGING = Sentence("bringing {tensor} to {spec}")
PASSING_ON = Sentence("passing on the sum over {axes}")
EXCHANGING = Sentence("exchanging blocks")
SUMMING = Sentence("summing {tensor} over {axes}")
MOVING = Sentence("moving {tensor} from {spec}")
REPEATING = Sentence("computing it alike over {axes}")
NO_EXCHANGE = Sentence("no exchange at all")
HOLDING = Sentence("{holding} it as {spec}")


def asks(who: str, spec: str) -> Clause:
    """The clause that somebody, in words, asks for a layout."""
    name = who.strip("`")
    return ASKS(name, spec) if who == f"`{name}`" else OTHER_ASKS(who, spec)


# -- texts -----------------------------------------------------------------------------------------

def reason_text(reason: Reason) -> str:
    """A reason in words; `read_reason` gives an equal one."""
    return "; ".join(map(str, reason))


def read_reason(text: str) -> Reason:
    """The reason with this text."""
    return tuple(map(_read_clause, text.split("; "))) if text else ()


_SENTENCES = [s for s in globals().values() if isinstance(s, Sentence) and s is not SAID]
_ANY = r"(?:(?!: ).)+"          # a colon and a space end the sentence
_TENSOR = r"operand \d+|its result(?: \d+)?|this value"
_BLANKS = {"op": r"[^`]*", "d": r"\d+", "i": r"\d+", "n": r"\d+", "size": r"\d+",
           "tensor": _TENSOR, "axis": r"\S+", "over": f"whole|over {_ANY}",
           "wanted": f"whole|over {_ANY}", "inside": "body needs|branches need",
           "turns": "iterations|branches", "holding": "giving|carrying|stacking",
           "place": r"\S+:\d+:\d+"}                   # others: any text
_PLACE = lazy_pattern(r"(.*) \(([^()]*:\d+:\d+)\)")
_ENDING = lazy_pattern(r"(.*), (asked for here|as asked for|asked for at \S+:\d+:\d+|as in XLA)")
_ALTERNATIVE = lazy_pattern(
    r"(.*?), (?:no more expensive than (.+?): ([\d,]+) (B|ns) either way|"
    r"cheaper than (.+?) by ([\d,]+) of ([\d,]+) (B|ns)|better for what follows than (.+?), "
    r"which costs (-?[\d,]+) (B|ns) here, not (-?[\d,]+) (?:B|ns))")
_NEXT = lazy_pattern(r", (?=dimension \d|a dimension is )")


@cached(256)
def blanks(sentence: Sentence) -> tuple[str, ...]:
    """The names of the blanks of a sentence."""
    return tuple(re.findall(r"{(\w+)}", sentence.words))


@cached(256)
def _pattern(sentence: Sentence) -> re.Pattern[str]:
    """The pattern of a sentence."""
    parts = re.split(r"{(\w+)}", sentence.words)
    return re.compile("".join([f"({_BLANKS.get(part, _ANY)})" if i % 2 else re.escape(part)
                               for i, part in enumerate(parts)]))


@cached(4096)
def _read_clause(text: str) -> Clause:
    """The clause with this text."""
    rest, place, ending = text, "", None
    if found := _PLACE.fullmatch(rest):
        rest, place = found.groups()
    if found := _ALTERNATIVE.fullmatch(rest):
        rest, ending = found[1], _alternative(found)
    elif found := _ENDING.fullmatch(rest):
        rest, ending = found[1], _sentence(found[2])
    because: tuple[Clause, ...] = ()
    clause = _sentence(rest)
    if clause is None and ": " in rest:
        first, _, tail = rest.partition(": ")
        clause, causes = _sentence(first), list(map(_sentence, _NEXT.split(tail)))
        because = tuple([c for c in causes if c is not None])
    clause = (clause or SAID(rest))._replace(because=because, ending=ending, place=place)
    return clause if str(clause) == text else SAID(text)


def _sentence(text: str) -> Clause | None:
    """The clause that is a sentence with values, and nothing more."""
    for sentence in _SENTENCES:
        found = _pattern(sentence).fullmatch(text)
        if found is not None:
            return sentence(*[_value(blank, value) for blank, value in zip(
                blanks(sentence), found.groups(), strict=True)])
    return None


def _value(blank: str, text: str) -> Any:
    if blank == "tensor":
        role, _, number = text.rpartition(" ")
        return Tensor(role, int(number)) if number.isdigit() else Tensor(text)
    return int(text) if _BLANKS.get(blank) == r"\d+" else text


def _alternative(found: re.Match[str]) -> Alternative:
    does = found[2] or found[5] or found[9]
    steps = tuple([_sentence(step) or SAID(step) for step in does.split(" and ")])
    price, saved = [int((n or "0").replace(",", "")) for n in (
        found[3] or found[7] or found[10], found[6])]
    if found[9]:
        saved = price - int(found[12].replace(",", ""))
    return Alternative(steps, price, saved, found[4] or found[8] or found[11])
