"""Which of several mistakes is reported, and which weak flags results have: as JAX does it."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

ROW = np.ones(4, np.float32)
INTS, BOOLS = np.ones(4, np.int32), np.ones(4, bool)


@pytest.fixture(autouse=True)
def explicit_mesh():
    mesh = st.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    with st.set_mesh(mesh):
        yield mesh


def struct(*shape, spec=P(), dtype=np.float32):
    return st.ShapeDtypeStruct(shape, dtype, sharding=st.NamedSharding(
        st.sharding.get_abstract_mesh(), spec))


def refused(f, *args):
    with pytest.raises(Exception) as e:
        st.eval_shape(f, *args)
    return type(e.value).__name__, str(e.value)


# -- the first mistake is reported -----------------------------------------------------------------

def test_compress_slices_before_it_asks_for_the_condition():
    mask = np.array([True, False])
    name, _ = refused(lambda x: jnp.compress(mask, x, axis=0), struct(4, 3))
    assert name == "TracerBoolConversionError"
    mask = np.array([True])
    name, text = refused(lambda x: jnp.compress(mask, x, axis=0), struct(4, 3, spec=P("x")))
    assert name == "ShardingTypeError" and "slicing on sharded dims" in text


def test_choices_that_are_sharded_differently_are_not_put_together():
    name, text = refused(lambda a, x: jnp.choose(a, [x, np.ones((4, 4), np.float32)], mode="clip"),
                         struct(4, 4, dtype=np.int32), struct(4, 4, spec=P("x")))
    assert name == "ShardingTypeError" and "All operands should have the same sharding" in text


def test_an_update_is_broadcast_before_its_size_is_looked_at():
    name, text = refused(lambda x, v: x.at[:3].add(v), struct(6, 6, spec=P("x")),
                         struct(3, 6, spec=P(None, "y")))
    assert name == "ValueError" and ("input type=float32[3,6@y] and requested type=float32[3@x,6]"
                                     in text)
    assert "does not evenly divide" in refused(
        lambda x: x.at[:3].set(1.0), struct(6, 6, spec=P("x")))[1]


def test_the_true_branch_of_cond_is_traced_first():
    def fail(text):
        raise KeyError(text)

    with pytest.raises(KeyError, match="first"):
        st.jit(lambda p: lax.cond(p, lambda: fail("first"), lambda: fail("second")))(True)


def test_pending_out_specs_are_refused_before_the_body_is_traced():
    def body(x):
        raise AssertionError("traced")

    name, text = refused(st.shard_map(body, in_specs=P(), out_specs=P(unreduced={"x"}),
                                      axis_names={"x"}), struct(4))
    assert name == "NotImplementedError" and "when shard_map is in full manual mode" in text


@pytest.mark.parametrize("check", [True, False])
def test_gathering_to_reduced_takes_what_varies(check):
    name, text = refused(st.shard_map(
        lambda x: lax.all_gather(x, "x", tiled=True, to="reduced"), in_specs=P(), out_specs=P("x"),
        check_vma=check), struct(4, 4))
    assert (name, "all_gather_reduced only accepts inputs that are varying. Got f32[4,4]" in text
            ) == ("ValueError", True)


def test_a_result_that_varies_nowhere_is_no_pending_sum():
    text = refused(st.shard_map(lambda x: x, in_specs=P(), out_specs=P(unreduced={"x"})),
                   struct(4))[1]
    assert "vary_unreduced_cast only accepts inputs that are varying. Got f32[4]" in text


def test_pending_sums_enter_as_in_specs_say_on_mixed_meshes_too():
    mesh = st.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto, AxisType.Explicit))

    def f(x):
        x = st.reshard(x, P(None, unreduced={"y"}))
        return st.shard_map(lambda t: t, in_specs=P(), out_specs=P())(x)

    with st.set_mesh(mesh):
        assert "should be equal to the unreduced present on the in_aval f32[4]{U:y}" in refused(
            f, np.ones(4, np.float32))[1]


def test_attention_scores_split_twice_over_an_axis_are_refused():
    q, k, v = struct(4, 4, 2, 8, spec=P(None, "x", "y")), struct(
        4, 4, 2, 8, spec=P(None, "y", None, "x")), struct(4, 4, 2, 8)
    name, text = refused(nn.dot_product_attention, q, k, v)
    assert name == "ShardingTypeError" and "produces an illegally sharded result" in text


# -- what is refused, and in which words -----------------------------------------------------------

@pytest.mark.parametrize(("f", "error", "text"), [
    (lambda: lax.betainc(0.0, jnp.asarray(INTS), 1.0), TypeError,
     "regularized_incomplete_beta does not accept dtype int32 at position 1"),
    (lambda: st.random.categorical(st.random.key(0), jnp.asarray(INTS)), ValueError,
     "dtype argument to `gumbel` must be a float dtype, got int32"),
    (lambda: lax.concatenate([jnp.asarray(ROW), jnp.asarray(INTS)], 0), TypeError,
     r"\(Tip: jnp.concatenate is a similar function"),
    (lambda: nn.log_softmax(jnp.asarray(BOOLS)), TypeError, "sub does not accept dtype bool"),
    (lambda: nn.log_sigmoid(jnp.asarray(BOOLS)), TypeError, "neg does not accept dtype bool"),
    (lambda: jnp.take(jnp.zeros((2, 0)), 0, axis=1), IndexError, "Cannot do a non-empty"),
    (lambda: jnp.fft.fft(ROW, 0), ValueError, "Shape should be positive")])
def test_refusals_read_as_in_jax(f, error, text):
    with pytest.raises(error, match=text):
        f()


def test_an_error_at_a_call_with_starred_arguments_is_the_error_itself():
    args = [struct(4, 4, spec=P("x", "y")), struct(4, 4, spec=P("x", "y"))]
    name, _ = refused(lambda *a: jnp.matmul(*a) + jnp.matmul(*a).T, *args)
    assert name == "ShardingTypeError"


# -- what is accepted ------------------------------------------------------------------------------

def test_an_index_reads_beside_an_empty_dimension():
    assert st.eval_shape(lambda x, i: x[i], struct(1, 2, 0), struct(dtype=np.int32)).shape == (2, 0)


def test_a_hermitian_signal_of_one_sample_is_empty():
    assert jnp.fft.hfft(ROW[:1]).shape == (0,) and jnp.fft.irfft(ROW[:1]).dtype == np.float32


# -- weak types ------------------------------------------------------------------------------------

@pytest.mark.parametrize("f", [nn.elu, nn.celu, nn.selu, nn.hard_silu, nn.sparse_plus])
@pytest.mark.parametrize("x", [INTS, BOOLS], ids=["int", "bool"])
def test_activations_of_integers_are_weak_floats(f, x):
    assert f(jnp.asarray(x)).weak_type


@pytest.mark.parametrize("f", [nn.soft_sign, nn.mish, nn.softplus])
def test_activations_of_truth_values_are_weak_floats(f):
    assert f(jnp.asarray(BOOLS)).weak_type


def test_gelu_of_a_number_is_strong():
    assert not nn.gelu(1.0).weak_type and not nn.gelu(1.0, approximate=False).weak_type


FUNCTIONS = [lambda x: x, jnp.sum, jnp.sin, lambda x: jnp.float32(2) * x, lambda x: jnp.max(x),
             lambda x: jnp.where(x > 0, x, 0.0), lambda x: jnp.reshape(x, (1,))[0],
             lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x)]


@rows("wrap", [lambda f: f, st.jit, st.checkpoint])
@rows("f", FUNCTIONS)
def test_gradients_by_weak_numbers_are_weak(f, wrap):
    assert st.grad(wrap(f))(1.0).weak_type
    value, g = st.value_and_grad(wrap(f))(1.0)
    assert g.weak_type
    assert not st.grad(wrap(f))(np.float32(1)).weak_type


def test_jacobians_of_weak_numbers_are_weak():
    assert st.jacfwd(jnp.sin)(1.0).weak_type and st.jacrev(jnp.sin)(1.0).weak_type
    assert st.hessian(jnp.sin)(1.0).weak_type
