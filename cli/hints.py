"""Commands and options that messages propose; each is parsed and tried before it is printed.

Where arguments are missing, their types are guessed from how the function uses its parameters
(`params["w"]` means that `params` is a dict) and tried by tracing it. Programs without layouts are
partitioned with the proposed layout. If no working command is found, the message explains in words.
"""
from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import io
import itertools
import shlex
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..driver.execution.call_capture import unwatched
from ..driver.execution.programs import further
from ..driver.jit.jit import jit
from ..driver.jit.jitted import Jitted
from ..ir.program import Program
from ..ir.spec import PartitionSpec
from ..ir.values.array import Array
from ..report.words import spec_text
from .arguments import add_arguments, given_arguments, module_meshes, specs_of
from .guesses import needed

_TYPES = ("f32[64,64]", "f32[64]", "i32[64]", "f32[]")
_MOST = 6             # guesses that are traced
_SINGLE = ("diff", "reduce")       # verbs that need more than a function


def quoted(text: str) -> str:
    """The text as one word of a shell: in double quotes where these keep it as it is."""
    plain = f'"{text}"'
    if not set(text) & set('"$`\\!\n'):
        return plain
    return shlex.quote(text)


def parsed(words: str) -> argparse.Namespace:
    """Options as the shell and the command take them out of a text."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    return parser.parse_args(shlex.split(words))


# -- arguments -------------------------------------------------------------------------------------

def argument_options(fun: Callable[..., Any], names: dict[str, Any]) -> str | None:
    """Options that give a function arguments with which it can be traced; None if none was found.

    names: what the file defines.
    """
    mesh = "" if module_meshes(names) else "--mesh x=8 "
    jitted = fun if isinstance(fun, Jitted) else jit(fun)
    for guess in itertools.islice(_guesses(fun, names), _MOST):
        words = mesh + " ".join(f"--arg {quoted(f'{part}={t}')}" for part, t in guess)
        try:
            arguments = given_arguments(fun, names, parsed(words))
            assert arguments is not None
            with unwatched(), contextlib.redirect_stdout(io.StringIO()):
                jitted.trace(*arguments[0], **arguments[1])
            return words
        except Exception:
            continue
    return None


def command(verb: str, target: str, options: str) -> str:
    """`shardtrace VERB TARGET OPTIONS`, as it is typed."""
    verb = "explain" if verb in _SINGLE else verb
    return f"shardtrace {verb} {shlex.quote(target)} {options}"


def _guesses(fun: Callable[..., Any], names: dict[str, Any]) -> Iterator[list[tuple[str, str]]]:
    """Types for the parts of the parameters, likely ones first."""
    parameters = [p.name for p in needed(fun)]
    used = {name: _parts(fun, name, names) for name in parameters}
    whole = [(name, "") for name in parameters]
    keyed = [(name, part) for name in parameters
             for part in ([p for p in used[name] if not p.startswith("[") or "'" in p]
                          and used[name] or [""])]
    every = [(name, part) for name in parameters for part in used[name] or [""]]
    for parts in dict.fromkeys(map(tuple, (keyed, every, whole))):
        for t in _TYPES[:2]:
            yield [(name + part, _likely(name + part, t)) for name, part in parts]
        yield [(name + part, _TYPES[0]) for name, part in parts]


def _likely(part: str, t: str) -> str:
    """The type for a part of this name: vectors for biases, integers for labels."""
    word = part.replace("'", "").replace("]", "").replace("[", ".").rpartition(".")[2].lower()
    if word.startswith(("b", "scale", "gamma", "beta")) and word[1:2] in ("", *"0123456789ice"):
        return "f32[64]"
    if word.startswith(("ids", "tokens", "labels", "index", "indices", "targets")):
        return "i32[64]"
    return t


def _parts(fun: Callable[..., Any], name: str, names: dict[str, Any], depth: int = 3) -> list[str]:
    """The parts of a parameter that a function uses: `['w']`, `.bias`, `[0]`."""
    definition = _definition(fun)
    if definition is None:
        return []
    parents = {child: node for node in ast.walk(definition) for child in ast.iter_child_nodes(node)}
    found: dict[str, None] = {}
    for node in ast.walk(definition):
        if not isinstance(node, ast.Name) or node.id != name or isinstance(node.ctx, ast.Store):
            continue
        at: Any = node
        path = ""
        while (step := _step(at, parents.get(at))) is not None:
            path, at = path + step, parents[at]
        above = parents.get(at)
        if path:
            found[path] = None
        elif isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Tuple):
            found.update(dict.fromkeys(f"[{i}]" for i in range(len(above.targets[0].elts))))
        elif isinstance(above, ast.For) and above.iter is at:
            items = above.target.elts if isinstance(above.target, ast.Tuple) else [None]
            found.update((f"[0][{i}]" if item else "[0]", None) for i, item in enumerate(items))
        elif isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and depth:
            callee = names.get(above.func.id)
            if inspect.isfunction(callee) and at in above.args:
                inner = list(inspect.signature(callee).parameters)[above.args.index(at):][:1]
                found.update((p, None) for i in inner for p in _parts(callee, i, names, depth - 1))
    return [p for p in found if not any(other != p and other.startswith(p) for other in found)]


def _step(node: ast.AST, above: ast.AST | None) -> str | None:
    """One step into a tree that the expression above takes; None if it takes none."""
    if isinstance(above, ast.Attribute) and above.value is node and not hasattr(Array, above.attr):
        return f".{above.attr}"
    if isinstance(above, ast.Subscript) and above.value is node and (
            isinstance(above.slice, ast.Constant) and isinstance(above.slice.value, str | int)):
        return f"[{above.slice.value!r}]"
    return None


def _definition(fun: Callable[..., Any]) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(fun))))
    except (OSError, TypeError, SyntaxError):
        return None


# -- layouts ---------------------------------------------------------------------------------------

def layout_option(program: Program, names: Sequence[str]) -> str | None:
    """An `--in` with which a program can be partitioned; None if none was found."""
    axes = program.mesh.auto_axes
    for (i, t), axis in itertools.product(enumerate(program.in_avals), axes):
        for d, size in enumerate(t.shape):
            n = program.mesh.axis_size(axis)
            if size % n or not size:
                continue
            spec = PartitionSpec(*(None,) * d, str(axis))
            option = in_option(names, i, spec)
            if option is None:
                continue
            try:
                further(program, specs_of(names, parsed(option).specs))
                return option
            except Exception:
                continue
    return None


def in_option(names: Sequence[str], i: int, spec: PartitionSpec) -> str | None:
    """The `--in` that gives a parameter a spec; None for specs that have no such form."""
    option = f"--in {quoted(f'{names[i]}={spec_text(spec)}')}"
    try:
        read = specs_of(names, parsed(option).specs)[i]
    except Exception:
        return None
    size = max(len(spec), len(read or ()))
    same = read is not None and read.padded(size) == spec.padded(size)
    return option if same else None


