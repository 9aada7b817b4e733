"""Of a line in a helper function the call is shown, too, where the helper makes several values."""
from __future__ import annotations

import re

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = AbstractMesh((2, 4), ("data", "model"))


def struct(shape: tuple[int, ...], *spec: str | None) -> st.ShapeDtypeStruct:
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(MESH, P(*spec)))


def dense(x: st.Array, w: st.Array) -> st.Array:
    return x @ w


def block(w: dict[str, st.Array], x: st.Array) -> st.Array:
    h = jnp.tanh(dense(x, w["up"]))
    return dense(h, w["down"])              # of block


def once(x: st.Array) -> st.Array:
    return x.sum()


def forward(ws: list[dict[str, st.Array]], head: st.Array, x: st.Array) -> st.Array:
    for w in ws:
        x = x + block(w, x)                 # one line, called for each layer
    return once(dense(x, head))             # of forward


LAYER = {"up": struct((256, 512), None, "model"), "down": struct((512, 256), None, "model")}
ARGS = [LAYER, LAYER], struct((256, 64)), struct((64, 256), "data")


def line(text: str) -> int:
    with open(__file__, encoding="utf-8") as f:
        return 1 + next(n for n, row in enumerate(f) if row.rstrip().endswith(f"# {text}"))


def test_a_helper_s_line_comes_with_the_call() -> None:
    found = st.explain(forward)(*ARGS)
    own = [c for c in found.collectives if c.source.function == "dense"]
    assert all(len(c.calls) == 1 for c in own)
    told = next(c for c in own if c.calls[0].line == line("of block"))
    assert told.place == f"{told.source}, called at {told.calls[0]}"
    assert f"line {told.source.line}, called at line {line('of block')}" in told.reason
    assert f"called at {told.calls[0]} in `block`" in found.text(0, each=True)
    assert [k["line"] for k in told.to_dict(False)["calls"]] == [line("of block")]


def test_what_one_call_makes_needs_no_call() -> None:
    found = st.explain(forward)(*ARGS)
    assert all(not c.calls for c in found.collectives if c.source.function in ("once", "forward"))


def test_calls_are_told_from_where_they_differ() -> None:
    def twice(ws: list[dict[str, st.Array]], x: st.Array) -> st.Array:
        y = block(ws[0], x)
        return block(ws[1], y)

    found = st.explain(twice)(ARGS[0], ARGS[2])
    own = {tuple(k.function for k in c.calls) for c in found.collectives
           if c.source.function == "dense"}
    assert own == {("block", "twice")}


def test_lines_of_another_file_are_said_with_it(tmp_path) -> None:
    layers = tmp_path / "layers.py"
    layers.write_text("def scaled(x, s):\n    return x * s\n\ndef dense(x, w):\n"
                      "    return (x + 1.0) @ w\n")
    of_layers: dict = {}
    exec(compile(layers.read_text(), str(layers), "exec"), of_layers)

    def step(x: st.Array, w: st.Array, u: st.Array) -> st.Array:
        h = of_layers["scaled"](x, 2.0) @ w                                     # of the step
        return of_layers["dense"](h, u)

    found = st.explain(step)(struct((512, 256), "data", "model"), struct((256, 512)),
                             struct((512, 256), "data"))
    own, other = [[c for c in found.collectives if c.source.file == file]
                  for file in (__file__, str(layers))]
    assert own and other
    said = "\n".join([c.reason + "".join(map(str, c.cause.paths)) for c in own])
    assert "`mul` line 2 of layers.py" in said and "of test_calls.py" not in said
    beside = "\n".join([c.reason + "".join(map(str, c.cause.paths)) for c in other])
    assert "of layers.py" not in beside
    assert f"line {line('of the step')} of test_calls.py" in beside


def test_an_equation_is_said_with_its_line_once() -> None:
    found = st.explain(st.grad(lambda w, x: jnp.sum(jnp.tanh(x @ w["up"]) @ w["down"])))(
        {"up": struct((256, 512), "model"), "down": struct((512, 256), "model")},
        struct((64, 256), "data"))
    text = found.text(each=True)
    number = re.findall(r"line (\d+)", text)[0]
    assert f"line {number}, line {number}" not in " ".join(text.split())


def test_what_is_asked_of_one_later_is_said_for_a_reader_of_its_file(tmp_path) -> None:
    """Vetoes are found when they are asked for, after the causes of others."""
    layers = tmp_path / "layers.py"
    layers.write_text("def dense(x, w):\n    return (x + 1.0) @ w\n")
    of_layers: dict = {}
    exec(compile(layers.read_text(), str(layers), "exec"), of_layers)

    def step(x: st.Array, w: st.Array, u: st.Array) -> st.Array:
        h = st.lax.with_sharding_constraint(x * 2.0, NamedSharding(MESH, P(None, "model")))
        return of_layers["dense"](jnp.tanh(h), w) @ u

    found = st.explain(step)(struct((512, 256), "data"), struct((256, 512)),
                             struct((512, 256), "model")).collectives
    assert len({c.source.file for c in found if c.cause is not None}) == 2
    for c in found:
        places = [veto.partition(" at line ")[2] for veto in c.vetoes if " at line " in veto]
        for place in places:
            assert (" of test_calls.py" in place) == (c.source.file != __file__), c.vetoes
    assert any(" at line " in veto for c in found for veto in c.vetoes)
