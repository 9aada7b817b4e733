"""The first root cause of a program is the mistake, and its first suggestion puts that right."""
from __future__ import annotations

import functools
import re
from collections.abc import Callable

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.ir.settings.context import config
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ... import specs

WHOLE_SEARCH = ("a table that is split unlike the others",
                "batches that are cut along the split dimension")
MESH = AbstractMesh((8, 4), ("data", "model"))
LINE = AbstractMesh((8,), ("d",))
struct = functools.partial(specs.struct, mesh=MESH)
numbers = functools.partial(specs.struct, mesh=MESH, dtype=np.int32)
on_line = functools.partial(specs.struct, mesh=LINE)


def to(x: st.Array, *spec) -> st.Array:
    return lax.with_sharding_constraint(x, NamedSharding(MESH, P(*spec)))


def convolved(x: st.Array, w: st.Array, stride: int = 1) -> st.Array:
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME",
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))


def skipped(w: dict[str, st.Array], x: st.Array) -> st.Array:
    h = nn.silu(convolved(x, w["down"]))
    skip = to(h, "data", None, None, "model")
    h = nn.silu(convolved(nn.silu(convolved(h, w["half"], 2)), w["mid"]))
    h = jnp.repeat(jnp.repeat(h, 2, 1), 2, 2)
    return convolved(nn.silu(convolved(jnp.concatenate([h, skip], -1), w["up"])), w["out"])


def whole_state(w: dict[str, st.Array], xs: st.Array) -> st.Array:
    def step(carry: tuple, x: st.Array) -> tuple:
        h, c = carry
        i, f, g, o = jnp.split(x @ w["x"] + h @ w["h"], 4, -1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
        h = to(nn.sigmoid(o) * jnp.tanh(c))
        return (h, c), h

    zeros = jnp.zeros((4096, 1024))
    return lax.scan(step, (zeros, zeros), xs)[1]


def summed_in_each_step(w: st.Array, xs: st.Array) -> st.Array:
    def body(w: st.Array, xs: st.Array) -> st.Array:
        def step(carry: tuple, t: st.Array) -> tuple:
            state, out = carry
            state = nn.relu(jnp.where(lax.axis_index("d") == 0, xs[t], state) @ w[0])
            out = out + lax.psum(jnp.where(lax.axis_index("d") == 7, state, 0.0), "d")
            state = lax.ppermute(state, "d", [(k, (k + 1) % 8) for k in range(8)])
            return (state, out), None

        zeros = jnp.zeros_like(xs[0])
        return lax.scan(step, (zeros, zeros), jnp.arange(32))[0][1]
    return st.shard_map(body, mesh=LINE, in_specs=(P("d"), P()), out_specs=P(),
                        check_vma=False)(w, xs)


def bias_by_its_keys(k: st.Array, bias: st.Array) -> st.Array:
    def body(k: st.Array, bias: st.Array) -> st.Array:
        def step(carry: tuple, t: st.Array) -> tuple:
            k, out = carry
            out = out + jnp.exp(k + bias[:, :k.shape[1]]) @ k.T
            return (lax.ppermute(k, "d", [(i, (i + 1) % 8) for i in range(8)]), out), None

        return lax.scan(step, (k, jnp.zeros((k.shape[0], k.shape[0]))), jnp.arange(8))[0][1]
    return st.shard_map(body, mesh=LINE, in_specs=P("d"), out_specs=P("d"),
                        check_vma=False)(k, bias)


def gathered_classes(x: st.Array, head: st.Array, labels: st.Array) -> st.Array:
    """What is gathered over one axis is reduced at the line of a sum over the other."""
    def body(x: st.Array, head: st.Array, labels: st.Array) -> st.Array:
        z = lax.all_gather(x @ head, "model", axis=1, tiled=True)
        own = jnp.take_along_axis(z, labels[:, None], 1)[:, 0]
        return lax.pmean((nn.logsumexp(z, 1) - own).mean(), "data")
    return st.shard_map(body, mesh=MESH, in_specs=(P("data"), P(None, "model"), P("data")),
                        out_specs=P(), check_vma=False)(x, head, labels)


def decoded(w: dict[str, st.Array], keys: st.Array, values: st.Array, x: st.Array) -> tuple:
    """A step of decoding, whose caches are split along positions and heads."""
    b = x.shape[0]
    q = (x @ w["q"]).reshape(b, 8, 4, 128)
    k, v = ((x @ w[name]).reshape(b, 1, 8, 128) for name in ("k", "v"))
    keys = lax.dynamic_update_slice_in_dim(keys, k, 7, 1)
    values = lax.dynamic_update_slice_in_dim(values, v, 7, 1)
    scores = nn.softmax(jnp.einsum("bgqd,bsgd->bgqs", q, keys), -1)
    h = jnp.einsum("bgqs,bsgd->bgqd", scores, values).reshape(b, -1)
    return x + h @ w["o"], keys, values


def experts(w: dict[str, st.Array], x: st.Array) -> st.Array:
    """A gradient whose first weight is split by experts, and the second along what is summed."""
    def loss(w: dict[str, st.Array]) -> st.Array:
        top, ids = lax.top_k(nn.softmax(x @ w["gate"], -1), 2)
        share = (nn.one_hot(ids, 16) * top[..., None]).sum(1)
        h = nn.gelu(jnp.einsum("td,edf->etf", x, w["up"]))
        return (jnp.einsum("etf,efd,te->td", h, w["down"], share) ** 2).mean()
    return st.grad(loss)(w)


def distilled(w: dict[str, st.Array], teacher: dict[str, st.Array], x: st.Array) -> tuple:
    """The gradients are summed over devices, which takes longer than what the teacher's constraint
    exchanges; their own layout is no use to whoever updates the weights.
    """
    def loss(w: dict[str, st.Array]) -> st.Array:
        own = nn.gelu(x @ w["up"]) @ w["head"]
        other = to(nn.gelu(x @ teacher["up"]) @ teacher["head"], "data")
        gap = nn.log_softmax(other, -1) - nn.log_softmax(own, -1)
        return (nn.softmax(other, -1) * gap).sum(-1).mean()
    return st.value_and_grad(loss)(w)


def tables(p: dict[str, st.Array], ids: list[st.Array], x: st.Array) -> tuple:
    """A step of a recommender with four tables, one of which is split over the axis of the ids."""
    def loss(p: dict[str, st.Array]) -> st.Array:
        rows = [p[f"t{k}"][ids[k]] for k in range(4)]
        h = nn.relu(jnp.concatenate([*rows, x], -1) @ p["w1"])
        return nn.softplus(h @ p["w2"]).mean()
    value, g = st.value_and_grad(loss)(p)
    return st.tree.map(lambda p, g: p - 1e-2 * g, p, g), value


def smoothed(p: dict[str, st.Array], x: st.Array, labels: st.Array) -> tuple:
    """Asked for whole along the classes: another layout of the batch saves more, but the labels are
    laid out as the batch is.
    """
    def loss(p: dict[str, st.Array]) -> st.Array:
        z = to(nn.log_softmax(nn.gelu(x @ p["up"]) @ p["head"], -1), "data")
        y = 0.9 * nn.one_hot(labels, 32000) + 0.1 / 32000
        return -(z * y).sum(-1).mean()
    value, g = st.value_and_grad(loss)(p)
    return st.tree.map(lambda p, g: p - 1e-3 * g, p, g), value


def small_batches(p: dict[str, st.Array], x: st.Array, y: st.Array) -> dict[str, st.Array]:
    """Each of the batches is on one device, and all devices compute it."""
    def one(g: dict[str, st.Array], xy: tuple) -> tuple:
        x, y = xy
        more = st.grad(lambda p: ((x + nn.gelu(x @ p["up"]) @ p["down"] - y) ** 2).mean())(p)
        return st.tree.map(jnp.add, g, more), None
    xs, ys = x.reshape(8, 2048, 2048), y.reshape(8, 2048, 2048)
    return lax.scan(one, st.tree.map(jnp.zeros_like, p), (xs, ys))[0]


def second_moment(w: st.Array, v: st.Array, x: st.Array, y: st.Array) -> tuple:
    """Both results are of one type: only one of them is passed on in the place of `v`."""
    def body(w: st.Array, v: st.Array, x: st.Array, y: st.Array) -> tuple:
        g = lax.pmean(st.grad(lambda w: ((nn.gelu(x @ w) - y) ** 2).mean())(w), "d")
        new = 0.99 * lax.all_gather(v, "d", axis=0, tiled=True) + 0.01 * g * g
        own = lax.dynamic_slice_in_dim(new, lax.axis_index("d") * 1024, 1024, 0)
        return w - 1e-3 * g * lax.rsqrt(new + 1e-8), own
    return st.shard_map(body, mesh=LINE, in_specs=(P(), P("d"), P("d"), P("d")),
                        out_specs=(P(), P("d")), check_vma=False)(w, v, x, y)


CACHE = struct((128, 8192, 8, 128), None, "data", "model")
COLUMNS, ROWS = (None, "model"), ("model",)
CASES: dict[str, tuple[Callable, tuple, str, str]] = {
    "a constraint to which no path leads": (
        skipped, ({"down": struct((3, 3, 64, 128)), "half": struct((3, 3, 128, 256)),
                   "mid": struct((3, 3, 256, 256)), "up": struct((3, 3, 384, 128)),
                   "out": struct((3, 3, 128, 64))},
                  struct((64, 128, 128, 64), ("data", "model"))),
        'to.h, "data", None, None, "model"', "^take out the `with_sharding_constraint`"),
    "a constraint that another layout suits a little better": (
        whole_state, ({"x": struct((512, 4096), None, "model"),
                       "h": struct((1024, 4096), None, "model")},
                      struct((256, 4096, 512), None, "data")),
        r"`to\(", "^take out the `with_sharding_constraint`"),
    "a sum in a loop beside a permutation that takes as long": (
        summed_in_each_step, (on_line((8, 2048, 2048), "d"), on_line((32, 512, 2048))),
        "lax.psum", "sum over devices once, behind the loop"),
    "an argument that is moved for a shard_map which permutes others": (
        bias_by_its_keys, (on_line((16384, 8192), "d"), on_line((16384, 8192), None, "d")),
        "^`bias`", r"^pass `bias` as P\('d'\)"),
    "what is gathered for numbers that are averaged": (
        gathered_classes, (struct((16384, 1024), "data"), struct((1024, 65536), *COLUMNS),
                           numbers((16384,), "data")),
        r"^`lax.all_gather\(x @ head", "look rows up in each device's own .* reduce before the"),
    "caches that are split unlike what is written to them": (
        decoded, ({**{k: struct((4096, n), *COLUMNS) for k, n in (("q", 4096), ("k", 1024),
                                                                  ("v", 1024))},
                   "o": struct((4096, 4096), *ROWS)}, CACHE, CACHE, struct((128, 4096), "data")),
        "^`(keys|values)`", r"^pass `keys` as P\('data', None, 'model'\) .* `values` as P"),
    "two weights of experts that are split along different dimensions": (
        experts, ({"gate": struct((2048, 16)), "up": struct((16, 2048, 4096), "model"),
                   "down": struct((16, 4096, 2048), None, "model")}, struct((8192, 2048), "data")),
        r"^`w\['(up|down)'\]`",
        r"^pass `w\['(down'\]` as P\('model'|up'\]` as P\((None, None, 'model'|'data'))\) instead"),
    "a constraint beside sums that take longer": (
        distilled, (*[{"up": struct((1024, n), *COLUMNS), "head": struct((n, 64000), *COLUMNS)}
                      for n in (2048, 8192)], struct((16384, 1024), "data")),
        "to.nn.gelu", r"^take out the `with_sharding_constraint` to P\('data'\)"),
    "a constraint beside a batch that might be split otherwise": (
        smoothed, ({"up": struct((1024, 4096)), "head": struct((4096, 32000), *COLUMNS)},
                   struct((16384, 1024), "data"), numbers((16384,), "data")),
        "`to.nn.log_softmax", "take out the `with_sharding_constraint`")}
ON_H100: dict[str, tuple[Callable, tuple, str, str]] = {
    "a table that is split unlike the others": (
        tables, ({**{f"t{k}": struct((1 << 18, 128), "data" if k == 2 else "model")
                     for k in range(4)}, "w1": struct((640, 1024)), "w2": struct((1024, 1))},
                 [numbers((65536,), "data")] * 4, struct((65536, 128), "data")),
        r"`p\['t2'\]` as P\('data'\)", r"^(?!.*`x`).*pass `p\['t2'\]` as"),
    "batches that are cut along the split dimension": (
        small_batches, ({"up": struct((2048, 8192), *COLUMNS), "down": struct((8192, 2048), *ROWS)},
                        *[struct((16384, 2048), "data")] * 2),
        r"`[xy].reshape\(8, 2048, 2048\)` at line", "^keep `x` and `y` with rows of the 8 parts"),
    "a second moment that is gathered for a mean of gradients": (
        second_moment, (on_line((8192, 4096)), on_line((8192, 4096), "d"),
                        on_line((16384, 8192), "d"), on_line((16384, 4096), "d")),
        "`lax.all_gather", "sum only the block that each device reads")}


@config.override(shardtrace_objective="time")
@pytest.mark.parametrize("case", [*CASES, *ON_H100])
def test_the_first_cause_is_the_mistake(case: str) -> None:
    f, args, cause, fix = (CASES | ON_H100)[case]
    found = st.explain(f, *["h100"] * (case in ON_H100))(*args)
    first = found.root_causes[0]
    best = first.groups[0][0].suggestions[0]
    assert re.search(cause, first.text), [root.text for root in found.root_causes]
    assert re.search(fix, best.text), [s.text for s in first.groups[0][0].suggestions]
    assert best.time < found.time and best.received_bytes < 1.001 * found.received_bytes
