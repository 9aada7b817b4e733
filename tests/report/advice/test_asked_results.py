"""Results that `out_shardings` asks for are compared with the arguments that they belong with."""
from __future__ import annotations

import functools
from typing import Any

import pytest

import shardtrace as st
from shardtrace import nn
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ... import specs

MESH = AbstractMesh((8, 4), ("data", "model"))
struct = functools.partial(specs.struct, mesh=MESH)
pytestmark = pytest.mark.usefixtures("by_time")


def slopes(p: dict[str, st.Array], x: st.Array) -> dict[str, st.Array]:
    return st.grad(lambda p: ((nn.gelu(x @ p["w1"]) @ p["w2"]) ** 2).mean())(p)


def explained(w1: P) -> st.Explanation:
    """Of the gradients of two layers, that of the first asked for in this layout."""
    f = st.jit(slopes, out_shardings={"w1": NamedSharding(MESH, w1),
                                      "w2": NamedSharding(MESH, P("model"))})
    return st.explain(f)({"w1": struct((2048, 8192), None, "model"),
                          "w2": struct((8192, 2048), "model")}, struct((8192, 2048), "data"))


def test_a_gradient_that_is_asked_for_unlike_its_parameter_is_suspect() -> None:
    found = explained(P("model")).freedoms
    assert found is not None and found.unlike == {~0}
    right = explained(P(None, "model")).freedoms
    assert right is not None and right.unlike == set()


def test_a_gradient_that_is_asked_for_unlike_its_parameter_is_told_first() -> None:
    first = explained(P("model")).root_causes[0]
    assert first.text == "`out_shardings`, P('model') for result ['w1']"
    assert first.groups[0][0].suggestions[0].text == (
        "ask for result ['w1'] as P(None, 'model') in out_shardings instead of P('model')")


def test_the_only_result_is_called_the_result() -> None:
    def f(x: st.Array, a: st.Array, b: st.Array) -> st.Array:
        return nn.sigmoid(st.numpy.tanh(x @ a) @ b)

    args = (struct((8192, 2048), "data"), struct((2048, 4096), None, "model"),
            struct((4096, 512), "model"))
    found = st.explain(st.jit(f, out_shardings=NamedSharding(MESH, P("model"))))(*args)
    assert found.root_causes[0].text == "`out_shardings`, P('model') for the result"
    assert "is held as P('model') by `out_shardings`" in str(found)
    assert "`[0]`" not in str(found) and ",)" not in str(found)


def test_a_result_that_is_asked_for_whole_is_asked_for_as_its_operands_are_split() -> None:
    def serve(p: dict[str, st.Array], x: st.Array) -> st.Array:
        return (x + nn.gelu(x @ p["up"]) @ p["down"]) @ p["head"]

    args = ({"up": struct((4096, 16384), None, "model"), "down": struct((16384, 4096), "model"),
             "head": struct((4096, 128256), None, "model")}, struct((2048, 4096), "data"))
    found = st.explain(st.jit(serve, out_shardings=NamedSharding(MESH, P())), "h100")(*args)
    first = found.root_causes[0].groups[0][0].suggestions[0]
    assert first.text == ("ask for the result as P('data', 'model') in out_shardings instead of "
                          "P()")
    assert first.received_bytes < found.received_bytes / 50


def test_one_of_several_results_is_called_by_its_number() -> None:
    def f(x: st.Array, a: st.Array) -> tuple[st.Array, st.Array]:
        return x * 2, nn.sigmoid(x @ a)

    found = st.explain(st.jit(f, out_shardings=(None, NamedSharding(MESH, P()))))(
        struct((8192, 2048), "data"), struct((2048, 4096), None, "model"))
    assert found.root_causes[0].text == "`out_shardings`, P() for result [1]"


def test_buffers_of_sums_are_split_like_the_sums_rather_than_what_these_are_the_slopes_of() -> None:
    """Sums that are asked for whole: whoever passes them on passes them as buffers, whatever other
    arguments of their type are laid out as they are then.
    """
    mesh = AbstractMesh((16,), ("data",))

    def add(p: dict[str, st.Array], sums: dict[str, st.Array], x: st.Array) -> dict[str, st.Array]:
        def loss(p: dict[str, st.Array]) -> st.Array:
            h = x * st.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * p["scale"]
            return ((x + nn.gelu(h @ p["up"]) @ p["down"]) ** 2).mean()
        return st.tree.map(lambda a, g: a + g / 8, sums, st.grad(loss)(p))

    def given(*spec: str) -> dict[str, st.ShapeDtypeStruct]:
        return {name: specs.struct(shape, *spec, mesh=mesh) for name, shape in {
            "up": (4096, 16384), "down": (16384, 4096), "scale": (4096,)}.items()}

    f = st.jit(add, out_shardings=dict.fromkeys(given(), NamedSharding(mesh, P())))
    found = st.explain(f)(given("data"), given(), specs.struct((16384, 4096), "data", mesh=mesh))
    best = found.root_causes[0].groups[0][0].suggestions[0]
    assert "`sums['up']` as" in best.text and "`p[" not in best.text
    assert best.time < 0.8 * found.time and best.peak_bytes < found.peak_bytes


def test_results_are_asked_for_as_the_arguments_that_they_are_made_of() -> None:
    """Averages of weights that are split along what is summed, where most else is whole."""
    mesh = AbstractMesh((16,), ("data",))
    split, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

    def step(p: dict[str, st.Array], means: dict[str, st.Array], x: st.Array) -> tuple[Any, Any]:
        g = st.grad(lambda p: ((x + nn.gelu(x @ p["up"]) @ p["down"]) ** 2).mean())(p)
        p = st.tree.map(lambda p, g: p - 0.1 * g, p, g)
        return p, st.tree.map(lambda a, p: 0.99 * a + 0.01 * p, means, p)

    weights = {name: specs.struct(shape, "data", mesh=mesh) for name, shape in {
        "up": (4096, 16384), "down": (16384, 4096)}.items()}
    found = st.explain(st.jit(step, out_shardings=(split, whole)))(
        weights, weights, specs.struct((16384, 4096), "data", mesh=mesh))
    assert found.root_causes[0].groups[0][0].suggestions[0].text == (
        "ask for result [1]['down'] as P('data') in out_shardings instead of P(), and "
        "ask for result [1]['up'] as P('data') in out_shardings instead of P()")


def test_all_that_is_asked_for_whole_is_asked_for_as_it_is_made_whatever_its_rank() -> None:
    """One `P()` for a tree of parameters is one layout: of kernels with three dimensions, too."""
    def step(p: dict[str, st.Array], x: st.Array) -> dict[str, st.Array]:
        def loss(p: dict[str, st.Array]) -> st.Array:
            h = nn.gelu(st.numpy.einsum("bi,ijk->bjk", x, p["up"]))
            return ((h.reshape(len(x), -1) @ p["down"]) ** 2).mean()
        g = st.grad(loss)(p)
        return {k: p[k] - 0.1 * g[k] for k in p}

    tree = {"up": struct((2048, 8, 1024), None, None, "data"),
            "down": struct((8192, 2048), None, "data")}
    found = st.explain(st.jit(step, out_shardings=NamedSharding(MESH, P())), "h100")(
        tree, struct((1024, 2048), "data"))
    first = found.root_causes[0].groups[0][0].suggestions[0]
    assert first.text == (
        "ask for result ['down'] as P(None, 'data') in out_shardings instead of P(), and "
        "ask for result ['up'] as P(None, None, 'data') in out_shardings instead of P()")
    assert first.time < found.time * 0.9
