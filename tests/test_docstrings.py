"""Docstrings of public things: their examples run, and where users place data there are examples.

Every example (`>>> `) of every public function and class is run, each in a thread of its own with
eight devices and a fresh configuration; `st`, `np`, `jnp`, `P` and what the module of the thing
itself names are at hand. Things that come
from the modules of `WITH_EXAMPLES` must have one, and their methods a docstring.
"""
from __future__ import annotations

import doctest
import importlib
import inspect
import io
import pathlib
import threading
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.ir.context import config

ROOT = pathlib.Path(__file__).parent.parent
# Where the things live of which each must have an example: modules, or folders of modules.
WITH_EXAMPLES = (
    "shardtrace.driver.caches",
    "shardtrace.driver.checkpoints",
    "shardtrace.driver.older_pjit",
    "shardtrace.driver.pmap",
    "shardtrace.driver.transfer",
    "shardtrace.ir.array",
    "shardtrace.ir.shardings.base_sharding",
    "shardtrace.ir.device",
    "shardtrace.ir.shardings.formats",
    "shardtrace.ir.shardings.gspmd",
    "shardtrace.ir.shardings.hlo_sharding",
    "shardtrace.ir.memory",
    "shardtrace.ir.mesh",
    "shardtrace.ir.mesh_axes",
    "shardtrace.ir.shardings.op_sharding",
    "shardtrace.ir.shape_struct",
    "shardtrace.ir.shardings.sharding",
    "shardtrace.ir.spec",
    "shardtrace.ir.typeof",
    "shardtrace.ir.types",
    "shardtrace.runtime",
    "shardtrace.tracer.evaluation",
    "shardtrace.tracer.shardings.mesh_context",
    "shardtrace.tracer.shardings.sharding_functions",
)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def _public_modules() -> list[str]:
    """`shardtrace` and every module under it that users import by name."""
    api = ROOT / "api"
    folders = sorted(path.parent.relative_to(api) for path in api.rglob("__init__.py"))
    return ["shardtrace", *(".".join(("shardtrace", *folder.parts)) for folder in folders
                            if folder.parts)]


def _public_things() -> dict[str, Any]:
    """Functions and classes by the first public name that leads to each."""
    things: dict[str, Any] = {}
    seen: set[int] = set()
    for module_name in _public_modules():
        module = importlib.import_module(module_name)
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            ours = str(getattr(thing, "__module__", "")).startswith("shardtrace")
            if ours and callable(thing) and id(thing) not in seen:
                seen.add(id(thing))
                things[f"{module_name}.{name}"] = thing
    concrete = type(st.device_put(0))      # what users hold, though no name leads to its class
    things[f"shardtrace.Array ({concrete.__name__})"] = concrete
    return things


THINGS = _public_things()


def _home(thing: Any) -> str:
    return str(thing.__module__)


def _must_have_examples(thing: Any) -> bool:
    home = _home(thing)
    return any(home == m or home.startswith(m + ".") for m in WITH_EXAMPLES)


def _examples(name: str, thing: Any) -> list[doctest.DocTest]:
    module = importlib.import_module(_home(thing))
    names = {**vars(module), "st": st, "np": np, "jnp": jnp, "P": st.P}
    if not inspect.isclass(thing) and not inspect.isroutine(thing):
        # an object that is called like a function; its docstring may be its own or its class's
        parsed = doctest.DocTestParser().get_doctest(
            inspect.getdoc(thing) or "", names, name, _home(thing), 0)
        return [parsed] if parsed.examples else []
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for test in finder.find(thing, name, module=False, globs=names) if test.examples]


DOCTESTS = {test.name: test for name, thing in THINGS.items() for test in _examples(name, thing)}


@pytest.mark.parametrize("name", sorted(DOCTESTS))
def test_examples_print_what_they_say(name: str) -> None:
    values = dict(config._values)
    said = io.StringIO()
    outcome: list[Any] = []

    def run() -> None:
        with config.override(jax_num_cpu_devices=8, jax_enable_x64=False):
            runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
            outcome.append(runner.run(DOCTESTS[name], out=said.write))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    config._values.clear()
    config._values.update(values)
    assert outcome, "the example ended its thread"
    assert outcome[0].failed == 0, said.getvalue()


@pytest.mark.parametrize("name", sorted(n for n, t in THINGS.items() if _must_have_examples(t)))
def test_things_that_hold_and_place_data_show_how_they_are_used(name: str) -> None:
    assert any(test.name == name for test in _examples(name, THINGS[name])), (
        f"the docstring of {name} ({_home(THINGS[name])}) has no example that runs")


@pytest.mark.parametrize("name", sorted(n for n, t in THINGS.items()
                                        if inspect.isclass(t) and _must_have_examples(t)))
def test_their_methods_have_docstrings(name: str) -> None:
    cls = THINGS[name]
    silent = [method for method, value in vars(cls).items()
              if not method.startswith("_")
              and (inspect.isroutine(value) or isinstance(value, property))
              and not inspect.getdoc(getattr(cls, method))]
    assert silent == [], f"methods of {name} without a docstring"
