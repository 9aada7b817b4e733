"""Equations in the order in which XLA visits them: the specs and plans that JAX 0.10.2 gives."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import shardtrace as st
from shardtrace.ir.text.parse import parse_program
from shardtrace.partitioner.preparation.xla.visit_order import in_visit_order
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

ROWS, COLUMNS, WHOLE = P("x"), P(None, "x"), P()


@pytest.mark.parametrize("u, v, one, other, found", [
    (lambda h, a: h + a, lambda h, a: h + a, ROWS, COLUMNS, [COLUMNS] * 3),
    (lambda h, a: h + a, lambda h, a: h + a, COLUMNS, ROWS, [ROWS] * 3),
    (lambda h, a: h @ a, lambda h, a: a @ h, ROWS, COLUMNS, [WHOLE, ROWS, ROWS]),
    (lambda h, a: h @ a, lambda h, a: a @ h, COLUMNS, ROWS, [ROWS, COLUMNS, WHOLE])])
def test_what_comes_first_among_the_results_is_asked_first(
        u: Callable[..., Any], v: Callable[..., Any], one: P, other: P, found: list[P]) -> None:
    mesh = st.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))

    def f(a: Any, b: Any, c: Any) -> Any:
        h = a + 1.
        first, second = u(h, b), v(h, c)
        return second, first, h
    args = [st.ShapeDtypeStruct((512, 512), "float32", sharding=NamedSharding(mesh, spec))
            for spec in (WHOLE, one, other)]
    compiled = st.jit(f, compiler_options={"objective": "xla"}).lower(*args).compile()
    assert [s.spec for s in compiled.output_shardings] == found


def test_operands_come_first_and_what_the_host_sees_stays_in_order() -> None:
    program = parse_program("""
        program @f(x: f32[4], y: f32[4]) -> (f32[4], f32[4]) {
          %a: f32[4] = sin x
          %b: f32[4] = cos y
          %c: f32[4] = tan y
          %d: f32[4] = sub %c %b
          return %d, %a
        }""")
    assert [eqn.op.name for eqn in in_visit_order(program).eqns] == ["tan", "cos", "sub", "sin"]

    seen = parse_program("""
        program @f(x: f32[4]) -> (f32[4], f32[4]) {
          %a: f32[4] = sin x
          debug_print[fmt='{}'] %a
          %b: f32[4] = cos x
          return %b, %a
        }""")
    assert in_visit_order(seen) is seen
