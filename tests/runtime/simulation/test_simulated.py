"""The simulated executor: what is in place, what is summed, and that it never knows better."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from shardtrace.arrays.axes import MeshAtoms
from shardtrace.arrays.storage import Stored
from shardtrace.ir.builder import ProgramBuilder
from shardtrace.ir.op import OPS
from shardtrace.ir.program import Level, Program, Var
from shardtrace.ir.rewriting.inline import inline
from shardtrace.runtime.simulation.executor import Planner, compile_simulated, used_axes

F32 = np.dtype(np.float32)
DOT = dict(precision=None, preferred_element_type=F32, out_sharding=None)
MATMUL = dict(dimension_numbers=(((1,), (0,)), ((), ())), **DOT)


def planned(program, mesh):
    """The planner after it planned the program, for looking at layouts."""
    flat = inline(program)
    leads = [()] * len(program.invars)
    planner = Planner(flat, MeshAtoms(mesh, used_axes(flat, leads)))
    planner.make(leads)
    return planner


def calls(program, mesh):
    """Names of the ops that the plan calls, conversions included."""
    flat = inline(program)
    leads = [()] * len(program.invars)
    plan, _ = Planner(flat, MeshAtoms(mesh, used_axes(flat, leads))).make(leads)
    return [call.eqn.op.name if call.eqn else "" for call in plan.calls]


def tensor_parallel(local, n, forget=False):
    """x @ w1 with columns split, tanh, @ w2 with rows split, and the sum over devices."""
    b = local(X=n)
    x, w1, w2 = b.arg((4, 6)), b.arg((6, 16), ((), ("X",))), b.arg((16, 5), (("X",), ()))
    h = b.emit("tanh", b.emit("dot_general", x, w1, **MATMUL))
    partial = b.emit("dot_general", h, w2, **MATMUL)
    out = partial if forget else b.emit("psum_invariant", partial, axes=("X",))
    return b, b.program((out, ((), ()))), h, partial


def test_a_tensor_parallel_layer_is_two_products(local, run_both):
    b, program, h, partial = tensor_parallel(local, 8)
    planner = planned(program, b.mesh)
    assert planner.at[h].layout.split == ((), ("X",))
    assert planner.at[partial].layout.summed == {"X"}
    assert planner.at[partial].layout.atoms == set()
    assert calls(program, b.mesh) == ["dot_general", "tanh", "dot_general"]
    arguments = b.values()
    x, w1, w2 = (a.data for a in arguments)
    (out,) = run_both(program, b.mesh, arguments)
    assert out.lead == ()
    np.testing.assert_allclose(out.data, np.tanh(x @ w1) @ w2, rtol=1e-4, atol=1e-5)


def test_a_forgotten_psum_gives_the_wrong_answer(local, run_both):
    b, program, _, partial = tensor_parallel(local, 8, forget=True)
    assert planned(program, b.mesh).at[partial].layout.stack == ("X",)
    arguments = b.values()
    x, w1, w2 = (a.data for a in arguments)
    (out,) = run_both(program, b.mesh, arguments)
    assert out.lead == ("X",)
    full = np.tanh(x @ w1) @ w2
    assert not np.allclose(out.data[0], full, atol=1e-2)
    np.testing.assert_allclose(out.data.sum(0), full, rtol=1e-4, atol=1e-5)


def test_a_psum_over_fewer_axes_than_the_contraction_keeps_the_rest_apart(local, run_both):
    b = local(X=2, Y=3)
    x, w = b.arg((4, 12), ((), ("X", "Y"))), b.arg((12, 5), (("X", "Y"), ()))
    partial = b.emit("dot_general", x, w, **MATMUL)
    out = b.emit("psum", partial, axes=("Y",), axis_index_groups=None)
    program = b.program((out, ((), ())))
    assert planned(program, b.mesh).at[partial].layout.summed == {"Y"}
    (result,) = run_both(program, b.mesh, b.values())
    assert result.lead == ("X",)


def test_a_partial_product_that_something_else_reads_is_not_folded(local, run_both):
    b = local(X=4)
    x, w = b.arg((4, 8), ((), ("X",))), b.arg((8, 5), (("X",), ()))
    partial = b.emit("dot_general", x, w, **MATMUL)
    out = b.emit("psum_invariant", partial, axes=("X",))
    program = b.program((out, ((), ())), (b.emit("exp", partial, accuracy=None), ((), ())))
    assert planned(program, b.mesh).at[partial].layout.summed == set()
    run_both(program, b.mesh, b.values())


def test_gradients_accumulate_in_one_copy(local, run_both):
    """Partial products that are scaled, added and transposed before the sum stay summed."""
    b = local(X=4)
    x1, g1 = b.arg((8, 6), (("X",), ())), b.arg((8, 5), (("X",), ()))
    x2, g2 = b.arg((8, 6), (("X",), ())), b.arg((8, 5), (("X",), ()))
    rows = dict(dimension_numbers=(((0,), (0,)), ((), ())), **DOT)
    one, two = b.emit("dot_general", x1, g1, **rows), b.emit("dot_general", x2, g2, **rows)
    both = b.emit("add", one, b.emit("mul", two, b.literal(0.5)))
    turned = b.emit("transpose", both, permutation=(1, 0))
    out = b.emit("psum_invariant", turned, axes=("X",))
    program = b.program((out, ((), ())))
    planner = planned(program, b.mesh)
    for v in (one, two, both, turned):
        assert planner.at[v].layout.summed == {"X"}
    arguments = b.values()
    a, c, d, e = (s.data for s in arguments)
    (result,) = run_both(program, b.mesh, arguments)
    np.testing.assert_allclose(result.data, (a.T @ c + 0.5 * d.T @ e).T, rtol=1e-4, atol=1e-5)


def test_adding_a_replicated_value_before_a_psum_adds_it_once_per_device(local, run_both):
    b = local(X=4)
    x, w, bias = b.arg((3, 8), ((), ("X",))), b.arg((8, 5), (("X",), ())), b.arg((3, 5))
    total = b.emit("add", b.emit("dot_general", x, w, **MATMUL), bias)
    program = b.program((b.emit("psum_invariant", total, axes=("X",)), ((), ())))
    arguments = b.values()
    x, w, bias = (a.data for a in arguments)
    (out,) = run_both(program, b.mesh, arguments)
    np.testing.assert_allclose(out.data, x @ w + 4 * bias, rtol=1e-4, atol=1e-5)


def test_a_product_of_two_partial_sums_is_not_the_sum_of_products(local, run_both):
    b = local(X=4)
    x, w = b.arg((3, 8), ((), ("X",))), b.arg((8, 5), (("X",), ()))
    partial = b.emit("dot_general", x, w, **MATMUL)
    squared = b.emit("mul", partial, partial)
    program = b.program((b.emit("psum_invariant", squared, axes=("X",)), ((), ())))
    assert planned(program, b.mesh).at[partial].layout.summed == set()
    arguments = b.values()
    x, w = (a.data for a in arguments)
    (out,) = run_both(program, b.mesh, arguments)
    parts = np.stack([x[:, 2 * i:2 * i + 2] @ w[2 * i:2 * i + 2] for i in range(4)])
    np.testing.assert_allclose(out.data, (parts ** 2).sum(0), rtol=1e-4, atol=1e-5)


def test_a_maximum_over_a_split_dimension_and_devices_is_one_maximum(local, run_both):
    b = local(X=4)
    x = b.arg((3, 8), ((), ("X",)))
    m = b.emit("reduce_max", x, axes=(1,))
    program = b.program((b.emit("pmax", m, axes=("X",), axis_index_groups=None), ((),)))
    assert planned(program, b.mesh).at[m].layout.summed == {"X"}
    arguments = b.values()
    (out,) = run_both(program, b.mesh, arguments)
    np.testing.assert_array_equal(out.data, arguments[0].data.max(1))


def test_a_slice_of_one_row_per_device_may_have_any_stride(local, run_both):
    b = local(X=4)
    x = b.arg((4, 5), (("X",), ()))
    out = b.emit("slice", x, start_indices=(0, 1), limit_indices=(1, 5), strides=(3, 2))
    program = b.program((out, (("X",), ())))
    arguments = b.values()
    (got,) = run_both(program, b.mesh, arguments)
    np.testing.assert_array_equal(got.data, arguments[0].data[:, 1::2])


def test_a_constant_block_is_lengthened_rather_than_stacked(local, run_both):
    b = local(X=4)
    x = b.arg((8, 5), (("X",), ()))
    ones = b.emit("broadcast_in_dim", b.literal(1.0), shape=(2, 5), broadcast_dimensions=(),
                  sharding=None)
    out = b.emit("add", x, ones)
    program = b.program((out, (("X",), ())))
    assert planned(program, b.mesh).at[out].layout.split == (("X",), ())
    run_both(program, b.mesh, b.values())


def test_a_dimension_cut_in_reshape_keeps_its_axes_in_place(local, run_both):
    b = local(X=2, Y=3)
    x = b.arg((12, 5, 6), (("Y", "X"), (), ()))
    r = b.emit("reshape", x, new_sizes=(10, 6), dimensions=None, sharding=None)
    program = b.program((r, (("Y", "X"), ())))
    assert planned(program, b.mesh).at[r].layout.split == (("Y", "X"), ())
    arguments = b.values()
    (out,) = run_both(program, b.mesh, arguments)
    np.testing.assert_array_equal(out.data, arguments[0].data.reshape(60, 6))


def test_sizes_that_do_not_divide_are_padded(local, run_both):
    """10 rows on 4 devices: blocks of 3, the last with one row of zeros that the result drops."""
    b = local(X=4)
    x = b.arg((12, 5), (("X",), ()))
    y = b.emit("mul", x, b.literal(2.0))
    program = b.program((y, (("X",), ())))

    class Uneven:
        """The type of 10 rows; the type class itself takes them only on propagated meshes."""
        def __init__(self, t):
            self._t = t
            self.shape, self.ndim = (10, 5), 2

        def __getattr__(self, name):
            return getattr(self._t, name)

    program = program.replace(global_in=[Uneven(program.global_in[0])],
                              global_out=[Uneven(program.global_out[0])])
    data = np.arange(50, dtype=np.float32).reshape(10, 5)
    (out,) = run_both(program, b.mesh, [Stored(data)])
    np.testing.assert_array_equal(out.data, 2 * data)


def test_partial_sums_enter_and_leave_with_a_leading_dimension(local, run_both):
    b = local(X=2, Y=3)
    x = b.arg((6, 4), (("Y",), ()), unreduced=("X",))
    done = b.emit("psum_invariant", x, axes=("X",))
    program = b.program((done, (("Y",), ())), (x, (("Y",), ()), ("X",)))
    arguments = b.values()
    assert arguments[0].data.shape == (2, 6, 4)
    total, same = run_both(program, b.mesh, arguments)
    assert same.lead == ("X",)
    np.testing.assert_allclose(total.data, arguments[0].data.sum(0), rtol=1e-6)


def test_a_replicated_result_declared_unreduced_is_held_by_every_device(local, run_both):
    b = local(X=2)
    x = b.arg((4,))
    program = b.program((b.emit("neg", x), ((),), ("X",)))
    (out,) = run_both(program, b.mesh, b.values())
    assert out.lead == ("X",) and out.data.shape == (2, 4)


def test_copies_that_differ_stay_different(local, run_both):
    """An argument whose replicas differ is computed with as it is."""
    b = local(X=2)
    x = b.arg((4,))
    program = b.program((b.emit("neg", x), ((),)))
    data = np.arange(8, dtype=np.float32).reshape(2, 4)
    (out,) = run_both(program, b.mesh, [Stored(data, ("X",))])
    assert out.lead == ("X",)
    np.testing.assert_array_equal(out.data, -data)


def test_bfloat16_sums_are_rounded_once(local, run_both):
    b = local(X=8)
    bf16 = np.dtype(ml_dtypes.bfloat16)
    x = b.arg((8 * 4096,), (("X",),), bf16)
    s = b.emit("reduce_sum", x, axes=(0,), out_sharding=None)
    program = b.program((b.emit("psum_invariant", s, axes=("X",)), ()))
    (out,) = run_both(program, b.mesh, [Stored(np.ones(8 * 4096, bf16))], 1e-2)
    assert out.data.dtype == bf16
    assert float(out.data) == 8 * 4096


def test_partial_sums_in_bfloat16_are_not_rounded_before_they_are_widened(local, run_both):
    b = local(X=8)
    bf16 = np.dtype(ml_dtypes.bfloat16)
    x = b.arg((8,), (("X",),), bf16)
    wide = b.emit("convert_element_type", x, new_dtype=F32, weak_type=False, sharding=None)
    program = b.program((b.emit("psum_invariant", wide, axes=("X",)), ((),)))
    data = np.array([256, 1, 1, 1, 1, 1, 1, 1], bf16)
    (out,) = run_both(program, b.mesh, [Stored(data)])
    assert out.data.tolist() == [263.0]


def test_integers_wrap_around_and_keep_their_dtype(local, run_both):
    b = local(X=4)
    x = b.arg((4, 3), (("X",), ()), np.int8)
    program = b.program((b.emit("psum_invariant", x, axes=("X",)), ((), ())))
    (out,) = run_both(program, b.mesh, [Stored(np.full((4, 3), 100, np.int8))])
    assert out.data.dtype == np.int8
    assert out.data.tolist() == [[-112, -112, -112]]


def test_a_psum_of_a_replicated_value_multiplies(local, run_both):
    b = local(X=2, Y=3)
    x = b.arg((4,), (("X",),))
    y = b.emit("psum", x, axes=("Y",), axis_index_groups=None)
    program = b.program((y, (("X",),)))
    arguments = b.values()
    (out,) = run_both(program, b.mesh, arguments)
    np.testing.assert_allclose(out.data, 3 * arguments[0].data, rtol=1e-6)


def test_a_block_that_differs_by_device_is_tiled_into_the_result(local, run_both):
    """out_specs over an axis that the value does not differ over repeats the block."""
    b = local(X=3)
    x = b.arg((2,))
    program = b.program((b.emit("neg", x), (("X",),)))
    (out,) = run_both(program, b.mesh, [Stored(np.array([1, 2], np.float32))])
    assert out.data.tolist() == [-1, -2, -1, -2, -1, -2]


def test_calls_are_inlined_and_constants_are_common_to_all_devices(local, run_both):
    b = local(X=2)
    inner = ProgramBuilder(b.manual, Level.LOCAL)
    p = Var(b.local_type((3,), F32, ("X",)))
    c = inner.constant(np.arange(3, dtype=np.float32), b.local_type((3,), F32, ()))
    v = inner.emit(OPS["pvary"], [c], {"axes": ("X",)})[0]
    (out,) = inner.emit(OPS["mul"], [p, v])
    callee = Program("callee", [p], inner.eqns, [out], consts=inner.consts, mesh=b.manual,
                     level=Level.LOCAL)
    x = b.arg((6,), (("X",),))
    y = b.emit("jit", x, jaxpr=callee, name="callee")[0]
    z = b.emit("jit", y, jaxpr=callee, name="callee")[0]
    program = b.program((z, (("X",),)))
    (result,) = run_both(program, b.mesh, [Stored(np.ones(6, np.float32))])
    assert result.data.tolist() == [0, 1, 4, 0, 1, 4]


def test_results_may_be_parameters_and_literals(local, run_both):
    b = local(X=2)
    x = b.arg((4,), (("X",),))
    program = b.program((x, (("X",),)), (b.literal(2.5), ()), (x, (("X",),)))
    arguments = b.values()
    a, two, c = run_both(program, b.mesh, arguments)
    assert a.data.tolist() == c.data.tolist() == arguments[0].data.tolist()
    assert float(two.data) == 2.5


def test_results_are_read_only(local):
    b = local(X=2)
    program = b.program((b.emit("neg", b.arg((4,), (("X",),))), (("X",),)))
    (out,) = compile_simulated(program, b.mesh)(b.values())
    with pytest.raises(ValueError, match="read-only"):
        out.data[0] = 1


def test_a_small_result_does_not_keep_a_large_buffer(local):
    b = local(X=2)
    x = b.arg((2048, 1024), (("X",), ()))
    doubled = b.emit("add", x, x)
    corner = b.emit("slice", doubled, start_indices=(0, 0), limit_indices=(1, 2), strides=None)
    (out,) = compile_simulated(b.program((corner, (("X",), ()))), b.mesh)(b.values())
    base = out.data.base if out.data.base is not None else out.data
    assert base.nbytes < 100


@pytest.mark.parametrize("data", [np.zeros(3, np.float32), np.zeros(4, np.float64)])
def test_arguments_must_be_what_the_program_was_compiled_for(local, data):
    b = local(X=2)
    program = b.program((b.emit("neg", b.arg((4,), (("X",),))), (("X",),)))
    with pytest.raises(ValueError, match=r"was compiled for \(4,\) and float32"):
        compile_simulated(program, b.mesh)([Stored(data)])


def test_a_single_device_needs_no_mesh(local, run_both):
    b = local()
    x = b.arg((4, 3))
    program = b.program((b.emit("reduce_sum", x, axes=(0,), out_sharding=None), ((),)))
    arguments = b.values()
    (out,) = run_both(program, b.mesh, arguments)
    np.testing.assert_allclose(out.data, arguments[0].data.sum(0), rtol=1e-5)


def test_axes_of_size_one_cost_nothing(local):
    b = local(X=1, Y=1)
    x = b.arg((4, 3), (("X",), ("Y",)))
    g = b.emit("all_gather", b.emit("psum", x, axes=("X",), axis_index_groups=None),
               axis_name=("Y",), axis_size=1, all_gather_dimension=1, tiled=True,
               axis_index_groups=None)
    assert calls(b.program((g, ((), ()))), b.mesh) == []
