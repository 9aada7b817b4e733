"""The first root cause of a program is the mistake, and its first suggestion puts that right."""
from __future__ import annotations

import functools
import re
from collections.abc import Callable

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.ir.settings.context import config
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ... import specs

MESH = AbstractMesh((8, 4), ("data", "model"))
LINE = AbstractMesh((8,), ("d",))
struct = functools.partial(specs.struct, mesh=MESH)
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
        "^`bias`", r"^pass `bias` as P\('d'\)")}


@config.override(shardtrace_objective="time")
@pytest.mark.parametrize("case", CASES)
def test_the_first_cause_is_the_mistake(case: str) -> None:
    f, args, cause, fix = CASES[case]
    found = st.explain(f)(*args)
    first = found.root_causes[0]
    best = first.groups[0][0].suggestions[0]
    assert re.search(cause, first.text), [root.text for root in found.root_causes]
    assert re.search(fix, best.text), [s.text for s in first.groups[0][0].suggestions]
    assert best.time < found.time and best.received_bytes < found.received_bytes
