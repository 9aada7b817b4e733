"""Changes of code that are proposed compute the same, move what they say, and can be typed in.

Values are compared with plain numpy, computed device by device; lines are replaced in the text of
the program as the printed diff has them.
"""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st

from ....user_files import user_file, user_module

HEAD = """\
import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import NamedSharding, PartitionSpec as P

mesh = st.make_mesh((8,), ("d",))


def struct(shape, *spec, dtype=np.float32):
    return st.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def mapped(body, out=P("d")):
    return st.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=out)


"""


def function_source(params: str, code: str, args: str, first: str = "", mesh: str = "") -> str:
    """A program: a function of these parameters that returns the code, and its arguments. first:
    a statement before; mesh: what `mesh` is, if not eight devices.
    """
    lines = [f"def f({params}):", *[f"    {first}"] * bool(first), f"    return {code}", "", "",
             *[f"mesh = {mesh}"] * bool(mesh), f"args = {args}", ""]
    return HEAD + "\n".join(lines)


def blocks(x):
    return x.reshape(8, -1, *x.shape[1:])


# text, what is computed of whole values, and a part of the line that is written instead
CASES = {
    "mean of what is gathered": ("""
def body(x):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return x - whole.mean(0)


f, args = mapped(body), (struct((512, 1024), "d"),)
""", lambda x: x - x.mean(0), 'lax.pmean(x.mean(0), "d")'),
    "largest of what is gathered": ("""
def body(x):
    whole = lax.all_gather(x, "d", axis=1, tiled=True)
    return x / jnp.max(whole, axis=(0, 1))


f, args = mapped(body), (struct((512, 1024), "d"),)
""", lambda x: x / x.max(),
        'lax.pmax(jnp.max(x, axis=(0, 1)), "d")'),
    "sum over devices": ("""
def body(x):
    every = lax.all_gather(x, "d")
    return jnp.sum(every, 0)


f, args = mapped(body), (struct((512, 1024), "d"),)
""", lambda x: np.tile(blocks(x).sum(0), (8, 1)), 'lax.psum(x, "d")'),
    "block of the next device": ("""
def body(x):
    every = lax.all_gather(x, "d")
    i = lax.axis_index("d")
    return every[(i + 1) % 8] + x


f, args = mapped(body), (struct((512, 1024), "d"),)
""", lambda x: np.roll(blocks(x), -1, 0).reshape(x.shape) + x,
        'lax.ppermute(x, "d", [((i + 1) % 8, i) for i in range(8)])'),
    "block of the device across": ("""
def body(x):
    whole = lax.all_gather(x, "d", tiled=True)
    start = (7 - lax.axis_index("d")) * 64
    return lax.dynamic_slice_in_dim(whole, start, 64)


f, args = mapped(body), (struct((512, 1024), "d"),)
""", lambda x: blocks(x)[::-1].reshape(x.shape), 'lax.ppermute(x, "d", [(7, 0)'),
    "block of one device": ("""
def body(x):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return x + whole[128:192]


f, args = mapped(body), (struct((512, 1024), "d"),)
""", lambda x: (blocks(x) + blocks(x)[2]).reshape(x.shape),
        'lax.psum(jnp.where(lax.axis_index("d") == 2, x, 0), "d")'),
    "the last row of the block before": ("""
def body(x):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    i = lax.axis_index("d")
    return x + lax.dynamic_slice_in_dim(whole, (i * 64 - 1) % 512, 1)


f, args = mapped(body), (struct((512, 1024), "d"),)
""", lambda x: (blocks(x) + np.roll(blocks(x)[:, -1:], 1, 0)).reshape(x.shape),
        'lax.ppermute(x[63:], "d", [((i + 7) % 8, i) for i in range(8)])'),
    "own block of a sum": ("""
def body(x):
    total = lax.psum(x, "d")
    return lax.dynamic_slice_in_dim(total, lax.axis_index("d") * 8, 8, 0)


f, args = mapped(body), (struct((512, 1024), "d"),)
""", lambda x: blocks(x).sum(0), 'lax.psum_scatter(x, "d", scatter_dimension=0, tiled=True)'),
    "own columns of all rows": ("""
def body(x):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return lax.dynamic_slice_in_dim(whole, lax.axis_index("d") * 128, 128, 1)


f, args = mapped(body, P(None, "d")), (struct((512, 1024), "d"),)
""", lambda x: x, 'lax.all_to_all(x, "d", 1, 0, tiled=True)'),
}
NOT = {
    "a reduction along another dimension": """
def body(x):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return whole.sum(1)


f, args = mapped(body), (struct((512, 1024), "d"),)
""",
    "a factor of each device's own": """
def body(x):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return (whole * x.max()).sum(0)


f, args = mapped(body), (struct((512, 1024), "d"),)
""",
    "a row of each device's own": """
def body(x):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return (whole - x[0]).astype(jnp.float16).sum(0)


f, args = mapped(body), (struct((512, 1024), "d"),)
""",
    "an index that hangs on values": """
def body(x):
    every = lax.all_gather(x, "d")
    return every[jnp.argmax(x) % 8]


f, args = mapped(body), (struct((512, 1024), "d"),)
""",
    "a part of two blocks": """
def body(x):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return lax.dynamic_slice_in_dim(whole, lax.axis_index("d") * 56 + 32, 64)


f, args = mapped(body), (struct((512, 1024), "d"),)
""",
    "two blocks": """
def body(x):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return whole[:128]


f, args = mapped(body), (struct((512, 1024), "d"),)
""",
    "a block and a half": """
def body(x):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return whole[32:96]


f, args = mapped(body), (struct((512, 1024), "d"),)
""",
    "a total that each step reads": """
def body(xs):
    def step(total, x):
        return total + lax.psum(x * total, "d"), None
    return lax.scan(step, jnp.ones((8, 256)), xs)[0]


f = st.shard_map(body, mesh=mesh, in_specs=P(None, "d"), out_specs=P())
args = (struct((16, 64, 256), None, "d"),)
""",
    "a total that leaves with each step": """
def body(xs):
    def step(total, x):
        total = total + lax.psum(x, "d")
        return total, total
    return lax.scan(step, jnp.ones((8, 256)), xs)[1]


f = st.shard_map(body, mesh=mesh, in_specs=P(None, "d"), out_specs=P())
args = (struct((16, 64, 256), None, "d"),)
""",
}
WORDS = ("instead of gathering", "instead of in each step", "fewer bits")


def values_of(args):
    rng = np.random.default_rng(0)
    return [rng.integers(0, 1000, a.shape).astype(a.dtype) if a.dtype == np.int32
            else rng.standard_normal(a.shape).astype(a.dtype) for a in args]


def proposed(found):
    """The suggestion that changes code, for the costliest collective."""
    costliest = max(found.collectives, key=lambda c: c.total_time)
    return next((s for s in costliest.suggestions if s.diff and len(s.changes) == 1), None)


@pytest.mark.parametrize("name", CASES)
def test_a_change_of_code_computes_the_same_and_can_be_typed_in(name, tmp_path) -> None:
    text, reference, line = CASES[name]
    source = HEAD + text.lstrip("\n")
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        best = proposed(found)
        assert best is not None and best.received_bytes < found.received_bytes
        ((old, new),) = best.diff
        assert line in new
        assert f"- {old}" in found.text(width=200)
        assert f"+ {new}" in found.text(width=200)
        given = values_of(module.args)
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        with st.config.override(shardtrace_engine="per_device"):
            changed = np.asarray(best.apply()(*placed))
        np.testing.assert_allclose(changed, reference(*given), rtol=1e-5, atol=1e-5)
    assert source.count(old) == 1
    with user_module(user_file(tmp_path, source.replace(old, new))) as module:
        typed = st.explain(module.f)(*module.args)
        assert typed.received_bytes == best.received_bytes
        with st.config.override(shardtrace_engine="per_device"):
            changed = np.asarray(st.jit(module.f)(*placed))
        np.testing.assert_allclose(changed, reference(*given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NOT)
def test_what_would_compute_something_else_is_not_proposed(name, tmp_path) -> None:
    with user_module(user_file(tmp_path, HEAD + NOT[name].lstrip("\n"))) as module:
        found = st.explain(module.f)(*module.args)
        assert not [s for c in found.collectives for s in c.suggestions
                    if any(word in s.text for word in WORDS)]


@pytest.mark.parametrize("checked", [True, False])
def test_a_sum_in_each_step_of_a_loop_is_one_behind_it(checked: bool, tmp_path) -> None:
    source = HEAD + f"""\
def body(xs, w):
    def step(carry, x):
        total, last = carry
        g = jnp.tanh(x @ w)
        return (total + lax.psum(g.sum(0), "d"), last * 0.5), g.max()
    (total, last), largest = lax.scan(step, (jnp.ones(512), jnp.ones(3)), xs)
    return total, last, lax.pmax(largest, "d")


f = st.shard_map(body, mesh=mesh, in_specs=(P(None, "d"), P()), out_specs=P(), check_vma={checked})
args = (struct((16, 512, 256), None, "d"), struct((256, 512)))
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        costliest = max(found.collectives, key=lambda c: c.total_time)
        best = next(s for s in costliest.suggestions if WORDS[1] in s.text)
        assert best.received_bytes < found.received_bytes / 8 and best.time < found.time / 4
        given = [v / 16 for v in values_of(module.args)]
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        with st.config.override(shardtrace_engine="per_device"):
            changed = [np.asarray(r) for r in best.apply()(*placed)]
    hidden = np.tanh(given[0] @ given[1])
    for one, other in zip(changed, [1 + hidden.sum((0, 1)), np.full(3, 0.5 ** 16),
                                    hidden.max((1, 2))], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


BETWEEN = {
    "flattened": ("whole.reshape(8192, 256).sum(0)", lambda x: x.reshape(8192, 256).sum(0)),
    "of squares": ("(whole * whole * 0.5).sum(0)", lambda x: (x * x * 0.5).sum(0)),
    "scaled": ("jnp.max(jnp.tanh(whole * 0.5), axis=0)", lambda x: np.tanh(x * 0.5).max(0)),
    "of merged rows": ("whole.reshape(8192 * 16, 16).sum(0)",
                       lambda x: x.reshape(8192 * 16, 16).sum(0)),
    "narrowed": ("whole.astype(jnp.float16).reshape(-1)", None)}


def of_gathered(code):
    """A program that gathers all of its argument, and returns this of it."""
    return HEAD + f"""\
def body(x):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    return {code}


f = st.shard_map(body, mesh=mesh, in_specs=P("d"), out_specs=P(), check_vma=False)
args = (struct((8192, 16, 16), "d"),)
"""


@pytest.mark.parametrize("name", BETWEEN)
def test_what_is_made_of_a_gather_before_it_is_reduced_is_made_of_the_block(name, tmp_path):
    code, reference = BETWEEN[name]
    with user_module(user_file(tmp_path, of_gathered(code))) as module:
        found = st.explain(module.f)(*module.args)
        (gather,) = found.collectives
        words = "fewer bits" if name == "narrowed" else "reduce before the exchange"
        best = next((s for s in gather.suggestions if words in s.text), None)
        assert best is not None and best.received_bytes < 0.6 * found.received_bytes
        given = values_of(module.args)
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        with st.config.override(shardtrace_engine="per_device"):
            changed = np.asarray(best.apply()(*placed))
    wanted = given[0].astype(np.float16).reshape(-1) if reference is None else reference(*given)
    np.testing.assert_allclose(changed, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("code", ["whole.reshape(1024, 8, 256).sum(0)",
                                  "whole.reshape(-1).max()[None]", "jnp.tanh(whole).sum(1)",
                                  "whole.reshape(4096, 512).sum(0)"])
def test_a_reshape_that_cuts_or_merges_blocks_otherwise_is_looked_at(code, tmp_path):
    with user_module(user_file(tmp_path, of_gathered(code))) as module:
        found = st.explain(module.f)(*module.args)
        given = values_of(module.args)
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        wanted = np.asarray(st.jit(module.f)(*placed))
        for s in found.collectives[0].suggestions:
            with st.config.override(shardtrace_engine="per_device"):
                np.testing.assert_allclose(np.asarray(s.apply()(*placed)), wanted, rtol=1e-3,
                                           atol=1e-3)


CHOSEN = {
    "of what is made of it": ("lax.top_k(whole * 2 + 1, 5, axis=0)[1]",
                              lambda x: np.argsort(-x, 0, kind="stable")[:5].astype(np.int32)),
    "values": ("lax.top_k(whole.T, 3)[0]", lambda x: -np.sort(-x.T, 1)[:, :3]),
    "places": ("lax.top_k(whole, 5, axis=0)[1]",
               lambda x: np.argsort(-x, 0, kind="stable")[:5].astype(np.int32)),
    "both": ("sum(lax.top_k(whole, 5, axis=0))",
             lambda x: (s := np.argsort(-x, 0, kind="stable")[:5]) + np.take_along_axis(x, s, 0)),
    "the largest": ("jnp.argmax(whole, 0)", lambda x: x.argmax(0)),
    "the smallest": ("jnp.argmin(whole, 0)", lambda x: x.argmin(0))}


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize("name", CHOSEN)
def test_what_is_chosen_of_a_gather_is_chosen_of_each_block_first(name, checked, tmp_path):
    code, reference = CHOSEN[name]
    source = of_gathered(code).replace("(8192, 16, 16)", "(65536, 64)").replace(
        "out_specs=P(), check_vma=False", 'out_specs=P("d")' if checked else (
            "out_specs=P(), check_vma=False"))
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        (gather,) = found.collectives
        best = next((s for s in gather.suggestions if "choose from each block" in s.text), None)
        assert best is not None and best.received_bytes < found.received_bytes / 50
        rng = np.random.default_rng(0)          # with ties
        given = rng.integers(0, 5000, (65536, 64)).astype(np.float32)
        placed = st.device_put(given, module.args[0].sharding)
        with st.config.override(shardtrace_engine="per_device"):
            changed = np.asarray(best.apply()(placed))
    wanted = reference(given)
    np.testing.assert_array_equal(changed, np.concatenate([wanted] * 8) if checked else wanted)


ROWS = {
    "rows of the batch": ("st.nn.one_hot(tokens, table.shape[0]) @ table", ("d",)),
    "of two dimensions": ("jnp.tanh(st.nn.one_hot(tokens.reshape(64, -1), table.shape[0]) @ table)",
                          ("d",)),
    "numbers first": ("(st.lax.broadcasted_iota(np.int32, (8192, 4096), 1) == "
                      "st.lax.broadcast_in_dim(tokens, (8192, 4096), (0,))).astype(np.float32) "
                      "@ table", ("d",)),
    "of another size": ("st.nn.one_hot(tokens, 8192)[:, :table.shape[0]] @ table", None)}


@pytest.mark.parametrize("name", ROWS)
def test_a_product_with_one_hot_rows_looks_them_up(name, tmp_path):
    code, spec = ROWS[name]
    source = HEAD + f"""\\
def f(table, tokens):
    return {code}


mesh = st.make_mesh((2, 4), ("data", "model"))
args = struct((4096, 256), ("data", "model")), struct((8192,), "data", dtype=np.int32)
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        best = next((s for c in found.collectives for s in c.suggestions
                     if s.text.startswith("look rows up") and len(s.changes) == 1), None)
        if spec is None:
            assert best is None
            return
        assert best is not None and best.received_bytes < found.received_bytes
        assert best.flops < found.flops / 10
        table, tokens = values_of(module.args)
        tokens = (tokens - 100) * 6                 # some name no row
        placed = [st.device_put(v, a.sharding) for v, a in zip((table, tokens), module.args,
                                                               strict=True)]
        with st.config.override(shardtrace_engine="per_device"):
            changed = np.asarray(best.apply()(*placed))
    wanted = np.where(((tokens >= 0) & (tokens < 4096))[:, None], table[tokens % 4096], 0)
    if name == "of two dimensions":
        wanted = np.tanh(wanted).reshape(64, 128, 256)
    np.testing.assert_allclose(changed, wanted, rtol=1e-5, atol=1e-5)
    if name == "rows of the batch":
        ((old, new),) = best.diff
        assert 'table.at[tokens].get(mode="fill", fill_value=0' in new
        with user_module(user_file(tmp_path, source.replace(old, new))) as module:
            np.testing.assert_allclose(np.asarray(st.jit(module.f)(*placed)), wanted, rtol=1e-5)
            assert st.explain(module.f)(*module.args).received_bytes == best.received_bytes


def test_a_product_with_one_hot_rows_looks_them_up_in_its_gradient_too(tmp_path) -> None:
    source = HEAD + """\
def f(table, tokens, y):
    def loss(table):
        rows = st.nn.one_hot(tokens, table.shape[0]) @ table
        return ((rows - y) ** 2).sum()
    return st.grad(loss)(table)


mesh = st.make_mesh((2, 4), ("data", "model"))
args = (struct((4096, 64), "model"), struct((128, 32), "data", dtype=np.int32),
        struct((128, 32, 64), "data"))
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        best = next(s for c in found.collectives for s in c.suggestions
                    if s.text.startswith("look rows up") and len(s.changes) == 2)
        assert best.flops < found.flops / 10
        table, tokens, y = values_of(module.args)
        tokens = (tokens - 100) * 6                 # some name no row
        placed = [st.device_put(v, a.sharding) for v, a in zip((table, tokens, y), module.args,
                                                               strict=True)]
        with st.config.override(shardtrace_engine="per_device"):
            changed = np.asarray(best.apply()(*placed))
        wanted = np.zeros_like(table)
        inside = (tokens >= 0) & (tokens < 4096)
        rows = np.where(inside[..., None], table[tokens % 4096], 0)
        np.add.at(wanted, tokens[inside], 2 * (rows - y)[inside])
        np.testing.assert_allclose(changed, wanted, rtol=1e-4, atol=1e-4)
        ((old, new),) = best.diff
        assert 'rows = table.at[tokens].get(mode="fill", fill_value=0' in new
        with user_module(user_file(tmp_path, source.replace(old, new))) as module:
            np.testing.assert_allclose(np.asarray(st.jit(module.f)(*placed)), wanted, rtol=1e-4,
                                       atol=1e-4)
            assert st.explain(module.f)(*module.args).received_bytes == best.received_bytes


def test_what_several_lines_read_of_one_gather_is_told_together(tmp_path) -> None:
    source = HEAD + """\
def body(x):
    whole = lax.all_gather(x, "d", axis=0, tiled=True)
    i = lax.axis_index("d") * 64
    above = lax.dynamic_slice_in_dim(whole, (i - 1) % 512, 1)
    below = lax.dynamic_slice_in_dim(whole, (i + 64) % 512, 1)
    return x + jnp.concatenate([above, x[:-1]]) + jnp.concatenate([x[1:], below])


f, args = mapped(body), (struct((512, 1024), "d"),)
"""
    with user_module(user_file(tmp_path, source)) as module:
        (gather,) = st.explain(module.f)(*module.args).collectives
        best = gather.suggestions[0]
        at = gather.source.line
        assert best.text.endswith(f"at lines {at + 2} and {at + 3}") and len(best.diff) == 2
        x = values_of(module.args)[0]
        placed = st.device_put(x, module.args[0].sharding)
        np.testing.assert_allclose(np.asarray(best.apply()(placed)),
                                   x + np.roll(x, 1, 0) + np.roll(x, -1, 0))
