"""What lays arguments out unlike those that they are read with comes after what does not."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import config, lax, nn
from shardtrace.report.advice.layouts.other_layouts import layouts_over_others, other_layouts
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = AbstractMesh((8, 4), ("data", "model"))


def struct(shape: tuple[int, ...], *spec, dtype=np.float32) -> st.ShapeDtypeStruct:
    return st.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*spec)))


def tied(p, tokens, labels):
    def loss(p):
        h = p["emb"][tokens]
        h = h + nn.gelu(h @ p["w1"]) @ p["w2"]
        scores = nn.log_softmax(h @ p["emb"].T, -1)
        return -jnp.take_along_axis(scores, labels[..., None], -1).mean()
    return st.value_and_grad(loss)(p)


def adapted(w, a, b, x):
    return nn.gelu(x @ w + (x @ a) @ b * 0.5)


def adversarial(p, real, fake):
    def loss(p):
        z = nn.relu(jnp.concatenate([real, fake]) @ p["w"]) @ p["v"]
        r, f = jnp.split(z, 2)
        return (jnp.maximum(0, 1 - r) + jnp.maximum(0, 1 + f)).mean()
    return st.value_and_grad(loss)(p)


def recurrent(xs, wx, wh):
    def cell(state, x):
        h, s = state
        i, f, g, o = jnp.split(x @ wx + h @ wh, 4, -1)
        s = nn.sigmoid(f) * s + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(s)
        return (h, s), h
    zero = jnp.zeros((256, 1024))
    return lax.scan(cell, (zero, zero), xs)[1]


def packed(layers, x):
    for p in layers:
        q, k, v = (a.reshape(16, 256, 32, 128) for a in jnp.split(x @ p["qkv"], 3, -1))
        s = nn.softmax(jnp.einsum("bshd,bthd->bhst", q, k))
        x = x + jnp.einsum("bhst,bthd->bshd", s, v).reshape(x.shape) @ p["o"]
    return x


ROW = {"qkv": struct((4096, 12288), None, "model"), "o": struct((4096, 4096), "model")}
CASES = {
    tied: (({"emb": struct((32768, 1024), None, "model"), "w1": struct((1024, 4096), None, "model"),
             "w2": struct((4096, 1024), "model")}, struct((32, 512), "data", dtype=np.int32),
            struct((32, 512), "data", dtype=np.int32)),
           "pass `p['emb']` as P('model') instead of P(None, 'model')"),
    adapted: ((struct((4096, 16384), None, "model"), struct((4096, 64)),
               struct((64, 16384), "model"), struct((64, 256, 4096), "data")),
              "pass `b` as P(None, 'model') instead of P('model')"),
    adversarial: (({"w": struct((784, 8192)), "v": struct((8192, 1))},
                   struct((8192, 784), "data"), struct((8192, 784), "data")),
                  "join rows of the 2 parts side by side"),
    recurrent: ((struct((128, 256, 1024), None, "data", "model"), struct((1024, 4096), "model"),
                 struct((1024, 4096))), "P(None, ('data', 'model'))"),
    packed: (([ROW] * 4, struct((16, 256, 4096), "data")),
             "keep all 4 `layers[*]['qkv']` with rows of the 3 parts")}


@config.override(shardtrace_objective="time")
@pytest.mark.parametrize("f", CASES)
def test_what_is_told_first(f) -> None:
    args, words = CASES[f]
    found = st.explain(f)(*args)
    best = found.root_causes[0].groups[0][0].suggestions[0]
    assert words in best.text and best.time < found.time
    assert len({c.spec if hasattr(c, "spec") else c for c in best.changes}) == 1


def test_a_stack_that_is_split_by_the_steps_of_a_loop_is_unlike_the_others() -> None:
    def layers(ws, x):
        def one(x, w):
            return x + nn.gelu(x @ w["up"] + w["bias"]) @ w["down"], None
        return lax.scan(one, x, ws)[0]

    found = st.explain(layers, trials=1)(
        {"up": struct((8, 1024, 4096), "model"), "bias": struct((8, 4096), None, "model"),
         "down": struct((8, 4096, 1024), None, "model")}, struct((4096, 1024), "data"))
    assert found.freedoms is not None
    assert [found.partitioned.traced.arg_names[i] for i in found.freedoms.unlike] == ["ws['up']"]


def test_two_axes_that_stand_the_wrong_way_round_change_places_first() -> None:
    layouts = other_layouts(MESH, (64, 64), (("model",), ("data",)), ("data", "model"), None)
    assert next(layouts) == (("data",), ("model",))


def test_another_axis_takes_the_place_of_one_first() -> None:
    layouts = layouts_over_others(MESH, (64, 64), ((), ("data",)), ("data",), True)
    assert next(new for new in layouts if ("model",) in new) == ((), ("model",))


def test_an_axis_of_one_device_is_in_no_layout() -> None:
    mesh = AbstractMesh((8, 1), ("data", "model"))
    layouts = layouts_over_others(mesh, (64, 64), (("data",), ()), ("data",), annotated=True)
    assert not any("model" in axes for entries in layouts for axes in entries)
    assert ((), ("data",)) in {*other_layouts(mesh, (64, 64), (("data",), ()), ("data",), None)}
