"""Policies of `checkpoint` are asked of what is in loops and branches, too."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy
import shardtrace.tree_util

from ...real_jax import real_jax
from ...rows import rows

X = np.linspace(-1, 1, 4).astype(np.float32)
ROWS = np.linspace(-1, 2, 12).astype(np.float32).reshape(3, 4)
W = np.linspace(1, -2, 16).astype(np.float32).reshape(4, 4)
Function = Callable[[Any, Any, Any], Any]


def keeping(*names: str) -> Any:
    return lambda op, *_, **__: str(op) in names


def scan(L: Any, reverse: bool = False) -> Function:
    def f(x: Any, w: Any, rows: Any) -> Any:
        def body(c: Any, row: Any) -> Any:
            c = L.numpy.sin(c @ w + row)
            return L.numpy.cos(c) * c.sum(), (L.numpy.exp(c), L.numpy.sin(row))
        c, (a, b) = L.lax.scan(body, x, rows, reverse=reverse)
        return (c * 2).sum() + (a * b).sum()
    return f


def cond(L: Any) -> Function:
    def f(x: Any, w: Any, rows: Any) -> Any:
        one = lambda x: (L.numpy.sin(x @ w), x.sum())  # noqa: E731
        other = lambda x: (L.numpy.exp(L.numpy.cos(x)), L.numpy.sin(x).sum())  # noqa: E731
        a, b = L.lax.cond(rows[0, 0] < 0, one, other, x)
        c, d = L.lax.switch(L.numpy.int32(rows[1, 0]), [one, other, one], a)
        return (a * c).sum() + b * d
    return f


def nested(L: Any) -> Function:
    def f(x: Any, w: Any, rows: Any) -> Any:
        @L.jit
        def layer(c: Any) -> Any:
            return L.lax.cond(c.sum() > 0, lambda c: L.numpy.sin(c @ w), L.numpy.cos, c)

        def body(c: Any, row: Any) -> Any:
            c = layer(layer(c) + row)
            return c, L.lax.scan(lambda a, b: (L.numpy.sin(a + b), a), c[0], row)
        c, ys = L.lax.scan(body, x, rows)
        return c.sum() + sum(y.sum() for y in L.tree_util.tree_leaves(ys))
    return f


MAKERS: dict[str, Callable[[Any], Function]] = {
    "scan": scan, "reversed": lambda L: scan(L, True), "cond": cond, "nested": nested}
POLICIES = {
    "nothing": lambda L: L.checkpoint_policies.nothing_saveable,
    "everything": lambda L: L.checkpoint_policies.everything_saveable,
    "dots": lambda L: L.checkpoint_policies.dots_saveable, "sin": lambda L: keeping("sin"),
    "cos": lambda L: keeping("cos"), "sin, dot_general": lambda L: keeping("sin", "dot_general"),
}


@rows("policy", POLICIES)
@rows("name", MAKERS)
def test_derivatives_do_not_depend_on_what_is_kept(name: str, policy: str) -> None:
    f = MAKERS[name](st)
    kept = st.checkpoint(f, policy=POLICIES[policy](st))
    wanted = st.grad(f, (0, 1, 2))(X, W, ROWS)
    for run in (st.grad(kept, (0, 1, 2)), st.jit(st.grad(kept, (0, 1, 2)))):
        for a, b in zip(run(X, W, ROWS), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)
    twice = [st.jit(st.grad(lambda x, g=g: (st.grad(g)(x, W, ROWS) ** 2).sum()))(X)
             for g in (f, kept)]
    np.testing.assert_allclose(*twice, rtol=1e-3, atol=1e-3)


def counts(L: Any, f: Any, *ops: str) -> list[int]:
    """How often ops are in the program that computes tangents from what was kept."""
    text = str(L.make_jaxpr(L.linearize(f, X)[1])(X))
    return [text.count(f" {op} ") for op in ops]


@rows("policy", ["nothing", "everything", "sin", "cos"])
@rows("name", ["scan", "cond", "jit in scan", "scan of cond"])
def test_as_much_is_computed_again_as_in_jax(name: str, policy: str) -> None:
    def wrapped(L: Any) -> Any:
        sin = L.numpy.sin
        one = lambda c, _: (sin(c), None)  # noqa: E731
        either = lambda x: L.lax.cond(x.sum() > 0, sin, lambda x: x, x)  # noqa: E731
        f = {"scan": lambda x: L.lax.scan(one, x, None, length=2)[0],
             "cond": either,
             "jit in scan": lambda x: L.lax.scan(lambda c, _: (L.jit(sin)(c), None), x, None,
                                                 length=2)[0],
             "scan of cond": lambda x: L.lax.scan(lambda c, _: (either(c), None), x, None,
                                                  length=2)[0]}[name]
        return L.checkpoint(f, policy=POLICIES[policy](L))

    assert counts(st, wrapped(st), "sin", "cos") == counts(
        real_jax(), wrapped(real_jax()), "sin", "cos")


@pytest.mark.parametrize("policy", ["nothing", "everything", "names", "but y", "but y, z"])
def test_what_is_printed_again(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A print is a value, too: it is kept, or done each time that it is computed again."""
    def shown(L: Any) -> str:
        name = L.ad_checkpoint.checkpoint_name

        def f(x: Any) -> Any:
            y = name(x + 1.0, "y")
            z = name(y * 2.0, "z")
            L.debug.print("y: {}, z: {}", y, z)
            return name(L.numpy.exp(z), "w")

        policies = L.checkpoint_policies
        chosen = {"nothing": policies.nothing_saveable, "everything": policies.everything_saveable,
                  "names": policies.save_any_names_but_these("w"),
                  "but y": lambda op, *_, **params: params.get("name") != "y",
                  "but y, z": lambda op, *_, **params: params.get("name") not in ("y", "z"),
                  }[policy]
        L.grad(L.checkpoint(f, policy=chosen))(2.0)
        L.effects_barrier()
        return capsys.readouterr().out

    assert shown(st) == shown(real_jax())
