"""Resolve the target of a command to the functions or programs that it works on."""
from __future__ import annotations

import argparse
from pathlib import Path

from ..report.frozen.plan import FrozenPlan
from .arguments import parse_mesh
from .discovery import PythonFile
from .problems import Problem
from .targets import Found, is_python, parts_of, read_program


def check_options(target: str, options: argparse.Namespace) -> None:
    """Raise Problem for options that would change nothing of what this target is."""
    given = vars(options).get
    if is_python(target):
        unused = {"--in": "specs"}
        why = "of a Python function give the types of arguments: --arg \"x=f32[64@data,512]\""
        if given("mesh") and not given("arg") and options.verb != "autoshard":
            parse_mesh(options.mesh)
            raise Problem("--mesh is the mesh of --arg; without --arg it would change nothing")
    else:
        unused = {"--args": "args", "--arg": "arg", "--argv": "argv", "--mesh": "mesh"}
        why = "a program in text form has its types, and takes --in \"x=P('X', None)\" for layouts"
    for flag, name in unused.items():
        if given(name):
            raise Problem(f"{flag} has no meaning for {target}: {why}")


def one(target: str, options: argparse.Namespace) -> Found:
    """The one program that a target names, with the plan of --plan. Raises Problem where it is not
    one.
    """
    return _with_plan(_one(target, options), options)


def _with_plan(found: Found, options: argparse.Namespace) -> Found:
    path = getattr(options, "plan", None)
    return found if path is None else found.with_plan(load_plan(path))


def load_plan(path: Path) -> FrozenPlan:
    """The plan in a file."""
    try:
        return FrozenPlan.load(path)
    except ValueError as problem:
        raise Problem(str(problem)) from problem


def _one(target: str, options: argparse.Namespace) -> Found:
    """The one function or program that a target names; a problem if it names several."""
    check_options(target, options)
    if not is_python(target):
        return read_program(target, options)
    path, name = parts_of(target)
    file = PythonFile(path, options)
    if name:
        return file.named(name)
    found, missing = file.all()
    if len(found) == 1:
        return found[0]
    if not found:
        raise nothing(file, missing)
    labels = list(dict.fromkeys(f.label for f in found))
    if len(labels) == 1:
        return found[0]
    raise Problem(f"{path} has several functions; name one:\n" + "\n".join(
        f"    shardtrace {options.verb} {label}" for label in labels if "(" not in label))


def several(target: str, options: argparse.Namespace, complete: bool = False
            ) -> tuple[list[Found], list[str]]:
    """All programs that a target names, with the plan of --plan, and what is missing for others.

    complete: all ways in which a function is called; and raise Problem where the file failed, even
    if it called something before.
    """
    found, missing = _several(target, options, complete)
    return [_with_plan(f, options) for f in found], missing


def _several(target: str, options: argparse.Namespace, complete: bool
             ) -> tuple[list[Found], list[str]]:
    """(All functions or programs that a target names, the reasons why others are missing).
    complete: refuse a file that did not run to its end.
    """
    check_options(target, options)
    if is_python(target) and not parts_of(target)[1]:
        path, _ = parts_of(target)
        file = PythonFile(path, options)
        found, missing = file.all()
        if not found:
            raise nothing(file, missing)
        if file.failed is not None and complete:
            raise file.failed
        if file.failed is not None:
            missing = [*missing, str(file.failed)]
        return found, missing
    if is_python(target) and complete:
        path, name = parts_of(target)
        return PythonFile(path, options).every(name), []
    return [_one(target, options)], []


def nothing(file: PythonFile, missing: list[str]) -> Problem:
    """Why there is nothing to work on in a file, and what to do."""
    if missing:
        return Problem("\n".join([*missing, *([str(file.failed)] if file.failed else [])]))
    if file.failed is not None:
        return file.failed
    functions = list(file.functions())
    if not functions:
        return Problem(f"{file.path} neither defines nor calls a function that could be looked at")
    return Problem(f"{file.path} calls no jitted function; name one of its own: "
                   + ", ".join(f"{file.path}:{name}" for name in functions))
