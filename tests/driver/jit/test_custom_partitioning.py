"""custom_partitioning: a user's rule is propagated through, and the function runs on blocks."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from shardtrace import config, lax
from shardtrace import numpy as jnp
from shardtrace.experimental.custom_partitioning import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    custom_partitioning,
)
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.text.print import print_program
from shardtrace.ir.verify import verify
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P


def grid(kind=AxisType.Auto):
    return st.make_mesh((2, 4), ("x", "y"), axis_types=(kind, kind))


def values(*shapes):
    rng = np.random.default_rng(0)
    return [rng.integers(-4, 5, s).astype(np.float32) for s in shapes]


def same(f, args, specs, out=None):
    """The compiled program of f, which by both executors computes what f does on one device."""
    mesh = grid()
    want = st.tree.leaves(st.jit(f)(*args))
    placed = [st.device_put(a, NamedSharding(mesh, s)) for a, s in zip(args, specs, strict=True)]
    options = {} if out is None else {"out_shardings": NamedSharding(mesh, out)}
    for executor in ("simulated", "per_device"):
        with config.override(shardtrace_engine=executor):
            for got, one in zip(st.tree.leaves(st.jit(f, **options)(*placed)), want, strict=True):
                np.testing.assert_allclose(np.asarray(got), np.asarray(one), rtol=1e-5)
    compiled = st.jit(f, **options).lower(*placed).compile()
    for program in compiled.stages.values():
        text = print_program(program)
        verify(parse_program(text))
        assert print_program(parse_program(text)) == text
    return compiled


def kinds(compiled):
    return [c.kind for c in compiled.collectives()]


def product(seen=None):
    @custom_partitioning
    def multiply(x, w):
        if seen is not None:
            seen.append((x.shape, w.shape))
        return jnp.tanh(x) @ w
    multiply.def_partition(sharding_rule="i k, k j -> i j", reduction_factors=("k",))
    return multiply


@pytest.mark.parametrize("specs, spec, collectives, blocks", [
    ((P("x"), P()), P("x"), [], ((4, 8), (8, 4))),
    ((P("x"), P(None, "y")), P("x", "y"), [], ((4, 8), (8, 1))),
    ((P("x", "y"), P("y")), P("x"), ["all-reduce"], ((4, 2), (2, 4))),
    ((P(), P()), P(), [], ((8, 8), (8, 4))),
])
def test_a_rule_is_propagated_through_and_the_function_sees_blocks(specs, spec, collectives,
                                                                   blocks):
    seen = []
    compiled = same(lambda x, w: product(seen)(x, w), values((8, 8), (8, 4)), specs)
    assert compiled.output_shardings.spec == spec
    assert kinds(compiled) == collectives
    assert blocks in seen


def test_it_is_part_of_a_larger_program():
    multiply = product()
    compiled = same(lambda x, w: jnp.sin(multiply(x * 2, w) + 1).sum(0),
                    values((8, 8), (8, 4)), (P("x"), P()))
    assert kinds(compiled) == ["all-reduce"]
    same(lambda x, w: lax.scan(lambda c, _: (multiply(c, w), None), x, None, length=3)[0],
         values((8, 8), (8, 8)), (P("x"), P()))


def test_what_the_rule_does_not_share_is_gathered():
    @custom_partitioning
    def sort_rows(x):
        return jnp.sort(x, axis=1), x.max(1)
    sort_rows.def_partition(sharding_rule="i j -> i j, i", need_replication_factors=("j",))
    (x,) = values((8, 16))
    compiled = same(sort_rows, [x], (P("x", "y"),))
    assert all("x" not in c.mesh_axes for c in compiled.collectives())
    assert compiled.output_shardings[0].spec[0] == "x"

    @custom_partitioning
    def unknown(x):
        return x[::-1] * 2
    unknown.def_partition()
    assert kinds(same(unknown, [x], (P("x"),))) == ["all-gather"]


def test_partition_chooses_the_function_on_blocks_and_may_exchange():
    asked = []

    @custom_partitioning
    def normed(x, scale):
        return x / jnp.sqrt((x * x).sum(1, keepdims=True)) * scale

    def partition(mesh, shapes, result):
        x, scale = shapes
        asked.append((x.sharding.spec, scale.sharding.spec, result.sharding.spec))
        axes = x.sharding.spec[1] if len(x.sharding.spec) > 1 else None

        def lower(x, scale):
            squares = (x * x).sum(1, keepdims=True)
            if axes:
                squares = lax.psum(squares, axes)
            return x / jnp.sqrt(squares) * scale
        return mesh, lower, result.sharding, (x.sharding, scale.sharding)

    normed.def_partition(partition, sharding_rule="i j, j -> i j")
    compiled = same(normed, values((8, 16), (16,)), (P("x", "y"), P()))
    assert (P("x", "y"), P("y"), P("x", "y")) in asked
    (record,) = compiled.collectives()
    assert (record.kind, tuple(record.mesh_axes)) == ("all-reduce", ("y",))


def test_a_rule_says_all_in_one_string_with_spaces_or_commas_between_kinds():
    for said in ("i:sum, j:sum", "i:sum j:sum"):
        @custom_partitioning
        def bilinear(x, w, y):
            return jnp.einsum("ni,fij,nj->nf", x, w, y)

        bilinear.def_partition(sharding_rule=f"n i, f i j, n j -> n f | {said}")
        compiled = same(bilinear, values((8, 4), (6, 4, 4), (8, 4)),
                        (P(None, "x"), P(None, "x"), P()))
        assert [record.kind for record in compiled.collectives()] == ["all-reduce"]


def test_partition_may_want_other_blocks_than_propagation_found():
    @custom_partitioning
    def doubled(x):
        return x * 2

    def partition(mesh, shapes, result):
        rows = NamedSharding(mesh, P(("x", "y")))
        return mesh, lambda x: x * 2, rows, (rows,)

    doubled.def_partition(partition, sharding_rule="i j -> i j")
    compiled = same(doubled, values((8, 8)), (P(None, "x"),))
    assert compiled.output_shardings.spec == P(None, "x")
    assert kinds(compiled)


def test_compound_dimensions_have_sizes_and_trees_and_static_arguments_work():
    @custom_partitioning
    def split(x):
        return x.reshape(-1, 2, x.shape[1])
    split.def_partition(sharding_rule="(i j) k -> i j k", i=4, j=2)
    assert same(split, values((8, 8)), (P("y"),)).output_shardings.spec == P("y")

    def powers(tree, n):
        return {"power": tree["x"] ** n, "same": tree["x"]}
    powers = custom_partitioning(powers, static_argnums=(1,))
    powers.def_partition(sharding_rule="... -> ..., ...")
    compiled = same(lambda x: powers({"x": x}, 3), values((8, 8)), (P("x", "y"),))
    assert kinds(compiled) == []
    compiled = same(lambda x: powers(n=2, tree={"x": x}), values((8, 8)), (P("x"),))
    assert compiled.output_shardings["power"].spec == P("x")


def test_a_rule_may_be_a_function_of_shapes():
    @custom_partitioning
    def add(*xs):
        return sum(xs)
    add.def_partition(sharding_rule=lambda mesh, shapes, results: ", ".join(
        ["i j"] * len(shapes)) + " -> i j")
    x, y, z = values((8, 8), (8, 8), (8, 8))
    assert same(add, [x, y, z], (P("x"), P(), P())).output_shardings.spec == P("x")


def test_outside_of_jit_and_with_explicit_axes():
    multiply = product()
    x, w = values((8, 8), (8, 4))
    want = np.tanh(x) @ w
    np.testing.assert_allclose(np.asarray(multiply(x, w)), want, rtol=1e-5)
    placed = st.device_put(x, NamedSharding(grid(AxisType.Explicit), P("x")))
    got = multiply(placed, w)
    assert got.sharding.spec == P("x", None)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5)


def test_mistakes_are_told():
    @custom_partitioning
    def f(x):
        return x + 1
    x = np.ones((8, 8), np.float32)
    with pytest.raises(ValueError, match="called before"):
        f(x)
    with pytest.raises(ValueError, match="has no factor 'k'"):
        f.def_partition(sharding_rule="i j -> i j", reduction_factors=("k",))
    with pytest.raises(ValueError, match="given twice"):
        f.def_partition(sharding_rule="i j -> i j", reduction_factors=("j",),
                        permutation_factors=("j",))
    with pytest.raises(ValueError, match="Unknown keyword arguments"):
        f.def_partition(reduction_factors=("j",))
    for word, why in (("summ", r"is unknown; did you mean `sum`\?; one of"),
                      ("x", "is unknown; one of"),
                      ("ordered", "is for ops that know it; one of")):
        f.def_partition(sharding_rule=f"i j -> i j | j:{word}")
        with pytest.raises(ValueError, match=why):
            f(x)
    f.def_partition(sharding_rule="i -> i")
    with pytest.raises(ValueError, match="1 dimensions|dimensions for shape"):
        f(x)
    f.def_partition(sharding_rule="i j -> i j")
    with pytest.raises(NotImplementedError, match="Batching rule for 'custom_partitioning'"):
        st.vmap(f)(x[None])

    def outer(y):
        @custom_partitioning
        def g(x):
            return x + y
        g.def_partition(sharding_rule="i j -> i j")
        return g(x)
    with pytest.raises(ValueError, match="reads a value of the program around it"):
        st.jit(outer)(x)
    f.def_partition(lambda mesh, shapes, result: None, sharding_rule="i j -> i j")
    with pytest.raises(TypeError, match="partition"):
        st.jit(f)(st.device_put(x, NamedSharding(grid(), P("x"))))


# -- the rule as one string ------------------------------------------------------------------------

def reduced(rule, op=jnp.max):
    @custom_partitioning
    def rows(x):
        return op(x * x, 1)
    rows.def_partition(sharding_rule=rule)
    return rows


@pytest.mark.parametrize("rule, op, kind", [
    ("i k -> i | k:max", jnp.max, "all-reduce"), ("i k -> i | k:min", jnp.min, "all-reduce"),
    ("i k -> i | k:sum", jnp.sum, "all-reduce"), ("i k -> i | k:prod", jnp.prod, "all-reduce"),
    ("([i, k])->([i]) {i=8, k=16} reduction={k}", jnp.sum, "all-reduce"),
    ("#sdy.op_sharding_rule<([i, k])->([i]) {i=8, k=16} need_replication={k}>", jnp.max,
     "all-gather"),
    ("i k -> i | k:replicate", jnp.max, "all-gather"), ("i k -> i", jnp.max, "all-gather")])
def test_the_rule_says_how_partial_results_are_combined(rule, op, kind):
    compiled = same(lambda x: reduced(rule, op)(x), values((8, 16)), (P("x", "y"),))
    assert compiled.output_shardings.spec == P("x")
    assert kinds(compiled) == [kind]


def test_dimensions_of_several_factors_in_the_notation_of_shardy():
    @custom_partitioning
    def heads(x):
        return x.reshape(x.shape[0], 4, -1) if x.shape[1] == 32 else x.reshape(x.shape[0], 1, -1)
    heads.def_partition(sharding_rule="([i, jk])->([i, j, k]) {i=8, j=4, k=8}")
    mesh = grid()
    x = st.device_put(np.arange(256, dtype=np.float32).reshape(8, 32),
                      NamedSharding(mesh, P("x", "y")))
    compiled = st.jit(heads).lower(x).compile()
    assert compiled.output_shardings.spec == P("x", "y") and not kinds(compiled)
    np.testing.assert_array_equal(compiled(x), np.arange(256).reshape(8, 4, 8))


def test_a_blocked_factor_is_not_split_by_propagation():
    @custom_partitioning
    def scaled(x):
        return x * 2
    scaled.def_partition(sharding_rule="i j -> i j | i!:pass")
    compiled = same(lambda x: scaled(x), values((8, 8)), (P("x", "y"),))
    assert compiled.output_shardings.spec == P(None, "y")


@pytest.mark.parametrize("rule, message", [
    ("([i, k])->([i]) {i=8} reductions={k}", "there is no 'reductions'"),
    ("([i, k) -> ([i])", "cannot read"), ("([i; k])->([i])", "cannot read dimension"),
    ("([i, k])->([i]) surprise", "cannot read 'surprise'")])
def test_a_rule_that_cannot_be_read_is_refused_where_it_is_said(rule, message):
    with pytest.raises(ValueError, match=message):
        reduced(rule)


@pytest.mark.parametrize("rule, message", [
    ("i k -> i | q:sum", "has no factor 'q'"), ("i k -> i | k:scan", "kind 'scan' of factor 'k'"),
    ("i k -> i | k:more", "kind 'more'"), ("i k -> i | k:sum k:max", "says 'k' twice"),
    ("i -> i", "operand 0 has 1 dimensions for shapes of rank 2"),
    ("([i, k])->([i]) {i=4, k=16}", "")])
def test_a_rule_that_does_not_fit_is_refused_at_the_call(rule, message):
    if not message:
        assert reduced(rule)(np.ones((8, 16), np.float32)).shape == (8,)   # sizes are read off
        return
    with pytest.raises(ValueError, match=message):
        reduced(rule)(np.ones((8, 16), np.float32))


def test_a_rule_of_objects_is_the_text_that_says_the_same():
    rule = SdyShardingRule(
        (ArrayMapping(BATCHING, CompoundFactor("a", "b"), "k"), ArrayMapping("k")),
        (ArrayMapping(BATCHING, "a", "b"),), reduction_factors=("k",))
    assert rule.text() == "... (a b) k, k -> ... a b | k:sum"
    assert str(SdyShardingRule((ArrayMapping("i"), ArrayMapping("j")),
                               (ArrayMapping(CompoundFactor("j", "k")),), k=10)) == (
        "SdyShardingRule((('i',), ('j',)), ((('j', 'k'),),), {'k': 10})")
    for given in (SdyShardingRule((("i", "k"),), (("i",),), reduction_factors=("k",)),
                  lambda mesh, operands, results: SdyShardingRule(
                      (("i", "k"),), (("i",),), reduction_factors=("k",))):
        @custom_partitioning
        def total(x):
            return x.sum(1)
        total.def_partition(sharding_rule=given)
        compiled = same(total, values((8, 16)), (P("x", "y"),))
        assert kinds(compiled) == ["all-reduce"]


@pytest.mark.parametrize("make, message", [
    (lambda: CompoundFactor("a"), "at least two"), (lambda: ArrayMapping(1), "must be a str"),
    (lambda: CompoundFactor(BATCHING, "a"), "Ellipsis"),
    (lambda: SdyShardingRule((("i",),), (("i",),), j=2), "Factor j is not used"),
    (lambda: SdyShardingRule((("i",),), (("i",),), i=2), "whole dimension"),
    (lambda: SdyShardingRule(((CompoundFactor("a", "b"),),), (("a", "b"),)), None),
    (lambda: SdyShardingRule(((CompoundFactor("a", "b"),),), ((CompoundFactor("a", "b"),),)),
     "only used in compound"),
    (lambda: SdyShardingRule((("i",),), (("i",),), reduction_factors=("k",)), "not used")])
def test_objects_of_rules_are_checked(make, message):
    if message is None:
        make()
        return
    with pytest.raises(ValueError, match=message):
        make()


def test_callbacks_without_a_rule_are_refused_unless_shardy_is_off():
    @custom_partitioning
    def same_again(x):
        return x

    same_again.def_partition(
        infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding,
        partition=lambda mesh, args, result: (mesh, lambda x: x, args[0].sharding,
                                              (args[0].sharding,)))
    for call in (same_again, st.jit(same_again)):
        with pytest.raises(NotImplementedError, match="Need to provide sharding_rule"):
            call(np.ones(8))
    with config.override(jax_use_shardy_partitioner=False):
        assert st.jit(same_again)(np.ones(8)).shape == (8,)
