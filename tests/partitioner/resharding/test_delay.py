"""Reshards done later: programs before and after, in text."""
from __future__ import annotations

import pytest

import shardtrace.ir.ops.dialect  # noqa: F401
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.reasons import reason_text
from shardtrace.ir.text.parse import parse_program as parse
from shardtrace.ir.verify import verify
from shardtrace.partitioner.cost.prices import Objective
from shardtrace.partitioner.resharding.move_reshards import move_reshards, traffic

HEAD = "mesh (x=8)\nlevel resharded\n\n"
WHOLE = "reshard[dst_sharding=sharding P(None, None)]"


def moved(before: str):
    program = parse(HEAD + before)
    verify(program)
    prices = Objective.of("bytes").prices(program.mesh)
    after = move_reshards(program, prices)
    verify(after)
    assert programs_equal(parse(str(after)), after)
    assert traffic(after, prices) <= traffic(program, prices)
    return after


def check(before: str, after: str) -> None:
    got = moved(before)
    want = parse(HEAD + after)
    assert programs_equal(got, want), str(got)


PAIRS = {
    "two finished sums are finished as one": (f"""
program @f(a: f32[8,4]{{U:x}}, b: f32[8,4]{{U:x}}) -> f32[8,4] {{
  c: f32[8,4] = {WHOLE} a
  d: f32[8,4] = {WHOLE} b
  e: f32[8,4] = add c d
  return e
}}""", f"""
program @f(a: f32[8,4]{{U:x}}, b: f32[8,4]{{U:x}}) -> f32[8,4] {{
  c: f32[8,4]{{U:x}} = add a b
  d: f32[8,4] = {WHOLE} c
  return d
}}"""),
    "a value in between is added by one device": (f"""
program @f(a: f32[8,4]{{U:x}}, b: f32[8,4]{{U:x}}, r: f32[8,4]) -> f32[8,4] {{
  c: f32[8,4] = {WHOLE} a
  s: f32[8,4] = add r c
  d: f32[8,4] = {WHOLE} b
  e: f32[8,4] = add s d
  return e
}}""", f"""
program @f(a: f32[8,4]{{U:x}}, b: f32[8,4]{{U:x}}, r: f32[8,4]) -> f32[8,4] {{
  q: f32[8,4]{{U:x}} = reshard[dst_sharding=sharding P(None, None, unreduced={{'x'}})] r
  s: f32[8,4]{{U:x}} = add q a
  e: f32[8,4]{{U:x}} = add s b
  d: f32[8,4] = {WHOLE} e
  return d
}}"""),
    "a sum is finished after it is reduced, scaled and turned": (f"""
program @f(a: f32[8,4]{{U:x}}) -> f32[4] {{
  c: f32[8,4] = {WHOLE} a
  d: f32[4,8] = transpose[permutation=(1, 0)] c
  e: f32[4,8] = mul 0.5:f32 d
  g: f32[4] = reduce_sum[axes=(1,)] e
  return g
}}""", """
program @f(a: f32[8,4]{U:x}) -> f32[4] {
  d: f32[4,8]{U:x} = transpose[permutation=(1, 0)] a
  e: f32[4,8]{U:x} = mul 0.5:f32 d
  g: f32[4]{U:x} = reduce_sum[axes=(1,)] e
  h: f32[4] = reshard[dst_sharding=sharding P(None)] g
  return h
}"""),
    "what is gathered and cut is cut and gathered": (f"""
program @f(a: f32[8@x,4]) -> f32[8,2] {{
  c: f32[8,4] = {WHOLE} a
  d: f32[8,2] = slice[limit_indices=(8, 2), start_indices=(0, 0), strides=None] c
  return d
}}""", f"""
program @f(a: f32[8@x,4]) -> f32[8,2] {{
  c: f32[8@x,2] = slice[limit_indices=(8, 2), start_indices=(0, 0), strides=None] a
  d: f32[8,2] = {WHOLE} c
  return d
}}"""),
    "a gathered value is rounded before": (f"""
program @f(a: f32[8@x,4]) -> bf16[8,4] {{
  c: f32[8,4] = {WHOLE} a
  d: bf16[8,4] = convert_element_type[new_dtype=bf16, weak_type=False] c
  return d
}}""", f"""
program @f(a: f32[8@x,4]) -> bf16[8,4] {{
  c: bf16[8@x,4] = convert_element_type[new_dtype=bf16, weak_type=False] a
  d: bf16[8,4] = {WHOLE} c
  return d
}}"""),
    "a sum in a loop is finished after it": (f"""
program @f(w: f32[8,4], xs: f32[3,8,4]{{U:x}}) -> f32[8,4] {{
  b: f32[8,4] = scan[length=3, num_carry=1, num_consts=0, reverse=False] w xs
    jaxpr = @body(t: f32[8,4], c: f32[8,4]{{U:x}}) -> f32[8,4] {{
      d: f32[8,4] = {WHOLE} c
      e: f32[8,4] = add t d
      return e
    }}
  return b
}}""", f"""
program @f(w: f32[8,4], xs: f32[3,8,4]{{U:x}}) -> f32[8,4] {{
  v: f32[8,4]{{U:x}} = reshard[dst_sharding=sharding P(None, None, unreduced={{'x'}})] w
  b: f32[8,4]{{U:x}} = scan[length=3, num_carry=1, num_consts=0, reverse=False] v xs
    jaxpr = @body(t: f32[8,4]{{U:x}}, c: f32[8,4]{{U:x}}) -> f32[8,4]{{U:x}} {{
      e: f32[8,4]{{U:x}} = add t c
      return e
    }}
  d: f32[8,4] = {WHOLE} b
  return d
}}"""),
    "a loop carries what its body reads": (f"""
program @f(a: f32[8,8], w: f32[3,8,8@x]) -> f32[8,8] {{
  s: f32[8,8@x] = reshard[dst_sharding=sharding P(None, 'x')] a
  b: f32[8,8@x] = scan[length=3, num_carry=1, num_consts=0, reverse=False] s w
    jaxpr = @body(t: f32[8,8@x], v: f32[8,8@x]) -> f32[8,8@x] {{
      c: f32[8,8] = {WHOLE} t
      d: f32[8,8@x] = dot_general[dimension_numbers=(((1,), (0,)), ((), ()))] c v
      return d
    }}
  r: f32[8,8] = {WHOLE} b
  return r
}}""", f"""
program @f(a: f32[8,8], w: f32[3,8,8@x]) -> f32[8,8] {{
  b: f32[8,8] = scan[length=3, num_carry=1, num_consts=0, reverse=False] a w
    jaxpr = @body(t: f32[8,8], v: f32[8,8@x]) -> f32[8,8] {{
      d: f32[8,8@x] = dot_general[dimension_numbers=(((1,), (0,)), ((), ()))] t v
      c: f32[8,8] = {WHOLE} d
      return c
    }}
  return b
}}"""),
    "a block of what is whole is cut from it": (f"""
program @f(a: f32[8,8]{{U:x}}) -> (f32[8,8], f32[8@x,8]) {{
  b: f32[8,8] = {WHOLE} a
  c: f32[8@x,8] = reshard[dst_sharding=sharding P('x', None)] a
  return b, c
}}""", f"""
program @f(a: f32[8,8]{{U:x}}) -> (f32[8,8], f32[8@x,8]) {{
  b: f32[8,8] = {WHOLE} a
  c: f32[8@x,8] = reshard[dst_sharding=sharding P('x', None)] b
  return b, c
}}"""),
}


@pytest.mark.parametrize("name", list(PAIRS))
def test_before_and_after(name):
    check(*PAIRS[name])


STAYS = {
    "a product of two sums": f"""
program @f(a: f32[8,4]{{U:x}}) -> f32[] {{
  c: f32[8,4] = {WHOLE} a
  d: f32[8,4] = mul c c
  e: f32[] = reduce_sum[axes=(0, 1)] d
  return e
}}""",
    "what is not linear": f"""
program @f(a: f32[8,4]{{U:x}}) -> f32[4] {{
  c: f32[8,4] = {WHOLE} a
  d: f32[4] = reduce_max[axes=(0,)] c
  return d
}}""",
    "a sum that would be rounded first": f"""
program @f(a: f32[8,4]{{U:x}}) -> bf16[8,4] {{
  c: f32[8,4] = {WHOLE} a
  d: bf16[8,4] = convert_element_type[new_dtype=bf16, weak_type=False] c
  return d
}}""",
    "a quotient by what may be zero": f"""
program @f(a: f32[8,4]{{U:x}}, b: f32[8,4]) -> f32[4] {{
  c: f32[8,4] = {WHOLE} a
  d: f32[8,4] = div c b
  e: f32[4] = reduce_sum[axes=(0,)] d
  return e
}}""",
    "a factor that is split over the axes of the sum": f"""
program @f(a: f32[8,4]{{U:x}}, b: f32[4,8@x]) -> f32[8,8@x] {{
  c: f32[8,4] = {WHOLE} a
  d: f32[8,8@x] = dot_general[dimension_numbers=(((1,), (0,)), ((), ()))] c b
  return d
}}""",
    "what would be larger": f"""
program @f(a: f32[8,4]{{U:x}}) -> f32[2,8,4] {{
  c: f32[8,4] = {WHOLE} a
  d: f32[2,8,4] = broadcast_in_dim[broadcast_dimensions=(1, 2), shape=(2, 8, 4)] c
  return d
}}""",
    "a total that every iteration reads": f"""
program @f(w: f32[8,4], xs: f32[3,8,4]{{U:x}}) -> f32[8,4] {{
  b: f32[8,4] = scan[length=3, num_carry=1, num_consts=0, reverse=False] w xs
    jaxpr = @body(t: f32[8,4], c: f32[8,4]{{U:x}}) -> f32[8,4] {{
      d: f32[8,4] = {WHOLE} c
      e: f32[8,4] = add t d
      g: f32[8,4] = tanh e
      return g
    }}
  return b
}}""",
}


@pytest.mark.parametrize("name", list(STAYS))
def test_reshards_stay_where_delaying_does_not_help(name):
    check(STAYS[name], STAYS[name])


def test_reasons_and_lines_are_kept():
    program = moved(f"""
program @f(a: f32[8,4]{{U:x}}, b: f32[8,4]{{U:x}}) -> f32[8,4] {{
  c: f32[8,4] = {WHOLE} a  # user.py:1:1, because the first leaves partial sums
  d: f32[8,4] = {WHOLE} b  # user.py:2:1, because the second leaves partial sums
  e: f32[8,4] = add c d  # user.py:3:1
  return e
}}""")
    finish = program.eqns[-1]
    assert finish.location.line == 1
    assert reason_text(finish.reason) == (
        "the first leaves partial sums; the second leaves partial sums")
