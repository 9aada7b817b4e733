"""The process that explains files for the server: a line of JSON in, lines of JSON out, each with
the number of what was asked, the last with nothing else.

It loads everything once and executes nothing of a user: each file is run in a copy of it that is
given up after its time, so that the next answer begins from a clean state, and warm.
"""
from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...report.views.costs import fix_data
from ...report.views.data import source_data
from ..discovery import PythonFile
from ..isolated import Died, isolated_each
from ..problems import Problem
from .findings import ERROR, WARNING, Findings

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
        list(look({"path": str(path), "seconds": 10.0}))     # what it needs is loaded by now
    gc.disable()                         # its copies live for one answer
    gc.freeze()
    print(json.dumps({"ready": True}), file=out, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        number = {"number": asked["number"]}
        for found in answers(asked):
            print(json.dumps({**number, **found}), file=out, flush=True)
        print(json.dumps(number), file=out, flush=True)
    return 0


def answers(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What is found in a file; an empty answer with a problem where it takes too long or ends."""
    work = advise if asked.get("advise") else look
    try:
        yield from isolated_each(work, asked,
                                 (3 if asked.get("advise") else 1) * asked["seconds"] + 5)
    except (TimeoutError, Died, RuntimeError) as problem:
        found = Findings(asked["path"], "")
        found.problem([0, 0, 0, 0], f"shardtrace: {problem}", ERROR)
        yield found.data()


def look(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Types, collectives, errors of a file: what can be had at once. Then all that again with the
    reasons.
    """
    found, explanations = _explained(asked)
    for reasons in (False, True):
        found.forget_programs()
        for e in explanations:
            found.add(source_data(e, reasons))
        yield found.data()


def advise(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All problems of a file, what is wasted among them; and what avoids the dearest collectives,
    by line: in words, and as edits where it is written so.
    """
    found, explanations = _explained(asked)
    fixes: list[dict[str, Any]] = []
    for e in explanations:
        found.wasted(e.warnings)
        for cause in e.root_causes[:3]:
            c = cause.groups[0][0]
            if c.source.file != asked["path"]:
                continue
            for fix in fix_data(e, c):
                edits = [{"range": found.text.range(x["line"], x["column"], x["end_line"],
                                                    x["end_column"]), "text": x["text"]}
                         for x in fix["edits"] if x["file"] == asked["path"]]
                fixes.append({"range": found.text.whole(c.source.line), "title": fix["text"],
                              "effect": fix["effect"], "edits": edits if len(edits) == len(
                                  fix["edits"]) else []})
    yield {"advice": fixes, "problems": found.problems}


def _explained(asked: dict[str, Any]) -> tuple[Findings, list[Any]]:
    path = asked["path"]
    source = Path(path).read_text(encoding="utf-8")
    found = Findings(path, source)
    explanations: list[Any] = []
    options = argparse.Namespace(verb="explain", seconds=asked["seconds"], args=None, arg=None,
                                 mesh=None, jax=False, argv=None, specs=[])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from_file, problems = _functions(Path(path), options)
    for w in caught:
        if w.filename == path:
            found.problem(found.text.whole(w.lineno), str(w.message), WARNING,
                          w.category.__name__)
    for f in from_file:
        try:
            e = f.explain(asked.get("hardware"))
            e.suggest_seconds = asked["seconds"] / 4
            explanations.append(e)
        except Exception as error:
            problems.append(error)
    for problem in problems:
        error = problem.error if isinstance(problem, Problem) else problem
        found.failed(error or problem, str(problem))
    return found, explanations


def _functions(path: Path, options: argparse.Namespace) -> tuple[list[Any], list[Any]]:
    """The functions of a file with arguments, and what went wrong with others."""
    try:
        file = PythonFile(path, options)
        found, _ = file.all(advise=False)
    except Problem as problem:
        return [], [problem]
    return found, [*file.problems, *([file.failed] if file.failed else [])]
