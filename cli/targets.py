"""The targets of commands: a function with arguments, or a program in text form.

A target is `FILE.py:FUNCTION`, `FILE.py` (whatever the file jits and calls), a dumped program
(`FILE.st`, at any stage), or `-` for one on standard input. Each gives one or several `Found`.
"""
from __future__ import annotations

import argparse
import contextlib
import copy
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..driver.analysis.explain import explain_program, explain_stage
from ..driver.analysis.freeze import Thawed
from ..driver.execution.call_capture import unwatched
from ..driver.execution.programs import further
from ..driver.jit.stages import Compiled, Lowered, Traced
from ..ir.diagnostics.errors import ShardtraceError
from ..ir.dtypes import short_name
from ..ir.passes import Requests
from ..ir.program import Level, Program
from ..ir.settings.context import STATE
from ..ir.support.scopes import override
from ..ir.text.names import name_variables
from ..ir.text.parse import decoded, load_program, parse_program
from ..ir.values.array import Array
from ..ir.verify import verify
from ..report.explanation import Explanation
from ..report.frozen.plan import FrozenPlan
from ..tracer.trees import tree
from .arguments import specs_of
from .hints import layout_option
from .output import EscapingStream
from .places import Place
from .problems import Problem, failure


class Found:
    """A program to work on. label: as it is named on the command line; name: of the function."""

    label: str = ""
    name: str = ""

    @contextlib.contextmanager
    def context(self) -> Iterator[None]:
        """The context that it was traced in, to trace it again unobserved."""
        with unwatched():
            yield

    def again(self) -> Found:
        """This program, to be planned anew."""
        return self

    def with_plan(self, plan: FrozenPlan) -> Found:
        """This program with the decisions of a plan. Raises Problem for what is no function."""
        raise Problem(f"{self.label}: plans are of functions; give FILE.py:FUNCTION")

    def printing(self) -> contextlib.AbstractContextManager[Any]:
        """A block in which the program runs, for what it prints: the user's own is left as it is.
        """
        return contextlib.nullcontext()

    def stages(self) -> dict[str, Program]:
        """The programs by stage, from what was given to the per-device program."""
        raise NotImplementedError

    def explain(self, hardware: Any, topology: Sequence[int] | None = None) -> Explanation:
        raise NotImplementedError

    def values(self) -> list[np.ndarray | None]:
        """The whole values of the parameters, None for those of which only the type is known."""
        return [None] * len(next(iter(self.stages().values())).invars)

    @property
    def given(self) -> Program:
        """The program that it begins with."""
        return next(iter(self.stages().values()))

    def result_names(self, count: int) -> Sequence[str]:
        """Where each of so many results is in what the function returns: `[0]['w']`."""
        known = self.local.result_names
        return known or ([""] if count == 1 else [f"[{i}]" for i in range(count)])

    @property
    def local(self) -> Program:
        """The per-device program."""
        return list(self.stages().values())[-1]


class FoundFunction(Found):
    """A function that was traced on arguments. how: where these come from. kept: whether the
    arguments are copied, since the file may donate or delete them before they are asked for. place:
    in the file, from where it is lowered."""

    def __init__(self, traced: Traced, label: str, how: str = "",
                 stage: Lowered | Compiled | None = None, kept: bool = False,
                 place: Place | None = None) -> None:
        self.traced, self.label, self.how = traced, label, how
        self.name, self.place = traced.fun_name, place
        self._meshes = (STATE.mesh, STATE.abstract_mesh)
        self._stage = stage
        self.others = 0              # ways in which the file calls it besides
        self._values = [None if x is None else x.copy() for x in self._read()] if kept else None

    @contextlib.contextmanager
    def context(self) -> Iterator[None]:
        mesh, abstract_mesh = self._meshes
        with override(STATE, mesh=mesh, abstract_mesh=abstract_mesh), unwatched():
            yield

    def again(self) -> Found:
        found = copy.copy(self)
        found._stage = None
        return found

    def with_plan(self, plan: FrozenPlan) -> FoundFunction:
        """The function traced again, with the decisions of a frozen plan."""
        found, old = copy.copy(self), self.traced
        thawed = Thawed(old._jitted, plan)      # type: ignore[arg-type]
        with self.context():
            try:
                program, out_tree, captured = thawed._trace(old._leaves, old.in_tree, old._static)
            except Exception as error:
                raise failure(error, f"keeping the plan of `{self.name}`") from error
        found._stage = None
        found.traced = Traced(thawed, program, old.in_tree, out_tree, old._leaves, captured,
                              old._static)
        return found

    def lowered(self) -> Lowered | Compiled:
        if self._stage is None:
            with self.context():
                try:
                    lower = self.traced.lower
                    self._stage = lower() if self.place is None else self.place.call(lower)
                except Exception as error:
                    raise failure(error, f"partitioning `{self.name}`") from error
        return self._stage

    def stages(self) -> dict[str, Program]:
        return self.lowered().stages

    def explain(self, hardware: Any, topology: Sequence[int] | None = None) -> Explanation:
        stage = self.lowered()
        with self.context():
            return explain_stage(stage, hardware, topology=topology)

    def values(self) -> list[np.ndarray | None]:
        return self._read() if self._values is None else self._values

    def _read(self) -> list[np.ndarray | None]:
        found: list[np.ndarray | None] = []
        for x in (*self.traced._captured, *self.traced._leaves):
            readable = not isinstance(x, Array) or not x.is_deleted()
            known = readable and (isinstance(x, Array) or np.isscalar(x)
                                  or isinstance(x, np.ndarray | np.generic))
            found.append(np.asarray(getattr(x, "value", x)) if known else None)
        return found

    def result_names(self, count: int) -> Sequence[str]:
        whole = tree.unflatten(self.traced.out_tree, range(count))
        return [tree.keystr(path) for path, _ in tree.leaves_with_path(whole)]

    def argument_types(self) -> str:
        """The types of the arguments with their shardings: `x: f32[64@X,256], w: f32[256]`."""
        types = self.lowered()._argument_types()
        given = self.lowered()._executable.arg_specs
        named = zip(self.traced.jaxpr.arg_names, types, given, strict=True)
        return ", ".join(f"{name}: {_typed(t, spec)}" for name, t, spec in named)


class FoundProgram(Found):
    """A program without a function, at any level. specs: how the parameters of a TRACED one are
    split. is_text: it was read from text, not captured from a running program.
    """

    def __init__(self, program: Program, label: str, specs: Sequence[Any] = (),
                 is_text: bool = False) -> None:
        self.program, self.label, self.name = program, label, program.name
        self.is_text = is_text
        self.specs = list(specs)
        self._stages: dict[str, Program] | None = None

    @property
    def given(self) -> Program:
        return self.program

    def printing(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.redirect_stdout(EscapingStream(sys.stdout)) if self.is_text else super(
            ).printing()

    def check_layouts(self) -> None:
        """Raise Problem where no argument has a known sharding: figures would mean nothing."""
        program = self.program
        if (self.is_text and program.level is Level.TRACED and program.mesh.auto_axes
                and program.invars and Requests.KEY not in program.attributes
                and all(s is None for s in self.specs)):
            option = layout_option(program, parameter_names(program))
            example = f", such as {option}" if option else ""
            raise Problem(
                f"{self.label} does not say how its arguments are laid out over "
                f"{', '.join(map(str, program.mesh.auto_axes))}; say it for each that is, with "
                f"--in NAME=SPEC{example}, or in the text, with `<-` and the type with its axes "
                "after that of the parameter; with a line `layouts free` above the program, the "
                "partitioner places them")

    def stages(self) -> dict[str, Program]:
        if self._stages is None:
            self.check_layouts()
            try:
                self._stages = further(self.program, self.specs)
            except (ShardtraceError, ValueError, TypeError) as error:
                raise failure(error, f"partitioning `{self.name}`") from error
        return self._stages

    def explain(self, hardware: Any, topology: Sequence[int] | None = None) -> Explanation:
        self.check_layouts()
        return explain_program(self.program, hardware, topology=topology, in_shardings=self.specs)


class FoundExplanation(Found):
    """What a function of the file explained itself."""

    def __init__(self, explanation: Explanation, label: str) -> None:
        self.explanation, self.label, self.name = explanation, label, explanation.name

    def stages(self) -> dict[str, Program]:
        return self.explanation.partitioned.stages

    def explain(self, hardware: Any, topology: Sequence[int] | None = None) -> Explanation:
        return self.explanation


def _typed(t: Any, spec: Any) -> str:
    """A type with the spec that it was given, where the type itself does not say it."""
    if spec is None or any(t.entries):
        return t.str_short(True)
    dims = [f"{n}@{axes[0] if len(axes) == 1 else '(' + ','.join(map(str, axes)) + ')'}"
            if axes else str(n) for n, axes in zip(t.shape, spec.padded(t.ndim).entries,
                                                   strict=True)]
    return f"{short_name(t.dtype)}[{','.join(dims)}]"


def is_python(target: str) -> bool:
    """Does the target name a Python file, with or without a function?"""
    return target.endswith(".py") or ".py:" in target


def parts_of(target: str) -> tuple[Path, str]:
    """`train.py:step` as the file and the function ("" for the whole file)."""
    if target.endswith(".py"):
        return Path(target), ""
    file, _, name = target.rpartition(":")
    return Path(file), name


def read_program(target: str, options: argparse.Namespace) -> FoundProgram:
    """The program in a text file, verified."""
    try:
        if target == "-":
            program = parse_program(standard_input(), filename="<stdin>")
        else:
            path = Path(target)
            if path.is_dir():
                raise Problem(f"{target} is a directory; name a program in it")
            if not path.exists():
                near = " (a Python target is FILE.py or FILE.py:FUNCTION)" if ":" in target else ""
                raise Problem(f"there is no file {target}{near}: No such file or directory")
            program = load_program(path)
        verify(program)
    except (ShardtraceError, ValueError, TypeError, KeyError, UnicodeDecodeError) as error:
        raise Problem(f"{type(error).__name__}: {error}") from error
    specs = getattr(options, "specs", [])
    if specs and program.level is not Level.TRACED:
        raise Problem(f"--in: a {program.level.value} program has its shardings already; leave "
                      "--in out, or give the traced program")
    return FoundProgram(program, target, specs_of(parameter_names(program), specs),
                        is_text=True)


def standard_input() -> str:
    """The text that is piped in."""
    raw = getattr(sys.stdin, "buffer", None)
    return sys.stdin.read() if raw is None else decoded(raw.read(), "<stdin>")


def parameter_names(program: Program) -> list[str]:
    """The parameter names in the program's text."""
    names = name_variables(program)
    return [names[v] for v in program.invars]
