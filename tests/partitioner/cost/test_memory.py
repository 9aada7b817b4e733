"""Memory against what XLA's compiler plans for the same program on the same mesh.

The plans are recorded in golden/xla_memory.json (`python -m tests.record.memory`); with JAX at hand
they are made again.
"""
from __future__ import annotations

import json
import os
import re

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.ops.elementwise.transcendental import tanh_p
from shardtrace.partitioner.cost.memory import memory
from shardtrace.partitioner.cost.memory.assignment import Span, block_of_temporaries
from shardtrace.partitioner.cost.memory.order import breadth_first

from ...paths import GOLDEN
from ...real_jax import real_jax
from ...rows import rows
from .memory_programs import PROGRAMS

RECORDED = json.loads((GOLDEN / "xla_memory.json").read_text())["programs"]
# Where the plan differs from the model by more than a tenth: in layers_gradient other residuals
# are kept.
RATIOS = {"layers_gradient": 0.77}


def compiled(name):
    make, args, donated = PROGRAMS[name]
    mesh = st.make_mesh((2, 4), ("x", "y"))
    structs = [st.ShapeDtypeStruct(shape, np.dtype(rest[0] if rest else "float32"),
                                   sharding=st.NamedSharding(mesh, st.P(*spec)))
               for shape, spec, *rest in args]
    with st.set_mesh(mesh):
        return st.jit(make(st), donate_argnums=donated).lower(*structs).compile()


def total(plan):
    return plan["argument"] + plan["output"] + plan["temp"] - plan["alias"]


@rows("name", PROGRAMS)
def test_memory_is_what_the_compiler_plans(name):
    ours, theirs = compiled(name).memory_analysis(), RECORDED[name]
    assert ours.argument_size_in_bytes == theirs["argument"]
    # a tuple of results has a table of pointers
    assert 0 <= theirs["output"] - ours.output_size_in_bytes <= 8 * 3
    assert ours.alias_size_in_bytes == theirs["alias"]
    found = ours.peak_memory_in_bytes / total(theirs)
    assert found == pytest.approx(RATIOS.get(name, 1.0), abs=0.02 if name in RATIOS else 0.1)


@pytest.mark.parametrize("name", ["mlp", "adam_step", "layers_recomputed"])
def test_an_explanation_has_the_same_peak(name):
    found = compiled(name)
    assert found.explain().peak_bytes == found.memory_analysis().peak_memory_in_bytes


@pytest.mark.parametrize("name", ["mlp", "adam_step", "layers", "attention"])
def test_the_record_is_what_the_compiler_says(name):
    os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    jax = pytest.importorskip("jax")
    if len(jax.devices()) < 8:
        pytest.skip("needs eight devices")
    make, args, donated = PROGRAMS[name]
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    structs = [jax.ShapeDtypeStruct(shape, np.dtype(rest[0] if rest else "float32"),
                                    sharding=jax.NamedSharding(mesh, jax.P(*spec)))
               for shape, spec, *rest in args]
    found = jax.jit(make(jax), donate_argnums=donated).lower(*structs).compile().memory_analysis()
    plan = {"argument": found.argument_size_in_bytes, "output": found.output_size_in_bytes,
            "temp": found.temp_size_in_bytes, "alias": found.alias_size_in_bytes}
    assert plan["argument"] == RECORDED[name]["argument"]
    assert total(plan) == pytest.approx(total(RECORDED[name]), rel=0.05)


def test_a_timeline_says_what_is_held_while_each_equation_runs():
    found = compiled("mlp_step").explain().memory
    assert max(m.nbytes for m in found.timeline) == found.peak_bytes
    at = next(m for m in found.timeline if m.nbytes == found.peak_bytes)
    assert at.location.line == found.location.line
    assert {"dot_general", "tanh"} <= {m.op for m in found.timeline}


@pytest.mark.parametrize("devices", [8, 10_000, 1_000_000])
def test_a_million_devices_are_as_quick(devices):
    mesh = st.sharding.AbstractMesh((devices,), ("x",))
    x = st.ShapeDtypeStruct((devices * 8, 128), np.float32, sharding=st.NamedSharding(
        mesh, st.P("x")))
    found = st.explain(lambda x: st.numpy.tanh(x).sum(0))(x)
    assert [c.group_size for c in found.collectives] == [devices]
    assert found.peak_bytes == (8 * 128 + 2 * 128) * 4 and found.memory.timeline


def peak(f, *shapes, mesh=(8,)):
    mesh = st.sharding.AbstractMesh(mesh, ("x",))
    structs = [st.ShapeDtypeStruct(s, np.float32, sharding=st.NamedSharding(mesh, st.P("x")))
               for s in shapes]
    return beyond_arguments(st.explain(f)(*structs))


def beyond_arguments(explanation):
    return explanation.peak_bytes - explanation.memory.argument_bytes


BLOCK = 64 * 128 * 4             # bytes of one device's share of f32[512, 128]


def test_a_sum_over_devices_holds_its_operand_and_its_result():
    assert peak(lambda x: x.T @ x, (512, 128)) == 2 * 128 * 128 * 4


def test_a_sort_takes_the_place_of_its_operand():
    assert peak(lambda x: st.numpy.sort(x * 2, 1), (512, 128)) == BLOCK


def test_what_is_solved_takes_the_place_of_the_right_hand_side():
    """As many matrices besides the arguments, results among them, as XLA's compiler plans."""
    one = 4 * 512 * 512
    for f in (jnp.linalg.inv, lambda a: jnp.linalg.solve(a, a + 1),
              lambda a: lax.linalg.triangular_solve(a * 2, a + 1, left_side=True)):
        found = st.explain(f)(st.ShapeDtypeStruct((512, 512), np.float32))
        assert beyond_arguments(found) == pytest.approx(2 * one, rel=0.01)


def test_what_moves_elements_does_not_write_where_it_reads():
    jnp = st.numpy
    assert peak(lambda x: jnp.sort(x * 2, 1) + 1, (512, 128)) == BLOCK
    assert peak(lambda x: jnp.flip(jnp.sort(x * 2, 1), 1) + 1, (512, 128)) == 2 * BLOCK


def test_a_product_reads_a_transpose_where_it_lies_and_copies_scattered_dimensions():
    jnp = st.numpy

    def square(x):
        y = jnp.sin(x).reshape(8, 64, 128)
        return jnp.matmul(y, jnp.swapaxes(y, 1, 2))
    assert peak(square, (512, 128)) == BLOCK + 64 * 64 * 4
    plain = peak(lambda x, w: jnp.einsum("bhtd,bhd->bht", x, w), (8, 4, 16, 32), (8, 4, 32))
    spread = peak(lambda x, w: jnp.einsum("bthd,bhd->bht", x, w), (8, 16, 4, 32), (8, 4, 32))
    assert spread - plain == 4 * 16 * 32 * 4


def test_a_batch_dimension_behind_others_is_copied_for_a_product_also_where_its_size_is_1():
    assert peak(lambda x, w: st.numpy.einsum("bqhd,bkhd->bhqk", x, w),
                (8, 4, 1, 16), (8, 128, 1, 16)) == (128 * 16 + 4 * 128) * 4


def test_running_sums_hold_those_of_blocks():
    assert peak(lambda x: st.numpy.cumsum(x, 1), (512, 128)) == 2 * BLOCK
    assert peak(lambda x: st.numpy.cumsum(x, 1), (512, 16)) == BLOCK // 8


def test_a_reduction_reads_what_is_masked_or_moved_from_memory_and_computes_the_rest():
    jnp = st.numpy
    assert peak(lambda x: (jnp.exp(x) * 2).sum(1), (512, 128)) == BLOCK // 128
    assert peak(lambda x: jnp.where(x > 0, x, 0).sum(1), (512, 128)) == BLOCK + BLOCK // 128
    assert peak(lambda x: (x[:, 1:] * 2).max(1), (512, 128)) == 64 * 127 * 4 + BLOCK // 128


def test_a_reduction_over_many_elements_of_a_dimension_is_split_and_reads_from_memory():
    jnp = st.numpy
    short, long = (peak(lambda x: jnp.where(x > 0, x, 0).sum(1), (64, n)) for n in (32, 33))
    assert (short, long) == (8 * 4, 8 * 33 * 4 + 8 * 4)


def test_what_is_taken_by_indices_is_fused_into_the_one_kernel_that_reads_it():
    def f(x):
        return lax.dynamic_slice(x, (x[0, 0].astype(int), 0), (4, 128))
    x = np.ones((64, 128), np.float32)

    def temporaries(g):
        return st.jit(g).lower(x).compile().memory_analysis().temp_size_in_bytes
    assert temporaries(lambda x: jnp.tanh(f(x)) * f(x)[0]) < 4 * 128 * 4
    assert temporaries(lambda x: f(x) @ x.T) >= 4 * 128 * 4


def test_what_is_gathered_along_a_later_dimension_is_copied_for_a_product():
    """It comes block after block."""
    mesh = st.sharding.AbstractMesh((8,), ("x",))
    whole = st.NamedSharding(mesh, st.P())

    def temporaries(spec):
        x, w = (st.ShapeDtypeStruct((rows, 256), np.float32, sharding=st.NamedSharding(mesh, s))
                for rows, s in ((4, st.P()), (256, spec)))
        with st.config.override(shardtrace_objective="xla"):
            return beyond_arguments(
                st.explain(lambda x, w: x @ lax.with_sharding_constraint(w, whole))(x, w))
    assert temporaries(st.P(None, "x")) - temporaries(st.P("x")) == 256 * 256 * 4


def test_what_is_copied_for_a_product_is_made_twice_where_others_read_it_as_it_is():
    """From the same operands, which are held until both are made."""
    def f(x, w, read):
        y = (x @ w) * 2
        turned = jnp.einsum("bij,bik->jk", y, x)
        return (turned, y @ w.T) if read else turned
    x, w = np.ones((8, 256, 64), np.float32), np.ones((64, 256), np.float32)
    alone, both = (st.jit(f, static_argnums=2).lower(x, w, read).compile().memory_analysis()
                   .temp_size_in_bytes for read in (False, True))
    assert (alone, both) == (2 * (8 * 256 * 256 * 4), 3 * (8 * 256 * 256 * 4))


def test_rows_are_looked_up_in_the_order_in_which_a_product_reads_them():
    def f(pages, table, q):
        return jnp.einsum("bthd,bhd->bht", pages[table].reshape(4, 128, 2, 16), q)
    pages, q = np.ones((64, 16, 2, 16), np.float32), np.ones((4, 2, 16), np.float32)
    plan = st.jit(f).lower(pages, np.ones((4, 8), int), q).compile().memory_analysis()
    assert plan.temp_size_in_bytes < 1.5 * 4 * 128 * 2 * 16 * 4


# -- the order of XLA's plans ---------------------------------------------------------------------

def two_layers(x, v, w):
    return jnp.tanh(jnp.tanh(x @ v) @ w)


def with_split_weights(library, mesh):
    """Their arguments, weights gathered for use."""
    P, placed = library.sharding.PartitionSpec, library.sharding.NamedSharding
    return [library.ShapeDtypeStruct(shape, np.float32, sharding=placed(mesh, P("x")))
            for shape in ((64, 256), (256, 256), (256, 256))]


def test_plans_of_xla_gather_all_parameters_first():
    mesh = st.sharding.AbstractMesh((8,), ("x",))
    found = st.jit(two_layers, compiler_options={"objective": "xla"}).lower(
        *with_split_weights(st, mesh)).compile()
    ops = ["all_gather_invariant", "dot_general"]
    assert [e.op.name for e in found.program.eqns if e.op is not tanh_p] == ops * 2
    assert [e.op.name for e in breadth_first(found.program).eqns if e.op is not tanh_p] == [
        ops[0], ops[0], ops[1], ops[1]]
    peak_bytes = found.memory_analysis().peak_memory_in_bytes
    assert found.explain().peak_bytes == peak_bytes
    as_written = found.program.replace(attributes={})       # without the note of whose plan it is
    assert peak_bytes == 606_208                            # as XLA's compiler says
    assert peak_bytes - memory(as_written).peak_bytes == 256 * 256 * 4 - 8 * 256 * 4


def test_their_order_is_that_of_the_compiled_program():
    jax = real_jax()
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))

    def f(x, v, w):
        return jax.numpy.tanh(jax.numpy.tanh(x @ v) @ w)
    found = jax.jit(f).lower(*with_split_weights(jax, mesh)).compile()
    text = found.as_text()
    ops = re.findall(r" (all-gather|ynn_fusion|dot)[.\d]* = ", text[text.index("ENTRY"):].replace(
        "%", ""))
    assert "is_scheduled=true" in text and [op == "all-gather" for op in ops] == [
        True, True, False, False]
    own = st.jit(two_layers, compiler_options={"objective": "xla"}).lower(*with_split_weights(
        st, st.sharding.AbstractMesh((8,), ("x",)))).compile()
    plan = found.memory_analysis()
    assert own.memory_analysis().peak_memory_in_bytes == pytest.approx(
        plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes, rel=0.02)


def test_effects_stay_in_order():
    def f(x):
        st.debug.print("first {}", jnp.sort(jnp.sin(x))[0], ordered=True)
        st.debug.print("second {}", x[0], ordered=True)
        return x
    program = st.jit(f, compiler_options={"objective": "xla"}).lower(
        np.ones(8, np.float32)).compile().program
    said = [e.params for e in breadth_first(program).eqns if e.effects]
    assert len(said) == 2 and said == [e.params for e in program.eqns if e.effects]


def test_results_have_memory_of_their_own_for_the_whole_run():
    """The gradient of a product is as large as the result; both are held, one after the other."""
    def f(x, w):
        return (jnp.tanh(jnp.tanh(x @ w) @ w.T) @ w)[:16].sum(0)
    x, w = np.ones((1024, 256), np.float32), np.ones((256, 2048), np.float32)
    small = st.jit(f).lower(x, w).compile().memory_analysis()
    also = st.jit(lambda x, w: (f(x, w), w * 2)).lower(x, w).compile().memory_analysis()
    assert also.output_size_in_bytes - small.output_size_in_bytes == w.nbytes
    # what is doubled last lies nowhere else before, but for what fits into it
    assert also.peak_memory_in_bytes > small.peak_memory_in_bytes


def test_a_temporary_lies_where_a_result_will_be():
    n = 1 << 20
    spans = [Span(n, 0, 1), Span(n, 2, 3), Span(n, 4, 9)]
    spans[2].result = True
    assert block_of_temporaries(spans, 9) == 0
    spans[1].end = 4                                    # read where the result is made
    assert block_of_temporaries(spans, 9) == n
    spans[0].end = 2                                    # both at once: one lies there
    spans[1].end = 3
    assert block_of_temporaries(spans, 9) == n
    assert block_of_temporaries([Span(2 * n, 0, 1), *spans[2:]], 9) == 2 * n   # too large for it


@pytest.mark.parametrize("n, parts", [(16, 1), (128, 1), (100, 1 + 112 / 100)])
def test_what_reads_a_running_sum_puts_its_parts_together(n, parts):
    """What does not divide into parts of 16 is padded before, and is held besides."""
    x = np.ones((64, n), np.float32)
    read, made = (st.jit(f).lower(x).compile().memory_analysis().temp_size_in_bytes for f in (
        lambda x: (jnp.cumsum(x, 1) - x).max(1), lambda x: jnp.cumsum(x, 1)))
    assert read == round(parts * x.nbytes)
    assert made == (n > 16) * read                      # parts, and the result


def test_what_one_product_wants_in_another_order_and_shape_is_there_for_others_as_it_is():
    def f(x, y):
        z = x * 2
        return jnp.einsum("mec,ed->mcd", z.reshape(64, 4, 16), y[:4]).sum() + z.T @ y
    x, y = np.ones((64, 64), np.float32), np.ones((64, 8), np.float32)
    plan = st.jit(f).lower(x, y).compile().memory_analysis()
    assert plan.temp_size_in_bytes >= 2 * x.nbytes


def test_what_a_branch_hands_through_is_copied_before_the_other_runs():
    def f(x, w, flag):
        return lax.cond(flag, lambda x: jnp.tanh(x @ w) @ w, lambda x: x, x)

    def g(x, w, flag):
        return lax.cond(flag, lambda x: jnp.tanh(x @ w) @ w, lambda x: x * 2, x)
    args = np.ones((512, 512), np.float32), np.ones((512, 512), np.float32), True
    handed, made = (st.jit(h).lower(*args).compile().memory_analysis().temp_size_in_bytes
                    for h in (f, g))
    assert handed == made + (1 << 20)


def temporaries_as_in_xla(f, out, *args):
    """Of a function over x=2, y=4. args: (shape, spec) each."""
    mesh = st.sharding.AbstractMesh((2, 4), ("x", "y"))
    placed = [st.ShapeDtypeStruct(shape, np.float32, sharding=st.NamedSharding(mesh, st.P(*spec)))
              for shape, spec in args]
    with st.config.override(shardtrace_objective="xla"):
        step = st.jit(f, out_shardings=st.NamedSharding(mesh, st.P(*out)))
        return step.lower(*placed).compile().memory_analysis().temp_size_in_bytes


def test_what_is_moved_of_a_generated_value_is_computed_by_each_that_reads_it():
    """Such as the gradient of a column, which is zero elsewhere."""
    assert temporaries_as_in_xla(st.grad(lambda x: st.nn.log_softmax(x)[:, 0].mean()), ("x", "y"),
                                 ((256, 1024), ("x", "y"))) < 128 * 256 * 4


def test_of_two_operands_that_end_the_result_takes_the_place_of_the_first():
    """The second ends earlier then, and a larger value may lie in its place, as in XLA."""
    assert temporaries_as_in_xla(
        lambda x, v, w, out: (st.nn.silu(x @ v) * (x @ w)) @ out + x, ("x",),
        ((2048, 512), ("x",)), ((512, 1792), (None, "y")), ((512, 1792), (None, "y")),
        ((1792, 512), ("y",))) == 1024 * 512 * 4


def test_products_copy_what_is_a_result_too_as_soon_as_it_is_there():
    """Both caches, before the first product; each is copied into the order of its product."""
    def step(q, k, v):
        k, v = (lax.dynamic_update_slice(c, q[:, None], (0, 5, 0, 0)) for c in (k, v))
        scores = st.nn.softmax(jnp.einsum("bhd,bkhd->bhk", q, k))
        return jnp.einsum("bhk,bkhd->bdh", scores, v), k, v
    cache = ((8, 512, 8, 32), ("x", None, "y"))
    assert temporaries_as_in_xla(step, ("x", None, "y"), ((8, 8, 32), ("x", "y")),
                                 cache, cache) >= 2 * 8 * 512 * 8 * 32 * 4 // 8
