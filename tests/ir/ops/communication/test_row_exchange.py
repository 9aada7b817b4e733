"""Rows that devices lack, against a count of all of them; the op's text and checks."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

from shardtrace.ir.diagnostics.errors import VerificationError
from shardtrace.ir.op import OPS
from shardtrace.ir.ops.communication.halo_plan import Halo, exchange
from shardtrace.ir.ops.communication.row_exchange_plan import (
    Piece,
    Wanted,
    concatenated_rows,
    lacking,
    sent,
    sources,
)
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.text.print import print_program
from shardtrace.ir.verify import verify


@draw.composite
def exchanges(choose):
    devices = choose(draw.integers(1, 6))
    parts = tuple(choose(draw.lists(draw.integers(1, 7), min_size=1, max_size=3)))
    wanted = []
    for _ in range(choose(draw.integers(1, 2))):
        pieces, place = [], choose(draw.integers(-4, 4))
        for _ in range(choose(draw.integers(0, 3))):
            part, stride = choose(draw.integers(0, len(parts) - 1)), choose(draw.integers(1, 3))
            size = devices * parts[part]
            start = choose(draw.integers(0, size - 1))
            count = choose(draw.integers(1, -(-(size - start) // stride)))
            place += choose(draw.integers(0, 2))
            pieces.append(Piece(place, place + count, part, start, stride))
            place += count
        wanted.append(Wanted(choose(draw.integers(0, 5)), choose(draw.integers(-5, 5)),
                             choose(draw.integers(1, 6)), tuple(pieces)))
    return devices, parts, tuple(wanted)


@given(exchanges())
@settings(max_examples=200, deadline=None)
def test_a_device_receives_the_rows_that_others_have(case):
    devices, parts, wanted = case
    owner, where = sources(devices, parts, wanted)
    away = (owner >= 0) & (owner != np.arange(devices)[:, None])
    assert lacking(devices, parts, wanted) == away.sum(1).max()
    assert sent(devices, parts, wanted) == np.bincount(owner[away], minlength=1).max()
    assert ((0 <= where) & (where < sum(parts))).all()


def test_a_concatenation_wants_all_rows_in_order():
    parts, wanted = concatenated_rows(4, (8, 4, 0, 12))
    owner, where = sources(4, parts, wanted)
    rows = [(s, k, r) for k, n in enumerate((2, 1, 0, 3)) for s in range(4) for r in range(n)]
    starts = (0, 2, 3, 3)
    assert owner.ravel().tolist() == [s for s, _, _ in rows]
    assert where.ravel().tolist() == [starts[k] + r for _, k, r in rows]


@given(devices=draw.integers(1, 8), block=draw.integers(1, 6), step=draw.integers(0, 8),
       offset=draw.integers(-12, 12), rows=draw.integers(1, 12), ring=draw.booleans())
@settings(max_examples=200, deadline=None)
def test_edges_come_by_permutations_only_where_these_move_no_more(devices, block, step, offset,
                                                                  rows, ring):
    plan = exchange(devices, block, step, offset, rows, None if ring else (0, devices * block))
    assert plan is not None
    if plan.direct:
        assert plan.received == lacking(devices, (block,), plan.direct)
    else:
        first = np.arange(devices) * step + offset
        needed = [{(r % (devices * block) if ring else r) for r in range(f, f + rows)}
                  for f in first]
        own = [set(range(i * block, (i + 1) * block)) for i in range(devices)]
        source = set(range(devices * block))
        lack = max(len((n & source) - o) for n, o in zip(needed, own, strict=True))
        assert plan.received <= max(lack, 0) or ring


TEXT = """mesh (x=4 manual)
level local

program @change(
    a: i32[4,2]{V:x} <- i32[16@x,2],
) -> i32[4,2]{V:x} => i32[16@x,2] {
  b: i32[4,2]{V:x} = exchange_rows[axis_name=('x',), axis_size=4, dimension=0, parts=(4,), \
wanted=((4, 2, 4, ((0, 16, 0, 0, 1),)),)] a
  return b
}
"""


def test_it_is_printed_read_and_verified():
    program = parse_program(TEXT)
    verify(program)
    assert "collective-permute over x, 16 B received per device" in print_program(program)
    assert print_program(parse_program(print_program(program))) == print_program(program)


@pytest.mark.parametrize("before, after, message", [
    ("axis_size=4", "axis_size=2", "devices"),
    ("parts=(4,)", "parts=(3,)", "do not make up"),
    ("(0, 16, 0, 0, 1)", "(0, 17, 0, 0, 1)", "lies outside"),
    ("(0, 16, 0, 0, 1)", "(0, 16, 1, 0, 1)", "lies outside"),
])
def test_what_makes_no_sense_is_refused(before, after, message):
    with pytest.raises(VerificationError, match=message):
        verify(parse_program(TEXT.replace(before, after)))


def test_the_op_lists_no_devices():
    params = {"axis_name": ("x",), "axis_size": 1 << 16, "dimension": 0, "parts": (4,),
              "wanted": ((4, 2, 4, ((0, 1 << 18, 0, 0, 1),)),)}
    op = OPS["exchange_rows"]
    assert op.collective is not None and len(str(params)) < 200
    assert lacking(1 << 16, (4,), params["wanted"]) == 2
    assert sent(1 << 16, (4,), params["wanted"]) == 2


def test_by_permutations_no_more_rows_of_a_block_are_sent_than_are_wanted():
    # the first has its block and wants 3 rows of the next, the second 2; the last wants 7 of the
    # block before
    plan = exchange(8, 65, 64, 0, 68, (0, 516), permutes=True)
    assert plan.halos == (Halo(-1, 58, 65), Halo(0, 0, 65), Halo(1, 0, 3))
    assert (plan.exchanges, plan.received) == (2, 10)


@pytest.mark.parametrize("third, pairs", [
    (0, (((0, 1), (1, 3)), ((0, 2),))), (2, (((2, 0),), ((3, 1),), ((3, 2),)))])
def test_thirds_come_by_the_permutations_of_xla(third, pairs):
    # `jnp.split(x, 3)` of blocks of 96 rows: the end of one and the beginning of the next block go
    # apart in the last third, in which the device before has the end
    plan = exchange(4, 96, 32, 128 * third, 32, (0, 384), permutes=True)
    assert tuple([each.pairs for each in plan.shared]) == pairs


@pytest.mark.parametrize("step, offset, rows", [
    (8, 0, 8), (4, 8, 4), (4, 0, 4), (8, -1, 10), (12, -3, 12), (6, 1, 7), (8, 9, 8), (8, -9, 8),
    (4, 3, 4), (2, 11, 5), (4, -6, 4)])
def test_rows_between_halos_are_those_of_the_whole(step, offset, rows):
    devices, block = 4, 8
    plan = exchange(devices, block, step, offset, rows, (0, 32), permutes=True)
    if plan.shared:
        for each in plan.shared:
            assert len({a for a, _ in each.pairs}) == len({b for _, b in each.pairs}) == len(
                each.pairs)
        for i in range(devices):
            for row in range(i * step + offset, i * step + offset + rows):
                if 0 <= row < devices * block and row // block != i:
                    assert any([(row // block, i) in each.pairs
                                and each.start <= row % block < each.end for each in plan.shared])
        return
    if not plan.halos:
        assert plan.pieces or plan.direct
        return
    held = {i: {(i + h.distance) * block + row for h in plan.halos
                for row in range(h.start, h.end)} for i in range(devices)}
    for i in range(devices):
        wanted = range(i * step + offset, i * step + offset + rows)
        assert held[i].issuperset({row for row in wanted if 0 <= row < devices * block})
