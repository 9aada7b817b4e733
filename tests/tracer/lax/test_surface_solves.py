"""Solutions with derivatives from their equation, segments, settings, generators: what users see.

The numbers are JAX's (0.10.2), checked against it where it is installed.
"""
from __future__ import annotations

import warnings

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import P, dtypes, lax, nn, ops, random
from shardtrace.errors import ConcretizationTypeError, JaxRuntimeError, ShardingTypeError
from shardtrace.flatten_util import ravel_pytree
from shardtrace.ir.dtypes import TypePromotionError
from shardtrace.scipy.sparse.linalg import bicgstab, cg, gmres
from shardtrace.sharding import AxisType, reshard

from ...rows import rows

RNG = np.random.RandomState(0)
A = (RNG.randn(4, 4) + 4 * np.eye(4)).astype("f4")
B = RNG.randn(4).astype("f4")


pytestmark = pytest.mark.usefixtures("eight_devices")


def explicit(*sizes):
    return st.make_mesh(sizes, ("x", "y")[:len(sizes)],
                        axis_types=(AxisType.Explicit,) * len(sizes))


# -- linear systems and roots ----------------------------------------------------------------------

def solved(a, b):
    return lax.custom_linear_solve(lambda x: a @ x, b, lambda _, b: jnp.linalg.solve(a, b),
                                   lambda _, b: jnp.linalg.solve(a.T, b))


def loss(a, b):
    return (solved(a, b) ** 2).sum()


def close(x, y, tolerance=1e-4):
    np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=tolerance, atol=tolerance)


def test_gradients_of_a_solve_are_those_of_the_solution():
    plain = st.grad(lambda a, b: (jnp.linalg.solve(a, b) ** 2).sum(), (0, 1))(A, B)
    for ours, want in zip(st.grad(loss, (0, 1))(A, B), plain, strict=True):
        close(ours, want)
    for ours, want in zip(st.jit(st.grad(loss, (0, 1)))(A, B), plain, strict=True):
        close(ours, want)


def test_a_solve_maps_over_matrices_and_right_sides():
    both = np.stack([A, 2 * A]), np.stack([B, 3 * B])
    close(st.vmap(solved)(*both), np.stack([np.linalg.solve(a, b) for a, b in zip(
        *both, strict=True)]))
    close(st.vmap(solved, (None, 0))(A, both[1]), np.linalg.solve(A, both[1].T).T)
    close(st.vmap(solved, (0, None))(both[0], B), np.stack(
        [np.linalg.solve(a, B) for a in both[0]]))


def test_a_solve_without_its_transpose_has_no_reverse_mode():
    def f(b):
        return lax.custom_linear_solve(lambda x: 2 * x, b, lambda _, b: b / 2).sum()
    assert st.jvp(f, (B,), (B,))[1] == pytest.approx(B.sum() / 2, rel=1e-5)
    with pytest.raises(TypeError, match="transpose_solve required for backwards mode"):
        st.grad(f)(B)


def test_a_symmetric_solve_of_trees_hands_on_auxiliary_data():
    b = {"u": B, "v": np.float32(2)}
    x, aux = lax.custom_linear_solve(
        lambda x: {"u": 2 * x["u"], "v": 3 * x["v"]}, b,
        lambda _, b: ({"u": b["u"] / 2, "v": b["v"] / 3}, np.int32(7)), symmetric=True,
        has_aux=True)
    close(x["u"], B / 2)
    assert int(aux) == 7


def test_roots_have_the_derivatives_of_the_implicit_function():
    def root(a):
        return lax.custom_root(
            lambda x: x ** 2 - a, jnp.ones_like(a),
            lambda f, x: lax.fori_loop(0, 20, lambda _, x: x - f(x) / (2 * x), x),
            lambda g, y: y / g(jnp.ones_like(y)))
    a = jnp.array([2.0, 9.0])
    close(root(a), np.sqrt([2.0, 9.0]))
    close(st.grad(lambda a: root(a).sum())(a), 0.5 / np.sqrt([2.0, 9.0]))
    close(st.vmap(st.grad(root))(a), 0.5 / np.sqrt([2.0, 9.0]))
    close(st.grad(st.grad(root))(9.0), -0.25 * 9.0 ** -1.5)


@pytest.mark.parametrize("solver", [cg, bicgstab, gmres])
def test_iterative_solvers_find_the_solution_and_its_gradient(solver):
    a = A @ A.T + np.eye(4, dtype="f4")
    close(solver(a, B)[0], np.linalg.solve(a, B), 1e-3)
    close(solver(lambda x: a @ x, B, M=lambda x: x / np.diag(a))[0], np.linalg.solve(a, B), 1e-3)
    close(st.grad(lambda b: (solver(a, b, tol=1e-7)[0] ** 2).sum())(B),
          np.linalg.solve(a.T, 2 * np.linalg.solve(a, B)), 1e-3)
    with pytest.raises(ValueError, match="must be a square matrix"):
        solver(a[:2], B)
    with pytest.raises(ValueError, match="matching tree structure"):
        solver(a, B, x0=(B,))


def test_a_tree_becomes_a_vector_and_comes_back():
    flat, back = ravel_pytree({"a": B, "n": np.int32(3)})
    assert flat.dtype == np.float32 and flat.shape == (5,)
    again = back(2 * flat)
    assert int(again["n"]) == 6 and again["n"].dtype == np.int32
    with pytest.raises(TypeError, match="expected dtype float32"):
        back(np.ones(5, np.int32))


# -- segments --------------------------------------------------------------------------------------

SEGMENTS = {ops.segment_sum: ([1, 9, 11, 7], np.add), ops.segment_prod: ([0, 24, 30, 7], None),
            ops.segment_max: ([1, 4, 6, 7], None), ops.segment_min: ([0, 2, 5, 7], None)}


@pytest.mark.parametrize("op", SEGMENTS, ids=lambda op: op.__name__)
def test_segments_of_rows_that_are_split_over_devices(op):
    mesh = explicit(4)
    with st.set_mesh(mesh):
        data = st.device_put(jnp.arange(8), P("x"))
        ids = st.device_put(jnp.array([0, 0, 1, 1, 1, 2, 2, 3]), P("x"))
        found = st.jit(lambda d, i: op(d, i, num_segments=4, out_sharding=P()))(data, ids)
        with pytest.raises(ShardingTypeError):
            st.jit(lambda d, i: op(d, i, num_segments=4))(data, ids)
    assert np.asarray(found).tolist() == SEGMENTS[op][0]


def test_a_sum_of_segments_can_stay_pending_and_then_moves_nothing():
    mesh = explicit(4)
    with st.set_mesh(mesh):
        data = st.device_put(jnp.arange(8), P("x"))
        ids = st.device_put(jnp.array([0, 0, 1, 1, 1, 2, 2, 3]), P("x"))
        f = st.jit(lambda d, i: ops.segment_sum(d, i, 4, out_sharding=P(unreduced={"x"})))
        out = f(data, ids)
        blocks = [np.asarray(s.data).tolist() for s in out.addressable_shards]
        assert blocks == [[1, 0, 0, 0], [0, 5, 0, 0], [0, 4, 5, 0], [0, 0, 6, 7]]
        assert "psum" not in f.lower(data, ids).compile().as_text()
        assert np.asarray(reshard(out, P())).tolist() == [1, 9, 11, 7]
        with pytest.raises(NotImplementedError, match="unreduced for max"):
            ops.segment_max(data, ids, 4, out_sharding=P(unreduced={"x"}))


def test_ids_outside_of_the_segments_are_left_out():
    assert ops.segment_sum(jnp.ones(4), jnp.array([-1, 0, 1, 7]), 2).tolist() == [1, 1]
    with pytest.raises(ConcretizationTypeError):
        st.jit(ops.segment_sum)(jnp.ones(4), jnp.array([0, 0, 1, 1]))
    with pytest.raises(ValueError, match="non-negative"):
        ops.segment_sum(jnp.ones(4), jnp.zeros(4, np.int32), -1)


def test_bincount_of_sharded_numbers_is_whole_or_pending():
    mesh = explicit(2)
    with st.set_mesh(mesh):
        x = jnp.ones((4,), np.int32, out_sharding=P("x"))
        count = st.jit(lambda x, s: jnp.bincount(x, length=2, out_sharding=s), static_argnums=1)
        assert count(x, P()).tolist() == [0, 4]
        pending = count(x, P(unreduced={"x"}))
        assert [np.asarray(s.data).tolist() for s in pending.addressable_shards] == [[0, 2]] * 2
        with pytest.raises(ShardingTypeError, match="only be fully replicated or fully unreduced"):
            count(x, P("x"))


def test_repeat_percentile_and_broadcast_like_take_a_sharding():
    mesh = explicit(2)
    with st.set_mesh(mesh):
        x = st.device_put(np.arange(8.0).reshape(4, 2), P("x"))
        assert jnp.repeat(x, 2, axis=1).sharding.spec == P("x", None)
        out = jnp.repeat(x, np.array([1, 1, 1, 1]), axis=0, out_sharding=P("x"))
        assert out.sharding.spec == P("x", None)
        assert float(jnp.percentile(st.device_put(np.arange(100.0), P("x")), 50, axis=0,
                                    out_sharding=P())) == 49.5
        assert lax.broadcast_like(np.arange(2), x).sharding.spec == P("x", None)
        with pytest.raises(ValueError, match="Incompatible types for broadcasting"):
            lax.broadcast_like(st.device_put(np.arange(2), P("x")), x)


# -- collectives -----------------------------------------------------------------------------------

def test_pbroadcast_hands_out_one_device_s_block():
    mesh = st.make_mesh((4,), ("x",))
    f = st.shard_map(lambda x: lax.pbroadcast(x, "x", 2), mesh=mesh, in_specs=P("x"),
                     out_specs=P("x"))
    assert f(jnp.arange(8)).tolist() == [4, 5] * 4
    assert f(jnp.arange(8) > 4).tolist() == [False, True] * 4


def test_ragged_all_to_all_writes_each_slice_where_its_sender_says():
    mesh = st.make_mesh((2,), ("x",))
    args = [jnp.array([1, 2, 2, 3, 4, 0]), jnp.zeros(8, np.int32), jnp.array([0, 1, 0, 1]),
            jnp.array([1, 2, 1, 1]), jnp.array([0, 0, 1, 2]), jnp.array([1, 1, 2, 1])]
    f = st.shard_map(lambda *a: lax.ragged_all_to_all(*a, axis_name="x"), mesh=mesh,
                     in_specs=(P("x"),) * 6, out_specs=P("x"))
    assert st.jit(f)(*args).tolist() == [1, 3, 0, 0, 2, 2, 4, 0]


# -- generators ------------------------------------------------------------------------------------

NUMBERS = {
    "rbg": ([0, 7, 0, 7], [3109483441, 1367189518, 2515982561],
            [3583082021, 1947592014, 3583082021, 1947592014]),
    "unsafe_rbg": ([0, 7, 0, 7], [3109483441, 1367189518, 2515982561],
                   [3810769997, 2355009018, 1837142617, 748193193]),
}


@pytest.mark.parametrize("impl", NUMBERS)
def test_other_generators_give_jax_s_bits(impl):
    words, bits, folded = NUMBERS[impl]
    key = random.key(7, impl=impl)
    assert random.key_data(key).tolist() == words
    assert random.bits(key, (3,)).tolist() == bits
    assert random.key_data(random.fold_in(key, 5)).tolist() == folded
    assert random.key_impl(key) == impl
    with st.default_prng_impl(impl):
        assert random.key(7).dtype == key.dtype
        assert random.PRNGKey(7).tolist() == words


@pytest.mark.parametrize("impl", NUMBERS)
@pytest.mark.parametrize("draw", [
    lambda k, s: random.normal(k, (8, 4), out_sharding=s),
    lambda k, s: random.gamma(k, 2.0, (8, 4), out_sharding=s),
    lambda k, s: random.bits(k, (8, 4), out_sharding=s)], ids=["normal", "gamma", "bits"])
def test_sharded_numbers_of_other_generators_are_the_same(impl, draw):
    key = random.key(1, impl=impl)
    with st.set_mesh(explicit(4, 2)):
        split = st.jit(lambda: draw(key, P("x", "y")))()
        assert split.sharding.spec == P("x", "y")
        np.testing.assert_array_equal(np.asarray(split), np.asarray(draw(key, None)))


def test_raw_bits_are_split_over_devices():
    state = np.array([1, 2, 3, 4], np.uint32)
    with st.set_mesh(explicit(2)):
        for algorithm in lax.RandomAlgorithm:
            whole = lax.rng_bit_generator(state, (4, 6), algorithm=algorithm)
            new, bits = st.jit(lambda s, a=algorithm: lax.rng_bit_generator(
                s, (4, 6), algorithm=a, out_sharding=P("x")))(state)
            assert bits.sharding.spec == P("x", None)
            np.testing.assert_array_equal(np.asarray(bits), np.asarray(whole[1]))
            np.testing.assert_array_equal(np.asarray(new), np.asarray(whole[0]))


def test_raw_keys_can_be_refused():
    raw = random.PRNGKey(0)
    with st.legacy_prng_key("error"), pytest.raises(ValueError, match="Legacy uint32 key array"):
        random.uniform(raw)
    with st.legacy_prng_key("warn"), pytest.warns(UserWarning, match="Legacy uint32 key array"):
        random.uniform(raw)
    with st.enable_custom_prng(True):
        assert dtypes.issubdtype(random.PRNGKey(0).dtype, dtypes.prng_key)


# -- settings --------------------------------------------------------------------------------------

def test_ranks_and_dtypes_are_held_to_what_the_settings_say():
    with st.numpy_rank_promotion("raise"), pytest.raises(ValueError, match="rank_promotion"):
        jnp.ones((2, 2)) + jnp.ones(2)
    with st.numpy_dtype_promotion("strict"), pytest.raises(TypePromotionError):
        jnp.ones(2) + jnp.ones(2, np.int32)
    with pytest.raises(ValueError, match="new enum value must be in"):
        st.numpy_rank_promotion("never")
    with pytest.raises(ValueError, match="new enum value must be in"):
        st.config.update("jax_numpy_rank_promotion", "never")
    assert st.numpy_rank_promotion.value == "allow"


def test_a_setting_that_changes_the_trace_is_not_served_from_a_cache():
    f = st.jit(lambda x: x @ x)
    assert f.trace(B).jaxpr.eqns[0].params.get("precision") is None
    with st.default_matmul_precision("highest"):
        assert f.trace(B).jaxpr.eqns[0].params["precision"] == (lax.Precision.HIGHEST,) * 2


@pytest.mark.parametrize("f,name", [
    (lambda x: jnp.log(x), "log"), (lambda x: st.jit(lambda x: jnp.log(x) * 2)(x), "log"),
    (lambda x: st.grad(lambda x: jnp.sqrt(x).sum())(x), "sqrt")])
def test_a_nan_is_reported_at_the_op_that_made_it(f, name):
    x = jnp.array([1.0, -1.0])
    with st.debug_nans(True), pytest.raises(FloatingPointError, match=f"nan.*in {name}"):
        f(x)
    f(x)


def test_an_infinity_is_reported_and_hidden_numbers_are_not():
    x = jnp.array([1.0, -1.0])
    with st.debug_infs(True), pytest.raises(FloatingPointError, match="inf.*encountered in div"):
        x / 0.0
    with st.debug_nans(True):
        hidden = st.jit(lambda x: jnp.where(x > 0, jnp.log(x), 0))(x)
    assert hidden.tolist() == [0, 0]


def test_without_jit_python_sees_the_values():
    seen = []
    with st.disable_jit():
        f = st.jit(lambda x: x * 2 if seen.append(float(x[0])) is None and x[0] > 0 else x)
        assert f(jnp.array([1.0, -1.0])).tolist() == [2, -2]
        assert lax.while_loop(lambda v: v < 3, lambda v: seen.append(int(v)) or v + 1, 0) == 3
        carry, ys = lax.scan(lambda c, y: (c + y, c * y), 0.0, jnp.arange(3.0))
        assert float(carry) == 3 and ys.tolist() == [0, 0, 2]
        lax.cond(True, lambda: seen.append("yes") or 1, lambda: seen.append("no") or 2)
        with pytest.raises(ValueError, match="zero-length scan"):
            lax.scan(lambda c, y: (c, y), 0.0, jnp.zeros((0,)))
    assert seen == [1.0, 0, 1, 2, "yes"]


def test_known_values_are_computed_within_a_trace_on_request():
    def f(x):
        with st.ensure_compile_time_eval():
            count = int(jnp.arange(4).sum())
            return x * count
    assert st.jit(f)(2.0) == 12


@pytest.mark.usefixtures("only_own_objects")
def test_leaks_and_new_traces_are_reported():
    kept = []
    with st.checking_leaks(), pytest.raises(
            st.errors.LeakedTracerError, match="Leaked trace"):
        st.jit(lambda x: kept.append(x + 1) or x)(1.0)
    kept.clear()
    with st.check_tracer_leaks(True):
        assert st.jit(lambda x: x + 1)(1.0) == 2
    with st.no_tracing(True), pytest.raises(RuntimeError, match="re-tracing function"):
        st.jit(lambda x: x + 3)(1.0)


def test_transfers_of_the_host_s_values_can_be_refused():
    x, f = jnp.ones(3), st.jit(lambda x: x + x)
    with st.transfer_guard("disallow"):
        with pytest.raises(JaxRuntimeError, match="Disallowed host-to-device transfer"):
            f(np.ones(3))
        assert f(st.device_put(np.ones(3))).tolist() == [2, 2, 2]
        assert f(x).tolist() == [2, 2, 2]
    with st.transfer_guard("disallow_explicit"), pytest.raises(JaxRuntimeError):
        st.device_put(np.ones(3))
    with st.transfer_guard_device_to_device("disallow_explicit"):
        with pytest.raises(JaxRuntimeError, match="device-to-device"):
            st.device_put(x, st.devices()[1])


# -- formats ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("mode,error", [("mxfp8", 0.06), ("nvfp4", 0.2)])
def test_block_scaled_products_are_near_to_the_exact_ones(mode, error):
    x, y = RNG.randn(32, 64).astype("f4"), RNG.randn(64, 32).astype("f4")
    config = nn.get_scaled_dot_general_config(mode)
    f = lambda x, y: nn.scaled_dot_general(  # noqa: E731
        x, y, (((1,), (0,)), ((), ())), configs=[config] * 3)
    assert np.abs(np.asarray(f(x, y)) - x @ y).max() < error * np.abs(x @ y).max()
    found = st.grad(lambda x, y: (f(x, y) * (x @ y)).sum(), (0, 1))(x, y)
    exact = st.grad(lambda x, y: ((x @ y) ** 2).sum(), (0, 1))(x, y)
    for g, h in zip(found, exact, strict=True):
        assert np.abs(np.asarray(g) - np.asarray(h)).max() < error * np.abs(np.asarray(h)).max()
    with pytest.raises(ValueError, match="blocks of"):
        f(x[:, :5], y[:5])


def test_the_narrowest_integers_are_dtypes():
    assert jnp.array([0, 1], jnp.uint1).astype(np.int32).tolist() == [0, 1]
    assert jnp.zeros(3, jnp.int1).dtype == jnp.int1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jnp.iinfo(jnp.int1).bits == 1


def test_primitives_have_jax_s_names():
    program = st.make_jaxpr(lambda x: lax.scatter_add_p and x + x)(1.0).jaxpr
    assert program.eqns[0].primitive is lax.add_p
    assert lax.linalg.cholesky_p.name == "cholesky"
    with pytest.raises(AttributeError, match="has no attribute 'nothing_p'"):
        lax.nothing_p  # noqa: B018


STRICT = [   # what numpy_dtype_promotion("strict") refuses, and what it does not
    ("i + 1.0", False), ("i + 1", True), ("f + 1", True), ("f + 1.5", True), ("b + 1", False),
    ("f * b", False), ("f + i", False), ("i ** 0.5", False), ("f ** 2", True),
    ("jnp.power(f, i)", False), ("jnp.where(b, 1.0, i)", False), ("jnp.where(b, 1.0, f)", True),
    ("jnp.percentile(i, 50)", True), ("jnp.maximum(b, 0)", False), ("f.at[0].add(1)", True),
    ("i.at[0].set(True)", True), ("i.at[0].set(1.5)", False), ("jnp.mgrid[0:2, 0:1:3j]", True),
]


@rows("text,accepted", STRICT)
def test_strict_promotion_refuses_what_jax_refuses(text, accepted):
    names = {"f": jnp.ones(3), "i": jnp.arange(3), "b": jnp.arange(3) > 1, "jnp": jnp}
    with st.numpy_dtype_promotion("strict"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if accepted:
            eval(text, names)
        else:
            with pytest.raises(TypePromotionError, match="jax_numpy_dtype_promotion=strict"):
                eval(text, names)


def test_a_power_of_a_matrix_that_is_not_square():
    with pytest.raises(TypeError, match="Last 2 dimensions of the array must be square"):
        jnp.linalg.matrix_power(jnp.ones((2, 3)), 2)
