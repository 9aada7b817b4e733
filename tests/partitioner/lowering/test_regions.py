"""Loops and branches: one layout per value inside and outside, collectives in their bodies."""
from __future__ import annotations

import pytest

from shardtrace.ir.op import OPS
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.partitioner.collectives import collectives

from ..building import Build, auto, literal
from ..lockstep import partitioned

pytestmark = pytest.mark.skipif(not {"scan", "while", "cond"} <= OPS.keys(),
                                reason="control flow ops are not declared")
MESH = auto(2, 4, names="xy")


def scan(b, body, operands, *, consts=0, carry=1, length=4, reverse=False):
    return b.op("scan", *operands, jaxpr=body, num_consts=consts, num_carry=carry, length=length,
                reverse=reverse, unroll=1)


def layers():
    """Four layers: a carry times stacked weights, and what each layer sums to."""
    b = Build(MESH)
    x, ws = b.arg(8, 8), b.arg(4, 8, 8)
    body = Build(MESH, "body")
    c, w = body.arg(8, 8), body.arg(8, 8)
    h = body.op("neg", body.dot(c, w))
    y, sums = scan(b, body.program(h, body.sum(h, 0)), [x, ws])
    return b.program(y, sums)


@pytest.mark.parametrize("carry, weights", [
    (P("x"), P(None, None, "y")), (P("x"), P(None, "x", "y")), (P(), P("x")), (None, None),
    (P("x", "y"), P(None, "y")), (P("x"), P("y")),
])
def test_scan_over_stacked_weights(carry, weights):
    partitioned(layers(), [carry, weights])


def test_collectives_in_a_body_count_once_per_iteration():
    done = partitioned(layers(), [P("x"), P(None, "y", None)])
    assert all(r.count == 4 for r in collectives(done.local) if r.location.line <= 2)
    assert sum(r.total for r in collectives(done.local)) == sum(
        r.bytes * r.count for r in collectives(done.local))


def test_weights_are_gathered_layer_by_layer():
    """A constraint in the body on a slice does not bring the whole stack together at once."""
    body = Build(MESH, "layer")
    c, w = body.arg(16, 8), body.arg(8, 8)
    w = body.constrain(w, (), ())
    c = body.op("neg", body.op("add", body.dot(c, w), body.dot(c, body.transpose(w, 1, 0))))
    b = Build(MESH)
    x, stack = b.arg(16, 8), b.arg(3, 8, 8)
    (y,) = scan(b, body.program(c), [x, stack], length=3)
    done = partitioned(b.program(y), [P("x"), P(None, "y")])
    (loop,) = [eqn for eqn in done.local.eqns if eqn.op.name == "scan"]
    assert [v.aval.shape for v in loop.invars] == [(8, 8), (3, 2, 8)]
    assert [c.count for c in collectives(done.local)] == [3]


def test_the_carry_has_one_layout_even_if_the_body_turns_it():
    b = Build(MESH)
    x = b.arg(8, 8)
    body = Build(MESH, "body")
    c = body.arg(8, 8)
    (y,) = scan(b, body.program(body.transpose(c, 1, 0)), [x], length=3, reverse=True)
    partitioned(b.program(y), [P("x", "y")])


def test_while_over_a_split_carry():
    b = Build(MESH)
    x, n = b.arg(8, 8), b.arg()
    test = Build(MESH, "test")
    test.arg(8, 8)
    going = test.program(test.op("gt", test.arg(), literal(0)))
    body = Build(MESH, "body")
    k, v, m = body.arg(8, 8), body.arg(8, 8), body.arg()
    step = body.program(body.op("add", v, body.dot(k, v)), body.op("sub", m, literal(1)))
    three = b.op("add", b.op("mul", n, literal(0)), literal(3))
    y, left = b.op("while", x, x, three, cond_jaxpr=going, body_jaxpr=step, cond_nconsts=0,
                   body_nconsts=1)
    partitioned(b.program(y, left), [P("x", "y"), P()])


@pytest.mark.parametrize("specs, outs", [([P("x", "y"), P()], None),
                                         ([P("x"), P()], [P(None, "x")])])
def test_branches_agree_on_layouts(specs, outs):
    def branch(f):
        inner = Build(MESH, "branch")
        a = inner.arg(8, 8)
        return inner.program(f(inner, a))

    b = Build(MESH)
    x, i = b.arg(8, 8), b.arg()
    (y,) = b.op("cond", b.op("clamp", literal(0), i, literal(2)), x, branches=(
        branch(lambda s, a: s.op("neg", a)), branch(lambda s, a: s.transpose(a, 1, 0)),
        branch(lambda s, a: s.dot(a, a))))
    partitioned(b.program(y), specs, outs)
