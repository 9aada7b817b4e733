"""Elementwise calls of groups as compiled loops: how many, what they read, and when."""
from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as draw

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.kernels import compiled
from shardtrace.ir.kernels.compiled import COLUMN, FLAT, NUMBER, ROW
from shardtrace.ir.kernels.elementwise import extremes
from shardtrace.runtime.plans import blocked, compiled_steps, generated

from ...executors import forget_plans
from ...fuzz.test_fuzz import failures
from .test_tiled_fusion import assert_same, random_program

X, Y = (np.random.default_rng(i).normal(size=(512, 256)).astype(np.float32) for i in (1, 2))
pytestmark = pytest.mark.usefixtures("planned_anew")


def compile_all(patch):
    """Whatever a loop can compute is compiled, at once."""
    for module, name, value in ((blocked, "ENOUGH", 1), (compiled_steps, "FEWEST", 1),
                                (compiled_steps, "SHORT", 1),
                                (generated, "FEWEST_COMPARED", 1), (extremes, "FEWEST", 1),
                                (compiled, "_SEEN", compiled._Seen())):
        patch.setattr(module, name, value)


@pytest.fixture
def loops(monkeypatch):
    """The loops that a function's groups become, in order; results are those of numpy."""
    pytest.importorskip("llvmlite")

    def found(f, *args):
        made = []

        class Noted(compiled_steps.LoopCall):
            def __init__(self, *parts):
                super().__init__(*parts)
                made.append(self)
        wanted = st.jit(f)(*args)
        forget_plans()
        with monkeypatch.context() as patch:
            compile_all(patch)
            patch.setattr(compiled_steps, "LoopCall", Noted)
            computed = st.jit(lambda *xs: f(*xs))(*args)
        for x, y in zip(st.tree.leaves(computed), st.tree.leaves(wanted), strict=True):
            assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
        return made
    return found


def forms(loop):
    return loop.loop._forms, len(loop.loop._writes)


def test_calls_between_two_others_are_one_loop(loops):
    one, other = loops(lambda x, y: jnp.maximum(jnp.tanh(x * y + 1) * x - y, 0) / 2, X, Y)
    assert forms(one) == ([FLAT, FLAT, NUMBER], 1)
    assert forms(other) == ([FLAT, FLAT, FLAT, NUMBER, NUMBER], 1)


def test_what_later_calls_need_is_computed_beside_what_the_first_needs(loops):
    (loop,) = loops(lambda x, y: jnp.exp(x * y - 1) * jnp.sin(y * 2 + x), X, Y)
    assert forms(loop)[1] == 2              # and numpy multiplies what exp and sin give


def test_rows_and_columns_are_read_where_they_are(loops):
    def f(x, row):
        return (x - x.max(-1, keepdims=True)) * row + jnp.where(x > 0, row, 1)
    (loop,) = loops(f, X, Y[0])
    assert {*forms(loop)[0]} == {FLAT, COLUMN, ROW, NUMBER}
    assert loop.columns == 256


@pytest.mark.parametrize(("shape", "other"), [
    ((32, 16, 8, 64), (32, 1, 8, 1)), ((32, 16, 8, 64), (1, 16, 1, 64)),
    ((128, 16, 8, 8), (128, 1, 1, 8)), ((64, 16, 8, 16), (64, 1, 8, 1))])
def test_what_is_repeated_along_several_dimensions_is_read_by_rows(shape, other, loops):
    rng = np.random.default_rng(3)
    x, y = (rng.normal(size=s).astype(np.float32) for s in (shape, other))
    found = loops(lambda x, y: (x - y) * y + jnp.maximum(x, y), x, y)
    assert len(found) == 1 and {*forms(found[0])[0]} <= {FLAT, ROW, COLUMN}


def test_what_is_read_after_another_call_is_kept(loops):
    def f(x, y):
        doubled = x * 2
        return jnp.exp(doubled + y * y * y * 3) * doubled
    (loop,) = loops(f, X, Y)
    assert forms(loop)[1] == 2              # and numpy multiplies the exponential


@pytest.mark.parametrize("f", [
    lambda x, y: [x * y + 1, x - y, x > y, (x * 3).astype(np.float16) + x.astype(np.float16)],
    lambda x, y: lax.bitcast_convert_type(x * y, np.int32) >> 3 & 7 | 1,
    lambda x, y: (x.astype(ml_dtypes.bfloat16) * y.astype(ml_dtypes.bfloat16) + 2, x * y + 3),
    lambda x, y: jnp.where(jnp.logical_and(x > 0, y < 1), lax.sign(x) * y, jnp.floor(y * 3)),
    lambda x, y: (x * y + 1).sum(-1) + (x - y * 2).max(-1),
    lambda x, y: lax.erf(x * y) + jnp.expm1(x) * jnp.log1p(y * y),
    lambda x, y: (lambda z: (z + 1, jnp.tanh(z), z.reshape(-1) * 2 + 1))(x * y - x),
    lambda x, y: jnp.broadcast_to(x[:, :1], x.shape) * 2 + y * y.mean() + 1,
    lambda x, y: (x[1:, 1:] - x[:-1, :-1]) ** 2 + abs(y[1:, :-1] * x[0, 1:] - y[:-1, 1:])])
def test_numbers_are_those_of_numpy(f, loops):
    assert loops(f, X, Y)


@pytest.mark.parametrize(("view", "apart"), [
    (lambda x: x[1:, 1:], 256), (lambda x: x[::-2, :100], -512), (lambda x: x[:, ::2], None),
    (lambda x: x.reshape(2, 16, 64, 64)[1:, 4:], 64),
    (lambda x: x.reshape(2, 16, 64, 64)[1:, 4:, 3:], None),
    (lambda x: x.reshape(2, 16, 64, 64)[1:, :1, 3:], 64),
    (lambda x: x.reshape(2, 16, 64, 64)[:, 4:], None), (lambda x: x.T, None),
    (lambda x: np.broadcast_to(x[:, None, :], (512, 3, 256)), None),
    (lambda x: np.broadcast_to(x[:1, None], (3, 4, 256)), 0),
    (lambda x: np.broadcast_to(x[0, ::2], (3, 128)), None),
    (lambda x: x[:, :20], None)])                       # short rows are copied
def test_rows_that_lie_apart_are_read_where_they_are(view, apart, monkeypatch):
    pytest.importorskip("llvmlite")
    monkeypatch.setattr(compiled, "_SEEN", compiled._Seen())
    x = view(X)
    loop = compiled.Loop(lambda x, y: (x * y + 1,), "float float", "float", [FLAT, NUMBER])
    assert loop.compiled()
    call = compiled_steps.LoopCall(loop, (FLAT, NUMBER), (x.dtype, x.dtype), x.shape, x.ndim - 1)
    assert call._rows_apart(x) == apart
    out = np.empty(x.shape, np.float32)
    assert call(x, 3.0, out) is out                     # a number of Python, too
    np.testing.assert_array_equal(out, x * 3 + 1)


def test_groups_become_loops_once_it_pays(monkeypatch):
    pytest.importorskip("llvmlite")
    monkeypatch.setattr(compiled, "_SEEN", compiled._Seen())
    monkeypatch.setattr(blocked, "ENOUGH", 4 * X.size * 3)        # of four calls, in each run
    made, original = [], compiled_steps.in_loops
    monkeypatch.setattr("shardtrace.runtime.plans.compiled_steps.in_loops",
                        lambda *given: (made.append(original(*given)), made[-1])[1])
    f, found = st.jit(lambda x, y: (x * y + 1) * x - y), []
    for _ in range(4):
        found.append((np.asarray(f(X, Y)).tobytes(), len(made)))
    assert [n for _, n in found] == [0, 0, 1, 1] and made == [True]
    assert len({bits for bits, _ in found}) == 1


def test_without_llvmlite_numpy_computes(monkeypatch):
    looked = []

    class Missing:
        def __getattr__(self, name):
            looked.append(name)
            raise ModuleNotFoundError("No module named 'llvmlite'")
    compile_all(monkeypatch)
    monkeypatch.setattr(compiled, "llvm", Missing())
    for f in (lambda x, y: (x * y + 1) * x, lambda x, y: (x - y) * x):
        np.testing.assert_array_equal(st.jit(f)(X, Y), f(X, Y))
    assert len(looked) == 1


@pytest.fixture
def in_loops(tiny, monkeypatch):
    pytest.importorskip("llvmlite")
    compile_all(monkeypatch)


def test_random_programs_have_the_same_bits_in_loops(in_loops):
    @settings(max_examples=60, deadline=None)
    @given(draw.data())
    def check(data_):
        assert_same(*random_program(data_))
    check()


def test_random_programs_on_devices_are_right_in_loops(in_loops):
    assert not failures(31, 120)
