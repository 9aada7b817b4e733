"""What the parser does as it reads: a method for each rule of equations and constants.

The program is built while its text is read, with no tree in between. Ops and names are looked up;
whether the program is right is for the verifier to say. Headings and operands are in
ir/text/frames.py, types and params in ir/text/value_parser.py.
"""
from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from lark import Token

from ..op import OPS, Op
from ..program import Equation, Program
from ..support.spelling import close_match
from ..types import ArrayType
from .constants import (
    from_bytes,
    read_elements,
    read_full,
    read_seed,
    read_zlib,
    stored_form,
    supplied,
)
from .folding import unfold_comment
from .frames import Frames
from .remarks import read_remark
from .syntax import Mistake, text_location
from .value_parser import ABSENT, HOLE
from .value_printer import hidden_params, unquote

MOST_HEADING = 1 << 16     # bytes of an array in an archive that are not its elements


class Actions(Frames):
    """The rules of equations and constants."""

    # -- equations -------------------------------------------------------------------------------
    def binding(self, parts: list) -> tuple[Token, ArrayType, bool]:
        return parts[0], self.type_of(parts[-1]), len(parts) > 2

    def bindings(self, parts: list) -> list:
        return parts

    def application(self, parts: list) -> Equation:
        """`results = op[params] operands`, with its remark: appended to the open frame."""
        bound: list = []
        i = 0
        if type(parts[0]) is list:
            bound, i = parts[0], 1
        name = parts[i]
        op = OPS.get(name)
        if op is None:
            raise Mistake(f"no op is called `{name}`", name.start_pos, len(name),
                          help=close_match(name, OPS))
        i += 1
        if parts[i].type == "PARAMS":
            params = self._params(parts[i], op)
            i += 1
        else:
            params = self._params(None, op)
        known = self.frames[-1].vars
        operands = [known.get(token) or self.atom(token) for token in parts[i:-1]]
        outvars = [self.bind(token, aval) for token, aval, _ in bound]
        self.fixed.update([v for v, (_, _, fixed) in zip(outvars, bound, strict=True) if fixed])
        eqn = Equation(op, operands, outvars, params)
        self.frames[-1].eqns.append(eqn)
        self._remark(eqn, parts[-1], name)
        return eqn

    def _remark(self, eqn: Equation, end: Token, name: Token) -> None:
        """Give an equation the reason and the location that its remark states; without a location
        there, the line of the text that it is on.
        """
        comment = remark_of(end)
        if comment:
            remark = self.comments.get(comment)
            if remark is None:
                remark = self.comments[comment] = read_remark(comment, self.frames[-1].name)
            if remark is not None:
                self.remarks.append((eqn, remark))
                eqn.reason = remark.reason
                if remark.file is not None or remark.nowhere:
                    return
        if self.filename[:1] != "<":
            if self.lines is None:
                self.lines = self.source.split("\n")
            line = name.line or 1
            text = self.lines[line - 1]
            column = len(text) - len(text.lstrip())
            eqn.location = text_location(
                self.filename, self.lines, line, column,
                len(text.partition("#")[0].rstrip()) - column, self.frames[-1].name)

    def _params(self, token: Token | None, op: Op) -> dict[str, Any]:
        """The params of an op: those written, with the ones that are hidden at their usual values.
        """
        hidden = hidden_params(op)
        if token is None:
            return dict(hidden)
        found = self.memo.get(token)
        if found is None:
            found = self.memo[str(token)] = self.small(token, "params")
        if not hidden and ABSENT not in found.values():
            return dict(found)
        both = {**hidden, **found}
        return {name: value for name, value in both.items() if value is not ABSENT}

    # -- programs in params ----------------------------------------------------------------------
    def block(self, parts: list) -> tuple[Token, Program]:
        return parts[0], next(p for p in parts if isinstance(p, Program))

    def equation(self, parts: list) -> None:
        """An equation with the blocks after it: each becomes the program that its label names, as
        `jaxpr =` or `branches.1 =`, in the params.
        """
        if len(parts) == 1:
            return
        eqn, blocks = parts[0], parts[1:]
        params = eqn.params
        groups: dict[str, list[tuple[tuple[int, ...], Program, Token]]] = {}
        for token, program in blocks:
            name, *path = token[:-1].rstrip().split(".")
            groups.setdefault(name, []).append((tuple(map(int, path)), program, token))
        for name, items in groups.items():
            value = params.get(name)
            if value is not None:
                for path, program, token in items:
                    value = _filled(value, path, program, token)
            elif items[0][0] == ():
                value = items[0][1]
            else:
                value = tuple(program for _, program, _ in items)
            expected = [()] if isinstance(value, Program) else [(i,) for i in range(len(items))]
            if params.get(name) is None and [path for path, _, _ in items] != expected:
                token = items[-1][2]
                raise Mistake(f"blocks of `{name}` are numbered from 0, each once",
                              token.start_pos, len(token))
            params[name] = value

    # -- constants -------------------------------------------------------------------------------
    def const(self, parts: list) -> None:
        (token, aval, _), (read, argument, *rest) = parts[0], parts[1]
        try:
            value = read(self, argument, aval, token, *rest)
        except (ValueError, OverflowError) as error:
            message = str(error).split("\n")[0]
            raise Mistake(message, argument.start_pos, len(argument)) from error
        self.frames[-1].consts.append((self.bind(token, aval), value))

    def elements(self, parts: list) -> tuple:
        return (lambda run, text, aval, name: read_elements(text, aval), parts[0])

    def full(self, parts: list) -> tuple:
        return (lambda run, text, aval, name: read_full(text, aval), parts[0])

    def seed(self, parts: list) -> tuple:
        return (lambda run, text, aval, name: read_seed(text, aval), parts[0])

    def zlib(self, parts: list) -> tuple:
        text = "".join(map(unquote, parts))
        return (lambda run, first, aval, name: read_zlib(text, aval), parts[0])

    def npz(self, parts: list) -> tuple:
        return (Actions._from_archive, parts[0], parts[1])

    def sha256(self, parts: list) -> tuple:
        return (lambda run, text, aval, name: supplied(
            str(name).lstrip("%"), unquote(text), aval, run.constants), parts[0])

    def _from_archive(self, token: Token, aval: ArrayType, name: Token, key: Token) -> Any:
        """A constant from an `.npz` archive beside the file of the program. Its size is checked
        before it is read, since a header may claim anything.
        """
        beside = unquote(token)
        known = self.constants.get(str(name).lstrip("%"))
        if known is not None:
            return known
        if self.folder is None or Path(beside).name != beside:
            raise ValueError(f"{beside!r} is to be read from the folder of the program's file: give"
                             " the command that file, or pass constants={name: array}")
        archive = self.archives.get(beside)
        if archive is None:
            try:
                path = self.folder / beside
                if not path.is_file() or not zipfile.is_zipfile(path):
                    raise OSError("it is no .npz archive")
                archive = self.archives[beside] = np.load(path, allow_pickle=False)
            except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
                raise ValueError(f"cannot read {beside!r}: {error}") from error
        shape, dtype = stored_form(aval)
        try:
            size = archive.zip.getinfo(f"{key}.npy").file_size
            if not 0 <= size - math.prod(shape) * dtype.itemsize <= MOST_HEADING:
                raise ValueError(f"array {str(key)!r} of {beside!r} has {size:,} bytes, which are "
                                 f"not those of {aval.str_short(True)}")
            return from_bytes(archive[key].tobytes(), aval)
        except KeyError:
            raise ValueError(f"{beside!r} has no array {str(key)!r}") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            raise ValueError(f"{beside!r} is damaged: {error}") from error


def remark_of(end: str) -> str:
    """The comment of an equation, from all that stands between it and what follows."""
    if "#" not in end:
        return ""
    lines = end.lstrip(" \t").split("\n")
    return unfold_comment(lines)[0] if len(lines) > 2 else lines[0].rstrip()


def _filled(value: Any, path: tuple[int, ...], program: Program, token: Token) -> Any:
    """A param's value with the hole at `path` filled by a program."""
    if not path:
        if value is not HOLE:
            raise Mistake("this block has no place in the params", token.start_pos, len(token),
                          help="write `{...}` where the program stands")
        return program
    if type(value) is not tuple or path[0] >= len(value):
        raise Mistake("this block has no place in the params", token.start_pos, len(token))
    i = path[0]
    return (*value[:i], _filled(value[i], path[1:], program, token), *value[i + 1:])
