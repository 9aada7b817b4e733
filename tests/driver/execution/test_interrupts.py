"""An interrupt, wherever Python lets one come, leaves everything that is switched as it was before.

Every block runs with a KeyboardInterrupt at its n-th place in the package, for many n; then the
collector, the settings, the meshes and all that is current in a thread are as before, and what is
called next gives the right results.
"""
from __future__ import annotations

import gc
import os
import random
import traceback
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.arrays.processes import coordinator
from shardtrace.driver.execution.call_capture import WATCH
from shardtrace.ir.meshes.mesh import ENTERED
from shardtrace.ir.meshes.process import THREAD
from shardtrace.ir.settings.context import STATE, config
from shardtrace.ir.source.location import SCOPES
from shardtrace.ir.support import collector, scopes
from shardtrace.runtime import callbacks
from shardtrace.runtime.plans.plan import TIMED
from shardtrace.sharding import PartitionSpec as P

from ... import interrupts

pytestmark = pytest.mark.usefixtures("only_own_objects")

PACKAGE = os.path.dirname(st.__file__) + os.sep
TESTS = PACKAGE + "tests" + os.sep
X = np.arange(16, dtype=np.float32).reshape(8, 2)
MESH = st.make_mesh((4, 2), ("x", "y"))


def switches() -> tuple[Any, ...]:
    """All that a block may change, in this thread."""
    return (gc.isenabled(), dict(STATE.__dict__), SCOPES.path, ENTERED.meshes, THREAD.identity,
            WATCH.watcher, TIMED.recorder, coordinator.THREAD.coordinator, np.geterr(),
            config._key, config._call_key)


def interrupted(block: Callable[[], Any], n: int) -> tuple[bool, int]:
    """A block with an interrupt at the n-th place of it, the package and contextlib."""
    def ours(code: CodeType) -> bool:
        own = code.co_filename.startswith(PACKAGE) and not code.co_filename.startswith(TESTS)
        return own or code is block.__code__ or code.co_filename.endswith("contextlib.py")
    return interrupts.interrupted(block, n, ours)


def jit() -> None:
    st.jit(lambda x: jnp.tanh(x @ x.T).sum(0))(X)


def grad() -> None:
    st.grad(lambda x: jnp.sin(x).sum())(X)


def vmap() -> None:
    st.vmap(lambda x: jnp.sin(x) * 2)(X)


def shard_map() -> None:
    st.jit(st.shard_map(lambda x: st.lax.psum(x, "x"), mesh=MESH, in_specs=P("x"),
                        out_specs=P()))(X)


def eager() -> None:
    (jnp.ones((3, 4)) * 2).sum()


def set_mesh() -> None:
    with st.set_mesh(MESH):
        st.jit(lambda x: x * 2, in_shardings=P("x"))(X)


def blocks() -> None:
    with st.sharding.use_mesh(MESH), st.named_scope("a"), st.enable_x64(True), \
            st.sharding.use_abstract_mesh(MESH.abstract_mesh), \
            config.override(jax_disable_jit=True):
        pass


def recorded() -> None:
    with st.profile_phases(), st.runtime.profiling():
        st.jit(lambda x: x * 3)(X)


def explained(trials: int | None = 1) -> None:
    str(st.explain(lambda x: x.sum(0), trials=trials)(
        st.device_put(X, st.NamedSharding(MESH, P("x")))))


def callback() -> None:
    st.jit(lambda x: (st.debug.callback(lambda v: None, x), x + 1)[1])(X)


def shown() -> None:
    with open(os.devnull, "w") as file, st.debug.show_types(file):
        st.jit(lambda x: x * 5)(X)


BLOCKS = [jit, grad, vmap, shard_map, eager, set_mesh, blocks, recorded, explained, callback, shown]


def sweep(block: Callable[[], Any], count: int, seed: int) -> None:
    known = st.jit(lambda x: (x * 2).sum())
    want = float(known(X))
    block()
    total = interrupted(block, 0)[1]
    chosen = random.Random(seed)
    hits = 0
    for n in sorted(chosen.sample(range(1, total + 1), min(count, total))):
        if chosen.random() < 0.15:
            st.clear_caches()
        before = switches()
        hits += interrupted(block, n)[0]
        assert switches() == before, f"{block.__name__}: an interrupt at {n} of {total} is seen"
        again = known if n % 2 else st.jit(lambda x: (x * 2).sum())
        assert float(again(X)) == want
    # Where caches are full there are fewer steps; the search of an explanation ends by some.
    assert hits >= count // 4


@pytest.mark.parametrize("block", BLOCKS, ids=lambda f: f.__name__)
def test_an_interrupt_leaves_nothing_switched(block: Callable[[], Any]) -> None:
    sweep(block, 16, 0)


def test_interrupts_as_a_bulk_stage_begins_or_ends_leave_the_collector_on() -> None:
    """Printing an explanation partitions the program with changes."""
    def ours(code: CodeType) -> bool:
        return code.co_filename == collector.__file__

    def in_full() -> None:
        explained(None)

    total = interrupts.interrupted(in_full, 0, ours)[1]
    for n in range(1, total + 1, 9):
        interrupts.interrupted(in_full, n, ours)
        assert gc.isenabled(), f"{n} of {total}"


def test_interrupts_around_a_function_of_the_host_leave_numpys_settings() -> None:
    files = {callbacks.__file__, scopes.__file__}

    def ours(code: CodeType) -> bool:
        return code.co_filename in files or code.co_filename.endswith("contextlib.py")

    callback()
    before, total = switches(), interrupts.interrupted(callback, 0, ours)[1]
    for n in range(1, total + 1, 3):
        interrupts.interrupted(callback, n, ours)
        assert switches() == before, f"{n} of {total}"


@pytest.mark.slow
@pytest.mark.parametrize("block", BLOCKS, ids=lambda f: f.__name__)
def test_interrupts_at_many_places_leave_nothing_switched(block: Callable[[], Any]) -> None:
    sweep(block, 400, 1)


def test_an_exception_that_is_kept_keeps_nothing_switched() -> None:
    """Tracebacks hold frames, and these what would put things back as it goes."""
    for n in range(5, 3000, 171):
        before, kept = switches(), []

        def block(kept: Any = kept) -> None:
            try:
                jit()
            except KeyboardInterrupt as error:
                kept.append(error)
                raise

        interrupted(block, n)
        assert switches() == before, n


def entered() -> None:
    with MESH:
        pass


def overridden() -> None:
    with config.override(jax_disable_jit=True):
        pass


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("block", [entered, overridden], ids=lambda f: f.__name__)
def test_blocks_whose_object_stays_are_left_wherever_python_lets_them(block: Callable[[], Any]
                                                                      ) -> None:
    """Out of reach for Python code is an interrupt that comes as `__enter__` returns, or as
    `__exit__` is called and before its `try`: Python calls neither again, and frames that the
    traceback keeps keep the object. Everywhere else nothing stays."""
    where = []
    for n in range(1, interrupted(block, 0)[1] + 1):
        before, kept = switches(), []

        def held(kept: Any = kept) -> None:
            try:
                block()
            except KeyboardInterrupt as error:
                kept.append(error)
                raise

        interrupted(held, n)
        if switches() != before:
            where.append(traceback.extract_tb(kept[0].__traceback__)[-2].name)
            kept.clear()
            ENTERED.meshes = ()
            gc.collect()
        assert switches() == before, n
    assert set(where) <= {"__enter__", "call", "__exit__"} and len(where) <= 6, where


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_outer_mesh_takes_inner_ones_that_were_not_left_with_it() -> None:
    inner = st.make_mesh((8,), ("z",))
    with MESH:
        inner.__enter__()
    assert ENTERED.meshes == ()


def test_a_mesh_that_is_set_for_good_stays() -> None:
    try:
        st.set_mesh(MESH)
        assert st.sharding.get_mesh() is MESH
        held = st.set_mesh(None)
        st.set_mesh(MESH)
        del held
        assert st.sharding.get_mesh() is MESH
    finally:
        st.set_mesh(None)
    assert st.sharding.get_mesh().empty
