"""Reading the frame of a program: the heading, the parameters and results, `return`.

A frame is open from a program's name to its `}`; its mesh is the one that types are read on. A
type, a mesh and a param list are one token each here, and are read by rules of their own
(ir/text/value_parser.py), once per distinct text and mesh.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lark import Token
from lark.exceptions import UnexpectedInput

from ..diagnostics.errors import ShardtraceError
from ..kernels.key_data import storage_dtype
from ..meshes.mesh import AbstractMesh, Mesh
from ..passes import DONATED, NEXT_PASS, OBJECTIVE, SKIPPED_PASSES, LayoutConstraints, Requests
from ..program import Atom, Equation, Level, Literal, Program, Var
from ..source.location import Location
from ..support.spelling import close_match
from ..types import ArrayType
from .constants import parse_scalar
from .names import given_name
from .print import frozen
from .remarks import Remark
from .syntax import Mistake, grammar_mistake
from .value_parser import Values
from .value_printer import unquote

_LEVELS = {level.value: level for level in Level}


DEEPEST = 100            # levels of values in values


def _depth(text: str) -> int:
    """How many brackets are open at once; those in strings count too."""
    deepest = depth = 0
    for character in text:
        if character in "({":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")}":
            depth -= 1
    return deepest


class Frame:
    """A program while it is being read."""

    __slots__ = ("consts", "donated", "eqns", "global_in", "global_out", "level", "mesh", "name",
                 "names", "paths", "params", "requests", "result_paths", "results", "types", "vars")

    def __init__(self, mesh: AbstractMesh, level: Level) -> None:
        self.mesh, self.level = mesh, level
        self.name = ""
        self.vars: dict[str, Var] = {}
        self.eqns: list[Equation] = []
        self.consts: list[tuple[Var, Any]] = []
        self.global_in: list[ArrayType] = []
        self.global_out: list[ArrayType] = []
        self.requests: Requests | None = None
        self.donated: set[str] = set()


class Frames(Values):
    """The rules of headings and frames. `begin` prepares it for a text; one text is read at a time.

    read: (text, start rule) -> value, the parser that these actions belong to. fixed_words: its
    terminals that are words, for messages.
    """

    read: Callable[[str, str], Any]
    fixed_words: Callable[[], dict[str, str]]

    def begin(self, text: str, filename: str, constants: Mapping[str, Any] | None,
              callables: Mapping[str, Any] | None, folder: Path | None,
              mesh: AbstractMesh) -> None:
        """Forget the text before, and start with the defaults of a new one."""
        self.source, self.filename, self.folder = text, filename, folder
        self.constants = constants or {}
        self.callables = callables or {}
        self.mesh, self.level_stated = mesh, Level.TRACED
        self.meshes = {}
        self.base = 0
        self.frames: list[Frame] = []
        self.memos: dict[AbstractMesh, dict[str, Any]] = {}
        self.memo = self.memos.setdefault(mesh, {})      # token -> value, on the current mesh
        self.remarks: list[tuple[Equation, Remark]] = []
        self.comments: dict[str, Remark | None] = {}
        self.paths: dict[str, str] = {}
        self.concrete: list[Mesh] = []
        self.fixed: set[Var] = set()
        self.layouts_free = False
        self.next: str | None = None
        self.judged: tuple[str, str, int] | None = None
        self.omitted: set[str] = set()
        self.archives: dict[str, Any] = {}
        self.lines: list[str] | None = None

    # -- one token, read by rules of its own -----------------------------------------------------
    def small(self, token: Token, start: str, text: str | None = None) -> Any:
        """The value of a token that has a grammar of its own."""
        text = str(token) if text is None else text
        if text.count("(") + text.count("{") > DEEPEST and _depth(text) > DEEPEST:
            raise Mistake(f"values nest in each other at most {DEEPEST} levels deep",
                          token.start_pos, len(token))
        before, self.base = self.base, token.start_pos or 0
        try:
            return self.read(text, start)
        except UnexpectedInput as error:
            raise grammar_mistake(error, text, self.fixed_words(), self.base) from None
        except (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError,
                SyntaxError, TypeError, ValueError, ShardtraceError) as error:
            message = str(error.args[0] if error.args else error).split("\n")[0]
            raise Mistake(message, self.base, len(token)) from error
        finally:
            self.base = before

    def type_of(self, token: Token) -> ArrayType:
        found = self.memo.get(token)
        if found is None:
            found = self.memo[str(token)] = self.small(token, "type")
        return found

    def _enter(self, mesh: AbstractMesh) -> None:
        self.mesh = mesh
        self.memo = self.memos.setdefault(mesh, {})

    # -- heading ---------------------------------------------------------------------------------
    def own_mesh(self, parts: list) -> None:
        self._enter(self._abstract(parts[0]))

    def _abstract(self, token: Token) -> AbstractMesh:
        return self.small(token, "mesh")

    def named_mesh(self, parts: list) -> None:
        self.meshes[str(parts[0])] = self._abstract(parts[1])

    def devices(self, parts: list) -> None:
        self.concrete.append(self.small(parts[0], "mesh", f"{parts[0]} at {parts[1]}"))

    def level(self, parts: list) -> None:
        self.level_stated = self._level(parts[0])

    def free(self, parts: list) -> None:
        self.layouts_free = True

    def next_pass(self, parts: list) -> None:
        self.next = str(parts[0])

    def without(self, parts: list) -> None:
        self.omitted.add(str(parts[0]))

    def objective(self, parts: list) -> None:
        said = {part.type: part for part in parts}
        limit = said.get("ELEMENTS", "0")
        if not limit.isdecimal():
            raise Mistake(f"`within {limit}` is no number of bytes", limit.start_pos, len(limit))
        self.judged = (str(said["NAME"]), unquote(said["STRING"]) if "STRING" in said else "",
                       int(limit))

    def _level(self, token: Token) -> Level:
        level = _LEVELS.get(token)
        if level is None:
            raise Mistake(f"no level is called `{token}`", token.start_pos, len(token),
                          help=close_match(token, _LEVELS) or f"levels are {', '.join(_LEVELS)}")
        return level

    def file(self, parts: list) -> None:
        label = unquote(parts[0]) if parts[0][0] in "\"'" else str(parts[0])
        self.paths[label] = unquote(parts[1])

    # -- programs --------------------------------------------------------------------------------
    def scope(self, parts: list) -> None:
        """A program begins: on the mesh and level of the one around it, or as stated."""
        mesh = self.mesh
        level = self.frames[-1].level if self.frames else self.level_stated
        for token in parts:
            if token.type == "MESH":
                mesh = self._abstract(token)
            else:
                level = self._level(token)
        self._enter(mesh)
        self.frames.append(Frame(mesh, level))

    def parameter(self, parts: list) -> tuple:
        """A parameter as (name, path in its container, texts of its types); donation is noted."""
        name, types, path = parts[0], [], None
        for token in parts[1:]:
            if token.type == "STRING":
                path = unquote(token)
            elif token.type == "DONATED":
                self.frames[-1].donated.add(str(name))
            else:
                types.append(token)
        return name, (given_name(name) or "") if path is None else path, types

    def result(self, parts: list) -> tuple:
        types, path = [], ""
        for token in parts:
            if token.type == "STRING":
                path = unquote(token)
            else:
                types.append(token)
        return path, types

    def results(self, parts: list) -> list:
        return parts

    def signature(self, parts: list) -> None:
        """The heading of a program: parameters and results with their types and paths, and what was
        asked for (of a traced program) or their global types (of a local one).
        """
        frame = self.frames[-1]
        symbol = parts[0][1:]
        frame.name = unquote(symbol) if symbol[0] in "\"'" else symbol
        parameters = [p for p in parts[1:] if type(p) is tuple]
        results = next(p for p in parts if type(p) is list)
        whole = frozen(frame.mesh)
        frame.params = [self.bind(name, self.type_of(types[0])) for name, _, types in parameters]
        frame.names = [str(name) for name, _, _ in parameters]
        frame.paths = tuple(path for _, path, _ in parameters)
        frame.types = [(self.type_of(types[0]), types[0]) for _, types in results]
        frame.result_paths = tuple(path for path, _ in results)
        self._enter(whole)
        given = [self.type_of(t[1]) if len(t) > 1 else None for _, _, t in parameters]
        requested = [self.type_of(t[1]) if len(t) > 1 else None for _, t in results]
        self._enter(frame.mesh)
        if frame.level is Level.TRACED and {*given, *requested} - {None}:
            frame.requests = Requests(tuple(given), tuple(requested))
            return
        frame.global_in = [t for t in given if t is not None]
        frame.global_out = [t for t in requested if t is not None]
        for wholes, locals in ((frame.global_in, parameters), (frame.global_out, results)):
            if wholes and len(wholes) != len(locals):
                raise Mistake("either all parameters have a global type or none",
                              parts[0].start_pos, len(parts[0]))

    def bind(self, token: Token, aval: ArrayType) -> Var:
        name = str(token)
        known = self.frames[-1].vars
        if name in known:
            raise Mistake(f"variable `{name}` is bound twice", token.start_pos, len(token),
                          help="a variable is bound once: give this one another name")
        var = known[name] = Var(aval, given_name(name))
        return var

    def function(self, parts: list) -> Program:
        """Close the innermost frame: its program."""
        frame = self.frames.pop()
        self._enter(self.frames[-1].mesh if self.frames else frame.mesh)
        names = frame.result_paths
        if not any(names):
            names = tuple(f"[{i}]" for i in range(len(names))) if len(names) > 1 else ()
        program = Program(frame.name, frame.params, frame.eqns, frame.results, consts=frame.consts,
                          mesh=frame.mesh, level=frame.level, global_in=frame.global_in,
                          global_out=frame.global_out, arg_names=frame.paths, result_names=names)
        if frame.requests is not None:
            program.attributes[Requests.KEY] = frame.requests
        if frame.donated:
            program.attributes[DONATED] = tuple([v in frame.donated for v in frame.names])
        return program

    def returns(self, parts: list) -> None:
        """The results, which must be of the types that the heading declares."""
        frame = self.frames[-1]
        frame.results = [self.atom(token) for token in parts[:-1]]
        where = parts[-1].start_pos
        if len(frame.results) != len(frame.types):
            raise Mistake(f"{len(frame.results)} results are returned where the heading of "
                          f"`{frame.name}` has {len(frame.types)}", where)
        for token, atom, (aval, declared) in zip(parts, frame.results, frame.types, strict=False):
            if atom.aval is not aval:
                raise Mistake(f"`{token}` is returned as {declared}, but is "
                              f"{atom.aval.str_short(True)}", token.start_pos, len(token))

    def start(self, parts: list) -> Program:
        """The whole text: the program, with the attributes that its headings and remarks state."""
        program = next(p for p in parts if isinstance(p, Program))
        places: dict[Var, Location] = {}
        folder = "" if self.folder is None else str(self.folder)
        for eqn, remark in self.remarks:
            if remark.file is not None:
                eqn.location = remark.location(self.paths, folder)
            for k, requested in remark.requested:
                if k < len(eqn.outvars):
                    places[eqn.outvars[k]] = requested.location(self.paths, folder)
        if program.level is Level.TRACED:
            if self.layouts_free:
                program.attributes.setdefault(Requests.KEY, Requests(
                    (None,) * len(program.invars), (None,) * len(program.outvars)))
        elif self.layouts_free or places:
            program.attributes[LayoutConstraints.KEY] = LayoutConstraints(
                frozenset(self.fixed) if self.layouts_free else None, places)
        if self.next is not None:
            program.attributes[NEXT_PASS] = self.next
        if self.judged is not None:
            program.attributes[OBJECTIVE] = self.judged
        if self.omitted:
            program.attributes[SKIPPED_PASSES] = tuple(sorted(self.omitted))
        if self.concrete:
            program.attributes["meshes"] = tuple(self.concrete)
        return program

    # -- operands --------------------------------------------------------------------------------
    def atom(self, token: Token) -> Atom:
        if token.type == "LITERAL":
            return Literal(*self.literal(token))
        var = self.frames[-1].vars.get(token)
        if var is None:
            raise Mistake(f"no variable is called `{token}`", token.start_pos, len(token),
                          label="not bound before this line",
                          help=close_match(token, self.frames[-1].vars))
        return var

    def literal(self, token: Token) -> tuple[Any, ArrayType]:
        """A scalar constant, `2.0:f32`, as (value, type)."""
        found = self.memo.get(token)
        if found is None:
            number, _, text = token.partition(":")
            if "[" not in text:
                text += "[] on ()"
            part = Token("TYPE", text, (token.start_pos or 0) + len(number) + 1)
            aval = self.small(part, "type")
            try:
                value = parse_scalar(number, storage_dtype(aval.dtype))
            except (ValueError, OverflowError) as error:
                raise Mistake(f"`{number}` is no {text.partition('[')[0].lstrip('~')}: {error}",
                              token.start_pos, len(number)) from error
            found = self.memo[str(token)] = (value, aval)
        return found
