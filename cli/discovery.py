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
import contextlib
import inspect
import io
import re
from pathlib import Path
from typing import Any

from ..driver.execution.call_capture import unwatched
from ..driver.jit.jit import jit
from ..driver.jit.jitted import Jitted
from ..driver.jit.stages import Compiled, Lowered, Traced
from ..ir.support.lazy import lazy_import
from ..ir.support.spelling import none_such
from ..report.explanation import Explanation
from .arguments import Given, given_arguments
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
from .places import Place, place_of
from .problems import Problem, failure
from .targets import Found, FoundExplanation, FoundFunction
from .watched_file import WatchedFile

_watching = lazy_import("..interop.jaxpr.watching", __package__)

_FOUND = "on arguments found in the file"
_RUNS = re.compile(r"main|run|demo|test_\w+")        # functions that are called for want of others


class PythonFile(WatchedFile):
    """A Python file under study: its functions, each with arguments."""

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
            arguments = Given((), {})
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
        functions = self.functions()
        jitted = {n: f for n, f in functions.items() if isinstance(f, Jitted)}
        found = self._declared(functions)
        declared = {f.name for f in found}
        unseen = [n for n, f in jitted.items() if n not in declared and not self.calls_of(f, n)]
        if self.is_script and (unseen or not (found or self.seen)):
            self.run_as_script()
        called = {n for n, f in jitted.items() if self.calls_of(f, n)}
        found += [f for f in self.seen if f.name not in declared]
        missing: list[str] = []
        for name, fun in jitted.items():
            if name not in called and name not in declared:
                missing += self._add_jitted(found, fun, name, advise)
        found += self.operations()
        if found and not missing and called | declared >= {*jitted}:
            self._refuse_arguments()
        wrong = None if found else self._add_guessed(found, functions)
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

    def _refuse_arguments(self) -> None:
        """Raise Problem for arguments on the command line: the file gives its functions theirs."""
        for flag, name in (("--args", "args"), ("--arg", "arg")):
            if getattr(self.options, name, None):
                raise Problem(f"{flag} has no meaning for {self.path}, which calls its functions "
                              f"itself; name the one that it is for: {self.path}:FUNCTION")

    def _declared(self, functions: dict[str, Any]) -> list[Found]:
        """What the file itself says how to call, in a dictionary or in comments."""
        declared = self.names.get(ARGUMENTS)
        found = [self.named(name) for name in declared] if isinstance(declared, dict) else []
        for name in commented_calls(self.path):
            if name in functions and name not in {f.name for f in found}:
                try:
                    found.append(self.named(name))
                except Problem as problem:              # others may be fine
                    self.problems.append(problem)
                    self.unfit[name] = [str(problem)]
        return found

    def _add_jitted(self, found: list[Found], fun: Jitted, name: str, advise: bool) -> list[str]:
        """Add a jitted function that nobody calls; what is missing for that, if it is."""
        arguments = self._guessed(fun, name)
        if arguments is None and needed(fun):
            return self.missing(name, fun, advise)
        try:
            found.append(self.traced(fun, name, arguments or Given((), {}), _FOUND))
        except Problem as problem:                      # others may be fine
            self.problems.append(problem)
            return [str(problem)]
        return []

    def _add_guessed(self, found: list[Found], functions: dict[str, Any]) -> Problem | None:
        """Add plain functions for which arguments can be guessed; the first problem with one."""
        wrong: Problem | None = None
        for name, fun in functions.items():
            arguments = None if isinstance(fun, Jitted) else self._guessed(fun, name)
            if arguments is not None and not is_maker(name):
                try:
                    found.append(self.traced(fun, name, arguments, _FOUND))
                except Problem as problem:              # a guess; perhaps it was not meant
                    wrong = wrong or problem
        return wrong

    def traced(self, fun: Any, name: str, given: Given, how: str) -> FoundFunction:
        """The function traced on arguments, as if called where the file gives these, or else where
        it defines the function.
        """
        place = self._place(fun, name, given.origin)
        jitted = fun
        if not isinstance(fun, Jitted):
            of_jax = getattr(self.options, "jax", False)
            jitted = _watching.ImportedWhenCalled(fun, fun) if of_jax else jit(fun)
        try:
            with unwatched(), contextlib.redirect_stdout(io.StringIO()):
                traced = place.call(lambda: jitted.trace(*given.args, **given.kwargs))
        except Exception as error:
            raise failure(error, f"tracing `{name}`") from error
        return FoundFunction(traced, f"{self.path}:{name}", how, place=place)

    def _place(self, fun: Any, name: str, origin: str) -> Place:
        """Where the file gives a function its arguments, or defines it."""
        line = inspect.unwrap(fun).__code__.co_firstlineno
        return (place_of(self.path, origin or name.rpartition(".")[2], self.names)
                or Place(str(self.path), line, 0, 0, self.names))

    def _made(self, made: Any, name: str) -> Found:
        label = f"{self.path}:{name}"
        if isinstance(made, Explanation):
            return FoundExplanation(made, label)
        if isinstance(made, Lowered | Compiled):
            return FoundFunction(made._traced, label, stage=made)
        if isinstance(made, Traced):
            return FoundFunction(made, label)
        raise Problem(f"{label} is no function but {type(made).__name__}")

    def _guessed(self, fun: Any, name: str) -> Given | None:
        unfit: list[str] = []
        given = guessed_arguments(fun, name, self.names, self.functions(), self.options, self.path,
                                  unfit)
        self.unfit[name] = [*dict.fromkeys((*self.unfit.get(name, ()), *unfit))]
        return given

    def missing(self, name: str, fun: Any, advise: bool = True) -> list[str]:
        """What is missing for a function, and the command that gives it."""
        line = inspect.unwrap(fun).__code__.co_firstlineno
        names = ", ".join(f"`{p.name}`" for p in needed(fun))
        within = (f" in the {self.stopped:g} s that the file was let run (--seconds)"
                  if self.stopped else "")
        text = (f"{self.path}:{line}: no call of `{name}`{within} and no arguments for it were "
                f"found; it needs {names}")
        text = "\n".join([*self.unfit.get(name, ()), text])
        options = argument_options(fun, self.names) if advise else None
        if options is None:
            return [f"{text}. Give the type of each, or of its parts, with --arg, or all arguments "
                    f"with --args; or define {ARGUMENTS} in the file"]
        verb = getattr(self.options, "verb", "explain")
        return [f"{text}. Give their types:",
                f"    {command(verb, f'{self.path}:{name}', options)}"]
