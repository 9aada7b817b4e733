"""Parts of one dimension are put side by side, or worked on one by one: the same is computed of
them, and what is read of one part alone is not exchanged.
"""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from shardtrace.report.advice.interleaving.change import INTERLEAVED, Interleave

from ....user_files import user_file, user_module
from .explained_code import check_typed, explained_code
from .test_changes import HEAD, values_of

# text, the reference in numpy, and a suggestion
BESIDE = {
    "batches in one": ("""
def f(x, y, w):
    h = jnp.tanh(jnp.concatenate([x, y]) @ w)
    a, b = jnp.split(h, 2)
    return a * 2 - b


args = struct((512, 64), "d"), struct((512, 64), "d"), struct((64, 64))
""", lambda x, y, w: np.tanh(x @ w) * 2 - np.tanh(y @ w), "join rows of the 2 parts"),
    "batches in one, of which one has a mask": ("""
def f(x, y, w):
    mask = (jnp.arange(1024) < 7)[:, None]
    h = jnp.concatenate([x, y]) @ w * mask
    return h[:512] - h[512:]


args = struct((512, 64), "d"), struct((512, 64), "d"), struct((64, 64))
""", lambda x, y, w: x @ w * (np.arange(512) < 7)[:, None], "join rows of the 2 parts"),
    "a gate and what it gates": ("""
def f(w, x):
    a, b = jnp.split(x @ w, 2, -1)
    return jnp.tanh(a) * b


args = struct((64, 1024), None, "d"), struct((512, 64))
""", lambda w, x: np.tanh((x @ w)[:, :512]) * (x @ w)[:, 512:], "keep `w` with rows"),
    "columns of two sizes, with a bias": ("""
def f(w, b, x):
    h = x @ w + b
    return h[:, :1024] * jnp.repeat(h[:, 1024:], 2, 1)


args = struct((64, 1536), None, "d"), struct((1536,), "d"), struct((512, 64))
""", lambda w, b, x: (x @ w + b)[:, :1024] * np.repeat((x @ w + b)[:, 1024:], 2, 1),
        "keep `w` with rows of the 2 parts of dimension 1"),
    "a dimension of the parts": ("""
def f(w, x):
    h = (x @ w).reshape(512, 2, 512)
    return jnp.tanh(h[:, 0]) * h[:, 1]


args = struct((64, 1024), None, "d"), struct((512, 64))
""", lambda w, x: np.tanh((x @ w)[:, :512]) * (x @ w)[:, 512:], "keep `w` with rows"),
    "weights of a loop": ("""
def f(w, x):
    def layer(h, w):
        a, b = jnp.split(h @ w, 2, -1)
        return h + (jnp.tanh(a) * b).sum(-1, keepdims=True), None
    return lax.scan(layer, x, w)[0]


args = struct((3, 64, 1024), None, None, "d"), struct((512, 64))
""", None, "keep `w` with rows of the 2 parts of dimension 2")}


@pytest.mark.parametrize("name", BESIDE)
def test_rows_of_parts_are_put_side_by_side(name, tmp_path):
    source, reference, words = BESIDE[name]
    with explained_code(tmp_path, HEAD + source, words) as (module, found, best):
        assert best is not None and best.received_bytes < found.received_bytes / 2
        assert best.flops <= found.flops * 1.01
        after = st.explain(best.apply(), suggest_seconds=0)(*module.args)
        assert (after.received_bytes, after.time) == (best.received_bytes, best.time)
        given = [v / 16 for v in values_of(module.args)]
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        with st.config.override(shardtrace_engine="per_device"):
            changed = np.asarray(best.apply()(*placed))
        wanted = reference(*given) if reference else np.asarray(st.jit(module.f)(*placed))
        (change,) = best.changes
        if change.arguments:                     # the user passes them with rows side by side
            said = change.made(change.inside).attributes[INTERLEAVED][-1]
            for i, rows in said.arguments.items():
                for d, group in rows.items():
                    given[i] = np.take(given[i], said.order.places(given[i].shape[d], group), d)
        assert bool(best.diff) is ("mask" not in name)       # whose rows no line joins
        if best.diff:
            typed = check_typed(tmp_path, HEAD + source, best, given, wanted, rtol=2e-3, atol=2e-3)
            assert typed == best.received_bytes
    np.testing.assert_allclose(changed, wanted, rtol=2e-3, atol=2e-3)


def test_what_goes_with_a_weight_has_its_rows_in_the_same_order(tmp_path):
    """The slope, the momentum and the new weight: the user has them as he passes the weight."""
    source = HEAD + """\
def f(p, m, x):
    def loss(p):
        a, b = jnp.split(x @ p["w"] + p["b"], 2, -1)
        return ((jnp.tanh(a) * b) ** 2).mean()
    m = st.tree.map(lambda m, g: 0.9 * m + g, m, st.grad(loss)(p))
    return st.tree.map(lambda p, m: p - m, p, m), m


row = {"w": struct((64, 8192), None, "d"), "b": struct((8192,), "d")}
args = row, row, struct((8192, 64))
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        best = next(s for c in found.collectives for s in c.suggestions
                    if s.text.startswith("keep `p['w']`") and len(s.changes) == 1)
        assert best.received_bytes < found.received_bytes / 2
        assert [old for old, _ in best.diff] == ['a, b = jnp.split(x @ p["w"] + p["b"], 2, -1)']
        given = st.tree.map(lambda t: np.sin(np.arange(np.prod(t.shape), dtype=np.float32)
                                             ).reshape(t.shape), module.args)
        placed = st.tree.map(lambda v, t: st.device_put(v, t.sharding), given, module.args)
        for old, new in zip(st.tree.leaves(st.jit(module.f)(*placed)),
                            st.tree.leaves(best.apply()(*placed)), strict=True):
            np.testing.assert_allclose(np.asarray(new), np.asarray(old), rtol=1e-3, atol=1e-4)


def test_batches_that_a_loop_in_python_takes_in_turn_have_their_rows_side_by_side(tmp_path):
    """Of the first eighth of all rows the first device has all; inputs and targets go together."""
    source = HEAD + """\
def f(w, x, y):
    total = jnp.zeros_like(w)
    for i in range(4):
        rows = slice(i * 1024, (i + 1) * 1024)
        total += st.grad(lambda w: ((jnp.tanh(x[rows] @ w) - y[rows]) ** 2).sum())(w)
    return total


args = struct((64, 64)), struct((4096, 64), "d"), struct((4096, 64), "d")
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        best = next(s for c in found.collectives for s in c.suggestions if len(s.changes) == 2
                    and all(isinstance(change, Interleave) for change in s.changes))
        assert best.received_bytes < found.received_bytes / 2
        assert best.text == ("keep `x` and `y` with rows of the 4 parts of dimension 0 side by "
                             "side, instead of one part behind the other")
        assert not best.diff                # each time the line reads other rows
        given = [v / 16 for v in values_of(module.args)]
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        np.testing.assert_allclose(np.asarray(best.apply()(*placed)), np.asarray(
            st.jit(module.f)(*placed)), rtol=2e-3, atol=2e-3)


def test_each_reader_of_parts_of_a_row_has_the_change_of_the_row(tmp_path):
    """The weights of a row, of which each line reads another."""
    source = HEAD + """\
def f(ws, x, z):
    q, k = jnp.split(x @ ws[0]["qk"], 2, -1)
    r, s = jnp.split(z @ ws[1]["qk"], 2, -1)
    return jnp.tanh(q * k), jnp.tanh(r * s)


args = [{"qk": struct((1024, 2048), None, "d")}] * 2, struct((512, 1024)), struct((512, 1024))
"""
    with user_module(user_file(tmp_path, source)) as module:
        found = st.explain(module.f)(*module.args)
        assert {c.source.line for c in found.collectives} == {
            i + 1 for i, line in enumerate(source.splitlines()) if "split" in line}
        assert all("keep all 2 `ws[*]['qk']` with rows of the 2 parts of dimension 1" in
                   c.suggestions[0].text for c in found.collectives)


APART = {
    "the norm of all gradients": ("""
def f(a, b):
    return jnp.sqrt((jnp.concatenate([a.ravel(), b.ravel()]) ** 2).sum())


args = struct((512, 1024), "d"), struct((1024, 512), None, "d")
""", lambda a, b: np.sqrt((a ** 2).sum() + (b ** 2).sum()), "reduce each part by itself"),
    "the largest of rows": ("""
def f(a, b):
    return jnp.abs(jnp.concatenate([a, b], 1)).max(1)


args = struct((512, 1024), None, "d"), struct((512, 512), None, "d")
""", lambda a, b: np.maximum(np.abs(a).max(1), np.abs(b).max(1)), "reduce each part by itself"),
    "a product with features of two": ("""
def f(a, b, w):
    return jnp.concatenate([a, b], 1) @ w


args = struct((4096, 512), None, "d"), struct((4096, 1024), None, "d"), struct((1536, 16))
""", lambda a, b, w: np.concatenate([a, b], 1) @ w, "add up products of each part"),
    "a convolution of channels of two": ("""
def f(a, b, k):
    return lax.conv_general_dilated(jnp.concatenate([a, b], 1), k, (1,), "SAME")


args = struct((6, 256, 66), None, "d"), struct((6, 512, 66), None, "d"), struct((4, 768, 3))
""", lambda a, b, k: sum(
        np.einsum("bcs,oc->bos", np.pad(np.concatenate([a, b], 1), ((0, 0), (0, 0), (1, 1)))[
            :, :, i:i + 66], k[:, :, i]) for i in range(3)), "add up products of each part"),
    "the places of the largest": ("""
def f(a, b):
    return jnp.argmax(jnp.concatenate([a, b], 1), 1)


args = struct((512, 1024), None, "d"), struct((512, 512), None, "d")
""", None, "each part")}


@pytest.mark.parametrize("name", APART)
def test_parts_are_worked_on_one_by_one(name, tmp_path):
    source, reference, words = APART[name]
    with explained_code(tmp_path, HEAD + source, words) as (module, found, best):
        if reference is None:
            assert best is None
            return
        assert best is not None and best.time < found.time * 0.9
        given = [v / 16 for v in values_of(module.args)]
        placed = [st.device_put(v, a.sharding) for v, a in zip(given, module.args, strict=True)]
        with st.config.override(shardtrace_engine="per_device"):
            changed = np.asarray(best.apply()(*placed))
        wanted = reference(*given)
        assert best.diff
        bytes_then = check_typed(tmp_path, HEAD + source, best, given, wanted, rtol=2e-3, atol=2e-3)
        assert bytes_then == best.received_bytes
    np.testing.assert_allclose(changed, wanted, rtol=2e-3, atol=2e-3)
