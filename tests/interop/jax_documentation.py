"""The pages of JAX's documentation, cell by cell, with JAX and under its name with shardtrace.

    python -m tests.interop.jax_documentation DOCS [-k PAGE]      DOCS: docs/ of JAX's repository

Cells of a page (code of .md, prompts of .rst) run in one namespace, once in a process with JAX and
eight CPU devices and once in one with `shardtrace.as_jax`. Of the cells that pass with JAX those
are counted that pass here and print the same: numbers to 0.2 %, all lines of JAX's in their order
or any other; of printed programs only that there is one. Pages on what is not followed here
(Pallas, MLIR, export, hijax, the compiler's caches and profiles) are left out.
"""
from __future__ import annotations

import argparse
import ast
import contextlib
import doctest
import io
import json
import linecache
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import types
import warnings
from typing import Any

LEFT_OUT = re.compile(
    r"pallas/|jep/|changelog|hijax|export/|cute_dsl|ffi\.|colocated|multi_process|device_memory|"
    r"neural_network_with_tfds|Neural_Network_and_Data|autodidax|jax-primitives|profiling|"
    r"persistent_compilation_cache|xla_metadata")
SECONDS, PAGE_SECONDS = 60, 400
_FENCE = re.compile(r"^( *)```\{?(?:code-cell|python|pycon|testcode)\}?[^\n]*\n(.*?)^\1```\s*$",
                    re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|\bnan\b|\binf\b")
_NOISE = ((r"0x[0-9a-f]+", "0x"), (r"\b[\d.]+ ?[µnm]?s\b( per loop| ±)?", "T"),
          (r"(?m)from <[^>]*>:\d+:\d+ \(.*?\)$", "from L"))
_PROGRAM = ("{ lambda", "module @", "HloModule")


def cells(page: pathlib.Path) -> list[str]:
    """The sources of a page's cells, without what only a notebook knows."""
    text = page.read_text()
    if page.suffix == ".rst":
        return [e.source for e in doctest.DocTestParser().get_examples(text)]
    found = []
    for indent, body in _FENCE.findall(text):
        lines = [line.removeprefix(indent) for line in body.split("\n")]
        body = re.sub(r"\A(\s*---\n.*?\n---\n|(:[\w-]+:.*\n)+)", "", "\n".join(lines),
                      flags=re.DOTALL if lines[0].strip() == "---" else 0)
        if re.search(r"^>>> ", body, re.MULTILINE):
            body = "\n".join(e.source.rstrip() for e in doctest.DocTestParser().get_examples(body))
        body = re.sub(r"(?m)^\s*%%.*$", "", body)
        body = re.sub(r"(?m)^(\s*)%timeit\s+(?:-\S+\s+(?:\d+\s+)?)*(.*)$", r"\1\2;None", body)
        found.append(re.sub(r"(?m)^(\s*)[%!].*$", r"\1pass", body))
    return found


def run(sources: list[str], by_name: bool) -> list[tuple[str, bool]]:
    """What each cell prints, and whether it ended without an exception."""
    warnings.simplefilter("ignore")
    if by_name:
        import shardtrace.as_jax  # noqa: F401 - stands in for jax from now on
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    names = main.__dict__
    names["display"] = print
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
    found = []
    for i, source in enumerate(sources):
        file, said, passed = f"<cell {i}>", io.StringIO(), True
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)
        signal.alarm(SECONDS)
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
                body = ast.parse(source, file)
                last = body.body[-1] if body.body else None
                if isinstance(last, ast.Expr):
                    del body.body[-1]
                exec(compile(body, file, "exec"), names)
                if isinstance(last, ast.Expr):
                    value = eval(compile(ast.Expression(last.value), file, "eval"), names)
                    if value is not None:
                        print(repr(value))
        except BaseException:                   # of a cell, whatever it is
            passed = False
        finally:
            signal.alarm(0)
        found.append((said.getvalue()[-20000:], passed))
    return found


def same(wanted: str, printed: str) -> bool:
    """Whether a cell printed what it prints with JAX."""
    if any(mark in wanted for mark in _PROGRAM):
        return True
    for pattern, by in _NOISE:
        wanted, printed = re.sub(pattern, by, wanted), re.sub(pattern, by, printed)
    left, right = wanted.split("\n"), printed.split("\n")
    rest = iter(line.strip() for line in right)
    return (_close(wanted, printed) or all(line.strip() in rest for line in left)
            or len(left) == len(right) and all(map(_close, sorted(left), sorted(right))))


def _close(one: str, other: str) -> bool:
    if " ".join(one.split()) == " ".join(other.split()):
        return True
    a, b = ([float(x) for x in _NUMBER.findall(s)] for s in (one, other))
    said, printed = ("".join(_NUMBER.sub("#", s).split()) for s in (one, other))
    return said == printed and len(a) == len(b) and all(
        x == y or math.isnan(x) and math.isnan(y) or abs(x - y) <= 2e-3 * max(abs(x), abs(y), 1e-2)
        for x, y in zip(a, b, strict=True))


def results(page: pathlib.Path, library: str) -> list[Any]:
    """What `run` gives, in a process of its own; nothing if that does not end."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "results.json"
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [sys.executable, "-m", __spec__.name, str(page), "--library", library,
                 "--write", str(out)], timeout=PAGE_SECONDS, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={**os.environ, "MPLBACKEND": "Agg", "JAX_PLATFORMS": "cpu",
                     "XLA_FLAGS": "--xla_force_host_platform_device_count=8"})
        return json.loads(out.read_text()) if out.exists() else []


def main() -> None:
    """Count, page by page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("docs", type=pathlib.Path)
    parser.add_argument("-k", default="", help="pages whose name has this")
    parser.add_argument("-v", action="store_true", help="tell the cells that differ")
    parser.add_argument("--library", help=argparse.SUPPRESS)
    parser.add_argument("--write", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.library:
        options.write.write_text(json.dumps(run(cells(options.docs), options.library != "jax")))
        os._exit(0)                             # whatever threads the cells have started
    here = passed = 0
    for page in sorted(options.docs.resolve().rglob("*")):
        name = str(page.relative_to(options.docs.resolve()))
        if page.suffix not in (".md", ".rst") or LEFT_OUT.search(name) or options.k not in name:
            continue
        if not cells(page):
            continue
        wanted, found = (results(page, library) for library in ("jax", "shardtrace"))
        found += [["", False]] * (len(wanted) - len(found))
        counted = [(i, w[0], f) for i, (w, f) in enumerate(zip(wanted, found, strict=True)) if w[1]]
        differs = [(i, w, f) for i, w, f in counted if not (f[1] and same(w, f[0]))]
        here, passed = here + len(counted) - len(differs), passed + len(counted)
        print(f"{len(counted) - len(differs):4} of {len(counted):4}  {name}", flush=True)
        for i, w, f in differs if options.v else ():
            print(f"      cell {i}: JAX {w[:200]!r}, here {f[0][:200]!r}")
    print(f"{here:4} of {passed:4}")


if __name__ == "__main__":
    main()
