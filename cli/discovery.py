"""The functions of a Python file and arguments for them, found where they can be.

In this order: what the options say; `__shardtrace_args__` of the file, a dictionary of function
names to arguments (or to functions that make them); comments such as
`# shardtrace: step(f32[64@data,512])`; what the file itself calls, on import or, where it has such
a part, as a script; arguments that a function such as `example_inputs()` or a variable
such as `args` gives; types in annotations (`x: "f32[64@data,512]"`); variables of the file that are
named like the parameters. If nothing is found, the error lists where it looked and gives a command
to complete.
"""
from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import inspect
import io
import linecache
import os
import re
import runpy
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..driver.execution.arguments import leaf_key
from ..driver.execution.call_capture import EagerCall, unwatched, watching
from ..driver.execution.programs import further
from ..driver.jit.jit import jit
from ..driver.jit.jitted import Jitted
from ..driver.jit.stages import Compiled, Lowered, Traced
from ..ir.diagnostics.extras import is_installed
from ..ir.ops.communication.collective_kinds import each_collective
from ..ir.settings.context import STATE
from ..ir.support.caches import cached
from ..ir.support.lazy import lazy_import
from ..ir.support.spelling import none_such
from ..report.explanation import Explanation
from ..runtime.devices import device_count
from .arguments import given_arguments
from .guesses import (
    ARGUMENTS,
    commented_arguments,
    commented_calls,
    declared_arguments,
    guessed_arguments,
    identity,
    is_maker,
    needed,
)
from .hints import argument_options, command
from .problems import FAILED, Problem, failure
from .targets import Found, FoundExplanation, FoundFunction, FoundProgram

_watching = lazy_import("..interop.jaxpr.watching", __package__)

_FOUND = "on arguments found in the file"
_RUNS = re.compile(r"main|run|demo|test_\w+")        # functions that are called for want of others
_MOST = 24           # programs of one file


class Enough(BaseException):
    """Ends a run of the user's file: what it calls has been seen."""


@cached(2)
def syntax_tree(source: str) -> ast.Module:
    """A text parsed, once for all that look at it. Raises SyntaxError or ValueError."""
    return ast.parse(source)


class PythonFile:
    """A Python file under study. names: what it defines."""

    def __init__(self, path: Path, options: argparse.Namespace) -> None:
        if not path.exists():
            raise Problem(f"there is no Python file {path}")
        self.path, self.options = path, options
        self.seen: list[FoundFunction] = []
        self.failed: Problem | None = None
        self.problems: list[Problem] = []      # with functions of the file
        self.stopped = 0.0           # seconds after which the file was not let run on
        self._keys: set[Any] = set()
        self._ran: list[EagerCall] = []
        self.names: dict[str, Any] = {}
        self._load()

    # -- running the file --------------------------------------------------------------------------

    def _load(self) -> None:
        name = _module_name(self.path)
        linecache.checkcache(str(self.path))      # a file of this name may have been another one
        spec = importlib.util.spec_from_file_location(name, self.path)
        if spec is None or spec.loader is None:
            raise Problem(f"{self.path} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        loader = spec.loader

        self._run(lambda: loader.exec_module(module), f"importing {self.path}")
        self.names = vars(module)
        if self.failed is not None and not self.seen:
            raise self.failed

    def run_as_script(self) -> None:
        """Run the file as `python FILE.py` does, watching what it calls."""
        self._run(lambda: runpy.run_path(str(self.path), run_name="__main__"),
                  f"running {self.path}")

    @property
    def is_script(self) -> bool:
        """Does it have a part for `__name__ == "__main__"`?"""
        try:
            source = self.path.read_text()
            body = syntax_tree(source).body if "__name__" in source else []
        except (SyntaxError, ValueError):
            return False
        return any(isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
                   for node in body)

    def _run(self, run: Callable[[], Any], doing: str) -> None:
        saved = sys.argv, sys.path[:], (STATE.mesh, STATE.abstract_mesh)
        sys.argv = [str(self.path), *shlex.split(getattr(self.options, "argv", None) or "")]
        sys.path.insert(0, str(_package_root(self.path)))
        sys.path.insert(0, str(self.path.resolve().parent))
        limit = getattr(self.options, "seconds", None)
        if limit is None:
            limit = 120.0 if getattr(self.options, "jax", False) else 10.0
        said = io.StringIO()
        try:
            with _alarm(limit) as again, watching(lambda item: self._watch(item, again)):
                with contextlib.redirect_stdout(said), self._of_jax():
                    run()
        except Enough:
            self.stopped = limit
        except SystemExit as end:
            if end.code not in (None, 0):
                hint = "" if sys.argv[1:] else "; does it need arguments? give --argv '...'"
                self.failed = Problem(f"{doing} ended with exit status {end.code}{hint}", FAILED)
        except Exception as error:
            self.failed = failure(error, doing)
        finally:
            sys.argv, sys.path[:] = saved[0], saved[1]
            STATE.mesh, STATE.abstract_mesh = saved[2]

    def _of_jax(self) -> contextlib.AbstractContextManager[None]:
        """A block in which the functions of real JAX are imported, if the file is written for it.
        """
        if not getattr(self.options, "jax", False):
            return contextlib.nullcontext()
        if not is_installed("jax"):
            raise Problem("--jax needs JAX, which is not installed: pip install 'shardtrace[jax]'")
        devices = f"--xla_force_host_platform_device_count={device_count()}"
        if "jax" not in sys.modules and devices.partition("=")[0] not in os.environ.get(
                "XLA_FLAGS", ""):
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {devices}".strip()
        return _watching.jax_functions_imported()

    def _watch(self, item: Traced | EagerCall, again: Callable[[], None]) -> None:
        leaves = item._leaves if isinstance(item, Traced) else item.leaves
        name = item.fun_name if isinstance(item, Traced) else item.program.name
        try:
            what = (identity(item._jitted), item._static) if isinstance(item, Traced) else (
                name, _line(item))
            key = (what, tuple(map(leaf_key, leaves)))
        except TypeError:
            key = (name, id(item))
        if key in self._keys:
            return
        self._keys.add(key)
        if isinstance(item, Traced):
            again()
            if len(self.seen) < _MOST:
                self.seen.append(FoundFunction(item, f"{self.path}:{name}", "as the file calls it",
                                               kept=self.options.verb == "run"))
        elif len(self._ran) < 4 * _MOST and (
                item.program.mesh.axis_names or item.program.memo.get("meshes")
                or any(s is not None for s in item.specs)):
            self._ran.append(item)

    def operations(self) -> list[Found]:
        """What communicated outside of any jitted function."""
        found: list[Found] = []
        with unwatched():
            for ran in self._ran:
                try:
                    local = list(further(ran.program, ran.specs).values())[-1]
                except Exception:       # not a program by itself; the file has run it
                    continue
                if any(True for _ in each_collective(local)):
                    found.append(FoundProgram(ran.program, f"{self.path} (outside of jit)",
                                              ran.specs))
        return found

    # -- functions and arguments -------------------------------------------------------------------

    def functions(self) -> dict[str, Any]:
        """The functions that the file itself defines, by name; jitted ones first."""
        own, here = {}, str(self.path.resolve())
        for name, value in self.names.items():
            inner = inspect.unwrap(value) if callable(value) else None
            if (inspect.isfunction(inner) and not name.startswith("__")
                    and str(Path(inner.__code__.co_filename).resolve()) == here):
                own[name] = value
        return dict(sorted(own.items(), key=lambda item: not isinstance(item[1], Jitted)))

    def named(self, name: str) -> Found:
        """A function of the file on arguments that are given or found."""
        if name == "<lambda>" or not name:
            raise Problem("name a function: FILE.py:FUNCTION")
        fun: Any = argparse.Namespace(**self.names)
        for part in name.split("."):
            if not hasattr(fun, part):
                raise Problem(f"{self.path}: {none_such(name, self.functions(), 'function')}")
            fun = getattr(fun, part)
        if not callable(fun):
            return self._made(fun, name)
        arguments = (given_arguments(fun, self.names, self.options)
                     or declared_arguments(fun, name, self.names, self.path)
                     or commented_arguments(fun, name, self.names, self.path, self.options))
        if arguments is None and not needed(fun):
            try:
                with unwatched(), contextlib.redirect_stdout(io.StringIO()):
                    made = fun() if not isinstance(fun, Jitted) else None
            except Exception as error:
                raise failure(error, f"calling `{name}()`") from error
            if isinstance(made, Explanation | Traced | Lowered | Compiled):
                return self._made(made, name)
            arguments = ((), {})
        if arguments is not None:
            return self.traced(fun, name, arguments, "")
        called = self.calls_of(fun, name)
        if called:
            return called[0]
        arguments = self._guessed(fun, name)
        if arguments is None and self.is_script:
            self.run_as_script()
            called = self.calls_of(fun, name)
            if called:
                return called[0]
        if arguments is None:
            message = "\n".join(self.missing(name, fun))
            raise Problem(f"{message}\n{self.failed}" if self.failed else message)
        return self.traced(fun, name, arguments, "")

    def calls_of(self, fun: Any, name: str) -> list[FoundFunction]:
        """The calls of a function that the file makes: one for each type of arguments and each
        static value."""
        own = identity(fun)
        found = [f for f in self.seen if identity(f.traced._jitted) == own]
        for f in found:
            f.name, f.label, f.others = name, f"{self.path}:{name}", len(found) - 1
        return found

    def every(self, name: str) -> list[Found]:
        """A function of the file, for each way in which it is called."""
        first = self.named(name)
        fun = self.names.get(name)
        called: list[Found] = [*self.calls_of(fun, name)] if fun is not None else []
        return called if first in called else [first]

    def all(self, advise: bool = True) -> tuple[list[Found], list[str]]:
        """Every program of the file that can be found, and what is missing for the others. advise:
        whether it is tried what would help these.
        """
        declared = self.names.get(ARGUMENTS)
        functions = self.functions()
        jitted = {n: f for n, f in functions.items() if isinstance(f, Jitted)}
        found: list[Found] = []
        if isinstance(declared, dict):
            found += [self.named(name) for name in declared]
        for name in commented_calls(self.path):
            if name in functions and name not in {f.name for f in found}:
                try:
                    found.append(self.named(name))
                except Problem as problem:              # others may be fine
                    self.problems.append(problem)
        declared_ones = {f.name for f in found}
        unseen = [n for n, f in jitted.items()
                  if n not in declared_ones and not self.calls_of(f, n)]
        if self.is_script and (unseen or not (found or self.seen)):
            self.run_as_script()
        called = {n for n, f in jitted.items() if self.calls_of(f, n)}
        found += [f for f in self.seen if f.name not in declared_ones]
        missing: list[str] = []
        for name, fun in jitted.items():
            if name in called or name in declared_ones:
                continue
            arguments = self._guessed(fun, name)
            if arguments is None and not needed(fun):
                arguments = ((), {})
            if arguments is None:
                missing += self.missing(name, fun, advise)
                continue
            try:
                found.append(self.traced(fun, name, arguments, _FOUND))
            except Problem as problem:                  # others may be fine
                self.problems.append(problem)
                missing.append(str(problem))
        found += self.operations()
        wrong: Problem | None = None
        if not found:
            for name, fun in functions.items():
                arguments = None if isinstance(fun, Jitted) else self._guessed(fun, name)
                if arguments is None or is_maker(name):
                    continue
                try:
                    found.append(self.traced(fun, name, arguments, _FOUND))
                except Problem as problem:              # a guess; perhaps it was not meant
                    wrong = wrong or problem
        if not found:
            for name, fun in functions.items():
                if _RUNS.fullmatch(name) and not needed(fun) and not (
                        name == "main" and self.is_script):
                    self._run(fun, f"calling `{name}()` of {self.path}")
            found += [*self.seen, *self.operations()]
            missing = [] if found else missing
        if not found and not missing and wrong is not None:
            raise wrong
        if not found and not missing:
            missing = [line for name, fun in functions.items()
                       if needed(fun) for line in self.missing(name, fun, advise)]
        return found, missing

    def traced(self, fun: Any, name: str, arguments: tuple[tuple, dict], how: str) -> FoundFunction:
        """The function traced on arguments."""
        args, kwargs = arguments
        jitted = fun if isinstance(fun, Jitted) else (
            _watching.Late(fun, fun) if getattr(self.options, "jax", False) else jit(fun))
        try:
            with unwatched(), contextlib.redirect_stdout(io.StringIO()):
                traced = jitted.trace(*args, **kwargs)
        except Exception as error:
            raise failure(error, f"tracing `{name}`") from error
        return FoundFunction(traced, f"{self.path}:{name}", how)

    def _made(self, made: Any, name: str) -> Found:
        label = f"{self.path}:{name}"
        if isinstance(made, Explanation):
            return FoundExplanation(made, label)
        if isinstance(made, Lowered | Compiled):
            return FoundFunction(made._traced, label, stage=made)
        if isinstance(made, Traced):
            return FoundFunction(made, label)
        raise Problem(f"{label} is no function but {type(made).__name__}")

    def _guessed(self, fun: Any, name: str) -> tuple[tuple, dict] | None:
        return guessed_arguments(fun, name, self.names, self.functions(), self.options)

    def missing(self, name: str, fun: Any, advise: bool = True) -> list[str]:
        """What is missing for a function, and the command that gives it."""
        line = inspect.unwrap(fun).__code__.co_firstlineno
        names = ", ".join(f"`{p.name}`" for p in needed(fun))
        within = (f" in the {self.stopped:g} s that the file was let run (--seconds)"
                  if self.stopped else "")
        text = (f"{self.path}:{line}: no call of `{name}`{within} and no arguments for it were "
                f"found; it needs {names}")
        options = argument_options(fun, self.names) if advise else None
        if options is None:
            return [f"{text}. Give the type of each, or of its parts, with --arg, or all arguments "
                    f"with --args; or define {ARGUMENTS} in the file"]
        verb = getattr(self.options, "verb", "explain")
        return [f"{text}. Give their types:",
                f"    {command(verb, f'{self.path}:{name}', options)}"]


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[Callable[[], None]]:
    """Raise Enough after so many seconds; the function that is given begins them anew."""
    usable = hasattr(signal, "setitimer") and (
        threading.current_thread() is threading.main_thread()) and seconds > 0
    if not usable:
        yield lambda: None
        return

    def over(*_: Any) -> None:
        raise Enough

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield lambda: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _package_root(path: Path) -> Path:
    """The folder from which the file is imported: above the packages that it lies in."""
    folder = path.resolve().parent
    while (folder / "__init__.py").exists() and folder.parent != folder:
        folder = folder.parent
    return folder


def _module_name(path: Path) -> str:
    """The file's name as a module: of its package, so that relative imports work; else its own."""
    parts = path.resolve().with_suffix("").relative_to(_package_root(path)).parts
    return f"_target_{path.stem}" if len(parts) == 1 else ".".join(parts)


def _line(ran: EagerCall) -> str:
    return str(ran.program.eqns[0].location) if ran.program.eqns else ""
