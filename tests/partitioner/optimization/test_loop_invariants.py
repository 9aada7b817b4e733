"""Exchanges leave loops that do not change what they exchange, and small ones become one."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.ir.ops.dialect
import shardtrace.numpy as jnp
from shardtrace import config, lax
from shardtrace.arrays.storage import Stored
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.text.parse import parse_program as parse
from shardtrace.ir.verify import verify
from shardtrace.partitioner.collectives import collectives
from shardtrace.partitioner.cost.prices import Objective
from shardtrace.partitioner.passes import PIPELINE, PartitionRequest
from shardtrace.runtime.per_device.executor import compile_per_device
from shardtrace.runtime.simulation.executor import compile_simulated
from shardtrace.sharding import AbstractMesh, AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

HEAD = "mesh (x=4 manual)\nlevel local\n\n"
GATHER = "all_gather_invariant[all_gather_dimension=0, axis_name=('x',), axis_size=4, tiled=True]"
F32 = "preferred_element_type=f32"
SUM = "psum_invariant[axes=('x',)]"


def runs(program, values):
    out = []
    for compiler in (compile_simulated, compile_per_device):
        results = compiler(program, program.mesh)([Stored(v) for v in values])
        out.append([np.asarray(r.data) for r in results])
    return out


def optimized(before: str, *values):
    """The program after all rewrites, which must give in both executors what it gave before."""
    program = parse(HEAD + before)
    verify(program)
    after = program
    for step in PIPELINE:
        if step.stage == "optimized":
            after = step.run(after, PartitionRequest(program.mesh, (), (), Objective.of()))
    verify(after)
    assert programs_equal(parse(str(after)), after)
    for want, got in zip(runs(program, values), runs(after, values), strict=True):
        for a, b in zip(want, got, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
    return after


def check(before: str, after: str, *values) -> None:
    got = optimized(before, *values)
    assert programs_equal(got, parse(HEAD + after)), str(got)


W = np.arange(32, dtype=np.float32).reshape(8, 4) / 32
X = np.ones((3, 8), np.float32)


def test_a_gather_of_a_constant_of_the_loop_leaves_it_with_what_it_is_made_of():
    check(f"""
program @f(w: f32[2,4]{{V:x}} <- f32[8@x,4], a: f32[3,8] <- f32[3,8]) -> f32[3,8] => f32[3,8] {{
  b: f32[3,8] = scan[length=3, num_carry=1, num_consts=1, reverse=False] w a
    jaxpr = @body(w: f32[2,4]{{V:x}}, c: f32[3,8]) -> f32[3,8] {{
      s: f32[2,4]{{V:x}} = sin[accuracy=None] w
      g: f32[8,4] = {GATHER} s
      d: f32[3,4] = dot_general[dimension_numbers=(((1,), (0,)), ((), ())), {F32}] c g
      e: f32[3,8] = dot_general[dimension_numbers=(((1,), (1,)), ((), ())), {F32}] d g
      return e
    }}
  return b
}}""", f"""
program @f(w: f32[2,4]{{V:x}} <- f32[8@x,4], a: f32[3,8] <- f32[3,8]) -> f32[3,8] => f32[3,8] {{
  s: f32[2,4]{{V:x}} = sin[accuracy=None] w
  g: f32[8,4] = {GATHER} s
  b: f32[3,8] = scan[length=3, num_carry=1, num_consts=1, reverse=False] g a
    jaxpr = @body(g: f32[8,4], c: f32[3,8]) -> f32[3,8] {{
      d: f32[3,4] = dot_general[dimension_numbers=(((1,), (0,)), ((), ())), {F32}] c g
      e: f32[3,8] = dot_general[dimension_numbers=(((1,), (1,)), ((), ())), {F32}] d g
      return e
    }}
  return b
}}""", W, X)


def test_arithmetic_on_constants_of_the_loop_leaves_it_where_its_result_is_no_larger():
    """A sum of rows does; a row that is repeated stays, with what is computed of that."""
    check("""
program @f(w: f32[8,4] <- f32[8,4], r: f32[4] <- f32[4], a: f32[8,4] <- f32[8,4]) -> (
    f32[8,4] => f32[8,4]) {
  b: f32[8,4] = scan[length=3, num_carry=1, num_consts=2, reverse=False] w r a
    jaxpr = @body(w: f32[8,4], r: f32[4], c: f32[8,4]) -> f32[8,4] {
      s: f32[4] = reduce_sum[axes=(0,)] w
      t: f32[4] = mul s r
      u: f32[8,4] = broadcast_in_dim[broadcast_dimensions=(1,), shape=(8, 4)] t
      v: f32[8,4] = broadcast_in_dim[broadcast_dimensions=(1,), shape=(8, 4)] r
      d: f32[8,4] = mul c u
      e: f32[8,4] = add d v
      return e
    }
  return b
}""", """
program @f(w: f32[8,4] <- f32[8,4], r: f32[4] <- f32[4], a: f32[8,4] <- f32[8,4]) -> (
    f32[8,4] => f32[8,4]) {
  s: f32[4] = reduce_sum[axes=(0,)] w
  t: f32[4] = mul s r
  b: f32[8,4] = scan[length=3, num_carry=1, num_consts=2, reverse=False] r t a
    jaxpr = @body(r: f32[4], t: f32[4], c: f32[8,4]) -> f32[8,4] {
      u: f32[8,4] = broadcast_in_dim[broadcast_dimensions=(1,), shape=(8, 4)] t
      v: f32[8,4] = broadcast_in_dim[broadcast_dimensions=(1,), shape=(8, 4)] r
      d: f32[8,4] = mul c u
      e: f32[8,4] = add d v
      return e
    }
  return b
}""", W, X[0, :4], W)


WHILE = """
program @f(w: f32[2,4]{V:x} <- f32[8@x,4], n: i32[] <- i32[]) -> f32[8,4] => f32[8,4] {
  z: f32[8,4] = broadcast_in_dim[broadcast_dimensions=(), shape=(8, 4)] 0.0:f32[]
  i: i32[], b: f32[8,4] = while[body_nconsts=1, cond_nconsts=1] n w n z
    body_jaxpr = @body(w: f32[2,4]{V:x}, i: i32[], c: f32[8,4]) -> (i32[], f32[8,4]) {
      g: f32[8,4] = GATHER w
      d: f32[8,4] = add c g
      j: i32[] = sub i 1:i32[]
      return j, d
    }
    cond_jaxpr = @cond(m: i32[], i: i32[], c: f32[8,4]) -> bool[] {
      p: bool[] = gt i 0:i32[]
      return p
    }
  return b
}""".replace("GATHER", GATHER)


def test_who_wrote_the_gather_asked_for_it():
    (record,) = collectives(optimized(WHILE, W, np.int32(2)))
    assert record.reason_kind == "asked"
    assert record.reason == ("`all_gather` is written here; "
                             "the same in every iteration of `while`")


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_out_of_a_while(trips):
    after = optimized(WHILE, W, np.int32(trips))
    assert [e.op.name for e in after.eqns] == ["broadcast_in_dim", "all_gather_invariant", "while"]


def test_equal_exchanges_inside_and_outside_are_one():
    after = optimized(f"""
program @f(
    w: f32[2,4]{{V:x}} <- f32[8@x,4],
    a: f32[3,8] <- f32[3,8],
) -> (f32[3,4] => f32[3,4], f32[3,8] => f32[3,8]) {{
  h: f32[8,4] = {GATHER} w
  o: f32[3,4] = dot_general[dimension_numbers=(((1,), (0,)), ((), ())), {F32}] a h
  b: f32[3,8] = scan[length=3, num_carry=1, num_consts=1, reverse=False] w a
    jaxpr = @body(w: f32[2,4]{{V:x}}, c: f32[3,8]) -> f32[3,8] {{
      g: f32[8,4] = {GATHER} w
      d: f32[3,4] = dot_general[dimension_numbers=(((1,), (0,)), ((), ())), {F32}] c g
      e: f32[3,8] = dot_general[dimension_numbers=(((1,), (1,)), ((), ())), {F32}] d g
      return e
    }}
  return o, b
}}""", W, X)
    assert len(collectives(after)) == 1


# -- combining -------------------------------------------------------------------------------------

def test_small_sums_become_one_and_what_reads_the_first_waits():
    after = optimized(f"""
program @f(
    w: f32[2,4]{{V:x}} <- f32[8@x,4],
) -> (f32[] => f32[], f32[4] => f32[4], f32[2,4] => f32[2,4]) {{
  a: f32[]{{V:x}} = reduce_sum[axes=(0, 1)] w
  b: f32[] = {SUM} a  # user.py:1:1, because one
  c: f32[] = div b 32.0:f32[]
  d: f32[4]{{V:x}} = reduce_sum[axes=(0,)] w
  e: f32[4] = {SUM} d  # user.py:2:1, because two
  g: f32[2,4]{{V:x}} = neg w
  h: f32[2,4] = {SUM} g  # user.py:3:1, because three
  return c, e, h
}}""", W)
    (record,) = collectives(after)
    assert record.bytes == 2 * 3 * (1 + 4 + 8) * 4 // 4
    for part in ("one (user.py:1", "two (user.py:2", "three (user.py:3"):
        assert part in record.reason


def test_sums_that_wait_for_each_other_stay_apart():
    after = optimized(f"""
program @f(w: f32[2,4]{{V:x}} <- f32[8@x,4]) -> f32[] => f32[] {{
  a: f32[]{{V:x}} = reduce_sum[axes=(0, 1)] w
  b: f32[] = {SUM} a
  c: f32[2,4]{{V:x}} = mul b w
  d: f32[]{{V:x}} = reduce_sum[axes=(0, 1)] c
  e: f32[] = {SUM} d
  return e
}}""", W)
    assert len(collectives(after)) == 2


def test_a_large_sum_takes_a_small_one_with_it_and_none_of_another_dtype():
    prices = Objective.of().prices(AbstractMesh((4,), ("x",)))
    n = int(prices.exchange("all-reduce", ("x",)).combine_limit // 4) + 1
    after = optimized(f"""
program @f(
    w: f32[{n}]{{V:x}} <- f32[{4 * n}@x],
    v: i32[2]{{V:x}} <- i32[8@x],
) -> (f32[{n}] => f32[{n}], i32[2] => i32[2], f32[] => f32[]) {{
  a: f32[{n}] = {SUM} w
  b: i32[2] = {SUM} v
  c: f32[]{{V:x}} = reduce_sum[axes=(0,)] w
  d: f32[] = {SUM} c
  return a, b, d
}}""", np.ones(4 * n, np.float32), np.arange(8, dtype=np.int32))
    assert [c.operand_bytes for c in collectives(after)] == [8, 4 * n + 4]


def test_maxima_and_sums_of_several_stages():
    after = optimized(f"""
program @f(
    w: f32[2,4]{{V:x}} <- f32[8@x,4],
) -> (f32[4] => f32[4], f32[4] => f32[4], f32[4] => f32[4]) {{
  a: f32[4]{{V:x}} = reduce_max[axes=(0,)] w
  b: f32[4] = pmax[axes=('x',)] a
  c: f32[4]{{V:x}} = reduce_sum[axes=(0,)] w
  d: f32[4] = {SUM} c
  e: f32[4]{{V:x}} = sub c b
  g: f32[4] = {SUM} e
  i: f32[4]{{V:x}} = add c b
  j: f32[4] = pmax[axes=('x',)] i
  k: f32[4]{{V:x}} = mul c d
  l: f32[4] = {SUM} k
  return g, j, l
}}""", W)
    assert sorted((r.op, r.bytes) for r in collectives(after)) == [
        ("pmax", 24), ("pmax", 24), ("psum_invariant", 24), ("variadic_psum_invariant", 48)]


def test_a_block_that_was_the_same_on_all_devices_varies_where_the_gather_is_undone():
    check(f"""
program @f(w: f32[2,4] <- f32[2,4]) -> f32[2,4]{{V:x}} => f32[8@x,4] {{
  g: f32[8,4] = {GATHER} w
  s: f32[2,4]{{V:x}} = all_slice[axes=('x',), axis_size=4, dimension=0] g
  t: f32[2,4]{{V:x}} = sin[accuracy=None] s
  return t
}}""", """
program @f(w: f32[2,4] <- f32[2,4]) -> f32[2,4]{V:x} => f32[8@x,4] {
  s: f32[2,4]{V:x} = pvary[axes=('x',)] w
  t: f32[2,4]{V:x} = sin[accuracy=None] s
  return t
}""", W[:2])


def test_scatters_over_different_dimensions_are_one():
    scatter = "reduce_scatter[axis_name=('x',), axis_size=4, scatter_dimension={}, tiled=True]"
    after = optimized(f"""
program @f(w: f32[8,4]{{V:x}} <- f32[32@x,4], v: f32[3,8]{{V:x}} <- f32[12@x,8]) -> (
    f32[2,4]{{V:x}} => f32[8@x,4], f32[3,2]{{V:x}} => f32[3,8@x]) {{
  a: f32[2,4]{{V:x}} = {scatter.format(0)} w
  b: f32[3,2]{{V:x}} = {scatter.format(1)} v
  return a, b
}}""", np.arange(128, dtype=np.float32).reshape(32, 4),
                      np.arange(96, dtype=np.float32).reshape(12, 8))
    assert [c.kind for c in collectives(after)] == ["reduce-scatter"]
    assert collectives(after)[0].received_bytes == 3 * 4 * (8 + 6)


def test_gathers_of_different_dimensions_are_one():
    gather = GATHER.replace("all_gather_dimension=0", "all_gather_dimension={}")
    after = optimized(f"""
program @f(w: f32[2,4]{{V:x}} <- f32[8@x,4], v: f32[3,2]{{V:x}} <- f32[3,8@x]) -> (
    f32[8,4] => f32[8,4], f32[3,8] => f32[3,8]) {{
  a: f32[8,4] = {gather.format(0)} w
  b: f32[3,8] = {gather.format(1)} v
  return a, b
}}""", W, np.arange(24, dtype=np.float32).reshape(3, 8))
    assert [c.kind for c in collectives(after)] == ["all-gather"]
    assert collectives(after)[0].received_bytes == 3 * 4 * (8 + 6)


@pytest.mark.parametrize("rows", [1, 3, 4, 8])
def test_a_gather_of_columns_is_not_taken_for_rows(rows):
    """With as many rows as devices the gathered rows have the shape of the result."""
    gather = GATHER.replace("all_gather_dimension=0", "all_gather_dimension=1")
    optimized(f"""
program @f(w: f32[{rows},2]{{V:x}} <- f32[{rows},8@x]) -> (
    f32[{rows},8] => f32[{rows},8], f32[{rows},8] => f32[{rows},8]) {{
  a: f32[{rows},8] = {gather} w
  s: f32[{rows},2]{{V:x}} = sin[accuracy=None] w
  b: f32[{rows},8] = {gather} s
  return a, b
}}""", np.arange(8 * rows, dtype=np.float32).reshape(rows, 8))


@pytest.mark.parametrize("shape, d", [((4, 8), 0), ((4, 8), 1), ((1, 4), 1), ((2, 4, 4), 1),
                                      ((2, 4, 4), 2), ((4,), 0)])
def test_scatters_of_all_dimensions(shape, d):
    scatter = f"reduce_scatter[axis_name=('x',), axis_size=4, scatter_dimension={d}, tiled=True]"
    block = (*shape[:d], shape[d] // 4, *shape[d + 1:])
    whole = (4 * shape[0], *shape[1:])

    def dims(sizes, at=-1):
        return ",".join(f"{n}@x" if k == at else str(n) for k, n in enumerate(sizes))
    optimized(f"""
program @f(w: f32[{dims(shape)}]{{V:x}} <- f32[{dims(whole, 0)}]) -> (
    f32[{dims(block)}]{{V:x}} => f32[{dims(shape, d)}],
    f32[{dims(block)}]{{V:x}} => f32[{dims(shape, d)}]) {{
  a: f32[{dims(block)}]{{V:x}} = {scatter} w
  s: f32[{dims(shape)}]{{V:x}} = sin[accuracy=None] w
  b: f32[{dims(block)}]{{V:x}} = {scatter} s
  return a, b
}}""", np.arange(np.prod(whole), dtype=np.float32).reshape(whole))


@pytest.mark.parametrize("loop", ["fori", "while"])
def test_exchanges_in_branches_leave_the_loop(loop):
    mesh = st.make_mesh((4,), ("x",), axis_types=(AxisType.Auto,))

    def f(w, h):
        def step(i, h):
            return lax.cond(i % 3 == 0, lambda h: jnp.tanh(h @ w),
                            lambda h: h + jnp.sin(w).sum() * (w @ w)[0], h)
        if loop == "fori":
            return lax.fori_loop(0, 5, step, h)
        return lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, step(*c)), (0, h))[1]

    rng = np.random.default_rng(0)
    w, h = (rng.normal(size=(n, 16)).astype(np.float32) / 8 for n in (16, 32))
    by_rows = NamedSharding(mesh, P("x"))
    step = st.jit(f, out_shardings=by_rows)
    for objective in ("time", "bytes"):
        with config.override(shardtrace_objective=objective):
            args = [st.device_put(x, by_rows) for x in (w, h)]
            assert {r.count for r in step.lower(*args).compile().collectives()} == {1}
            for engine in ("simulated", "per_device"):
                with config.override(shardtrace_engine=engine):
                    np.testing.assert_allclose(step(*args), f(w, h), rtol=1e-4, atol=1e-5)
