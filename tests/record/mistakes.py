"""Record what JAX says of each of the mistakes: `PYTHON_WITH_JAX -m tests.record.mistakes`.

Writes tests/golden/mistakes.json: the class of each error, its bases, its first line, and how many
lines its traceback has. With a module's name as argument it prints that for the module instead.
"""
from __future__ import annotations

import importlib
import json
import linecache
import sys
import traceback
import warnings

from ..mistakes import mistakes
from ..paths import GOLDEN


def source_of(text: str, setup: str) -> str:
    """A program as a file: a function of the package."""
    return "def program(st):\n" + "".join(
        f"    {line}\n" for line in f"{setup}\n{text}".splitlines())


def ending(package, name: str, source: str) -> Exception | None:
    """The exception that a program ends with, or None."""
    file = f"/made/{name}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict = {"__name__": "program"}
    exec(compile(source, file, "exec"), names)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            names["program"](package)
    except Exception as error:
        return error
    return None


def outcome(package, name: str, text: str, setup: str) -> dict | None:
    """What the error of a program is, or None if there is none."""
    source = source_of(text, setup)
    error = ending(package, name, source)
    if error is None:
        return None
    return {"class": type(error).__name__,
            "bases": [c.__name__ for c in type(error).__mro__],
            "message": str(error),
            "lines": len("".join(traceback.format_exception(error)).splitlines()),
            "last": len(source.splitlines())}


def all_outcomes(name: str) -> dict:
    package = importlib.import_module(name)
    for module in ("numpy", "lax", "random", "nn", "sharding", "tree"):
        importlib.import_module(f"{name}.{module}")
    found = {}
    for key, text in mistakes.sources().items():
        found[key] = outcome(package, key, text, mistakes.SETUP)
    return found


if __name__ == "__main__":
    module = sys.argv[1] if len(sys.argv) > 1 else "jax"
    recorded = all_outcomes(module)
    if module == "jax":
        for fact in recorded.values():
            if fact:
                fact["message"] = fact["message"].splitlines()[0] if fact["message"] else ""
        (GOLDEN / "mistakes.json").write_text(json.dumps(recorded, indent=0) + "\n")
    else:
        print(json.dumps(recorded))
