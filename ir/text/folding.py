"""Line breaking: where the text of a program may be broken, and how comments continue.

A line is broken where the parser still reads it as one: within brackets, after `=` and the commas
of results, before `<-` and `=>`; between operands a backslash ends the line. Continuations are
indented by four. Breaks are made at the outermost level that suffices, so that related parts stay
together. What cannot be broken, such as a string, may exceed the width.

A continued comment begins with three spaces; the reason of an equation has lines of its own:

    b: f32[4,32]{V:data} = psum_invariant[axes=('model',)] a  # layer.py:12:21-25
        # because `dot_general` leaves partial sums: dimension 1 of operand 0
        #   is over model
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..support.lazy import lazy_pattern

WIDTH = 100              # of texts in files, and of those that `str` gives
DEEPER = "    "          # before what goes on

_TOKEN = lazy_pattern(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[\[({]|[\])}]|, | = | <- | => | """)
_BLANK = lazy_pattern(r"(?<! ) (?! )")
_GOES_ON = "#   "
_BECAUSE = "because "


class _Part(NamedTuple):
    """A part of a line. The line may be broken before its text; the broken line then ends in
    `ending`.
    """

    text: str
    depth: int           # of brackets around the break
    ending: str


def fold(text: str, indent: str, width: int, blank: str | None = None) -> list[str]:
    """A line of code as lines of at most `width`. blank: see `foldings`."""
    return min(foldings(text, indent, width, blank), key=len)


def foldings(text: str, indent: str, width: int, blank: str | None = None) -> list[list[str]]:
    """The ways to fold a line, the best first.

    blank: what a break between two words leaves (` \\` between operands); None: none is made.
    """
    if len(indent) + len(text) <= width:
        return [[indent + text]]
    deep = indent + DEEPER
    found = []
    before, equals, after = text.partition(" = ")
    if equals and max(len(indent) + len(before) + 2, len(deep) + len(after)) <= width:
        found.append([f"{indent}{before} =", deep + after])
    pieces = list(_parts(text, blank))
    for outer in (0, 1):                           # brackets around breaks that are as good as any
        lines = [indent]
        _fill(lines, [p._replace(depth=max(0, p.depth - outer)) for p in pieces], deep, width)
        lines[-1] = lines[-1].rstrip()
        found.append(lines)
    return found


def _fill(lines: list[str], pieces: Sequence[_Part], deep: str, width: int, ending: str = "",
          next_ending: str = "") -> None:
    """Add pieces to the last line, or begin new ones.

    ending, next_ending: what a break before the first piece, and one after the last, leaves.
    """
    outermost = min(p.depth for p in pieces[1:]) if len(pieces) > 1 else 0
    groups: list[list[_Part]] = []
    for i, piece in enumerate(pieces):
        if i == 0 or piece.depth == outermost:
            groups.append([])
        groups[-1].append(piece)
    for i, group in enumerate(groups):
        text = "".join([p.text for p in group])
        left = group[0].ending if i else ending
        following = groups[i + 1][0].ending if i + 1 < len(groups) else next_ending
        room = width - len(following)
        if len(lines[-1]) + len(text.rstrip()) <= room or lines[-1].isspace() and len(group) == 1:
            lines[-1] += text
        elif len(deep) + len(text.rstrip()) <= room or len(group) == 1:
            _break(lines, left)
            lines.append(deep + text)
        else:
            first = len(group[0].text.rstrip())
            if not lines[-1].isspace() and len(lines[-1]) + first > room:
                _break(lines, left)
                lines.append(deep)
            _fill(lines, group, deep, width, left, following)


def _break(lines: list[str], ending: str) -> None:
    lines[-1] = lines[-1].rstrip() + ending


def _parts(text: str, blank: str | None) -> Iterator[_Part]:
    """The parts of a line between the places where it may be broken."""
    opened: list[str] = []
    start, depth, ending = 0, 0, ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in ("[", "(", "{"):
            opened.append(token)
            continue
        if token in ("]", ")", "}"):
            if opened:
                opened.pop()
            continue
        end, left = match.end(), ""
        if token == ", ":
            if opened == ["{"]:                # the state of a type is one word
                continue
        elif token == " = ":
            if opened:
                continue
        elif token in (" <- ", " => "):
            end = match.start() + 1
        elif (token == " " and blank is not None and not opened
              and not text.startswith("on ", end) and not text.endswith(" on ", 0, end)
              and not (blank and text[end - 2] == ":")):
            left = blank
        else:
            continue
        yield _Part(text[start:end], depth, ending)
        start, depth, ending = end, len(opened), left
    yield _Part(text[start:], depth, ending)


def fold_constant(head: str, text: str, indent: str, width: int) -> list[str]:
    """The lines of a constant; a long string becomes several, which are read as one."""
    line = f"{head} {text}"
    if len(indent) + len(line) <= width or '"' not in text:
        return fold(line, indent, width)
    word, _, string = text.partition(' "')
    room = width - len(indent) - len(DEEPER) - 4
    if word != "zlib" or room <= 0:
        return [f"{indent}{head}", indent + DEEPER + text]
    string = string[:-1]
    parts = [f'{indent}{DEEPER}"{string[i:i + room]}"' for i in range(0, len(string), room)]
    return [f"{indent}{head} {word}", *(f"{part} \\" for part in parts[:-1]), parts[-1]]


# -- comments --------------------------------------------------------------------------------------

def fold_comment(text: str, indent: str, width: int) -> list[str]:
    """A comment as lines of at most `width`; those after the first say that they go on."""
    lines = []
    start, mark = 0, "# "
    room = width - len(indent)
    while len(mark) + len(text) - start > room:
        places = [m.start() for m in _BLANK.finditer(text, start + 1)]
        fitting = [p for p in places if len(mark) + p - start <= room]
        cut = fitting[-1] if fitting else places[0] if places else None
        if cut is None:
            break
        lines.append(f"{indent}{mark}{text[start:cut]}")
        start, mark = cut + 1, _GOES_ON
    return [*lines, f"{indent}{mark}{text[start:]}"]


def with_remark(folded: Sequence[list[str]], place: str, reason: str, column: int, width: int
                ) -> list[str]:
    """The lines of an equation with its comment: the place beside it if it fits, the reason below.

    folded: the ways to write the equation; the first that takes the fewest lines is chosen.
    column: where comments beside equations begin, if they can.
    """
    first = folded[0][0]
    deep = first[:len(first) - len(first.lstrip())] + DEEPER
    room = width - len(place) - 2                  # for the equation, and `# `
    lines = folded[0]
    if place:
        beside = [way for way in folded if len(way[-1]) + 2 <= room]
        if beside and len(min(beside, key=len)) <= len(lines):
            *lines, last = min(beside, key=len)
            lines = [*lines, f"{last.ljust(max(len(last) + 2, min(column, room)))}# {place}"]
        else:
            lines = lines + fold_comment(place, deep, width)
    return lines + fold_comment(_BECAUSE + reason, deep, width) if reason else lines


def unfold_comment(lines: Sequence[str]) -> tuple[str, int]:
    """The comment of an equation as one, and how many of the lines it takes.

    lines: the comment beside the equation, or "", and the lines of nothing but comments below it.
    """
    text, count = lines[0].strip(), 1
    for line in lines[1:]:
        line = line.strip()
        if line.startswith(_GOES_ON) and text:
            text += " " + line[len(_GOES_ON):]
        elif line.startswith(f"# {_BECAUSE}") and _BECAUSE not in text:
            text = f"{text}, {line[2:]}" if text else line
        elif count == 1 and not text and line.startswith("# "):
            text = line
        else:
            break
        count += 1
    return text, count
