"""Changes of code, put into the user's file as they are shown, compute the same and move less."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from shardtrace import config

from ....user_files import user_file, user_module
from .test_changes import HEAD


def proposed(tmp_path, source, words, given, several=False):
    """The lines that the change with these words shows, once they have been put into the file: they
    move as many bytes as it says, and compute the same; () if it shows none. several: it is of
    several expressions, and the first suggestion for the first cause.
    """
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        best = next((s for c in found.collectives for s in c.suggestions
                     if words in s.text and ", and " not in s.text), None)
        if several:
            best = found.root_causes[0].groups[0][0].suggestions[0]
            assert len(best.changes) > 1
            assert words in best.text
        assert best is not None, [s.text for c in found.collectives for s in c.suggestions]
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        wanted = [np.asarray(v) for v in st.tree.leaves(st.jit(module.f)(*placed))]
        with config.override(shardtrace_engine="per_device"):
            changed = [np.asarray(v) for v in st.tree.leaves(best.apply()(*placed))]
        diff = best.diff
    for old, new in diff:
        assert source.count(old) == 1
        source = source.replace(old, new)
    if diff:
        with user_module(user_file(tmp_path, source)) as module:
            received = st.explain(module.f)(*module.args).received_bytes
            assert best.received_bytes <= received <= best.received_bytes * (1.5 if several else 1)
            changed += [np.asarray(v) for v in st.tree.leaves(st.jit(module.f)(*placed))]
            wanted += wanted
    for one, other in zip(changed, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)
    return diff


# the body; does it show lines?
CHOSEN = {
    "returned": ("return lax.top_k(whole, 5)", True),
    "named": ("values, at = lax.top_k(whole, 5)\n    return values * 2, at", True),
    "in an expression": ("return sum(lax.top_k(whole, 5))", True),
    "values alone": ("return lax.top_k(whole, 5)[0]", True),
    "gathered in the call": (
        'return lax.top_k(lax.all_gather(x * 2, "d", axis=1, tiled=True), 5)', True),
    "a place": ("return jnp.argmax(whole, 1)", True),
    "the place of the least, of a function": ("return jnp.argmin(jnp.abs(whole), 1)", True),
    "in a function": ("return (lambda: lax.top_k(whole, 5))()", False),
    "where the operand is another": ("x = x + 1\n    return lax.top_k(whole, 5)", False)}


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("name", CHOSEN)
def test_what_is_chosen_of_each_block_is_written_in_lines(name, checked, tmp_path):
    code, shows = CHOSEN[name]
    source = HEAD + f"""\
def body(x):
    best = x.shape
    whole = lax.all_gather(x, "d", axis=1, tiled=True)
    {code}


f = st.shard_map(body, mesh=mesh, in_specs=P(None, "d"), out_specs=P("d"),
                 check_vma={checked})
args = (struct((64, 65536), None, "d"),)
"""
    given = np.random.default_rng(0).integers(0, 5000, (64, 65536)).astype(np.float32)   # with ties
    assert bool(proposed(tmp_path, source, "choose from each block", [given])) is shows


FLATTENED = {
    "rows": ("whole.reshape(whole.shape[0], -1) @ w", True),
    "rows, by a function": ("jnp.tanh(jnp.reshape(whole, (whole.shape[0], -1)) * 2) @ w", True),
    "leading dimensions": ("whole.reshape(*whole.shape[:1], 512) @ w", True),
    "rows that are left out": ("whole.reshape(-1, 512) @ w", True),
    "rows by number": ("whole.reshape(8192, -1) @ w", True),
    "by a number of rows": ("(whole / whole.shape[0]).reshape(-1, 512) @ w", True),
    "with what has rows, too": ("(whole.reshape(-1, 512) * scale[:, None]) @ w", True),
    "what is cut by number": ("lax.slice(whole, (0, 0, 0), (8192, 8, 8))", True)}


@pytest.mark.parametrize("name", FLATTENED)
def test_what_is_flattened_is_written_for_a_block(name, tmp_path):
    code, shows = FLATTENED[name]
    source = HEAD + f"""\
def body(x, w, scale):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return {code}


f = st.shard_map(body, mesh=mesh, in_specs=(P("d"), P(), P()), out_specs=P(), check_vma=False)
args = struct((8192, 8, 64), "d"), struct((512, 4)), struct((8192,))
"""
    rng = np.random.default_rng(0)
    given = [rng.normal(size=shape).astype(np.float32) / 8 for shape in (
        (8192, 8, 64), (512, 4), (8192,))]
    assert bool(proposed(tmp_path, source, "compute what is smaller of each", given)) is shows


# the body of the function, behind its first line; does it show lines?
LOOPS = {
    "a sum that is returned": ("""
    def step(total, x):
        return total + lax.psum(x.T @ x, "d"), None
    return lax.scan(step, jnp.zeros((256, 256)), x)[0]
""", True),
    "a mean that is named": ("""
    def step(total, x):
        return lax.pmean(x.T @ x, "d") + total, None
    total, _ = lax.scan(step, jnp.zeros((256, 256)), x)
    return total * 2
""", True),
    "one of several": ("""
    def step(carry, x):
        n, total = carry
        return (n + 1, total + lax.psum(x.T @ x, "d")), None
    (n, total), _ = lax.scan(step, (0, jnp.zeros((256, 256))), x)
    return total * n
""", True),
    "stacked": ("""
    def step(state, x):
        return state, lax.pmax(x.T @ x, "d")
    _, largest = lax.scan(step, 0, x)
    return largest
""", True),
    "in a line": ("""
    return lax.scan(lambda s, x: (s + lax.psum(x.T @ x, "d"), None), jnp.zeros((256, 256)), x)[0]
""", True),
    "a sum that starts elsewhere": ("""
    def step(total, x):
        return total + lax.psum(x.T @ x, "d"), None
    return lax.scan(step, jnp.ones((256, 256)), x)[0]
""", False),
    "in a step of two loops": ("""
    def step(total, x):
        return total + lax.psum(x.T @ x, "d"), None
    once = lax.scan(step, jnp.zeros((256, 256)), x)[0]
    return once + lax.scan(step, jnp.ones((256, 256)), x)[0]
""", False),
    "over axes that a name of the step has": ("""
    def step(total, x):
        axis = "d"
        return total + lax.psum(x.T @ x, axis), None
    return lax.scan(step, jnp.zeros((256, 256)), x)[0]
""", False),
    "by a value that is kept whole": ("""
    def step(total, x):
        return total + lax.psum(x.T @ x, "d"), None
    both = lax.scan(step, jnp.zeros((256, 256)), x)
    return both[0]
""", False)}


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("name", LOOPS)
def test_what_is_reduced_behind_a_loop_is_written_in_both_places(name, checked, tmp_path):
    code, shows = LOOPS[name]
    source = HEAD + f"""\
def body(x):{code}

f = st.shard_map(body, mesh=mesh, in_specs=P(None, "d"), out_specs=P(), check_vma={checked})
args = (struct((8, 512, 256), None, "d"),)
"""
    given = np.random.default_rng(0).normal(size=(8, 512, 256)).astype(np.float32) / 8
    assert bool(proposed(tmp_path, source, "once, behind the loop", [given])) is shows


# what is made of the gathered value that has taken its operand's name; the words of its change
RENAMED = {"reduced": ("x.mean(0)", "reduce before the exchange"),
           "one block": ("x[:1024]", "exchange the one block"),
           "own block": ("lax.dynamic_slice_in_dim(x, lax.axis_index('d') * 1024, 1024)",
                         "exchange the one block"),
           "own rows of a sum": ("lax.dynamic_slice_in_dim(x, lax.axis_index('d') * 128, 128)",
                                 "sum only the block"),
           "rows": ("x[jnp.arange(4)]", "look rows up in each")}


def renamed(name, gathered, others=""):
    """A program in which the gathered value has the operand's name, and the words of its change."""
    code, words = RENAMED[name]
    return HEAD + f"""\
def gathered(v):
    return {gathered("v")}


def body(x):
    x = {gathered("x") if others != "helper" else "gathered(x)"}
    return {code}{", x.max()" if others == "read" else ""}


f = st.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P(), check_vma=False)
args = (struct((8192, 64), "d"),)
""", words


def gather_of(name):
    call = 'lax.psum({}, "d")' if name == "own rows of a sum" else (
        'lax.all_gather({}, "d", axis=0, tiled=True)')
    return call.format


@pytest.mark.parametrize("others", ["helper", "read"])
@pytest.mark.parametrize("name", RENAMED)
def test_an_operand_whose_name_is_another_value_by_then_is_not_written(name, others, tmp_path):
    source, words = renamed(name, gather_of(name), others)
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        search = found.search
        shown = [s.edits for s in search.candidates.sites if words in s.change.words]
        assert shown and not any(shown), shown


@pytest.mark.parametrize("comment", ["", "  # of all devices"])
@pytest.mark.parametrize("name", ["reduced", "one block", "own block", "own rows of a sum"])
def test_the_line_in_which_an_operand_loses_its_name_is_taken_out(name, comment, tmp_path):
    source, words = renamed(name, gather_of(name))
    line = f"x = {gather_of(name)('x')}"
    source = source.replace(line, line + comment)
    given = np.random.default_rng(0).normal(size=(8192, 64)).astype(np.float32)
    diff = proposed(tmp_path, source, words, [given])
    assert diff[0] == (line + comment, "") and len(diff) == 2


BETWEEN = {
    "of a multiple": ("(whole * 2).sum(0)", 'lax.psum((x * 2).sum(0), "d")'),
    "squares": ("jnp.mean(whole ** 2)", 'lax.pmean(jnp.mean(x ** 2), "d")'),
    "magnitudes": ("jnp.abs(whole).max(0) + 1", 'lax.pmax(jnp.abs(x).max(0), "d") + 1'),
    "a deviation": ("jnp.std(whole, 0)", "jnp.sqrt(lax.psum(jnp.sum(jnp.square(x - (lax.psum("),
    "two in a line": ("whole.max(0) / whole.std(0)", 'lax.p'),
    "one that can be written, and one that cannot": (
        "whole.mean(0) / (whole **\n                           2).mean(0)", ""),
    "with rows of each device": ("(whole * jnp.arange(8192.0)[:, None]).sum(0)",
                                 'lax.psum((x * lax.dynamic_slice_in_dim(jnp.arange(8192.0)')}


@pytest.mark.parametrize("name", BETWEEN)
def test_what_is_reduced_before_an_exchange_is_written_as_one_expression(name, tmp_path):
    code, shown = BETWEEN[name]
    source = HEAD + f"""\
def body(x):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return {code}


f = st.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P(), check_vma=False)
args = (struct((8192, 64), "d"),)
"""
    given = np.random.default_rng(0).standard_normal((8192, 64)).astype(np.float32)
    lines = proposed(tmp_path, source, "reduce before the exchange", [given])
    assert bool(lines) is bool(shown)
    assert all(shown in new for _, new in lines), lines


LOOKED_UP = {
    "by a product": ("nn.one_hot(ids, e.shape[0]) @ e", "e.at[ids].get("),
    "of a name": ("nn.one_hot(own, e.shape[0]) @ e", "e.at[own].get("),
    "by a function": ("jnp.matmul(nn.one_hot(ids, e.shape[0]), e)", "e.at[ids].get("),
    "of a name that is another by then": ("(hot := nn.one_hot(own, 65536)) @ (own := e)", "")}


@pytest.mark.parametrize("name", LOOKED_UP)
def test_rows_are_looked_up_by_the_names_of_the_helper(name, tmp_path):
    code, shown = LOOKED_UP[name]
    source = HEAD.replace("import lax", "import lax, nn") + f"""\
def embedded(ids, e):
    own = ids
    return {code}


def f(tokens, table):
    return jnp.tanh(embedded(tokens, table))


args = struct((2048,), dtype=np.int32), struct((65536, 128), "d")
"""
    rng = np.random.default_rng(0)
    given = [rng.integers(0, 65536, 2048).astype(np.int32),
             rng.standard_normal((65536, 128)).astype(np.float32)]
    lines = proposed(tmp_path, source, "look rows up", given)
    assert bool(lines) is bool(shown) and all(shown in new for _, new in lines), lines


def test_what_an_operator_repeats_is_not_written_as_what_it_computes(tmp_path):
    source = HEAD + """\
def body(x, c):
    h = lax.ppermute(x, "d", [(i, (i + 1) % 8) for i in range(8)])
    return (h * c[0])[:4]


f = st.shard_map(body, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"))
args = (struct((512, 64), "d"), struct((2, 64)))
"""
    rng = np.random.default_rng(0)
    given = [rng.normal(size=shape).astype(np.float32) for shape in ((512, 64), (2, 64))]
    assert not proposed(tmp_path, source, "take what is read before the exchange", given)
