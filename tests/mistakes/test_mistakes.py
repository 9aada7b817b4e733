"""Typical mistakes: the class and words of JAX's error, the user's line, a cause and a way out.

What JAX says is recorded in golden/mistakes.json (tests/record/mistakes.py).
"""
from __future__ import annotations

import ast
import functools
import json
import re
import statistics
import subprocess
import sys
import traceback

import numpy as np
import pytest

import shardtrace as st
import shardtrace.ad_checkpoint
import shardtrace.experimental.shard_map
import shardtrace.numpy as jnp
from shardtrace.experimental import checkify
from shardtrace.ir.diagnostics import usual_mistakes
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

from ..paths import GOLDEN, ROOT
from ..record.mistakes import all_outcomes, ending, source_of
from ..rows import rows
from . import mistakes
from .printed_help import PLAIN, changes, code_in_words, edited

JAX = json.loads((GOLDEN / "mistakes.json").read_text())
# Python's own complaint about the user's line, where no code of the package runs; or their error.
OUTSIDE = {"config-name", "attribute",
           "at-call", "at-equals", "attribute-set", "callback-fails", "own-error"}
# JAX fails by accident inside (an index of a tuple, a missing attribute), or differs by design.
OTHER_CLASS = {"lax-conv", "associative-scan", "sharding-tuple", "shard-map-psum"}
OTHER_WORDS = OTHER_CLASS | {
    "swapaxes", "argmax-axis", "categorical-axis", "donated-jit",
    "pmean-outside", "in-shardings-tree", "uneven-jit", "neg-axis", "two-meshes",
    "concatenate-array", "tile-str", "repeat-str", "sin-str", "array-object", "maximum-one",
    "clip-str", "integer-power", "method-argument", "at-call", "at-equals", "key-str",
    "tree-unflatten", "tree-transpose", "sharding-no-spec", "sharding-no-mesh", "shard-map-out",
    "mesh-two", "attribute", "lax-psum-axis", "key-float", "put-str-jit", "put-rank-jit"}
# Not mistakes to JAX, or (when the mesh is Auto) placed with padding here.
PLACED_HERE = {"put-divide-jit"}


@functools.lru_cache(maxsize=1)
def outcomes():
    return all_outcomes("shardtrace")


def _family(name):
    return name.removesuffix("-now").removesuffix("-jit") if name not in OTHER_CLASS else name


WRONG = [name for name, fact in JAX.items() if fact and name not in PLACED_HERE]


@rows("name", WRONG)
def test_a_mistake_has_jax_s_class_the_line_a_cause_and_a_help(name):
    found, expected = outcomes()[name], JAX[name]
    assert found is not None, mistakes.sources()[name]
    if _family(name) not in OTHER_CLASS:
        assert expected["class"] in found["bases"]
    if _family(name) in OUTSIDE:
        return
    text = found["message"]
    assert f"--> {name}.py:" in text
    assert re.search(r"^\s*\| +\^+", text, re.M), text
    assert " = help: " in text
    assert " = because: " in text or " = note: " in text or re.search(r"\^+ \S", text), text
    if not {name, _family(name)} & OTHER_WORDS:
        assert _words(text.splitlines()[0])[:5] == _words(expected["message"])[:5]


def _words(text):
    text = re.sub(r"jaxlib\._jax\.|\b(?:jax|shardtrace|st)\.", "", text)
    text = re.sub(r"DynamicJaxprTracer|JitTracer|Tracer|ArrayImpl", "Array", text)
    return re.findall(r"\w+", text)


def test_no_text_sends_the_user_to_another_package():
    others = re.compile(r"docs\.jax\.dev|github\.com/jax|readthedocs|"
                        r"\bjax\.(?:numpy|jit|lax|sharding|set_mesh|random)\b")
    for name in WRONG:
        assert not others.search(outcomes()[name]["message"]), name


@rows("name", WRONG)
def test_code_that_is_shown_as_help_runs_where_it_belongs(name):
    text, source = outcomes()[name]["message"], source_of(mistakes.sources()[name], mistakes.SETUP)
    assert not code_in_words(text, source), text
    for head, block in changes(text):
        error = ending(st, name, edited(source, text, f"{name}.py", head, block))
        assert error is None, f"{text}\n\nchanged, it ends with:\n{error}"


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="JAX's were recorded by Python 3.11, "
                    "and other versions mark other lines")
def test_tracebacks_are_about_as_short_as_those_of_jax():
    both = [name for name in WRONG if outcomes()[name]]
    ours = statistics.median(outcomes()[name]["lines"] for name in both)
    theirs = statistics.median(JAX[name]["lines"] for name in both)
    assert ours <= theirs + 1


def _frames(error):
    return [f.f_globals["__name__"] for f, _ in traceback.walk_tb(error.__traceback__)]


def _ours(error):
    return [name for name in _frames(error) if name.partition(".")[0] == "shardtrace"]


@pytest.mark.parametrize("mistake", [
    lambda: jnp.reshape(jnp.ones(4), 3), lambda: jnp.ones(4) + jnp.ones(3),
    lambda: jnp.ones(4)["a"], lambda: st.jit(lambda x: x.reshape(3))(jnp.ones(4)),
    lambda: st.grad(lambda x: x)(jnp.ones(4)), lambda: jnp.ones(4).at["a"].set(1),
    lambda: st.vmap(lambda x: x.reshape(3))(jnp.ones((2, 4))), lambda: st.make_mesh((99,), "x"),
    lambda: st.lax.scan(lambda c, x: (c + x.reshape(3), x), jnp.ones(3), jnp.ones((2, 4)))])
def test_the_traceback_of_an_error_has_the_user_s_frames_alone(mistake):
    with pytest.raises((TypeError, ValueError)) as raised:
        mistake()
    assert not _ours(raised.value)
    with st.config.override(jax_traceback_filtering="off"), pytest.raises(Exception) as raised:
        mistake()
    assert _ours(raised.value)


def test_tracebackhide_marks_the_frames_of_the_package():
    with st.config.override(jax_traceback_filtering="tracebackhide"), \
            pytest.raises(TypeError) as raised:
        jnp.reshape(jnp.ones(4), 3)
    hidden = [f.f_globals["__name__"] for f, _ in traceback.walk_tb(raised.value.__traceback__)
              if f.f_locals.get("__tracebackhide__")]
    assert hidden and all(name.startswith("shardtrace.") for name in hidden)


def test_remove_frames_keeps_the_whole_as_the_cause():
    with st.config.override(jax_traceback_filtering="remove_frames"), \
            pytest.raises(TypeError) as raised:
        jnp.reshape(jnp.ones(4), 3)
    assert not _ours(raised.value)
    assert _ours(raised.value.__cause__)


def test_the_whole_stands_between_an_error_and_its_own_cause():
    def f(x):
        raise TypeError("outer") from ValueError("inner")

    with st.config.override(jax_traceback_filtering="remove_frames"), \
            pytest.raises(TypeError) as raised:
        st.jit(f)(1.0)
    assert _ours(raised.value.__cause__)
    assert str(raised.value.__cause__.__cause__) == "inner"


def test_quiet_removal_is_told_where_it_is_asked_for():
    with st.config.override(jax_traceback_filtering="quiet_remove_frames"), \
            pytest.raises(TypeError) as caught:
        st.jit(lambda x: x)("text")
    assert any("without frames of the package" in note for note in caught.value.__notes__)


def test_an_exception_of_the_users_tells_once_that_frames_are_left_out():
    @st.jit
    def inner(x):
        raise ValueError("inner")

    @st.jit
    def outer(x):
        try:
            inner(x)
        except ValueError as e:
            raise TypeError("outer") from e

    with pytest.raises(TypeError) as caught:
        outer(1.0)
    (note,) = caught.value.__notes__
    assert note.startswith("For simplicity")
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(TypeError) as caught:        # ours say what helps
        st.jit(lambda x: st.jit(lambda x: x)("text"))(1.0)
    assert not hasattr(caught.value, "__notes__")


def test_traceback_filtering_is_one_of_jax_s_modes():
    with pytest.raises(ValueError, match="new enum value must be in"):
        st.config.update("jax_traceback_filtering", "sometimes")


def test_an_error_of_the_user_keeps_its_text_and_loses_our_frames():
    def f(x):
        raise KeyError("mine")

    with pytest.raises(KeyError) as raised:
        st.jit(f)(1.0)
    assert raised.value.args == ("mine",)
    assert not _ours(raised.value)


def test_an_error_of_the_user_while_another_is_handled_keeps_it():
    def f(x):
        try:
            jnp.reshape(x, 3)
        except TypeError:
            raise KeyError("mine")  # noqa: B904

    with pytest.raises(KeyError) as raised:
        st.jit(f)(jnp.ones(4))
    assert isinstance(raised.value.__context__, TypeError)


@pytest.mark.parametrize("name", ["jax", "st"])
def test_the_package_is_called_as_the_user_imported_it(tmp_path, name):
    program = tmp_path / "program.py"
    program.write_text(
        f"import shardtrace as {name}\nfrom shardtrace.sharding import PartitionSpec as P\n"
        f"{name}.sharding.reshard({name}.numpy.ones(4), P('x'))\n")
    said = subprocess.run([sys.executable, str(program)], capture_output=True, text=True).stderr
    assert f"`{name}.set_mesh" in said
    assert "program.py:3:1" in said


def test_public_functions_are_still_themselves():
    assert jnp.reshape.__name__ == "reshape" and jnp.reshape.__doc__
    np.testing.assert_array_equal(jnp.reshape(jnp.arange(4), (2, 2)), [[0, 1], [2, 3]])


def _texts(node):
    """The texts that an expression may give, what is put into them as a word."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)


def _helps(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for k in node.keywords:
                if k.arg in ("help", "fix"):
                    remedies = [n for n in ast.walk(k.value) if isinstance(n, ast.Call)]
                    yield from _texts(remedies[0].args[0] if remedies and remedies[0].args
                                      else k.value)
            if getattr(node.func, "id", "") == "Remedy" and node.args:
                yield from _texts(node.args[0])


def test_help_that_was_not_tried_is_words():
    files = [f for folder in ("ir", "tracer", "partitioner", "arrays", "runtime", "report",
                            "driver", "cli")
             for f in (ROOT / folder).rglob("*.py")]
    sources = {f: f.read_text() for f in files}
    texts = [(f.name, text) for f, source in sources.items()
             if re.search(r"\b(help|fix) *=|\bRemedy\(", source)        # few: parsing takes long
             for text in _helps(ast.parse(source))]
    texts += [("usual_mistakes.py", str(help)) for *_, help in usual_mistakes._TABLE]
    assert len(texts) > 150
    assert not [(file, code) for file, text in texts for code in re.findall("`([^`]*)`", text)
                if not PLAIN.fullmatch(code)]
    assert not [(file, text) for file, text in texts
                if re.search(r"\w\(|\.\.\.\)", text) and file != "arguments.py"]


def test_functions_that_public_functions_return_are_filtered_too():
    def bad(*_):
        return 1 / 0

    mesh = st.make_mesh((8,), ("x",))
    whole = {"mesh": mesh, "in_specs": P(), "out_specs": P()}
    for f in (st.ad_checkpoint.checkpoint(bad), st.checkpoint(bad), jnp.vectorize(bad),
              checkify.checkify(bad), st.experimental.shard_map.shard_map(bad, **whole),
              st.sharding.auto_axes(bad, axes="x", out_sharding=P())):
        with pytest.raises(ZeroDivisionError) as caught:
            f(1.0)
        assert not _ours(caught.value)


@pytest.mark.parametrize("call, help", [
    (lambda x: st.lax.reshape(x, (5,)), "sizes whose product is 24"),
    (lambda x: jnp.moveaxis(x, (0, 1), (0,)), "as many items in each"),
    (lambda x: jnp.select([x > 0], [x, x]), "as many items in each"),
    (lambda x: jnp.diag(x[None]), "flatten with `ravel`"),
    (lambda x: jnp.meshgrid(x), "flatten with `ravel`"),
    (lambda x: jnp.linalg.inv(x), "as many rows as columns"),
    (lambda x: st.lax.slice(x, (0, 0), (9, 9)), "take smaller bounds"),
    (lambda x: jnp.bincount(x), "convert with `astype`"),
])
def test_a_plain_mistake_is_told_what_to_give_instead(call, help):
    with pytest.raises((TypeError, ValueError)) as caught:
        call(jnp.ones((4, 6)))
    assert help in str(caught.value)


SPLIT = functools.partial(st.sharding.NamedSharding, st.make_mesh((8,), ("x",)))


@pytest.mark.parametrize("call, help", [
    (lambda v: jnp.zeros(8).at[jnp.arange(8)].add(v), "bring it to the sharding"),
    (lambda v: st.jit(jnp.sin).lower(st.device_put(np.ones(8), SPLIT(P("x")))).compile()(
        st.device_put(np.ones(8), SPLIT(P()))), "with `device_put`"),
    (lambda v: st.grad(lambda x: st.pure_callback(abs, x, x))(1.0), "`custom_jvp`"),
])
def test_a_mistake_with_arrays_on_meshes_is_told_what_to_do_instead(call, help):
    with st.set_mesh(st.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))):
        v = st.device_put(np.ones(8, np.float32), P("x"))
    with pytest.raises((TypeError, ValueError)) as caught:
        call(v)
    assert help in str(caught.value).partition(" = help:")[2]
