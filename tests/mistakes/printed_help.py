"""Reads the help of a printed message, and types what it shows into the file, as its reader would.

It knows the text alone, and nothing of how changes are found.
"""
from __future__ import annotations

import itertools
import re

PLAIN = re.compile(r"[\w.]+|[^\w\s()\[\]]+")     # names and operators: no code that could be run


def helps(message: str):
    """The help of a message: head and lines below it."""
    lines = message.split("\n")
    for i, line in enumerate(lines):
        match = re.match(r"( *= help: )(.*)", line)
        if match:
            yield match[2], list(_below(lines[i + 1:], len(match[1])))


def _below(lines: list[str], margin: int):
    for line in lines:
        if not line.startswith(" " * margin):
            return
        yield line[margin:]


def changes(message: str):
    """The helps that show code."""
    return [(head, block) for head, block in helps(message) if block]


def code_in_words(message: str, source: str):
    """Code in the words of the helps that is not quoted from the user's."""
    return [code for head, _ in helps(message) for code in re.findall("`([^`]*)`", head)
            if not PLAIN.fullmatch(code) and code not in source]


def edited(source: str, message: str, file: str, head: str, block: list[str]) -> str:
    """The file with the printed lines in place of those that the message names."""
    named = re.search(r", lines? (\d+)(?:-(\d+))?:$", head)
    here = re.search(rf"--> {re.escape(file)}:(\d+)", message)
    assert here is not None
    first, last = (int(named[1]), int(named[2] or named[1])) if named else (int(here[1]),) * 2
    imports = list(itertools.takewhile(lambda t: t.startswith(("import ", "from ")), block))
    lines = source.split("\n")
    indent = lines[first - 1][:len(lines[first - 1]) - len(lines[first - 1].lstrip())]
    lines[first - 1:last] = [indent + text for text in block[len(imports):]]
    top = next(i for i, text in enumerate(lines)
               if re.match(r"(import|from) (?!__future__)|def ", text))
    return "\n".join([*lines[:top], *imports, *lines[top:]])
