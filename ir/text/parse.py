"""Reading programs from text: the inverse of ir/text/print.py, by the rules of grammar.lark.

The grammar is read by Lark (LALR, contextual lexer) when a text is first parsed, in about 0.1 s.
The program is built by the actions of ir/text/actions.py while its text is read; there is no tree.
Whether the program is right is for the verifier to say (ir/verify.py).
"""
from __future__ import annotations

import functools
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lark import Lark, Token
from lark.exceptions import UnexpectedInput

from ..diagnostics.errors import ShardtraceError
from ..meshes.mesh import AbstractMesh, Mesh, empty_abstract_mesh
from ..ops import dialect  # noqa: F401 - a text may use any op
from ..program import Program
from ..support.collector import collector_paused
from ..types import ArrayType
from .actions import Actions
from .syntax import Mistake, grammar_mistake, syntax_error


def parse_program(text: str, constants: Mapping[str, Any] | None = None, *,
                  callables: Mapping[str, Callable[..., Any]] | None = None,
                  filename: str = "<program>") -> Program:
    """The program that a text describes: `parse_program(str(p))` equals p.

    constants: arrays that the text left out (`sha256 "..."`), by the constant's name.
    callables: Python functions that the text names (`@python("module:name")`), by that name.
    filename: for messages; equations without a location of their own get this file's lines.
    Raises ProgramSyntaxError with the line, a caret and what was expected.
    """
    return _parse(text, "start", filename, constants, callables)


def load_program(path: str | Path) -> Program:
    """Read a program that `save_program` wrote, or that was written by hand."""
    path = Path(path)
    text = decoded(path.read_bytes(), str(path))
    return _parse(text, "start", str(path), folder=path.parent)


def decoded(data: bytes, filename: str) -> str:
    """The text of a file, without a byte order mark; ProgramSyntaxError where it is no UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        text = data.decode("utf-8", "replace")
        at = len(data[:error.start].decode("utf-8", "replace"))
        raise syntax_error(text, filename, Mistake(
            f"byte {data[error.start]:#04x} is no UTF-8: {error.reason}", at)) from None


def parse_type(text: str, mesh: AbstractMesh = empty_abstract_mesh) -> ArrayType:
    """The type that a text such as `f32[8@X,4]{V:Y}` describes, on a mesh."""
    return _parse(text, "type", "<type>", mesh=mesh)


def parse_mesh(text: str) -> AbstractMesh | Mesh:
    """The mesh that a text such as `(X=2, Y=4 auto)` describes."""
    return _parse(text, "mesh", "<mesh>")


def parse_params(text: str, mesh: AbstractMesh = empty_abstract_mesh) -> dict[str, Any]:
    """The params that a text such as `[dims=(1, 0), dtype=f32]` describes."""
    return _parse(text, "params", "<params>", mesh=mesh)


# -- the parser ------------------------------------------------------------------------------------

_actions = Actions()
_lock = threading.RLock()


@functools.cache
def _lark() -> Lark:
    grammar = (Path(__file__).parent / "grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", start=["start", "type", "mesh", "params"],
                transformer=_actions, maybe_placeholders=False)


def _read(text: str, start: str) -> Any:
    return _lark().parse(text, start=start)


@functools.cache
def _fixed_words() -> dict[str, str]:
    """Terminals that are words of the grammar, for messages."""
    return {t.name: t.pattern.value for t in _lark().terminals if t.pattern.type == "str"}


_actions.read = _read
_actions.fixed_words = _fixed_words


def _mistake_of(error: Exception, text: str) -> Mistake:
    """What an exception says, at the token that was being read."""
    message = str(error.args[0] if error.args else error).split("\n")[0]
    if isinstance(error, RecursionError):
        message = "the text nests too deeply"
    elif isinstance(error, MemoryError):
        message = f"there is not enough memory for what the text describes: {message}"
    for frame, _ in traceback.walk_tb(error.__traceback__):
        token: Any = frame.f_locals.get("token")
        if isinstance(token, Token) and token.start_pos is not None:
            return Mistake(message, token.start_pos, len(token))
    return Mistake(message, 0, len(text))


def _parse(text: str, start: str, filename: str, constants: Mapping[str, Any] | None = None,
           callables: Mapping[str, Any] | None = None, folder: Path | None = None,
           mesh: AbstractMesh = empty_abstract_mesh) -> Any:
    """The value of a text by the rule `start`. Whatever goes wrong becomes a `ProgramSyntaxError`
    that points into the text.
    """
    if start == "start":
        text = text.removeprefix("\ufeff").replace("\r\n", "\n")
        if not text.endswith("\n"):
            text += "\n"
    with _lock, collector_paused():              # the parser calls one object: one text at a time
        _actions.begin(text, filename, constants, callables, folder, mesh)
        try:
            return _read(text, start)
        except UnexpectedInput as error:
            mistake = grammar_mistake(error, text, _fixed_words())
            raise syntax_error(text, filename, mistake) from None
        except Mistake as mistake:
            raise syntax_error(text, filename, mistake) from None
        except Exception as error:               # a value of a kind that its place does not take
            if start == "start" and isinstance(error, ShardtraceError):
                raise
            raise syntax_error(text, filename, _mistake_of(error, text)) from error
        finally:
            for archive in _actions.archives.values():
                archive.close()
            _actions.begin("", "", None, None, None, empty_abstract_mesh)
