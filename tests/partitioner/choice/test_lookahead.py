"""Choices with look-ahead: unpinned layouts are decided over who makes a value and who reads it."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from shardtrace.ir.meshes.mesh import AbstractMesh
from shardtrace.ir.ops.communication.collective_kinds import total_received
from shardtrace.ir.ops.communication.sharding import reshard_p
from shardtrace.ir.ops.gather_numbers import GatherScatterMode, ScatterDimensionNumbers
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.partitioner.collectives import collectives
from shardtrace.partitioner.pipeline import Options, partition

from ..building import Build, auto, explicit
from ..lockstep import partitioned

M8 = auto(8, names="x")
M24 = auto(2, 4, names="xy")
F32 = np.float32


def kinds(done):
    return [c.op for c in collectives(done.local)]


def test_a_hidden_layer_stays_split_over_its_columns_between_two_products():
    """Tensor and sequence parallel: gather the rows, multiply, multiply, scatter the sum."""
    b = Build(M8)
    x, w1, w2 = b.arg(128, 256), b.arg(256, 1024), b.arg(1024, 256)
    done = partitioned(b.program(b.dot(b.op("neg", b.dot(x, w1)), w2)),
               [P("x"), P(None, "x"), P("x", None)], [P("x")], check=False)
    assert kinds(done) == ["all_gather_invariant", "reduce_scatter"]
    assert total_received(done.local) == 2 * 128 * 256 * 4 * 7 // 8


def test_a_value_is_gathered_once_where_its_reader_would_gather_it_anyway():
    b = Build(M8)
    x = b.arg(64, 128)
    done = partitioned(b.program(b.op("cumsum", x, axis=0, reverse=False)), [P("x")], [P()])
    assert total_received(done.local) == 64 * 128 * 4 * 7 // 8
    assert kinds(done) == ["all_gather_invariant"]


def test_a_reshard_moves_past_what_keeps_dimensions():
    """Both sides of a diamond go along, so there is one exchange and not two."""
    b = Build(M8)
    x, y = b.arg(64, 64), b.arg(64, 64)
    h = b.op("add", x, y)
    z = b.op("add", b.op("neg", h), b.op("mul", h, h))
    done = partitioned(b.program(z), [P("x"), P("x")], [P(None, "x")])
    assert kinds(done) == ["all_to_all"]


@pytest.mark.parametrize("terms", [2, 3, 5])
def test_products_that_are_added_are_summed_over_devices_once(terms):
    b = Build(M8)
    total = None
    for _ in range(terms):
        product = b.dot(b.arg(256, 128), b.arg(128, 256))
        total = product if total is None else b.op("add", total, product)
    done = partitioned(b.program(total), [P(None, "x"), P("x")] * terms, [P()], check=False)
    assert total_received(done.local) == 2 * 7 * 256 * 256 * 4 // 8


def test_a_sum_waits_through_a_reduction():
    b = Build(M24)
    x, w = b.arg(8, 64), b.arg(64, 256)
    done = partitioned(b.program(b.sum(b.dot(x, w), 1)), [P("x", "y"), P("y")])
    (record,) = collectives(done.local)
    assert (record.op, record.bytes) == ("psum_invariant", 2 * 3 * 4 * 4 // 4)
    assert record.location.line == 1
    assert record.reason.startswith("`dot_general` leaves partial sums")


def test_a_sum_that_is_used_finished_and_not_is_finished_once():
    b = Build(M8)
    x, w = b.arg(8, 64), b.arg(64, 8)
    h = b.dot(x, w)
    done = partitioned(b.program(b.op("max", h, b.op("neg", h)), b.sum(h, 0, 1)),
               [P(None, "x"), P("x")], [P(), P()])
    assert kinds(done).count("psum_invariant") <= 2
    assert total_received(done.local) <= 2 * 7 * 64 * 4 // 8 + 7


def gradient_of_rows(b, rows):
    """What differentiating `table[ids]` scatters back."""
    table, ids, updates = b.arg(1024, 64), b.arg(rows, 1), b.arg(rows, 64)
    numbers = ScatterDimensionNumbers((1,), (0,), (0,))
    return b.program(b.op(
        "scatter-add", table, ids, updates, dimension_numbers=numbers, indices_are_sorted=False,
        unique_indices=False, mode=GatherScatterMode.FILL_OR_DROP))


def test_few_updates_are_gathered_and_many_are_summed():
    few = partitioned(gradient_of_rows(Build(M8), 512), [P(), P("x"), P("x")], [P()], check=False)
    assert kinds(few) == ["variadic_all_gather_invariant"]      # rows and their places
    assert total_received(few.local) == 7 * 64 * (64 + 1) * 4
    many = partitioned(gradient_of_rows(Build(M8), 8192), [P(), P("x"), P("x")], [P()], check=False)
    assert kinds(many) == ["psum_invariant"]


@pytest.mark.parametrize("rows, repeated", [(16, True), (16384, False)])
def test_work_is_repeated_to_save_an_exchange_only_where_it_is_little(rows, repeated):
    """Sums over the rows of x [rows@x, 64] @ w [64, 4096]: gather x and multiply everywhere?"""
    b = Build(M8)
    x, w = b.arg(rows, 64, dtype=F32), b.arg(64, 4096, dtype=F32)
    done = partitioned(b.program(b.sum(b.dot(x, w), 0)), [P("x"), P()], [P()], check=False)
    products = [e for e in done.resharded.eqns if e.op.name == "dot_general"]
    whole = all(not any(e.invars[0].aval.entries) for e in products)
    assert whole is repeated


def test_a_value_that_the_user_pins_is_had_so():
    """The rest of the program is decided around it; unpinned, the sum would wait for the end."""
    b = Build(M8)
    x, w = b.arg(64, 64), b.arg(64, 64)
    h = b.constrain(b.dot(x, w), None, None)
    pinned = partitioned(b.program(h, b.op("neg", h)), [P(None, "x"), P("x")], [P(), P("x")])
    assert any(e.op is reshard_p and e.outvars[0].aval.entries == ((), ())
               for e in pinned.resharded.eqns)
    b = Build(M8)
    same = b.constrain(b.arg(64, 64), "x", None)
    assert partition(b.program(b.op("neg", same)), mesh=M8,
                     in_shardings=[P("x")]).out_specs == (P("x", None),)


def test_a_result_that_was_left_open_keeps_what_propagation_gave_it():
    b = Build(M8)
    x, w = b.arg(64, 64), b.arg(64, 64)
    done = partitioned(b.program(b.dot(x, w)), [P(None, "x"), P("x")])
    assert done.out_specs == (P(None, None),)


def test_a_call_without_results_takes_its_operands_as_typed():
    def f(a, b):
        c = a @ b
        st.debug.print("{}", c)
        return c.sum()
    mesh = st.sharding.AbstractMesh((8,), ("x",))
    args = [st.ShapeDtypeStruct((64, 64), F32, sharding=st.sharding.NamedSharding(mesh, spec))
            for spec in (P(None, "x"), P("x"))]
    with st.sharding.use_abstract_mesh(mesh):
        program = st.jit(f).trace(*args).jaxpr
    done = partition(program, mesh=mesh, in_shardings=[P(None, "x"), P("x")])
    (call,) = [e for e in done.resharded.eqns if not e.outvars]
    assert [a.aval.entries for a in call.invars] == [((), ())]


def test_explicit_types_are_kept():
    mesh = explicit(8, names="x")
    b = Build(mesh)
    x = b.arg(64, 64, spec=P("x"))
    y = b.op("mul", b.op("neg", x), x)
    done = partition(b.program(b.reshard(y, P(None, "x"))), mesh=mesh)
    assert [v.aval.entries for e in done.resharded.eqns if e.op is not reshard_p
            for v in e.outvars] == [(("x",), ())] * 2


def test_neither_equations_nor_devices_make_it_slower_than_linear():
    """The states of a long program stay few, and no plan lists devices."""
    def layers(n, mesh):
        b = Build(mesh)
        x, w1, w2 = b.arg(4096, 4096), b.arg(4096, 8192), b.arg(8192, 4096)
        h = x
        for _ in range(n):
            h = b.op("add", b.dot(b.op("neg", b.dot(h, w1)), w2), h)
        return b.program(h)

    few = partition(layers(3, M24), mesh=M24, in_shardings=[P("x"), P("x", "y"), P("y", "x")])
    large = AbstractMesh((256, 256), ("x", "y"))
    many = partition(layers(3, large), mesh=large,
                     in_shardings=[P("x"), P("x", "y"), P("y", "x")], options=Options())
    assert len(many.local.eqns) <= len(few.local.eqns) + 12
