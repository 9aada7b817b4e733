"""Devices that would issue different collectives: an error that names both lines and the ranks."""
from __future__ import annotations

import pathlib
import re

import numpy as np
import pytest

import shardtrace as st
from shardtrace import lax
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

F32 = np.float32


@pytest.fixture(params=["simulated", "per_device"])
def run(request):
    """Run a body on 2 x 2 devices, blocks [0, 1] and [2, 3] along x, the same along y."""
    mesh = st.make_mesh((2, 2), ("x", "y"))
    x = st.device_put(np.arange(4, dtype=F32), NamedSharding(mesh, P("x")))

    def go(body):
        f = st.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
        with st.config.override(shardtrace_engine=request.param):
            return st.jit(f)(x)
    return go


def two_branches(v):
    def here():
        return lax.psum(v, "x")

    def there():
        return lax.pmax(v * 2, "x")
    return lax.cond(v[0] > 1, here, there)


def one_branch(v):
    return lax.cond(v[0] > 1, lambda: v, lambda: lax.ppermute(v, "x", [(0, 1), (1, 0)]))


def a_loop(v):
    def step(c):
        return c[0] + 1, lax.psum(c[1], "x")
    return lax.while_loop(lambda c: c[0] < v[0], step, (0 * v[0], v))[1]


def a_loop_in_a_branch(v):
    def summed():
        return lax.fori_loop(0, 2, lambda i, c: lax.psum(c, "x") / 2, v)
    return lax.cond(v[0] > 1, summed, lambda: v)


def along_both(v):
    return lax.cond(lax.axis_index("y") > 0, lambda: lax.psum(v, ("x", "y")), lambda: v)


def line_of(f, text):
    """`file.py:12` of the line of `f` that contains `text`."""
    start = f.__code__.co_firstlineno
    lines = pathlib.Path(f.__code__.co_filename).read_text().splitlines()
    return f"test_deadlock.py:{next(i for i in range(start, start + 9) if text in lines[i - 1])}"


@pytest.mark.parametrize(("body", "here", "waiting", "missing", "elsewhere"), [
    (two_branches, "lax.pmax", "rank 0", "rank 2, which waits in `psum_invariant` at", "lax.psum"),
    (one_branch, "ppermute", "rank 0", "rank 2, which takes a branch without it, at", "lax.cond"),
    (a_loop, "lax.psum", "rank 2", "rank 0, which has left the loop at", "while_loop"),
    (a_loop_in_a_branch, "lax.psum", "rank 2", "rank 0, which takes a branch without it, at",
     "lax.cond"),
    (along_both, "lax.psum", "ranks 1 and 3",
     "ranks 0 and 2, which take a branch without it, at", "lax.cond"),
])
def test_both_lines_and_the_ranks_are_named(body, here, waiting, missing, elsewhere, run):
    with pytest.raises(RuntimeError) as caught:
        run(body)
    text = str(caught.value).splitlines()[0]
    assert text.startswith("deadlock: ")
    assert f"at {line_of(body, here)}:" in text
    assert f"{waiting} would wait there for ever for {missing} {line_of(body, elsewhere)}:" in text
    assert re.search(f"{waiting} would wait here", str(caught.value))


@pytest.mark.parametrize(("body", "want"), [
    # All members of every group go the same way.
    (lambda v: lax.cond(lax.axis_index("y") > 0, lambda: lax.psum(v, "x"), lambda: v * 0 + 7),
     [7, 7, 7, 7]),
    # The parts of the group do, whatever the whole group does.
    (lambda v: lax.cond(lax.axis_index("x") > 0,
                        lambda: lax.psum(v, "x", axis_index_groups=((0,), (1,))), lambda: v),
     [0, 1, 2, 3]),
])
def test_groups_that_stay_together_exchange(body, want, run):
    np.testing.assert_array_equal(run(body), want)


def test_sums_over_parts_of_a_group_differ_between_the_parts(run):
    np.testing.assert_array_equal(
        run(lambda v: lax.psum(v, ("x", "y"), axis_index_groups=((0, 1), (2, 3)))), [0, 2, 4, 6])
    np.testing.assert_array_equal(
        run(lambda v: lax.psum(lax.psum(v, ("x", "y"), axis_index_groups=((0, 2), (1, 3))), "x")),
        [4, 8, 4, 8])


@pytest.mark.parametrize("rounds", [0, 1])
def test_a_collective_in_a_loop_that_ends_before_its_first_round_is_never_reached(run, rounds):
    def body(v):
        def step(c):
            return c[0] + 1, lax.psum(c[1], "x")

        def summed():
            return lax.while_loop(lambda c: c[0] < rounds, step, (0, v))[1]
        return lax.cond(v[0] > 1, summed, lambda: v)
    if rounds:
        with pytest.raises(RuntimeError, match="deadlock: `psum"):
            run(body)
    else:
        np.testing.assert_array_equal(run(body), [0, 1, 2, 3])
