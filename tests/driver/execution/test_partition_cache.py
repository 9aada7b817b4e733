"""A program that equals one that was partitioned lately is not partitioned again."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shardtrace as st
from shardtrace import numpy as jnp
from shardtrace.driver.execution import partition_cache
from shardtrace.ir.fingerprint import fingerprint
from shardtrace.ir.support.caches import forget
from shardtrace.sharding import PartitionSpec as P

X = np.arange(16, dtype=np.float32).reshape(8, 2)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    forget("driver.execution.partition_cache")
    yield
    forget("driver.execution.partition_cache")


def partitions(f: Callable[[], Any]) -> int:
    """How many programs are partitioned, not found, while f runs."""
    with st.profile_phases() as profile:
        f()
    return sum(row.calls for row in profile.rows if row.name == "propagate")


def shifted(by: Any) -> Any:
    return st.jit(lambda x: jnp.tanh(x) + by)


def test_a_function_jitted_in_a_loop_is_partitioned_once() -> None:
    def loop() -> None:
        for _ in range(5):
            np.testing.assert_allclose(shifted(1)(X), np.tanh(X) + 1, rtol=1e-6)
    assert partitions(loop) == 1


def test_a_scan_of_a_lambda_is_partitioned_once() -> None:
    def loop() -> None:
        for _ in range(3):
            st.lax.scan(lambda c, x: (c + x, c * x), X[0], X)
    assert partitions(loop) == 1


def test_what_differs_is_partitioned_by_itself() -> None:
    def other(x: Any) -> Any:
        return jnp.tanh(x) + 1
    first = shifted(1)
    assert partitions(lambda: first(X)) == 1
    assert partitions(lambda: shifted(2)(X)) == 1                    # another number
    assert partitions(lambda: shifted(1)(X[:4])) == 1                # other types
    assert partitions(lambda: st.jit(other)(X)) == 1                 # other lines
    assert partitions(lambda: shifted(1)(X)) == 0


def test_a_cell_that_is_run_again_is_partitioned_once() -> None:
    def cell(source: str, file: str = "cell.py") -> Callable[[], Any]:
        names: dict[str, Any] = {"st": st, "jnp": jnp}
        exec(compile(source, file, "exec"), names)
        return lambda: names["f"](X)
    source = "f = st.jit(lambda x: jnp.tanh(x) * 3)"
    assert partitions(cell(source)) == 1
    assert partitions(cell(source)) == 0
    assert partitions(cell("\n" + source)) == 1                      # its places are others
    assert partitions(cell(source, "other.py")) == 1


def test_signed_zeros_and_nan_are_told_apart() -> None:
    def times(zero: float) -> Any:
        return st.jit(lambda x: x * zero)(np.ones(1, np.float32))
    assert not np.signbit(times(0.0))
    assert np.signbit(times(-0.0))
    assert partitions(lambda: shifted(np.nan)(X)) == 1
    assert partitions(lambda: shifted(np.nan)(X)) == 0


def test_captured_arrays_count_by_value_while_they_may_change() -> None:
    bias = np.ones(2, np.float32)
    np.testing.assert_allclose(shifted(bias)(X), np.tanh(X) + 1, rtol=1e-6)
    bias[:] = 2
    np.testing.assert_allclose(shifted(bias)(X), np.tanh(X) + 2, rtol=1e-6)
    bias[:] = 1
    assert partitions(lambda: shifted(bias)(X)) == 0
    large = np.ones((1000, 2), np.float32)
    assert fingerprint(shifted(large[:8]).trace(X).jaxpr) is not None
    assert fingerprint(shifted(large).trace(large).jaxpr) is None


def test_programs_that_hold_programs_and_large_arrays() -> None:
    def nested() -> Any:
        return st.jit(lambda x: st.lax.cond(x.sum() > 0, lambda x: x, lambda x: -x, x))
    assert fingerprint(nested().trace(X).jaxpr) == fingerprint(nested().trace(X).jaxpr)
    large = jnp.ones((600, 600))
    assert fingerprint(st.jit(lambda x: x + large).trace(large).jaxpr) is None


def test_source_lines_are_those_of_the_function() -> None:
    mesh = st.make_mesh((8,), ("x",))
    x = st.device_put(X, st.NamedSharding(mesh, P("x")))
    lines = set()
    for f in (lambda x: x.sum(0),
              lambda x: x.sum(0)):
        (c,) = st.jit(f).lower(x).compile().collectives()
        lines.add(c.location.line)
    assert len(lines) == 2


def test_a_warning_comes_each_time() -> None:
    mesh = st.make_mesh((8,), ("x",))
    sharding = st.NamedSharding(mesh, P("x"))

    def constrained() -> None:
        st.jit(lambda x: st.lax.with_sharding_constraint(x, sharding) + 1)(X[:6])
    for _ in range(2):
        with warnings.catch_warnings(record=True) as given:
            warnings.simplefilter("always")
            constrained()
        assert any("not divisible" in str(w.message) for w in given)


def test_few_equations_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_cache._CACHE, "most", 250)
    for by in range(4):
        shifted(by)(X)
    assert partitions(lambda: shifted(3)(X)) == 0
    assert partitions(lambda: shifted(0)(X)) == 1
    st.clear_caches()
    assert partitions(lambda: shifted(0)(X)) == 1


def test_dumps_are_written_each_time(tmp_path: Any) -> None:
    shifted(1)(X)
    before = st.config.shardtrace_dump
    st.config.update("shardtrace_dump", str(tmp_path))
    try:
        shifted(1)(X)
    finally:
        st.config.update("shardtrace_dump", before)
    assert list(tmp_path.glob("*-traced.st"))


def test_fingerprints_are_made_where_programs_look_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def counted(program: Any) -> Any:
        made.append(program)
        return fingerprint(program)
    monkeypatch.setattr(partition_cache, "fingerprint", counted)
    shifted(1)(X)
    shifted(1)(X[:4])
    assert not made                             # nothing else has this name and these types
    shifted(1)(X)
    assert len(made) == 2                       # of the first, too
    assert partitions(lambda: shifted(2)(X)) == 1
    assert partitions(lambda: shifted(2)(X)) == 0
    assert len(made) == 4
