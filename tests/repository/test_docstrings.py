"""Docstrings of public things: there is one, its examples run, help shows how a thing is called.

Every example (`>>> `) of every public module, function and class is run, each in a thread of its
own with eight devices and a fresh configuration; `st`, `np`, `jnp`, `P` and what the module of the
thing itself names are at hand. Things that come from the modules of `WITH_EXAMPLES` must have one,
and their methods a docstring; those of `MOST_USED` must have one and say what becomes of the
sharding over axes of each type.
"""
from __future__ import annotations

import doctest
import importlib
import inspect
import io
import pydoc
import re
import threading
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.ir.settings.context import config

from ..paths import module_of_site

# Where the things live of which each must have an example: modules, or folders of modules.
WITH_EXAMPLES = (
    "shardtrace.driver.caches",
    "shardtrace.driver.checkpoints.save_restore",
    "shardtrace.driver.jit.older_pjit",
    "shardtrace.driver.jit.pmap",
    "shardtrace.driver.execution.transfer",
    "shardtrace.ir.values.array",
    "shardtrace.ir.shardings.base_sharding",
    "shardtrace.ir.meshes.device",
    "shardtrace.ir.shardings.formats",
    "shardtrace.ir.shardings.gspmd",
    "shardtrace.ir.shardings.hlo_sharding",
    "shardtrace.ir.meshes.memory",
    "shardtrace.ir.meshes.mesh",
    "shardtrace.ir.meshes.mesh_axes",
    "shardtrace.ir.shardings.op_sharding",
    "shardtrace.ir.values.shape_struct",
    "shardtrace.ir.shardings.sharding",
    "shardtrace.ir.spec",
    "shardtrace.ir.values.typeof",
    "shardtrace.ir.types",
    "shardtrace.runtime",
    "shardtrace.tracer.evaluation",
    "shardtrace.tracer.shardings.mesh_context",
    "shardtrace.tracer.shardings.sharding_functions",
)
# What programs use most: the top level, shardings, collectives and loops, and the array functions
# that examples and tutorials are made of.
MOST_USED = {
    "shardtrace": """
        jit make_mesh set_mesh device_put reshard shard_map smap grad value_and_grad vjp jvp
        linearize jacfwd jacrev hessian vmap checkpoint custom_jvp custom_vjp eval_shape make_jaxpr
        typeof explain whatif NamedSharding P ShapeDtypeStruct make_array_from_callback
        make_array_from_process_local_data""",
    "shardtrace.sharding": """
        AxisType Mesh AbstractMesh PartitionSpec use_abstract_mesh auto_axes explicit_axes""",
    "shardtrace.testing": "assert_equivalent",
    "shardtrace.debug": "print",
    "shardtrace.tree": "map",
    "shardtrace.lax": """
        psum pmean pmax pmin all_gather psum_scatter all_to_all ppermute axis_index axis_size pcast
        with_sharding_constraint scan while_loop fori_loop cond switch map associative_scan
        dot_general dot conv_general_dilated slice dynamic_slice dynamic_update_slice gather top_k
        convert_element_type stop_gradient iota broadcast_in_dim reshape transpose concatenate
        select""",
    "shardtrace.numpy": """
        array asarray astype zeros ones full zeros_like ones_like full_like arange linspace eye
        add subtract multiply divide negative power floor_divide mod maximum minimum clip
        abs sign sqrt square exp expm1 log log1p log2 sin cos tan tanh floor ceil round logaddexp
        equal not_equal greater greater_equal less less_equal logical_and logical_or logical_not
        isnan isinf isfinite isclose allclose where
        sum prod mean var std max min all any argmax argmin count_nonzero cumsum cumprod median
        matmul dot vdot inner outer tensordot einsum
        reshape ravel transpose swapaxes moveaxis squeeze expand_dims broadcast_to
        concatenate stack vstack hstack split tile repeat pad roll flip diff
        take take_along_axis nonzero sort argsort unique searchsorted triu tril diag meshgrid""",
    "shardtrace.numpy.linalg": "norm inv solve svd",
    "shardtrace.nn": """
        relu gelu silu sigmoid softplus leaky_relu softmax log_softmax logsumexp standardize
        one_hot dot_product_attention""",
    "shardtrace.random": """
        key split fold_in normal truncated_normal uniform randint bernoulli categorical permutation
        choice""",
}
PUBLIC_MODULES = module_of_site("reference").public_modules()
PLAIN = 60                     # characters that say more than the name does
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def _public_things() -> dict[str, Any]:
    """Functions and classes by the first public name that leads to each."""
    things: dict[str, Any] = {}
    seen: set[int] = set()
    for module_name in PUBLIC_MODULES:
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
    """Where it is written, which a public function no longer says."""
    return str(inspect.unwrap(thing).__module__ if inspect.isroutine(thing) else thing.__module__)


def _must_have_examples(thing: Any) -> bool:
    home = _home(thing)
    return any(home == m or home.startswith(m + ".") for m in WITH_EXAMPLES)


def _examples(name: str, thing: Any) -> list[doctest.DocTest]:
    if inspect.ismodule(thing):
        names = {"st": st, "np": np, "jnp": jnp, "P": st.P}
        parsed = doctest.DocTestParser().get_doctest(thing.__doc__ or "", names, name, name, 0)
        return [parsed] if parsed.examples else []
    module = importlib.import_module(_home(thing))
    names = {**vars(module), "st": st, "np": np, "jnp": jnp, "P": st.P}
    if not inspect.isclass(thing) and not inspect.isroutine(thing):
        # an object that is called like a function; its docstring may be its own or its class's
        parsed = doctest.DocTestParser().get_doctest(
            inspect.getdoc(thing) or "", names, name, _home(thing), 0)
        return [parsed] if parsed.examples else []
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [test for test in finder.find(thing, name, module=False, globs=names) if test.examples]


MODULES = {name: importlib.import_module(name) for name in PUBLIC_MODULES}
DOCTESTS = {test.name: test for name, thing in {**MODULES, **THINGS}.items()
            for test in _examples(name, thing)}


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


@pytest.mark.parametrize("name", [n for n in st.errors.__all__ if n != "KeyReuseError"])
def test_an_error_shows_a_program_that_fails_and_its_mend(name: str) -> None:
    """KeyReuseError is there for `except`: nothing raises it."""
    cls = getattr(st.errors, name)
    (test,) = _examples(f"shardtrace.errors.{name}", cls)
    raised = [example.exc_msg or "" for example in test.examples]
    if cls.__subclasses__() and not any(raised):        # a base: shows what it catches
        assert f"except st.errors.{name}" in test.examples[0].source
        return
    fails = [f".{name}:" in message for message in raised]
    assert sum(fails) == 1 and not any(raised[fails.index(True) + 1:])
    assert len(raised) > fails.index(True) + 1, "nothing is shown that works"


def test_every_public_thing_says_what_it_is() -> None:
    short = [f"{name}: {inspect.getdoc(thing)!r}" for name, thing in THINGS.items()
             if len(inspect.getdoc(thing) or "") < PLAIN]
    assert not short, "\n".join(short)


def test_every_public_thing_says_how_it_is_called() -> None:
    silent = []
    for name, thing in THINGS.items():
        if inspect.isclass(thing) and issubclass(thing, Exception):
            continue                              # called like the built-in class it extends
        try:
            inspect.signature(thing)
        except ValueError:
            silent.append(name)
    assert not silent, silent


@pytest.mark.parametrize("module", MOST_USED)
def test_what_is_used_most_shows_an_example_and_names_each_mode(module: str) -> None:
    home, wrong = importlib.import_module(module), []
    for name in MOST_USED[module].split():
        thing = getattr(home, name)
        told = pydoc.plain(pydoc.render_doc(thing))
        wrong += [f"{name}: no {what}" for what in ("Auto", "Explicit", "Manual", ">>> ")
                  if what not in told]
        called = f"{thing.__name__}{inspect.signature(thing)}"
        # which Python from 3.13 on breaks into lines
        if not inspect.isclass(thing) and re.sub(r"\s", "", called) not in re.sub(r"\s", "", told):
            wrong.append(f"{name}: not called as {called}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ("shardtrace", "shardtrace.numpy", "shardtrace.lax"))
def test_names_that_a_module_begins_with_are_there(name: str) -> None:
    module = MODULES[name]
    named = re.findall(r"`(\w+)`", inspect.getdoc(module) or "")
    assert [n for n in named if not hasattr(module, n) and not hasattr(st, n)] == []
    for row in re.findall(r"^  (?:running|placing|by device|derivatives|batching|looking) +(.*)$",
                          inspect.getdoc(module) or "", re.MULTILINE):
        assert [n for n in row.split(", ") if not hasattr(module, n)] == []
