"""The worker process that explains files for the server. A request is a line of JSON; the answer is
several lines, each with the number of the request, the last of which has nothing else.

The worker loads everything once and never executes user code itself: each file runs in a fork,
which is killed when its time is up, so every answer starts from a clean and warm state. The fork is
made ahead of time, and reports what it finds while the file is still running. While idle, the
worker partitions the programs found before, from their text: what it learns about their ops and
layouts is most of what the next answer needs.
"""
from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import itertools
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ... import runtime, tracer
from ...driver.execution.call_capture import unwatched
from ...driver.execution.programs import further
from ...ir.program import Program
from ...ir.settings.context import STATE, config
from ...ir.support.lazy import load_all
from ...ir.support.scopes import override
from ...ir.text.parse import parse_program
from ...partitioner.cost.topology import Topology
from ...report.advice.trials import costed_parts
from ...report.explanation import Explanation
from ...report.views.costs import fix_data
from ...report.views.data import moved_data, source_data, type_data
from ..discovery import PythonFile
from ..isolated import Isolated, Send
from ..problems import Problem
from ..targets import Found, FoundFunction
from .findings import ERROR, WARNING, Findings

_SEND_EVERY = 0.05       # seconds at most between messages while a file runs
_FILES = 2               # whose programs are learned from
_MOST_EQUATIONS = 5_000          # of the programs of a file that are
_LONG = 500              # equations of a program that takes a while to plan

_WARM = """
import numpy as np
import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn, random
from shardtrace.sharding import AbstractMesh, NamedSharding, PartitionSpec as P
mesh = AbstractMesh((2, 2), ("x", "y"))
def attention(a, w):
    q, k, v = [(a @ w[n]).reshape(*a.shape[:2], 2, -1) for n in ("q", "k", "v")]
    probs = nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(4))
    return jnp.einsum("bhqk,bkhd->bqhd", probs, v).reshape(a.shape) @ w["o"]
def block(a, w):
    h = (a - a.mean(-1, keepdims=True)) / jnp.sqrt(jnp.var(a, -1, keepdims=True) + 1e-6)
    a = a + attention(h, w)
    h = nn.silu(jnp.where(a > 0, a, 0.0)) * nn.gelu(a)
    return a + h @ w["o"] + nn.relu(a), h.sum()
@st.jit
def loss(ws, a, labels):
    a, sums = lax.scan(block, a, ws)
    a, _ = block(a, st.tree.map(lambda w: w[0], ws))
    picked = jnp.take_along_axis(nn.log_softmax(a), labels[..., None], axis=-1)
    return jnp.mean(a ** 2) + sums.max() - picked.mean()
@st.jit
def step(ws, a, labels):
    value, slopes = st.value_and_grad(loss)(ws, a, labels)
    return st.tree.map(lambda w, g: w - 0.1 * g, ws, slopes), value
def struct(shape, *spec, dtype=np.float32):
    return st.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))
if __name__ == "__main__":
    ws = {n: struct((2, 8, 8), None, None, "y") for n in "qkv"}
    step.trace({**ws, "o": struct((2, 8, 8), None, "y")}, struct((4, 4, 8), "x"),
               struct((4, 4), "x", dtype=np.int32))
"""


def serve() -> int:
    """Answer until there is nothing more to read."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "warm.py")
        path.write_text(_WARM)
        learn(_programs(look({"path": str(path), "seconds": 10.0}, lambda found: None)))
    for package in (tracer, runtime):       # what files may need besides
        load_all(package)
    gc.disable()                         # its copies live for one answer
    gc.freeze()
    waiting = Isolated(answer)
    print(json.dumps({"ready": True}), file=out, flush=True)
    questions = open(0, "rb", buffering=0)       # one that waits can be seen
    programs: dict[str, list[str]] = {}
    for line in questions:
        request = json.loads(line)
        number, path = {"number": request["number"]}, request["path"]
        copy = waiting if waiting.is_ready else Isolated(answer)
        for found in answers(request, copy, questions):
            if "programs" in found:
                programs.pop(path, None)
                programs[path] = found["programs"]
            else:
                print(json.dumps({**number, **found}), file=out, flush=True)
        print(json.dumps(number), file=out, flush=True)
        waiting.end()
        for old in list(programs)[:-_FILES]:
            del programs[old]
        known = [*itertools.chain(*reversed(programs.values()))]      # of the last one first
        waiting = Isolated(answer, functools.partial(learn, known))
    waiting.end()
    return 0


def learn(programs: Sequence[str]) -> None:
    """Partition programs to fill the caches of ops and layouts."""
    for text in programs:
        with contextlib.suppress(Exception):     # it has what no text can say
            further(parse_program(text))


def _programs(explanations: Sequence[Explanation]) -> list[str]:
    """The traced programs as text, without those too large to learn from."""
    traced = [e.partitioned.stages.get("traced") for e in explanations]
    sizes = itertools.accumulate(len(p.eqns) if p is not None else 0 for p in traced)
    return [str(p) for p, size in zip(traced, sizes, strict=True)
            if p is not None and size <= _MOST_EQUATIONS]


def answers(request: dict[str, Any], waiting: Isolated, questions: Any) -> Iterator[dict[str, Any]]:
    """The findings of a file, until another request makes this one obsolete; an empty answer with a
    problem if the file takes too long, ends its process or cannot be read.
    """
    seconds = (3 if request.get("advise") else 1) * request["seconds"] + 5
    try:
        yield from waiting.messages(request, seconds, questions)
    except Exception as problem:
        found = Findings(request["path"], "")
        found.problem([0, 0, 0, 0], f"shardtrace: {problem}", ERROR)
        yield found.data()


def answer(request: dict[str, Any], send: Send) -> None:
    """What the server asks for."""
    send({"programs": _programs((advise if request.get("advise") else look)(request, send))})


def look(request: dict[str, Any], send: Send) -> list[Explanation]:
    """Types, collectives, errors of a file: what can be had at once; while it is running, those of
    the functions that it has called so far, and of a long one before other plans are compared. Then
    all that again with the reasons.
    """
    found, last_sent, typed, added = _findings(request), 0.0, set[Program](), list[Explanation]()

    def running(planned: Sequence[dict[str, Any]] = ()) -> None:
        nonlocal last_sent
        if time.monotonic() - last_sent > _SEND_EVERY:
            data = found.data()
            send({**data, "lenses": [*data["lenses"], *planned], "running": True})
            last_sent = time.monotonic()

    def on_stage(stage: str, program: Program) -> None:
        if stage == "resolved":
            typed.add(program)
            found.add(type_data(program))
            if len(program.eqns) >= _LONG:
                running()
        elif stage == "optimized" and len(program.eqns) >= _LONG:
            topology = Topology.of(request.get("hardware") or config.read("shardtrace_hardware"),
                                   program.mesh.shape)
            own = found.without_programs()
            own.add(moved_data(costed_parts(program, topology)))
            running(own.data()["lenses"])

    def add(e: Explanation) -> None:
        if e.partitioned.resolved not in typed:
            found.add(type_data(e.partitioned.resolved))
        found.add(moved_data([(c.record, c.time) for c in e.parts]))
        added.append(e)

    def on_explained(e: Explanation) -> None:
        add(e)
        running()

    explanations = _explained(request, found, on_explained, on_stage)
    for e in explanations:
        if e not in added:
            add(e)
    send(found.data())
    found = found.without_programs()
    for e in explanations:
        found.add(source_data(e))
    send(found.data())
    return explanations


def advise(request: dict[str, Any], send: Send) -> list[Explanation]:
    """All problems of a file, what is wasted among them; and what avoids the costliest collectives,
    by line: in words, and as edits where it is written so.
    """
    found = _findings(request)
    fixes: list[dict[str, Any]] = []
    explanations = _explained(request, found)
    for e in explanations:
        found.wasted(e.warnings)
        for cause in e.root_causes[:3]:
            c = cause.groups[0][0]
            if c.source.file != request["path"]:
                continue
            for fix in fix_data(e, c):
                edits = [{"range": found.text.range(x["line"], x["column"], x["end_line"],
                                                    x["end_column"]), "text": x["text"]}
                         for x in fix["edits"] if x["file"] == request["path"]]
                fixes.append({"range": found.text.whole(c.source.line), "title": fix["text"],
                              "effect": fix["effect"], "edits": edits if len(edits) == len(
                                  fix["edits"]) else []})
    send({"advice": fixes, "problems": found.problems})
    return explanations


def _findings(request: dict[str, Any]) -> Findings:
    return Findings(request["path"], Path(request["path"]).read_text(encoding="utf-8"))


class _ExplainedFile(PythonFile):
    """A file whose functions are explained when it calls them first. on_explained: is
    given these; on_stage: the stages of the first plan for each.
    """

    def __init__(self, request: dict[str, Any], on_explained: Callable[[Explanation], None],
                 on_stage: Callable[[str, Program], None]) -> None:
        self._hardware = request.get("hardware")
        self._on_explained, self._on_stage = on_explained, on_stage
        self._explanations: dict[Found, Explanation] = {}
        super().__init__(Path(request["path"]), argparse.Namespace(
            verb="explain", seconds=request["seconds"], args=None, arg=None, mesh=None, jax=False,
            argv=None, specs=[]))

    def called_first(self, function: FoundFunction) -> None:
        with unwatched(), contextlib.suppress(Exception):      # which is raised after the run
            self._on_explained(self.explained(function))

    def explained(self, function: Found) -> Explanation:
        """The explanation of a function, made once, with the stages of its first plan handed on."""
        if function not in self._explanations:
            stages: set[str] = set()

            def observe(stage: str, program: Program) -> None:
                if stage not in stages:      # those of other plans come again
                    stages.add(stage)
                    self._on_stage(stage, program)
            with override(STATE, on_stage=[observe]):
                self._explanations[function] = function.explain(self._hardware)
        return self._explanations[function]


def _explained(request: dict[str, Any], found: Findings,
               on_explained: Callable[[Explanation], None] = lambda e: None,
               on_stage: Callable[[str, Program], None] = lambda stage, program: None
               ) -> list[Explanation]:
    """The explanations of a file's functions; what went wrong is added to what is found.
    on_explained: is given each explanation of a function that the file calls; on_stage: the stages
    of the first plan for each.
    """
    explanations: list[Explanation] = []
    problems: list[Exception] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            file = _ExplainedFile(request, on_explained, on_stage)
            functions, _ = file.all(advise=False)
            problems += [*file.problems, *([file.failed] if file.failed else [])]
        except Problem as problem:
            functions = []
            problems.append(problem)
    for w in caught:
        if w.filename == request["path"]:
            found.problem(found.text.whole(w.lineno), str(w.message), WARNING,
                          w.category.__name__)
    for f in functions:
        try:
            e = file.explained(f)
            e.explainer.seconds = request["seconds"] / 4
            explanations.append(e)
        except Exception as error:
            problems.append(error)
    for problem in problems:
        error = problem.error if isinstance(problem, Problem) else problem
        found.failed(error or problem, str(problem))
    return explanations
