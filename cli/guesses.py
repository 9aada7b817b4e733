"""Guess arguments for a function that its file never calls.

They come from declarations, factory functions, annotations and names of variables.
"""
from __future__ import annotations

import argparse
import contextlib
import functools
import inspect
import io
import re
from pathlib import Path
from typing import Any

from ..driver.execution.call_capture import unwatched
from ..driver.jit.jitted import Jitted
from ..ir.values.array import Array
from ..ir.values.shape_struct import ShapeDtypeStruct
from ..tracer.trees import tree
from .arguments import Given, given_arguments, mesh_for, parse_argument_type
from .places import place_of
from .problems import Problem, failure

ARGUMENTS = "__shardtrace_args__"
_MAKERS = re.compile(r"(get|make|build|create)?_?(example|sample|dummy|test)?_?"
                     r"(args|arguments|inputs|examples?)(_for_(\w+))?", re.IGNORECASE)
_CALL = re.compile(r"#[ \t]*shardtrace:[ \t]*(\w+)\((.*)\)[ \t]*$", re.MULTILINE)
_MAKES = r"(init|initial|make|get|create|build|example|sample|dummy|random)_?"


def is_maker(name: str) -> bool:
    """Is this what one calls a function, or a variable, of example arguments?"""
    return _MAKERS.fullmatch(name) is not None


def declared_arguments(fun: Any, name: str, names: dict[str, Any], path: Path) -> Given | None:
    """The arguments that the file's `__shardtrace_args__` declares for a function."""
    declared = names.get(ARGUMENTS)
    if declared is None:
        return None
    if not isinstance(declared, dict):
        raise Problem(f"{ARGUMENTS} of {path} is a dictionary of function names to "
                      f"arguments, not {type(declared).__name__}")
    if name not in declared:
        return None
    what = f"{ARGUMENTS}[{name!r}]"
    found = _fitting(fun, _called(declared[name], what))
    if isinstance(found, str):
        raise Problem(_unfit(path, names, ARGUMENTS, what, fun, name, found))
    return found._replace(origin=ARGUMENTS)


def _unfit(path: Path, names: dict[str, Any], origin: str, what: str, fun: Any, name: str, why: str
           ) -> str:
    """That something of the file does not fit a function, its place and why."""
    return (f"{place_of(path, origin, names) or path}: `{what}` does not fit "
            f"`{name}{inspect.signature(fun)}`: {why}")


def commented_calls(path: Path) -> dict[str, tuple[str, str]]:
    """The calls that comments of a file give: `# shardtrace: step(f32[64@data,512], k=i32[])`, by
    function the comment and what stands in its brackets.
    """
    return {m[1]: (m[0].rstrip(), m[2]) for m in _CALL.finditer(path.read_text(encoding="utf-8"))}


def commented_arguments(fun: Any, name: str, names: dict[str, Any], path: Path,
                        options: argparse.Namespace) -> Given | None:
    """The types that a comment of the file gives for a function's arguments."""
    comment, given = commented_calls(path).get(name, ("", ""))
    if not comment:
        return None
    parameters = list(inspect.signature(fun).parameters)
    parts = [p.strip() for p in re.split(r",(?![^\[(]*[\])])", given) if p.strip()]
    if len(parts) > len(parameters):
        raise Problem(_unfit(path, names, comment, comment, fun, name,
                             f"it gives {len(parts)} arguments, of {len(parameters)}"))
    named = [p if re.match(r"[\w.\[\]'\"]+\s*=", p) else f"{parameters[i]}={p}"
             for i, p in enumerate(parts)]
    try:
        found = given_arguments(fun, names, argparse.Namespace(
            args=None, arg=named, mesh=getattr(options, "mesh", None)))
    except Problem as problem:
        raise Problem(_unfit(path, names, comment, comment, fun, name, str(problem))) from problem
    return found and found._replace(origin=comment)


def guessed_arguments(fun: Any, name: str, names: dict[str, Any], functions: dict[str, Any],
                      options: argparse.Namespace, path: Path, unfit: list[str]) -> Given | None:
    """Arguments that the file has for a function without saying so. unfit: where it is told which
    of the file's example arguments do not fit the function.
    """
    for key, value in names.items():
        match = _MAKERS.fullmatch(key)
        if not match or value is fun or (match[5] and match[5] != name):
            continue
        if callable(value):
            if key not in functions or needed(value):
                continue
            try:
                value = _called(value, f"{key}()")
            except Problem:
                continue
        if isinstance(value, dict) and name in value:       # of several functions, by name
            value = value[name]
        found = _fitting(fun, value)
        if not isinstance(found, str):
            return found._replace(origin=key)
        unfit.append(_unfit(path, names, key, key, fun, name, found))
    return _annotated(fun, names, options) or _by_name(fun, names, functions)


def _annotated(fun: Any, names: dict[str, Any], options: argparse.Namespace) -> Given | None:
    """Arguments of the types that annotations state, such as `x: "f32[8,16]"`; None if one does
    not.
    """
    named = {}
    mesh = mesh_for(options, names)
    for p in needed(fun):
        text = p.annotation if isinstance(p.annotation, str) else ""
        try:
            named[p.name] = parse_argument_type(text.strip("'\""), mesh)
        except ValueError:
            return None
    bound = inspect.signature(fun).bind(**named)
    return Given(bound.args, bound.kwargs) if named else None


def _by_name(fun: Any, names: dict[str, Any], functions: dict[str, Any]) -> Given | None:
    """Variables that are called as the parameters are, or what `init_params()` gives for `params`.
    """
    statics = _static_names(fun)
    named = {}
    for p in needed(fun):
        value = names.get(p.name, p.empty)
        if value is p.empty or (p.name not in statics and _no_arrays(value, p.name)):
            maker = next((f for n, f in functions.items() if not needed(f)
                          and re.fullmatch(_MAKES + re.escape(p.name), n)), None)
            if maker is None:
                return None
            try:
                value = _called(maker, f"{name_of(maker)}()")
            except Problem:
                return None
            if _no_arrays(value, p.name):
                return None
        named[p.name] = value
    bound = inspect.signature(fun).bind(**named)
    return Given(bound.args, bound.kwargs) if named else None


def name_of(fun: Any) -> str:
    """What a function is called where it is defined."""
    return getattr(fun, "__name__", type(fun).__name__)


def identity(fun: Any, depth: int = 4) -> Any:
    """A key for the functions of a file that is stable over runs: their code, and the comparable
    values in their closures.
    """
    if isinstance(fun, Jitted):
        return identity(fun.origin, depth)
    if isinstance(fun, functools.partial):
        held = [*fun.args, *[x for item in sorted(fun.keywords.items()) for x in item]]
        return identity(fun.func, depth), tuple([_value_key(x, depth) for x in held])
    if inspect.ismethod(fun):
        return identity(fun.__func__, depth), _value_key(fun.__self__, depth)
    code = getattr(fun, "__code__", None)
    if code is None:
        return type(fun).__qualname__, name_of(fun)
    held: list[Any] = list(fun.__defaults__ or ())
    for cell in fun.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:                          # not bound yet
            held.append(None)
    return code, tuple([_value_key(x, depth) for x in held])


def _value_key(x: Any, depth: int) -> Any:
    if isinstance(x, int | float | str | bytes | bool | type | None):
        return type(x).__name__, x
    if callable(x) and depth:
        return identity(x, depth - 1)
    return type(x).__qualname__


def needed(fun: Any) -> list[inspect.Parameter]:
    """The parameters that a call must give."""
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p for p in parameters if p.default is p.empty
            and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _static_names(fun: Any) -> set[str]:
    if not isinstance(fun, Jitted):
        return set()
    names = list(inspect.signature(fun).parameters)
    arguments = fun.arguments
    return {*arguments.static_names, *(names[i] for i in arguments.static_nums if i < len(names))}


def _called(value: Any, what: str) -> Any:
    if not callable(value):
        return value
    try:
        with unwatched(), contextlib.redirect_stdout(io.StringIO()):
            return value()
    except Exception as error:
        raise failure(error, f"calling {what}") from error


def _fitting(fun: Any, value: Any) -> Given | str:
    """The value as positional and keyword arguments of a function; why not, if it cannot be."""
    signature = inspect.signature(fun)
    tries: list[Given] = []
    if isinstance(value, dict):
        tries.append(Given((), value))
    if isinstance(value, tuple | list):
        tries.append(Given(tuple(value), {}))
    if not isinstance(value, tuple):
        tries.append(Given((value,), {}))
    more = {p.name for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL}
    statics, why = _static_names(fun), ""
    for given in tries:
        try:
            bound = signature.bind(*given.args, **given.kwargs)
        except TypeError as error:
            why = why or str(error)
            continue
        wrong = [text for k, v in bound.arguments.items() if k not in statics
                 for text in _no_arrays(v, k)]
        if not more & set(bound.arguments) and not wrong:
            return Given(bound.args, bound.kwargs)
        why = why or next(iter(wrong), "it takes any number of arguments")
    return why


def _no_arrays(value: Any, name: str) -> list[str]:
    """What of a value is no array, or that it holds none."""
    leaves = tree.leaves_with_path(value)
    if not leaves:
        return [f"`{name}` has no arrays"]
    return [f"`{name}{tree.keystr(path)}` is a `{type(x).__name__}`" for path, x in leaves
            if not (isinstance(x, Array | ShapeDtypeStruct | int | float | complex)
                    or type(x).__module__ == "numpy")]
