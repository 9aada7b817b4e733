"""Formats numbers with units, specs and source lines."""
from __future__ import annotations

from collections.abc import Sequence

from ..ir.diagnostics.diagnostic import shown_part
from ..ir.source.location import Location
from ..ir.spec import PartitionSpec
from ..ir.support.caches import cached


def quantity(n: float, unit: str) -> str:
    """1234567 -> "1.23 MB"; exact below a thousand."""
    if n < 1000:
        return f"{n:,.0f} {unit}"
    for prefix in ("k", "M", "G", "T", "P", "E"):
        n /= 1000
        if n < 1000 or prefix == "E":
            return f"{n:,.3g} {prefix}{unit}"
    raise AssertionError


def changed_by(new: float, old: float) -> str:
    """By what part of itself a figure rises or falls: +12%, -0.3%; "" if by next to nothing."""
    part = (new - old) / old if old else 0.0
    if abs(part) < 5e-5:
        return ""
    return f"{part:+.0%}" if abs(part) >= 0.005 else f"{part:+.2%}"


@cached(4096, "specs as text")
def spec_text(spec: PartitionSpec) -> str:
    """`P('X', None)`, as the user writes it."""
    entries = []
    for e in spec.partitions:
        if isinstance(e, tuple) and len(e) == 1:
            e = e[0]
        entries.append("None" if e is None or e == () else repr(e))
    while entries and entries[-1] == "None":
        entries.pop()
    sums = repr(PartitionSpec(unreduced=spec.unreduced, reduced=spec.reduced))[2:-1]
    return f"P({', '.join([*entries, *filter(None, [sums])])})"


def as_written(text: str) -> str:
    """A text with its specs as the user writes them: `P('X')` for `P('X',)`."""
    return text.replace(",)", ")")


def listed(words: Sequence[str]) -> str:
    """`a`, `b` and `c`."""
    return " and ".join([*([", ".join(words[:-1])] if words[:-1] else []), *words[-1:]])


def excerpt(where: Location) -> str:
    """The source line with carets under the expression; "" where the source is not at hand."""
    source = where.source_line()
    if not source.strip():
        return ""
    width = len(str(where.line))
    end = where.end_column if where.end_line == where.line else len(source)
    line, column, end = shown_part(source, where.column, end)
    caret = " " * column + "^" * max(1, end - column)
    return f"{where.line:>{width}} | {line}\n{' ' * width} | {caret}"
