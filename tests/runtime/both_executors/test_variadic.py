"""Several operands that are exchanged at once get what each would get alone, on every executor."""
from __future__ import annotations

import math

import numpy as np
import pytest

from shardtrace.ir.ops.communication.collective_kinds import each_collective
from shardtrace.ir.ops.communication.variadic import EACH, VARIADIC, combined, split_variadic
from shardtrace.ir.program import Equation, Var
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.verify import verify
from shardtrace.runtime.per_device.executor import PerDeviceRun
from shardtrace.runtime.simulation.executor import compile_simulated

from ..conftest import assert_same

# By op, what each operand has of its own. Shapes are those of the operands, X is 2 and Y is 3.
SHAPES = [(4, 6), (12,), (2, 6, 12)]
OWN = {"all_gather_invariant": [{"all_gather_dimension": d, "tiled": t} for d, t in
                                ((1, True), (0, False), (2, True))],
       "ppermute": [{}] * 3}
SHARED = {"all_gather_invariant": {"axis_name": ("X", "Y"), "axis_size": 6},
          "ppermute": {"axis_name": ("Y",), "perm": ((0, 2), (1, 0))}}
SCATTERED = [{"scatter_dimension": d, "tiled": True} for d in (1, 0, 2)]


def _programs(op, local, dtypes):
    """(the exchanges one by one, the same at once, the arguments) over three operands."""
    b = local(X=2, Y=3)
    bitwise = op.name.startswith(("pand", "por", "pxor"))
    operands = [b.arg([n * 6 if d == 0 else n for d, n in enumerate(shape)],
                      (("X", "Y"), *((),) * (len(shape) - 1)), np.int32 if bitwise else dtype)
                for shape, dtype in zip(SHAPES, dtypes, strict=True)]
    scatter = op.name.endswith("_scatter")
    shared = SHARED.get(op.name) or ({"axis_name": ("X",), "axis_size": 2} if scatter else
                                     {"axes": ("Y",)})
    if "groups" not in shared and op.name in ("pmax", "pmin", "reduce_scatter"):
        shared = {**shared, "axis_index_groups": None}
    own = OWN.get(op.name) or (SCATTERED if scatter else [{}] * 3)
    for x, params in zip(operands, own, strict=True):
        b.emit(op.name, x, **shared, **params)
    apart = b.builder.eqns[-3:]
    results = []
    for eqn in apart:
        (v,) = eqn.outvars
        axes = tuple(a for a in ("X", "Y") if a in v.aval.varying)
        results.append((v, (axes, *((),) * (v.aval.ndim - 1))))
    one_by_one = b.program(*results)
    return one_by_one, one_by_one.replace(eqns=[combined(apart, "one start")]), b.values()


@pytest.mark.parametrize("op", VARIADIC, ids=lambda op: op.name)
def test_each_operand_gets_what_it_gets_alone(op, local, run_both):
    mixed = op.collective.reduces == ""
    dtypes = (np.float32, np.int16, np.float32) if mixed else (np.float32,) * 3
    apart, together, arguments = _programs(op, local, dtypes)
    verify(together)
    want = compile_simulated(apart, apart.mesh)(arguments)
    for got, value in zip(run_both(together, together.mesh, arguments), want, strict=True):
        assert_same(got, value, apart.mesh)
    again = parse_program(str(together))
    assert str(again) == str(together)
    assert [e.op for e in again.eqns] == [VARIADIC[op]]


@pytest.mark.parametrize("op", VARIADIC, ids=lambda op: op.name)
def test_it_is_one_collective_with_the_bytes_of_all(op, local):
    apart, together, arguments = _programs(op, local, (np.float32,) * 3)
    parts, (whole,) = list(each_collective(apart)), list(each_collective(together))
    assert whole.kind == parts[0].kind and whole.group_size == parts[0].group_size
    for count in ("operand_bytes", "received_bytes"):
        assert getattr(whole, count) == sum(getattr(p, count) for p in parts)
    run = PerDeviceRun(together, together.mesh)
    run(arguments)
    (received,) = run.traffic.values()
    assert len(received) == 3
    assert math.isclose(np.sum(received, 0).max(), whole.received_bytes, abs_tol=8)


@pytest.mark.parametrize("op", VARIADIC, ids=lambda op: op.name)
def test_taken_apart_it_is_what_it_was_made_of(op, local):
    apart, together, _ = _programs(op, local, (np.float32,) * 3)
    found = list(split_variadic(together.eqns[0]))
    for a, b in zip(found, apart.eqns[-3:], strict=True):
        assert (a.op, a.invars, a.outvars, a.params) == (b.op, b.invars, b.outvars, b.params)
    assert {k for k in together.eqns[0].params if k in EACH} == {
        k for k in apart.eqns[-1].params if k in EACH}


def test_the_factors_of_operands_are_their_own(local):
    for op in VARIADIC:
        apart, together, _ = _programs(op, local, (np.float32,) * 3)
        rule = together.eqns[0].instance.rule(*together.eqns[0].types)
        alone_rules = [e.instance.rule(*e.types) for e in apart.eqns[-3:]]
        assert len(rule.factors) == sum(len(r.factors) for r in alone_rules)
        for i, r in enumerate(alone_rules):
            assert [[len(d) for d in m] for m in (rule.operands[i], rule.results[i])] == [
                [len(d) for d in m] for m in (r.operands[0], r.results[0])]


def test_a_wrong_result_type_is_refused(local):
    _, together, _ = _programs(next(iter(VARIADIC)), local, (np.float32,) * 3)
    eqn = together.eqns[0]
    wrong = [*eqn.outvars[:2], Var(eqn.outvars[0].aval)]
    bad = together.replace(eqns=[Equation(eqn.op, eqn.invars, wrong, eqn.params, eqn.location)],
                           outvars=wrong)
    with pytest.raises(Exception, match="variadic_psum_invariant"):
        verify(bad)
