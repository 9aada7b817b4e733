"""Dumps: the text of every stage, in files of a folder."""
from __future__ import annotations

import collections
import contextlib
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

from ..ir.diagnostics.errors import DumpError
from ..ir.passes import Pass
from ..ir.program import Level, Program
from ..ir.support.lazy import lazy_import
from .passes import PIPELINE, PartitionRequest

_collectives = lazy_import(".collectives", __package__)
_text = lazy_import("..ir.text.print", __package__)

# a word for the pass that a stage comes from
_MADE_BY = {step.stage: step.name for step in reversed(PIPELINE)} | {"optimized": "optimize"}
PASSES = "passes"


class Dump:
    """Writes the stages of one program into a directory, numbered; does nothing without one.

    Files are `layer.00-traced.st`, `layer.01-inlined.st`, ...; when another program of that name
    is partitioned in this process, its files are `layer.2.00-traced.st`, ... The same program is
    written once. What passes within a stage leave, and the executor's in bodies of loops, lies in
    a folder of its own, PASSES.
    """

    KEY: ClassVar = "dump"          # in the memo of the last stage
    _written: ClassVar[dict[tuple[str, str], set[tuple]]] = collections.defaultdict(set)

    def __init__(self, folder: pathlib.Path | None, name: str = "", keeps: bool = True) -> None:
        self.folder, self.name, self.keeps = folder, name, keeps
        self.count = 0
        self.files: list[tuple[int, pathlib.Path]] = []    # by the stage that they are of

    @classmethod
    def of(cls, directory: str, program: Program, request: PartitionRequest) -> Dump:
        """The dump of a program; one that writes nothing if there is no directory, or if the same
        program was written there before.
        """
        if not directory:
            return cls(None)
        folder = pathlib.Path(directory)
        with _into(folder):
            folder.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"\W+", "", program.name) or "program"
        known, own = cls._written[directory, name], (_text.print_program(program), request.skip)
        if own in known:
            return cls(None)
        known.add(own)
        nth = len(known)
        return cls(folder, name if nth == 1 else f"{name}.{nth}")

    def write(self, stage: str, program: Program) -> None:
        if self.folder is None:
            return
        self._save(f"{self.name}.{self.count:02d}-{stage}.st", program, provenance(stage, program))
        self.count += 1

    def rewind(self, stages: int) -> None:
        """Delete the files of the last stages, as another plan replaces them."""
        self.count -= stages
        for at, path in self.files:
            if at >= self.count:
                path.unlink(missing_ok=True)

    def write_step(self, letter: str, step: Pass, program: Program) -> None:
        """Write the program after a pass within a stage: `04b-hoist` is between 04 and 05."""
        if self.folder is not None:
            self._save(f"{PASSES}/{self.name}.{self.count - 1:02d}{letter}-{step.name}.st", program,
                       f"after {step.name}, {len(program.eqns)} equations; {step.doc}")

    def _save(self, file: str, program: Program, comment: str) -> None:
        assert self.folder is not None
        with _into(self.folder):
            path = self.folder / file
            path.parent.mkdir(exist_ok=True)
            self.files.append((self.count, path))
            _text.save_program(program, path, comment=comment)

    def remember(self, local: Program) -> None:
        """Note in the last stage's program where it was dumped, for later dumps of it."""
        if self.folder is not None:
            local.attributes[Dump.KEY] = self

    def execution(self, number: int, step: Pass, program: Program, body: str = "") -> None:
        """Write the program after pass `number` of the executor's; `body` names that of a loop."""
        file = f"{self.name}.{self.count + number:02d}-{step.stage}.st"
        if body:
            file = f"{PASSES}/{file.removesuffix('st')}{body}.st"
        of = f" in the program of `{body}`" if body else ""
        self._save(file, program, f"after {step.name}{of}, {len(program.eqns)} equations; "
                   f"{step.doc}")

    def plans(self, number: int, texts: Sequence[tuple[str, str]]) -> None:
        """Write the executor's plan: (name, text) for each step."""
        assert self.folder is not None
        with _into(self.folder):
            folder = self.folder / PASSES
            folder.mkdir(exist_ok=True)
            for i, (name, text) in enumerate(texts, self.count + number):
                (folder / f"{self.name}.{i:02d}-{name}.txt").write_text(text, encoding="utf-8")

    def repro(self, step: Pass, before: Program) -> str:
        """Write the input of a pass that failed into the folder of dumps, as a file to run. Returns
        a sentence on where it is, or how to get it. Nothing is kept of a trial plan, which may
        fail.
        """
        if not self.keeps:
            return ""
        if self.folder is None:
            return "; set SHARDTRACE_DUMP to a folder to get its input there, as repro.st"
        path = self.folder / "repro.st"
        with _into(self.folder):
            _text.save_program(before, path, comment=f"input of pass {step.name}, which left an "
                               "invalid program")
        return f"; its input is in {path}"


@contextlib.contextmanager
def _into(folder: pathlib.Path) -> Iterator[None]:
    """A block that writes into the folder of dumps; raises DumpError where the system refuses."""
    try:
        yield
    except OSError as problem:
        raise DumpError(
            f"programs cannot be dumped into '{folder}', which SHARDTRACE_DUMP or the setting "
            f"shardtrace_dump names: {'it is a file' if folder.is_file() else problem.strerror}"
            ) from problem


def provenance(stage: str, program: Program) -> str:
    """`after propagate, 14 equations, 0 collectives`."""
    after = _MADE_BY.get(stage, "trace")
    count = len(_collectives.collectives(program)) if program.level is Level.LOCAL else 0
    return f"after {after}, {len(program.eqns)} equations, {count} collectives"
