"""Docstrings as Markdown: paragraphs stay text, examples and whatever is indented become blocks."""
from __future__ import annotations

import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from typing import Any

_SPECIAL = re.compile(r"([\\*<>\[\]{}#|]|\b_|_\b)")
_DEFINITION = re.compile(r"^([\w*`\\, /.]{1,90}):(?= )")
_FENCE = {"example": "pycon", "text": "text"}


def escaped(text: str) -> str:
    """Text in which Markdown sees no marks but code in backticks."""
    parts = re.split(r"(`[^`\n]+`)", text)
    return "".join(part if i % 2 else _SPECIAL.sub(r"\\\1", part) for i, part in enumerate(parts))


def as_markdown(docstring: str) -> str:
    """A docstring (without the indentation of its source) with fences around examples, literal
    blocks and columns, and its definitions (`name: what it is`, more lines indented) as lists."""
    parts: list[tuple[str, str]] = []
    for paragraph in re.split(r"\n[ \t]*\n", docstring):
        for kind, text in _parts(paragraph):
            if kind in _FENCE and parts and parts[-1][0] == kind:   # an empty line inside a block
                text = f"{parts.pop()[1]}\n\n{text}"
            parts.append((kind, text))
    return "\n\n".join(f"```{_FENCE[kind]}\n{textwrap.dedent(text).strip()}\n```" if kind in _FENCE
                       else text for kind, text in parts)


def _parts(paragraph: str) -> Iterator[tuple[str, str]]:
    """A paragraph as (kind, text): prose and lists as Markdown, blocks as they are."""
    lines = textwrap.dedent(paragraph).split("\n")
    example = next((i for i, line in enumerate(lines) if line.startswith(">>> ")), len(lines))
    defines = [bool(_DEFINITION.match(line)) for line in lines]
    hangs = [line.startswith(" ") for line in lines] + [False]
    kinds: list[str] = []
    other = "text" if paragraph.startswith(" ") else "prose"
    for i in range(example):
        if hangs[i]:
            kinds.append("list" if kinds and kinds[-1] == "list" else "text")
        else:
            beside = i and kinds[-1] == "list" or i + 1 < example and defines[i + 1]
            kinds.append("list" if defines[i] and (hangs[i + 1] or beside) else other)
    for kind, run in itertools.groupby(range(example), kinds.__getitem__):
        text = "\n".join(lines[i] for i in run)
        if kind == "list":
            items = re.sub(r"\n +", " ", text).split("\n")
            text = "\n".join(re.sub(_DEFINITION, r"- **\1**:", escaped(item)) for item in items)
        elif kind == "prose":
            text = escaped(re.sub(r"::$", ":", text))
        yield kind, text
    if example < len(lines):
        yield "example", "\n".join(lines[example:])


def called(name: str, thing: Any) -> str:
    """How a thing is called: its name and signature, a parameter a line where one is too short."""
    try:
        signature = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    text = _plain(f"{name}{signature}")
    if len(text) <= 88:
        return text
    parameters = ",\n    ".join(_plain(str(p)) for p in signature.parameters.values())
    returns = signature.return_annotation
    arrow = "" if returns is signature.empty else f" -> {inspect.formatannotation(returns)}"
    return _plain(f"{name}(\n    {parameters},\n){arrow}")


def _plain(text: str) -> str:
    """A signature without quotes around annotations, and with names for classes and choices."""
    text = re.sub(r"""(: |-> )["']+([^"'\n]+)["']+""", r"\1\2", text)
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>|<(\w+\.\w+): [^>]*>",
                  lambda m: m[1] or m[2], text)
