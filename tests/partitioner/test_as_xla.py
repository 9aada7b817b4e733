"""objective="xla": what moves where, and that values are right on devices that compute alone."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.partitioner.preparation.dead_code import drop_unread
from shardtrace.partitioner.redistribution.steps_of_xla import steps
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ..benchmarks import program_values
from ..executors import EXECUTORS, assert_alike
from ..paths import module_of_benchmarks
from ..rows import rows

collectives = module_of_benchmarks("collectives")
LINE, GRID = {"x": 8}, {"x": 2, "y": 4}
XLA = {"objective": "xla"}


def mesh_of(axes: dict[str, int]) -> Any:
    return st.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def plan(f: Callable[..., Any], axes: dict[str, int], *args: tuple[tuple[int, ...], Any],
         out: Any = None, times: bool = False) -> list[str]:
    """The exchanges of a function of such shapes and specs, in order. times: as often as they run.
    """
    mesh = mesh_of(axes)
    shapes = [st.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, spec))
              for shape, spec in args]
    made = {} if out is None else {"out_shardings": NamedSharding(mesh, out)}
    compiled = st.jit(f, compiler_options=XLA, **made).lower(*shapes).compile()
    return [f"{r.kind} {','.join(r.mesh_axes)}" for r in compiled.collectives()
            for _ in range(r.count if times else 1)]


def test_a_row_parallel_product_ends_with_one_all_reduce() -> None:
    for count in (8, 512, 65536):
        assert plan(jnp.matmul, GRID, ((count, 64), P("x", "y")), ((64, 32), P("y")),
                    out=P("x")) == ["all-reduce y"]


def test_an_argument_that_is_padded_inside_lies_as_without() -> None:
    """The weights are whole: scores are gathered, where no class is padded and where some are."""
    def f(h: Any, w: Any) -> Any:
        by_class = NamedSharding(mesh_of({"x": 6}), P(None, "x"))
        scores = lax.with_sharding_constraint(h @ w, by_class)
        return jnp.einsum("bc,dc->bd", jnp.tanh(scores), w)
    for classes in (36, 40):
        assert plan(f, {"x": 6}, ((24, 64), P()), ((64, classes), P()), out=P()) == ["all-gather x"]


@pytest.mark.parametrize("out, count", [(P("x"), 1), (P(), 2)])
def test_a_scan_along_a_split_dimension_gathers_it(out: Any, count: int) -> None:
    """Each device scans all rows and has its block of the result, which may be gathered in turn."""
    mesh = mesh_of(LINE)
    compiled = st.jit(lambda a: jnp.cumsum(a, 0), compiler_options=XLA,
                      out_shardings=NamedSharding(mesh, out)).lower(st.ShapeDtypeStruct(
                          (64, 128), "float32", sharding=NamedSharding(mesh, P("x")))).compile()
    assert [(r.kind, r.received_bytes) for r in compiled.collectives()] == [
        ("all-gather", 7 * 8 * 128 * 4)] * count


def test_padding_is_masked_even_where_it_is_known_to_be_zero() -> None:
    """Both operands of a product over shifted rows, one of which ends with a row of zeros."""
    mesh = mesh_of(LINE)
    rows = st.ShapeDtypeStruct((1024, 64), "float32", sharding=NamedSharding(mesh, P("x")))
    for objective, count in (("xla", 2), ("time", 1)):
        lowered = st.jit(lambda a: a[1:].T @ a[:-1], compiler_options={"objective": objective}
                         ).lower(rows)
        made = [eqn.op.name for eqn in lowered.stages["inlined"].eqns]
        assert made.count("place") == count


def test_a_sum_that_is_cut_at_once_is_a_reduce_scatter() -> None:
    assert plan(jnp.matmul, LINE, ((64, 64), P(None, "x")), ((64, 32), P("x")),
                out=P("x")) == ["reduce-scatter x"]


def test_sums_are_finished_where_they_arise() -> None:
    def f(a: Any, b: Any) -> Any:
        return (a @ b).sum(0)
    assert plan(f, LINE, ((64, 64), P(None, "x")), ((64, 32), P("x")), out=P()) == ["all-reduce x"]
    loop = st.jit(lambda w, xs: lax.scan(lambda t, x: (t + x.T @ x @ w, None), w, xs)[0],
                  compiler_options=XLA)
    mesh = mesh_of(LINE)
    lowered = loop.lower(*[st.ShapeDtypeStruct(s, "float32", sharding=NamedSharding(mesh, p))
                           for s, p in (((16, 16), P()), ((4, 64, 16), P(None, "x")))])
    (found,) = lowered.compile().collectives()
    assert (found.kind, found.count) == ("all-reduce", 4)


def test_sums_over_several_dimensions_are_one_all_reduce_each() -> None:
    assert plan(jnp.sum, GRID, ((64, 64), P("x", "y")), out=P()) == ["all-reduce y", "all-reduce x"]


def test_factors_of_a_derivative_are_those_of_jax_in_its_order() -> None:
    """Weights split as the data is, and gradients too (as in JAX 0.10.2)."""
    def exchanges(layer: Callable[..., Any], *widths: int) -> dict[str, int]:
        def gradients(x: Any, *p: Any) -> Any:
            return st.grad(lambda p: (layer(x, *p) ** 2).mean())(p)
        shapes = [(64, 64), *[(64, n) for n in widths], (widths[0], 64)]
        return dict(Counter(plan(gradients, LINE, *[(shape, P("x")) for shape in shapes],
                                 out=P("x"))))
    assert exchanges(lambda x, a, c: jnp.tanh(x @ a) @ c, 256) == {
        "all-gather x": 4, "all-to-all x": 3, "reduce-scatter x": 1}
    assert exchanges(lambda x, a, b, c: (jnp.tanh(x @ a) * (x @ b)) @ c, 256, 256) == {
        "all-gather x": 5, "all-to-all x": 5, "reduce-scatter x": 2}
    assert exchanges(lambda x, a, b, c: ((x @ a) / (1 + (x @ b) ** 2)) @ c, 256, 256) == {
        "all-gather x": 6, "all-to-all x": 5, "reduce-scatter x": 1}


@pytest.mark.parametrize("remat", [False, True])
def test_factors_that_a_loop_keeps_or_computes_again_come_in_order_too(remat: bool) -> None:
    """Three gated layers whose weights are split as the data is (JAX 0.10.2)."""
    def layer(h: Any, p: Any) -> Any:
        a, b, c = p
        return h + (st.nn.silu(h @ a) * (h @ b)) @ c, None

    def gradients(x: Any, *p: Any) -> Any:
        body = st.checkpoint(layer) if remat else layer
        return st.grad(lambda p: (lax.scan(body, x, p)[0] ** 2).mean())(p)
    found = plan(gradients, LINE, ((64, 128), P("x")), *[((3, 128, 256), P(None, "x"))] * 2,
                 ((3, 256, 128), P(None, "x")), out=P(None, "x"), times=True)
    assert Counter(found) == {"all-gather x": 21, "all-to-all x": 21, "reduce-scatter x": 6}


@pytest.mark.parametrize("width, groups, spec, found", [
    (1, 1, P("x", "y"), ["all-reduce y", "all-reduce x"]),
    (3, 1, P("x", "y"), ["collective-permute y"] * 2 + ["all-reduce x", "all-reduce y"]),
    (1, 16, P("x", "y"), ["all-reduce x,y"]),
    (3, 16, P("x", "y"), ["collective-permute y"] * 2 + ["all-reduce x,y"]),
    (3, 1, P(None, "x", "y"), ["collective-permute x"] * 2 + ["collective-permute y"] * 2
     + ["all-reduce x,y"])])
def test_dimensions_in_which_neighbours_meet_are_summed_last_and_at_once(
        width: int, groups: int, spec: Any, found: list[str]) -> None:
    """The gradient of a kernel, of images that are split (as in JAX 0.10.2)."""
    def f(kernel: Any, images: Any, cotangents: Any) -> Any:
        _, back = st.vjp(lambda k: lax.conv_general_dilated(
            images, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups), kernel)
        return back(cotangents)[0]
    images = ((4, 32, 32, 16), spec)
    kernel = ((width, width, 16 // groups, 16), P())
    assert plan(f, GRID, kernel, images, images, out=P()) == found


@pytest.mark.parametrize("rows, looked_up, added", [
    (512, ["all-gather x", "reduce-scatter x"], ["all-gather x"] * 2),
    (1024, ["all-gather x"], ["reduce-scatter x"]),
    (4096, ["all-gather x"], ["reduce-scatter x"])])
def test_rows_are_brought_to_indices_if_there_are_no_more_of_them_than_indices(
        rows: int, looked_up: list[str], added: list[str]) -> None:
    """A table of 1,024 rows, split as its indices are (JAX 0.10.2 does so for 64 to 16,384)."""
    def indices(like: Any) -> Any:
        return (like[:, 0] * 7).astype("int32")
    assert plan(lambda t, like: t[indices(like)], LINE, ((1024, 64), P("x")), ((rows, 64), P("x")),
                out=P("x")) == looked_up
    assert plan(lambda new: jnp.zeros((1024, 64)).at[indices(new)].add(new), LINE,
                ((rows, 64), P("x")), out=P("x")) == added


def test_an_axis_goes_where_two_arrays_of_a_product_have_it_else_where_the_result_has_it() -> None:
    assert plan(jnp.matmul, LINE, ((64, 64), P("x")), ((64, 64), P("x")),
                out=P("x")) == ["all-gather x"]
    assert sorted(plan(jnp.matmul, LINE, ((64, 64), P("x")), ((64, 32), P("x")),
                       out=P(None, "x"))) == ["all-gather x", "all-to-all x"]


def test_what_is_sorted_or_joined_moves_its_axis_to_another_dimension() -> None:
    assert plan(lambda a: jnp.sort(a, 0), LINE, ((64, 64), P("x")),
                out=P("x")) == ["all-to-all x"] * 2
    assert plan(lambda a, b: jnp.concatenate([a, b]), LINE, ((64, 64), P("x")),
                ((64, 64), P("x")), out=P("x")) == ["all-to-all x"] * 3
    assert plan(jnp.sort, LINE, ((64,), P("x")), out=P("x")) == ["all-gather x"]


@pytest.mark.parametrize("f, args, found", [
    (lambda a, b: lax.conv_general_dilated(a, b, (1,), "SAME", feature_group_count=4),
     [((8, 8, 64), P("x")), ((8, 2, 3), P("x"))], ["all-gather x"] * 2),
    (lambda a: lax.top_k(a, 4), [((64, 1024), P("x"))], ["all-gather x"]),
    (jnp.fft.rfft, [((8, 16, 64), P("x", "y"))], ["all-gather y", "all-gather x"]),
    (jnp.fft.fft2, [((64, 64), P("x"))], ["all-gather x"]),
])
def test_what_xla_never_splits_is_computed_whole(f: Any, args: Any, found: list[str]) -> None:
    """Also along dimensions that they leave alone (JAX 0.10.2)."""
    assert sorted(plan(f, GRID, *args)) == sorted(found)


@pytest.mark.parametrize("reduced", [jnp.max, jnp.prod, lambda a: (a > 0).all()])
def test_other_reductions_too_end_with_an_all_reduce_for_each_dimension(reduced: Any) -> None:
    assert plan(reduced, GRID, ((64, 64), P("x", "y"))) == ["all-reduce y", "all-reduce x"]


@pytest.mark.parametrize("rows, inner, columns, found", [
    (64, 64, 64, "all-gather x"), (48, 64, 64, "all-reduce x"), (64, 64, 48, "all-gather x"),
    (8, 64, 1024, "all-reduce x"), (64, 128, 64, "all-reduce x")])
def test_an_operand_that_alone_is_split_is_gathered_if_it_is_no_larger_than_the_result(
        rows: int, inner: int, columns: int, found: str) -> None:
    assert plan(jnp.matmul, LINE, ((rows, inner), P()), ((inner, columns), P("x"))) == [found]


@pytest.mark.parametrize("f, args, found", [
    (jnp.matmul, [((64, 64), P("x"))] * 2,
     ["collective-permute x,y:(1)2,y:(2)2", "all-reduce y"]),
    (jnp.matmul, [((64, 64), P("x", "y")), ((64, 64), P("x"))],
     ["collective-permute x,y:(1)2,y:(2)2", "all-reduce y"]),
    (jnp.add, [((64, 64), P("x", "y")), ((64,), P(("x", "y")))],
     ["collective-permute x,y", "all-gather x"]),
])
def test_tiles_change_places_before_anything_is_gathered(f: Any, args: Any, found: list[str]
                                                         ) -> None:
    """The rows of a second factor go to an axis that is idle."""
    assert plan(f, GRID, *args) == found


@pytest.mark.parametrize("f, specs, out, found", [
    (jnp.multiply, [P("x")] * 2, P("y"), ["collective-permute x,y:(1)2,y:(2)2"]),
    (lambda a, b: jnp.where(a > 0, jnp.tanh(b), a), [P("x", "y")] * 2, P(None, "x"),
     ["collective-permute x,y:(1)2", "all-gather y:(2)2", "all-gather y:(1)2"]),
    (jnp.add, [P(("y", "x")), P()], P(), ["all-gather y,x"]),
    (jnp.add, [P(), P()], P(("y", "x")), [])])
def test_results_move_that_are_laid_out_unlike_most_operands(
        f: Any, specs: list[P], out: P, found: list[str]) -> None:
    assert plan(f, GRID, *[((64, 64), spec) for spec in specs], out=out) == found


def test_an_axis_and_a_part_of_it_are_not_used_together() -> None:
    """The product takes a part of y for what it sums over; its result and `x` have y."""
    def f(x: Any, w: Any) -> Any:
        return w + (x - x.mean(-1, keepdims=True) + w @ w)
    mesh = mesh_of(GRID)
    x, w = np.random.default_rng(0).normal(size=(2, 64, 64)).astype("f4")
    rows, tiles = NamedSharding(mesh, P("x")), NamedSharding(mesh, P("y", "x"))
    with st.config.override(shardtrace_engine="per_device"):
        found = st.jit(f, out_shardings=tiles, compiler_options=XLA)(
            st.device_put(x, rows), st.device_put(w, rows))
    assert_alike(found, f(x, w), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_axis_of_shard_map_is_not_idle(executor: str) -> None:
    mesh, rng = mesh_of(GRID), np.random.default_rng(0)
    a, b = rng.normal(size=(256, 64)).astype("f4"), rng.normal(size=(64, 256)).astype("f4")

    def product(a: Any, b: Any) -> Any:
        a, b = (lax.with_sharding_constraint(v, P("x")) for v in (a, b))
        return lax.with_sharding_constraint(a @ b, P("x"))
    f = st.jit(st.shard_map(product, mesh=mesh, in_specs=(P("y"), P(None, "y")), out_specs=P("y"),
                            axis_names={"y"}), compiler_options=XLA)
    with st.set_mesh(mesh), st.config.override(shardtrace_engine=executor):
        found = f(a, b)
        (record,) = f.lower(a, b).compile().collectives()
    wanted = [a[64 * i:64 * (i + 1)] @ b[:, 64 * i:64 * (i + 1)] for i in range(4)]
    assert_alike(found, np.concatenate(wanted), rtol=1e-4, atol=1e-4)
    assert (record.kind, record.mesh_axes) == ("all-gather", ("x",))


@pytest.mark.parametrize("objective", ["time", "xla"])
def test_single_rows_are_joined_to_split_ones(objective: str) -> None:
    x = np.arange(4, dtype=np.float32)
    split = st.device_put(x, NamedSharding(mesh_of({"x": 2, "y": 2}), P("x")))
    with st.config.override(shardtrace_objective=objective, shardtrace_engine="per_device"):
        found = st.jit(lambda v: jnp.r_[v, 1, 2])(split)
    np.testing.assert_array_equal(found, [0, 1, 2, 3, 1, 2])


def test_ones_are_joined_to_split_columns() -> None:
    def with_ones(a: Any) -> Any:
        both = jnp.concatenate([jnp.ones((8, 1)), a, a[:, :5]], 1)
        return both.T @ both
    a = np.arange(128, dtype=np.float32).reshape(8, 16) / 64
    mesh = mesh_of(GRID)
    with st.config.override(shardtrace_objective="xla", shardtrace_engine="per_device"):
        with st.set_mesh(mesh):
            found = st.jit(with_ones)(st.device_put(a, NamedSharding(mesh, P("x", "y"))))
    assert_alike(found, with_ones(a), rtol=1e-4, atol=1e-4)


def test_slices_that_are_equal_move_once_and_all_else_as_often_as_it_is_written() -> None:
    """Each of these rows comes by one permutation for each of two distances (JAX 0.10.2)."""
    def f(a: Any, b: Any) -> Any:
        return (jnp.where(b[:, None] == b[None], a, 0.).max(1)
                - jnp.where(b[:, None] == b[None], 1., a).min(1))
    assert plan(f, LINE, ((128, 128), P("x")), ((128,), P("x")), out=P("x")) == ["all-gather x"] * 2
    assert plan(lambda a: (a[4:68] * 2, jnp.sin(a[4:68])), LINE, ((72, 16), P("x"))) == [
        "collective-permute x"] * 2


def test_weights_are_gathered_one_by_one_and_sums_joined() -> None:
    def f(a: Any, b: Any, x: Any) -> Any:
        return st.grad(lambda p: (jnp.tanh(x @ p[0]) @ p[1]).sum())((a, b))
    found = plan(f, LINE, ((64, 32), P()), ((32, 16), P()), ((64, 64), P("x")), out=P())
    assert found == ["all-reduce x"]


@pytest.mark.parametrize("turned, found", [
    (False, ["reduce-scatter y", "all-reduce x", "all-reduce x", "all-reduce y"]),
    (True, ["reduce-scatter y", "all-reduce x", "all-reduce y"])])
def test_sums_are_joined_in_the_order_in_which_results_need_them(turned: bool, found: list[str]
                                                                 ) -> None:
    """One gradient is cut along y, which XLA sums over first, with what is a reduce-scatter: the
    first to be needed makes the other wait for it, or not (JAX 0.10.2).
    """
    def f(a: Any, b: Any, x: Any) -> Any:
        grads = st.grad(lambda p: (jnp.tanh(x @ p[0]) @ p[1]).mean())((a, b))
        return grads[::-1] if turned else grads
    mesh = mesh_of(GRID)
    specs = [P("y"), P()]
    args = [st.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, spec))
            for shape, spec in (((64, 128), P()), ((128, 64), P()), ((16, 128, 64), P("y", "x")))]
    compiled = st.jit(f, compiler_options=XLA, out_shardings=tuple(
        [NamedSharding(mesh, spec) for spec in (specs[::-1] if turned else specs)])
        ).lower(*args).compile()
    assert [f"{r.kind} {','.join(r.mesh_axes)}" for r in compiled.collectives()] == found


@pytest.mark.parametrize("f, found", [
    (lambda a, b: jnp.sqrt(sum((d ** 2).sum() for d in (a, b))), {"x": 2, "y": 1}),
    (lambda a, b: jnp.sqrt(sum((d ** 2).sum() for d in (b, a))), {"x": 1, "y": 2}),
    (lambda a, b: jnp.sqrt((a ** 2).sum() + 1.) * (1. - (b ** 2).sum()), {"x": 1, "y": 2}),
    (lambda a, b: (b ** 2).sum() * jnp.sqrt((a ** 2).sum() + 1.), {"x": 1, "y": 2}),
    (lambda a, b: jnp.exp((b ** 2).sum()) * (a ** 2).sum(), {"x": 2, "y": 1})])
def test_sums_that_are_read_as_they_are_come_before_those_of_what_is_fused(
        f: Callable[..., Any], found: dict[str, int]) -> None:
    """The first one meets the last of the other array (JAX 0.10.2)."""
    exchanges = Counter(plan(f, GRID, ((64, 64), P("x", "y")), ((64, 64), P("y", "x")), out=P()))
    assert exchanges == {f"all-reduce {axes}": n for axes, n in found.items()}


@pytest.mark.parametrize("f, args, out, found", [
    (jnp.matmul, [((64, 16, 256), P(None, ("y", "x"), "z")), ((256, 256), P("x", ("z", "y")))],
     P(None, ("y", "x"), "z"),
     ["collective-permute x,y,z", "all-gather y,x", "reduce-scatter z"]),
    (lambda a, b: jnp.einsum("abc,abd->cd", a, b),
     [((64, 128, 128), P(("z", "y"))), ((64, 128, 256), P(("z", "y"), None, "x"))],
     P(("z", "x"), "y"), ["reduce-scatter z,y", "collective-permute x,y"])])
def test_tiles_of_a_product_are_on_the_devices_of_its_groups_when_these_gather_or_sum(
        f: Any, args: Any, out: P, found: list[str]) -> None:
    """In the order of the groups' axes (JAX 0.10.2)."""
    assert plan(f, {"x": 2, "y": 2, "z": 2}, *args, out=out) == found


@pytest.mark.parametrize("source, target, way", [
    ((("x",), ()), ((), ("x", "y")), [(("x",), ("y",)), ((), ("y", "x")), ((), ("x", "y"))]),
    ((("x",), ("y",)), (("y",), ("x",)),
     [(("x", "y:(2)2"), ("y:(1)2",)), (("y",), ("x",))]),
    ((("x",), ("y",)), ((), ()), [(("x",), ()), ((), ())]),
    ((("x", "y"), ()), ((), ("x",)), [((), ()), ((), ("x",))]),
    ((("x",), (), ("y",)), ((), ("y", "x"), ()), [(("x",), (), ()), ((), (), ()),
                                                  ((), ("y", "x"), ())]),
    (((), ("x", "y")), (("y",), ("x",)), [(("y",), ("x",))]),
    (((), ()), (("x",), ("y",)), [(("x",), ("y",))]),
])
def test_layouts_on_the_way(source: Any, target: Any, way: Any) -> None:
    mesh = mesh_of(GRID).abstract_mesh
    assert list(steps(mesh, source, target)) == way


def test_layouts_on_the_way_that_would_need_padding_are_passed_by() -> None:
    found = plan(lambda a, b: jnp.minimum(b, a / b), GRID, ((4, 4), P(None, "x")),
                 ((4, 4), P("x", "y")), out=P("x", "y"))
    assert found == ["collective-permute x,y:(1)2"]


def test_what_a_loop_carries_for_nothing_is_dropped() -> None:
    def f(w: Any, xs: Any) -> Any:
        def body(carry: Any, x: Any) -> Any:
            a, b = carry
            return (a + x, b * w), (a, x.sum())
        (a, _), (_, sums) = lax.scan(body, (w, w), xs)
        return a, sums
    traced = st.jit(f).trace(np.ones((4,), "f4"), np.ones((3, 4), "f4")).jaxpr.jaxpr
    (scan,) = [e for e in drop_unread(traced).eqns if e.op.name == "scan"]
    assert (scan.params["num_consts"], scan.params["num_carry"]) == (0, 1)
    assert len(scan.outvars) == 2


def test_reasons_say_whose_rule_it_is() -> None:
    mesh = mesh_of(LINE)
    shapes = [st.ShapeDtypeStruct((64, 64), "float32", sharding=NamedSharding(mesh, P("x")))] * 2
    compiled = st.jit(jnp.matmul, out_shardings=NamedSharding(mesh, P("x")),
                      compiler_options=XLA).lower(*shapes).compile()
    (found,) = compiled.collectives()
    assert found.reason.endswith(", as in XLA")
    assert 'objective xla on "v5p"' in compiled.as_text()


# Every eighth program, and those in which more than one equation is run otherwise.
SMALL = [c for c in collectives.CASES if program_values.is_run(c)]
SOME = SMALL[::8] + [c for c in SMALL if c.name in (
    "five-point stencil of a padded grid", "block gradient, sequence parallel",
    "split a fused projection in 3", "mixture of experts, data x experts x tensor",
    "pipeline by roll", "edges repeated", "block gradient, grouped queries")]


@rows("case", SOME)
def test_values_are_right_on_devices_that_compute_alone(case: Any) -> None:
    xs = program_values.arguments(case)
    with st.config.override(shardtrace_objective="xla", shardtrace_engine="per_device"):
        compiled = collectives.compile_case(case, "shardtrace")
        _, mesh, _, f, args = collectives._built(case, "shardtrace")
        found = compiled(*[st.device_put(x, a.sharding) for x, a in zip(xs, args, strict=True)])
        found = st.tree.map(np.asarray, found)
    with st.set_mesh(mesh):
        wanted = st.jit(f)(*map(np.asarray, xs))
    assert_alike(found, wanted, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("f", [
    lambda a: lax.reduce_window(a, 0.0, lax.add, (1, 3), (1, 1), "SAME"),
    lambda a: jnp.pad(a, ((0, 0), (8, 24))), lambda a: jnp.pad(a[:, :1], ((0, 0), (0, 31))),
    lambda a: a[:, ::-1], lambda a: jnp.cumsum(a, 1)])
def test_results_are_cut_out_of_what_whole_operands_give(f: Any) -> None:
    """As in JAX 0.10.2."""
    assert plan(f, GRID, ((4, 32), P("x")), out=P("x", "y")) == []


@pytest.mark.parametrize("start, stop, found", [
    (8, 24, 2), (0, 16, 2), (4, 20, 1), (16, 32, 2)])
def test_rows_before_and_behind_come_by_a_permutation_each(start: int, stop: int, found: int
                                                           ) -> None:
    """Four devices have 8 rows each, and get 4 (as in JAX 0.10.2)."""
    def f(a: Any) -> Any:
        return a[start:stop]
    x = np.random.default_rng(0).normal(size=(32, 4)).astype("f4")
    mesh = mesh_of({"y": 4})
    for executor in ("simulated", "per_device"):
        with st.config.override(shardtrace_engine=executor):
            step = st.jit(f, compiler_options=XLA, out_shardings=NamedSharding(mesh, P("y")))
            assert_alike(step(st.device_put(x, NamedSharding(mesh, P("y")))), f(x))
    assert plan(f, {"y": 4}, ((32, 4), P("y")), out=P("y")) == ["collective-permute y"] * found


@pytest.mark.parametrize("f, found", [
    (lambda a: jnp.tanh(jnp.pad(a, ((1, 0), (0, 0)))[:-1]), 1),
    (lambda a: jnp.tanh(jnp.pad(a, ((8, 0), (0, 0)))[:-8]), 1),
    (lambda a: jnp.tanh(jnp.pad(a, ((2, 0), (1, 0)))[:-2, 1:]), 1),
    (lambda a: jnp.tanh(jnp.pad(a, ((1, 0), (0, 0))))[:-1], 4),      # the larger one is read
])
def test_a_slice_of_padding_is_one_shift(f: Any, found: int) -> None:
    """As in JAX 0.10.2."""
    assert plan(f, LINE, ((32, 4), P("x")), out=P("x")) == ["collective-permute x"] * found


@pytest.mark.parametrize("f, received", [
    (lambda a: a[:64], (16 + 8) * 64 * 4), (lambda a: a[3:67], (16 + 5 + 3) * 64 * 4),
    (lambda a: a[64:], None), (lambda a: jnp.pad(a[:64], ((9, 55), (0, 0))), None),
    (lambda a: jnp.pad(a, ((27, 101), (0, 0))), None)])
def test_pieces_of_several_devices_share_permutations(f: Any, received: int | None) -> None:
    """As in JAX 0.10.2, where a device sends at most once in each."""
    x = np.random.default_rng(0).normal(size=(128, 64)).astype("f4")
    by_rows = NamedSharding(mesh_of(LINE), P("x"))
    for executor in ("simulated", "per_device"):
        with st.config.override(shardtrace_engine=executor):
            step = st.jit(f, compiler_options=XLA, out_shardings=by_rows)
            placed = st.device_put(x, by_rows)
            assert_alike(step(placed), f(x))
    if received is not None:
        compiled = step.lower(placed).compile()
        assert sum(r.received_bytes * r.count for r in compiled.collectives()) == received


def test_a_column_is_padded_without_an_exchange() -> None:
    grad = st.grad(lambda a: (a[:, 0] ** 2).sum())
    assert plan(grad, GRID, ((4, 32), P("x", "y")), out=P("x", "y")) == ["all-reduce y"]


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_each_part_of_a_split_dimension_is_dealt_by_permutations(parts: int) -> None:
    """Of four gates, each lies on one device of y, which sends its rows to the three others."""
    def f(x: Any) -> Any:
        return sum(jnp.sin(k * part) for k, part in enumerate(jnp.split(x, parts, 1)))
    x = np.random.default_rng(0).normal(size=(4, 64)).astype("f4")
    arrived = st.device_put(x, NamedSharding(mesh_of(GRID), P("x", "y")))
    for executor in ("simulated", "per_device"):
        with st.config.override(shardtrace_engine=executor):
            assert_alike(st.jit(f, compiler_options=XLA)(arrived), f(x), rtol=1e-5, atol=1e-6)
    if parts == 4:
        assert plan(f, GRID, ((4, 64), P("x", "y")),
                    out=P("x", "y")) == ["collective-permute y"] * 12


def test_sums_are_joined_whatever_else_their_terms_vary_over() -> None:
    def f(x: Any, w: Any) -> Any:
        def body(total: Any, x: Any) -> Any:
            loss, g = st.value_and_grad(lambda w: jnp.tanh(x @ w).mean())(w)
            return total + g, loss
        return lax.scan(body, jnp.zeros_like(w), x)
    rng = np.random.default_rng(0)
    mesh = mesh_of(GRID)
    x, w = (rng.normal(size=s).astype("f4") for s in ((4, 8, 16), (16, 8)))
    args = [st.device_put(a, NamedSharding(mesh, p)) for a, p in ((x, P(None, "x")),
                                                                 (w, P(None, "y")))]
    for executor in ("simulated", "per_device"):
        with st.config.override(shardtrace_engine=executor):
            step = st.jit(f, compiler_options=XLA)
            assert_alike(step(*args), st.jit(f)(x, w), rtol=1e-5, atol=1e-6)
    found = [f"{r.kind} {','.join(r.mesh_axes)}"
             for r in step.lower(*args).compile().collectives()]
    assert sorted(found) == ["all-reduce x", "all-reduce y"]


def test_a_lookup_in_weakly_typed_numbers_stays_weak() -> None:
    x, rows = np.arange(24, dtype=np.uint8).reshape(8, 3), np.array([6, 0, 9, 1])
    mesh = mesh_of(LINE)
    f = st.jit(lambda x, rows: jnp.take(x * 0.5, rows, 0), compiler_options=XLA)
    got = f(st.device_put(x, NamedSharding(mesh, P("x"))), rows)
    assert got.weak_type
    np.testing.assert_array_equal(got, np.asarray([*(x[[6, 0]] * 0.5), [np.nan] * 3, x[1] * 0.5]))


def test_there_is_one_plan_whatever_the_limit_of_memory() -> None:
    mesh = mesh_of(LINE)
    x = st.ShapeDtypeStruct((512, 512), "float32", sharding=NamedSharding(mesh, P("x")))
    with pytest.raises(st.errors.MemoryLimitError, match="no plan was found"):
        st.jit(jnp.matmul, compiler_options={**XLA, "memory_limit": 1e5}).lower(x, x)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("objective", ["xla", "memory"])
@pytest.mark.parametrize("ordered", [None, False, True])
def test_callbacks_are_given_whole_operands(ordered: bool | None, objective: str, executor: str
                                            ) -> None:
    """ordered: of an io_callback; None: a pure one."""
    def total(x: np.ndarray) -> np.ndarray:
        return np.sum(x, dtype=np.float32)

    def f(x: st.Array) -> st.Array:
        result = st.ShapeDtypeStruct((), np.float32)
        if ordered is None:
            return st.pure_callback(total, result, x) + x
        return st.experimental.io_callback(total, result, x, ordered=ordered) + x

    x = np.arange(64, dtype=np.float32).reshape(16, 4)
    split = st.device_put(x, NamedSharding(mesh_of(GRID), P("x", "y")))
    with st.config.override(shardtrace_objective=objective, shardtrace_engine=executor):
        np.testing.assert_array_equal(st.jit(f)(split), x.sum() + x)


@pytest.mark.parametrize("tokens, gathers", [(32, []), (31, ["all-gather y", "all-gather x"])])
def test_padded_indices_of_what_is_written_are_gathered(tokens: int, gathers: list[str]) -> None:
    """The gradient of a lookup along the vocabulary writes at the labels of 8x31 of 8x32 tokens."""
    def f(x: Any, labels: Any) -> Any:
        y = labels[:, :tokens].astype(int)
        return st.grad(lambda x: jnp.take_along_axis(x[:, :tokens], y[..., None], 2).sum())(x)
    spec = P("x", "y")
    assert plan(f, GRID, ((8, 32, 16), spec), ((8, 32), spec), out=spec) == gathers


@pytest.mark.parametrize("low", [0, 3])
def test_what_is_padded_moves_to_the_blocks_of_the_result(low: int) -> None:
    """99 rows come in blocks of 13, as their padding to 104 is split, whose edges follow."""
    def f(x: Any) -> Any:
        return jnp.pad(x, ((low, 5 - low), (0, 0)))
    assert plan(f, LINE, ((99, 64), P(None, "x")), out=P("x")) == [
        "all-to-all x", *["collective-permute x"] * (low > 0)]


@pytest.mark.parametrize("shape, axes", [((8, 64, 12), {"x": 8}), ((3, 64, 16), {"x": 8}),
                                         ((4, 64, 12), {"y": 2, "x": 4})])
def test_rows_that_do_not_divide_are_joined_across(shape: tuple[int, ...], axes: dict[str, int]
                                                   ) -> None:
    """A class token before split tokens: each operand and the result takes an all-to-all."""
    def f(token: Any, x: Any) -> Any:
        return jnp.concatenate([jnp.broadcast_to(token, (shape[0], 1, shape[2])), x], 1).sum(1)
    args = ((1, shape[2]), P()), (shape, P(None, "x"))
    assert plan(f, axes, *args, out=P()) == [*["all-to-all x"] * 3, "all-reduce x"]


@pytest.mark.parametrize("token, gathers", [(P(("x", "y")), ["all-gather y"]), (P("x"), [])])
def test_a_single_row_that_is_joined_is_laid_out_as_the_result(token: P, gathers: list[str]
                                                                ) -> None:
    """The joined rows are gathered in the end, and the columns stay split."""
    def f(x: Any, token: Any) -> Any:
        return jnp.concatenate([jnp.broadcast_to(token, (8, 1, 64)), x], 1)
    args = ((8, 16, 64), P(None, "y", "x" if gathers else None)), ((64,), token)
    assert sorted(plan(f, GRID, *args, out=P(None, None, "x"))) == [
        *gathers, "all-gather y", *["all-to-all y"] * 3]


def test_rows_that_are_looked_up_and_read_whole_are_not_gathered_again() -> None:
    """They are split by columns, which the product takes whole: that is what was cut."""
    def f(table: Any, places: Any, w: Any) -> Any:
        return table[places.astype(int)] @ w
    args = ((4096, 64), P("x")), ((64, 16), P("x", "y")), ((64, 4096), P(None, "x"))
    assert plan(f, GRID, *args, out=P(None, "y", "x")) == ["all-gather x", "all-reduce x"]


@pytest.mark.parametrize("rows", [256, 16, 8])
def test_a_row_that_is_joined_to_shifted_ones_is_joined_across(rows: int) -> None:
    """A cache that drops its oldest row: the others come by a permutation first, also where few
    are left. A constant is not exchanged.
    """
    def f(cache: Any, new: Any) -> Any:
        return jnp.concatenate([cache[:, 1:], new[:, None]], 1)
    args, out = [((4, rows, 64), P(None, "x")), ((4, 64), P())], P(None, "x")
    assert plan(f, LINE, *args, out=out) == ["collective-permute x", *["all-to-all x"] * 3]
    assert plan(lambda x: jnp.concatenate([x[:, 1:], jnp.zeros((4, 1, 64))], 1), LINE, args[0],
                out=out) == ["collective-permute x", *["all-to-all x"] * 2]


def test_rows_that_do_not_divide_are_gathered_over_their_own_axes_alone() -> None:
    def f(x: Any) -> Any:
        return lax.scan(lambda total, row: (total + row, None), jnp.zeros(8), x[1:] * 2)[0]
    assert plan(f, GRID, ((64, 8), P("y", "x")), out=P("x")) == [
        "collective-permute y", "all-gather y"]
