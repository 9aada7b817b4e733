"""Random programs of every kind, from fixed seeds; `python -m tests.fuzz` runs any number."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import PartitionSpec as P

from ..references.interpreter import NoReference, interpret
from . import beside, judge, slopes, survey
from .maker import KINDS, make
from .reduce import reduced
from .text import Arg, Body, Case, Statement, with_names


def failures(seed: int, programs: int, kinds: Any = KINDS) -> str:
    counts = survey.survey(seed, programs, kinds)
    return "\n\n".join(f"{case.text()}\n{outcome.kind}: {outcome.sign}\n{outcome.detail}"
                       for case, outcome in counts.failures.values())


@pytest.mark.parametrize("kind", KINDS)
def test_random_programs_mean_on_devices_what_they_mean_on_paper(kind: str) -> None:
    assert not failures(7, 30, [kind])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_programs(kind: str) -> None:
    assert not failures(1_000_000, 1000, [kind])


def test_the_same_seed_writes_the_same_program() -> None:
    for kind in KINDS:
        first, second = (make(3, kind, judge.NAMES, judge.trace)[0].text()
                         for _ in range(2))
        assert first == second


def case_of(text: str, shape: tuple[int, ...] = (4, 6), entries: Any = (("x",), ())) -> Case:
    body = Body("f", ["a"])
    body.statements = [Statement(["b"], "jnp.tanh(a)", [], [(shape, "float32")], "array"),
                       Statement(["c"], text, [], [(shape, "float32")], "array")]
    body.result = "(b, c, )"
    return Case(0, "arrays", (2,), ("Auto",), (Arg("a", "float32", shape, entries, 1),), body)


def test_a_wrong_partition_is_seen_and_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reading of the program is changed, since the partitioner is right."""
    case = case_of("jnp.sum(a, axis=0)")
    assert judge.judge(case).kind == judge.RIGHT

    def without_last_row(program: Any, arrays: Any, **more: Any) -> Any:
        return interpret(program, [np.concatenate([x[:-1], 0 * x[-1:]]) for x in arrays], **more)

    monkeypatch.setattr(judge, "interpret", without_last_row)
    found = judge.judge(case)
    assert found.kind == "wrong" and "is" in found.detail
    small = reduced(case, lambda c: judge.judge(c)[:2] == found[:2])
    assert len(small.body.statements) <= 1 and not any(small.args[0].entries)


def test_an_error_from_inside_is_foreign_and_a_refusal_is_not() -> None:
    assert judge.judge(case_of("a.reshape(5, 5)")).kind == judge.REFUSED
    assert judge.foreign(AssertionError())
    with judge.placed(case_of("a")), pytest.raises(TypeError) as error:
        lax.broadcast_in_dim(np.ones(3, np.float32), (4,), (0,))
    assert not judge.foreign(error.value)


def test_a_program_on_which_jax_ends_its_process_is_counted_and_the_next_is_judged() -> None:
    pytest.importorskip("jax")
    oracle = beside.Oracle()
    try:
        with pytest.raises(beside.Aborted):
            oracle.run(case_of("__import__('os').abort()"))
        with pytest.raises(beside.Refused, match="ZeroDivisionError"):
            oracle.run(case_of("1 // 0"))
        alone = case_of("jnp.sin(a) * 2")._replace(sizes=(1,))
        assert beside.judge_beside(alone, oracle).kind == judge.RIGHT
    finally:
        oracle.close()


def test_failures_are_kept_apart_by_what_they_call() -> None:
    counts = survey.Counts()
    wrong = judge.Outcome("wrong", "simulated")
    assert counts.add(case_of("jnp.sum(a, axis=0)"), wrong)
    assert counts.add(case_of("a @ a.T"), wrong)
    assert not counts.add(case_of("jnp.sum(a, axis=1)"), wrong)
    assert len(counts.failures) == 2


def test_names_are_replaced_where_they_are_read() -> None:
    text = "jnp.einsum('i,i', i, f(lambda i: i, k=i)) if (j := i) else x.i[i]"
    assert with_names(text, {"i": "whole(i)"}.get) == text     # a parameter has the name, too
    assert with_names("jnp.einsum('i,i', i)[i:j].i", {"i": "whole(i)"}.get) \
        == "jnp.einsum('i,i', whole(i))[whole(i):j].i"


def test_a_wrong_slope_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of("jnp.sin(a) * a")
    assert slopes.judge_slopes(case).kind == judge.RIGHT

    @st.custom_jvp
    def sine(x: Any) -> Any:
        return jnp.sin(x)

    sine.defjvp(lambda xs, ts: (jnp.sin(*xs), 0.99 * jnp.cos(*xs) * ts[0]))
    monkeypatch.setitem(judge.NAMES, "sine", sine)
    case = case_of("sine(a) * a")
    assert judge.judge(case).kind == judge.RIGHT
    assert slopes.judge_slopes(case).kind == "wrong"


def test_the_interpreter_runs_control_flow_and_exchanges() -> None:
    mesh = st.make_mesh((2, 3), ("x", "y"), devices=st.devices()[:6])
    a = np.arange(24, dtype=np.float32).reshape(4, 6)

    def body(v: Any) -> Any:
        rounds = lax.axis_index("y")
        w = lax.fori_loop(0, rounds, lambda i, u: u + 1, v)
        return lax.psum(w, "x"), lax.ppermute(v, "y", [(0, 1), (1, 2)])

    with st.set_mesh(mesh):
        f = st.jit(st.shard_map(body, in_specs=P("x", "y"), out_specs=(P(None, "y"), P("x", "y"))))
        program = f.trace(a).jaxpr
    summed, shifted = interpret(program, [a])
    np.testing.assert_array_equal(summed, a[:2] + a[2:] + 2 * np.repeat([0, 1, 2], 2))
    np.testing.assert_array_equal(shifted, np.pad(a[:, :-2], ((0, 0), (2, 0))))


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_what_is_promised_to_be_in_bounds_and_is_not_has_no_reference(dtype: Any) -> None:
    values = np.arange(6, dtype=dtype).reshape(3, 2)
    program = st.jit(lambda x, i: x.at[i].get(mode="promise_in_bounds")).trace(
        values, np.array([2, 0])).jaxpr
    found = interpret(program, [values, np.array([2, 0], np.int32)], wide=True)
    np.testing.assert_array_equal(found[0], values[[2, 0]])
    with pytest.raises(NoReference):
        interpret(program, [values, np.array([2, 3], np.int32)], wide=True)


def test_readings_with_noise_tell_what_is_known() -> None:
    program = st.jit(lambda x: (x + 1, jnp.floor(x * 3))).trace(np.float32(1 / 3)).jaxpr
    readings = [interpret(program, [np.float32(1 / 3)], noise=np.random.default_rng(i))
                for i in range(8)]
    assert max(r[0] for r in readings) - min(r[0] for r in readings) < 1e-5
    assert {float(r[1]) for r in readings} == {0.0, 1.0}
