"""What is shown first of whole steps, as users write them, is the line, the reason and the change
that puts the one mistake in them right: with loops, caches, helpers, experts, chains of values.
"""
from __future__ import annotations

import re

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import config, lax, nn

from .test_first_suggestions import struct, to

CASES: dict[str, tuple] = {}


WHOLE_SEARCH = ("parts_of_a_batch",
                "another_layout_where_a_chain_is_widest",
                "a_bias_over_the_axis_of_the_batch")
def case(*args, fix: str, reason: str):
    """fix, reason: what is found in the first suggestion, and in what is said of why."""
    def enter(f):
        CASES[f.__name__] = (f, args, fix, reason)
        return f
    return enter


# the split dimension of the batch becomes that of the loop over its parts

@case(struct((1024, 4096)), struct((4096, 1024)), struct((512, 1024), "data"),
      struct((512, 1024), "data"), reason="argument `x`",
      fix="^keep `x` with rows of the 8 parts")
def parts_of_a_batch_for_weights_that_are_larger(w1, w2, x, y):
    return parts_of_a_batch(w1, w2, x, y)


@case(struct((1024, 4096), None, "model"), struct((4096, 1024), "model"),
      struct((65536, 1024), "data"), struct((65536, 1024), "data"),
      fix="^keep `x` with rows of the 8 parts", reason="argument `x`")
def parts_of_a_batch(w1, w2, x, y):
    def cut(a):
        return a.reshape(8, -1, *a.shape[1:])

    def loss(ws, x, y):
        return ((nn.gelu(x @ ws[0]) @ ws[1] - y) ** 2).mean()

    def one(total, xy):
        return st.tree.map(jnp.add, total, st.grad(loss)((w1, w2), *xy)), None
    return lax.scan(one, st.tree.map(jnp.zeros_like, (w1, w2)), (cut(x), cut(y)))[0]


# caches by their positions, where all else is by heads

def attend(q, k, v, pos):
    z = jnp.einsum("bhd,bthd->bht", q, k) / 8
    z = jnp.where(jnp.arange(k.shape[1]) <= pos, z, -1e9)
    return jnp.einsum("bht,bthd->bhd", nn.softmax(z), v)


@case({n: struct((2048, 16, 128), None, "model") for n in "qkv"}
      | {"o": struct((16, 128, 2048), "model")},
      {n: struct((256, 2048, 16, 128), "data", "model") for n in "kv"},
      struct((256, 2048), "data"), reason="argument `cache",
      fix=r"^pass `cache\['k'\]` as P\('data', None, 'model'\) instead of P\('data', 'model'\), "
          r"and pass `cache\['v'\]` as P\('data', None, 'model'\) instead of P\('data', 'model'\)$")
def caches_in_a_loop(w, cache, x):
    def one(i, carry):
        x, k, v = carry
        q, new_k, new_v = [jnp.einsum("bm,mhd->bhd", x, w[n]) for n in "qkv"]
        k = lax.dynamic_update_slice(k, new_k[:, None], (0, i, 0, 0))
        v = lax.dynamic_update_slice(v, new_v[:, None], (0, i, 0, 0))
        return x + jnp.einsum("bhd,hdm->bm", attend(q, k, v, i), w["o"]), k, v
    x, k, v = lax.fori_loop(0, 128, one, (x, cache["k"], cache["v"]))
    return x, {"k": k, "v": v}


# a constraint that should not be there

@case({"router": struct((1024, 16)), "in": struct((16, 1024, 4096), "model"),
       "out": struct((16, 4096, 1024), "model")}, struct((32, 256, 1024), "data"),
      fix="^take out the `with_sharding_constraint`", reason="`with_sharding_constraint` at line")
def experts_over_all_axes(p, x):
    _, chosen = lax.top_k(nn.softmax(x @ p["router"]), 2)
    dispatch = nn.one_hot(chosen, 16).sum(-2)[..., None] * jnp.ones(128)
    h = to(jnp.einsum("gsm,gsec->egcm", x, dispatch), None, ("data", "model"))
    h = nn.relu(jnp.einsum("egcm,emf->egcf", h, p["in"]))
    return jnp.einsum("egcm,gsec->gsm", jnp.einsum("egcf,efm->egcm", h, p["out"]), dispatch)


@case(struct((32768, 1024), "model"), struct((1024, 1024)), struct((16, 512, 1024), "data"),
      struct((16, 512), "data", dtype=np.int32),
      fix="^take out the `with_sharding_constraint`", reason="`with_sharding_constraint` at line")
def the_gradient_of_whole_logits(embedding, w, h, labels):
    def loss(embedding, w):
        z = to(jnp.tanh(h @ w) @ embedding.T, "data", None, None)
        return -(nn.one_hot(labels, z.shape[-1]) * nn.log_softmax(z)).sum(-1).mean()
    return st.grad(loss, (0, 1))(embedding, w)


@case(struct((512, 4096), None, "model"), struct((4096, 512), "model"), struct((512,)),
      struct((512, 256, 512), "data"), reason='asked for by `to\\(h, None, "data", "model"',
      fix=r"^`with_sharding_constraint` at line \d+ to P\(None, \('data', 'model'\)\) instead of "
          r"P\(None, 'data', 'model'\)$")
def another_layout_where_a_chain_is_widest(up, down, window, x):
    h = nn.gelu(x @ up)
    h = to(h, None, "data", "model")
    y = h @ down
    return jnp.abs(jnp.fft.fft(y, axis=0) * window)


# a batch that nothing splits, where the weights could use the idle axis, too

@case({n: struct((4096, 4096), None, "model") for n in "abc"}, struct((16384, 4096)),
      struct((16384, 4096)), reason=r"`x` as P\(\)",
      fix=r"^pass `x` as P\('data'\) instead of P\(\)(, and pass `y` as P\('data'\) instead of "
          r"P\(\))?$")
def a_batch_that_every_device_has(ws, x, y):
    def loss(ws):
        h = x
        for n in "abc":
            h = nn.relu(h @ ws[n])
        return ((h - y) ** 2).mean()
    return st.tree.map(lambda w, g: w - 0.01 * g, ws, st.grad(loss)(ws))


# an axis on the wrong dimension of one argument, for which all is computed or moved otherwise

@case({"x": struct((256, 4096), None, "model"), "h": struct((1024, 4096), None, "model")},
      struct((128, 512, 256), "data"), reason="argument `xs`",
      fix=r"^pass `xs` as P\(None, 'data'\) instead of P\('data'\)$")
def steps_split_instead_of_the_batch(w, xs):
    def cell(c, x):
        h, m = c
        i, f, g, o = jnp.split(x @ w["x"] + h @ w["h"], 4, -1)
        m = nn.sigmoid(f) * m + nn.sigmoid(i) * jnp.tanh(g)
        return (nn.sigmoid(o) * jnp.tanh(m), m), m
    zero = jnp.zeros((512, 1024))
    return lax.scan(cell, (zero, zero), xs)[1]


@case([{"up": struct((2048, 8192), "data", "model"), "bias": struct((8192,), "data"),
        "down": struct((8192, 2048), "model", "data")} for _ in range(2)],
      struct((64, 128, 2048), "data"), reason=r"argument `ps\[0\]\['bias'\]`",
      fix=r"^pass all 2 `ps\[\*\]\['bias'\]` as P\('model'\) instead of P\('data'\)$")
def a_bias_over_the_axis_of_the_batch(ps, x):
    for p in ps:
        y = x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)
        x = x + nn.gelu(y @ p["up"] + p["bias"]) @ p["down"]
    return x


# an axis on the wrong dimension, where a layout over both axes of the mesh saves little more

@case({"router": struct((1024,)), "up": struct((1024, 4096), None, "model"),
       "down": struct((4096, 1024), "model")}, struct((32, 2048, 1024), None, "data"),
      reason="argument `x`", fix=r"^pass `x` as P\('data'\) instead of P\(None, 'data'\)$")
def tokens_chosen_along_a_split_sequence(w, x):
    top, at = lax.top_k(x @ w["router"], 256)
    chosen = jnp.take_along_axis(x, at[..., None], axis=1)
    y = nn.gelu(chosen @ w["up"]) @ w["down"] * nn.sigmoid(top)[..., None]
    return jnp.put_along_axis(x, at[..., None], chosen + y, axis=1, inplace=False)


# a constraint behind an elementwise op on what is computed whole

@case(struct((2048, 512), None, "model"), struct((16384, 2048), "data"),
      struct((16384, 2048), "data"), fix="^take out the `with_sharding_constraint` to P\\(\\)",
      reason="`scores` is held as P\\(\\) by `with_sharding_constraint`")
def scores_of_all_pairs_on_each_device(w, a, b):
    scores = (a @ w) @ (b @ w).T / 0.07
    scores = to(scores)
    return -jnp.diag(nn.log_softmax(scores, 1)).mean()


# rows of parts, though the sum after them takes longer

@case(struct((16, 1024, 2048), "data"), struct((2048, 6144), None, "model"),
      struct((2048, 2048), "model"), reason="argument `wqkv`",
      fix="^keep `wqkv` with rows of the 3 parts of dimension 1 side by side, instead of one part "
          "behind the other$")
def packed_columns_cut_into_three(x, wqkv, wo):
    qkv = (x @ wqkv).reshape(16, 1024, 3, 16, 128)
    q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    p = nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) * 128 ** -0.5)
    return x + jnp.einsum("bhqk,bkhd->bqhd", p, v).reshape(16, 1024, 2048) @ wo


# what is faster since whoever passes the result on would exchange it instead

@case({"q": struct((2048, 16, 128), None, None, "model"),
       "k": struct((2048, 16, 128), None, "model"), "v": struct((2048, 16, 128), "model"),
       "o": struct((16, 128, 2048), "model")}, struct((8, 1024, 2048), "data"),
      reason=r"argument `w\['v'\]`",
      fix=r"^pass `w\['q'\]` as P\(None, 'model'\) instead of P\(None, None, 'model'\), "
          r"and pass `w\['v'\]` as P\(None, 'model'\) instead of P\('model'\)$")
def two_rows_of_a_layer_whose_result_is_like_its_argument(w, x):
    q, k, v = (jnp.einsum("bsm,mhd->bshd", x, w[n]) for n in "qkv")
    a = nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 11)
    return x + jnp.einsum("bqhd,hdm->bqm", jnp.einsum("bhqk,bkhd->bqhd", a, v), w["o"])


# more axes for an argument, which leave what the user asked for as it is

@case(struct((64, 32, 32, 128), "data"), struct((3, 3, 128, 512), None, None, None, "model"),
      struct((3, 3, 512, 128), None, None, "model"), reason="`to.* at ",
      fix=r"^take out the `with_sharding_constraint` to P\('model'\) at line \d+$")
def a_constraint_between_two_convolutions(x, a, b):
    def conv(x, k):
        return lax.conv_general_dilated(x, k, (1, 1), "SAME",
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return x + conv(to(nn.relu(conv(x, a)), "model"), b)


# code, the computation it saves included

@case(struct((1024, 64)), struct((65536, 1024), "data"),
      struct((262144,), "data", dtype=np.int32), struct((262144,), "data", dtype=np.int32),
      fix="^multiply before rows are read", reason="argument `nodes`")
def messages_along_edges(w, nodes, senders, receivers):
    return jnp.zeros((65536, 64)).at[receivers].add(nn.relu(nodes[senders] @ w))


@case(struct((65536, 1024), "model"), struct((256, 8, 1024), "data"), struct((256, 8), "data"),
      fix="^choose from each row before rows are joined", reason="argument `embedding`")
def a_step_of_beams(embedding, h, scores):
    z = nn.log_softmax(jnp.einsum("bkd,vd->bkv", h, embedding)) + scores[..., None]
    n, k, v = z.shape
    best, at = lax.top_k(z.reshape(n, k * v), k)
    return best, at // v, at % v


@config.override(shardtrace_objective="time")
@pytest.mark.parametrize("name", CASES)
def test_the_mistake_is_told_first(name: str) -> None:
    f, args, fix, reason = CASES[name]
    found = st.explain(f)(*args)
    cause = found.root_causes[0]
    told = cause.groups[0][0]
    best = told.suggestions[0]
    assert re.search(fix, best.text), [s.text for s in told.suggestions]
    assert re.search(reason, f"{cause.text}\n{told.verdict}\n{told.reason}"), told.reason
    assert best.time < (0.9 if best.received_bytes <= found.received_bytes else 0.5) * found.time
    assert best.peak_bytes <= 1.25 * found.peak_bytes and best.flops <= 1.25 * found.flops
    assert st.explain(best.apply())(*args).time == best.time
