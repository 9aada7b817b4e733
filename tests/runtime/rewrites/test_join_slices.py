"""What is put together piece by piece is concatenated once, and is what it was."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as draw

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.settings.context import config
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.verify import verify
from shardtrace.runtime.rewrites import join_slices
from shardtrace.sharding import PartitionSpec as P

from ...executors import forget_plans
from ...paths import TESTS
from ...python_calls import python_calls

MESH = st.make_mesh((4,), ("x",), axis_types=(st.sharding.AxisType.Auto,))
RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def run(f, *args):
    """What both executors give, and the ops of programs after their pieces were joined."""
    flats = []
    join = join_slices.join_slices
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join_slices, "join_slices", lambda p: flats.append(join(p)) or flats[-1])
        forget_plans()
        got = np.asarray(st.jit(lambda *xs: f(*xs))(*args))
    before = config.shardtrace_engine
    config.update("shardtrace_engine", "per_device")
    try:
        other = np.asarray(st.jit(lambda *xs: f(*xs))(*args))
    finally:
        config.update("shardtrace_engine", before)
    np.testing.assert_allclose(got, other, rtol=1e-5, atol=1e-6)
    return got, [e.op.name for flat in flats for e in flat.eqns]


@pytest.mark.parametrize("path", sorted((TESTS / "programs" / "joined-slices").glob("*.st")),
                         ids=lambda path: path.stem)
def test_before_and_after(path):
    before, after = map(parse_program, path.read_text().split("# -----"))
    verify(before)
    made = join_slices.join_slices(before)
    verify(made)
    assert programs_equal(made, after), str(made)
    assert join_slices.join_slices(made) is made


def layers(w, x):
    for i in range(5):
        x = jnp.tanh(x @ w[i])
    return x.sum()


def test_the_gradient_of_rows_is_one_concatenation():
    w, x = normal(5, 4, 4), normal(8, 4)
    got, ops = run(st.grad(layers), w, x)
    assert ops.count("concatenate") == 1 and "pad" not in ops
    eps = np.zeros_like(w)
    eps[3, 1, 2] = 1e-2
    slope = (np.asarray(layers(w + eps, x)) - np.asarray(layers(w - eps, x))) / 2e-2
    np.testing.assert_allclose(got[3, 1, 2], slope, rtol=1e-2)


def test_rows_that_nobody_reads_are_zero():
    got, ops = run(st.grad(lambda w: (w[1] * w[4]).sum()), w := normal(6, 3))
    want = np.zeros_like(w)
    want[1], want[4] = w[4], w[1]
    np.testing.assert_array_equal(got, want)
    assert ops.count("concatenate") == 1


def test_rows_that_are_read_twice_are_added():
    got, _ = run(st.grad(lambda w: (w[1] * w[1]).sum() + w[1:3].sum()), w := normal(6, 3))
    want = np.zeros_like(w)
    want[1], want[2] = 2 * w[1] + 1, 1
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_concatenation_of_slices_is_one():
    x = st.device_put(normal(8, 12), st.NamedSharding(MESH, P("x")))
    got, ops = run(lambda x: jnp.concatenate([x[:, 6:] * 2, x[:, :6]], 1), x)
    x = np.asarray(x)
    np.testing.assert_array_equal(got, np.concatenate([x[:, 6:] * 2, x[:, :6]], 1))
    assert ops.count("concatenate") == 1 and "place" not in ops


def test_a_sum_that_is_given_too():
    """What is read elsewhere is not lost among the pieces of another array."""
    def f(x):
        a = lax.pad(x, 0., [(1, 2, 0), (0, 0, 0)])
        b = a + lax.pad(x[:1] * 3, 0., [(0, 4, 0), (0, 0, 0)])
        c = b + lax.pad(x[:2], 0., [(3, 0, 0), (0, 0, 0)])
        return jnp.stack([b, c])
    x = normal(2, 3)
    got, _ = run(f, x)
    b = np.pad(x, ((1, 2), (0, 0))) + np.pad(x[:1] * 3, ((0, 4), (0, 0)))
    np.testing.assert_array_equal(got, np.stack([b, b + np.pad(x, ((3, 0), (0, 0)))]))


@given(draw.data())
def test_random_chains_of_joined_rows_compute_what_numpy_does(data):
    """Random chains of padded, written and added rows, split over devices or not."""
    n, dim = 8, data.draw(draw.integers(0, 1))
    steps = data.draw(draw.lists(draw.tuples(
        draw.sampled_from(["add", "join", "pad"]), draw.integers(0, n - 1), draw.integers(1, n),
        draw.booleans()), min_size=1, max_size=5))
    split = data.draw(draw.sampled_from([(), ("x",), (None, "x")]))

    def f(x, np_=jnp):
        out = x
        for kind, low, size, own in steps:
            high = min(low + size, n)
            rows = (slice(None),) * dim + (slice(low, high),)
            widths = [(0, 0)] * 2
            widths[dim] = (low, n - high)
            source = (x if own else out)[rows] * 2
            if kind == "add":
                out = np_.pad(source, widths) + np_.pad((x + 1)[rows], widths)
            elif kind == "pad":
                out = out + np_.pad(source, widths)
            else:
                front = (slice(None),) * dim
                out = np_.concatenate([out[(*front, slice(0, low))], source,
                                       out[(*front, slice(high, n))]], dim)
        return out
    x = normal(n, n)
    got, _ = run(f, st.device_put(x, st.NamedSharding(MESH, P(*split))))
    np.testing.assert_allclose(got, f(x, np), rtol=1e-5)


def test_pieces_of_a_weak_array_give_a_weak_array():
    """Zeros between them are weak, too."""
    def f(x):
        first, middle, last = lax.split(x, (1, 6, 1))
        return last.sum() + middle.sum()

    x = st.jit(lambda: 1.0)() * np.ones(8, np.int8)
    with st.set_mesh(MESH):
        found = st.jit(st.grad(f))(x)
    assert x.weak_type and found.weak_type
    np.testing.assert_array_equal(found, [0, 1, 1, 1, 1, 1, 1, 1])


def test_a_strong_array_all_of_whose_rows_are_weak_stays_strong():
    x = st.jit(lambda: 1.0)() * np.ones(8, np.int8)
    with st.set_mesh(MESH):
        found = st.jit(lambda x, y: y.at[2:].set(x[2:]).at[:2].set(x[:2]))(x, jnp.zeros(8))
    assert x.weak_type and not found.weak_type


def writes(n):
    """A program that writes n rows one after the other, and one whose rows are added."""
    written = "".join(f"  %a{i + 1}: f32[{n},4] = place[dimension=0, limit=1, low={i}, start=0] "
                      f"x {f'%a{i}' if i else 'y'}\n" for i in range(n))
    padded = "".join(f"  %b{i}: f32[{n},4] = pad[padding_config=(({i}, {n - 1 - i}, 0), (0, 0, 0))]"
                     f" x 0.0:f32[]\n" for i in range(n))
    added = "".join(f"  %c{i}: f32[{n},4] = add_any %c{i - 1} %b{i}\n" for i in range(2, n))
    both = padded + f"  %c1: f32[{n},4] = add_any %b0 %b1\n" + added
    return [parse_program(f"program @f(x: f32[1,4], y: f32[{n},4]) -> f32[{n},4] {{\n{body}"
                          f"  return {result}\n}}\n")
            for body, result in ((written, f"%a{n}"), (both, f"%c{n - 1}"))]


def test_joining_n_slices_takes_n_steps():
    for few, many in zip(writes(100), writes(400), strict=True):
        join_slices.join_slices(few)
        calls = [python_calls(join_slices.join_slices, p, events=("call", "c_call"))
                 for p in (few, many)]
        assert calls[1] < 4.4 * calls[0]
        made = join_slices.join_slices(many)
        verify(made)
        assert [e.op.name for e in made.eqns] == ["concatenate"]


def test_rows_that_are_added_twice_begin_a_new_array():
    """The sums before stay joined."""
    w = normal(6, 3)
    got, ops = run(st.grad(lambda w: sum(jnp.sin(w[i % 6]).sum() for i in range(9))), w)
    np.testing.assert_allclose(got, np.cos(w) * np.array([2, 2, 2, 1, 1, 1])[:, None], rtol=1e-5)
    assert ops.count("concatenate") == 1


def test_no_rows_at_all():
    made = join_slices.join_slices(parse_program("""
program @f(x: f32[0,4], y: f32[2,4]) -> (f32[0,4], f32[2,4]) {
  %a: f32[0,4] = concatenate[dimension=0] x x
  %b: f32[0,4] = concatenate[dimension=0] x x
  %o: f32[0,4] = add_any %a %b
  %p: f32[2,4] = place[dimension=0, limit=1, low=1, start=0] y y
  return %o, %p
}
"""))
    verify(made)
    assert {e.op.name for e in made.eqns} == {"broadcast_in_dim", "concatenate", "slice"}
