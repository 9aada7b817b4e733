"""Functions made of several ops record the same equations whether these are remembered or not."""
from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn, random
from shardtrace.ir.diagnostics.errors import ShardingTypeError
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.support.caches import CACHES
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P
from shardtrace.tracer.staging import memoized

from ...rows import rows

X = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
I = np.arange(8, dtype=np.int32)                                              # noqa: E741
FUNCTIONS = {
    "softmax": lambda x, i: (nn.softmax(x), nn.softmax(x, 0), nn.log_softmax(x, axis=-1)),
    "moments": lambda x, i: (x.mean(), x.mean(0), jnp.var(x, ddof=1), x.std(1, keepdims=True)),
    "flags": lambda x, i: (jnp.mean(x, 1, keepdims=True), jnp.mean(x, True, keepdims=False)),
    "numbers": lambda x, i: (jnp.where(x > 0, x, 0.0), jnp.where(x > 0, x, -0.0),
                             jnp.where(x > 0, x, 0), jnp.full((2,), 1), jnp.full((2,), 1.0),
                             jnp.full((2,), True)),
    "shapes": lambda x, i: (x.reshape(4, -1), x.reshape(-1), x[None].squeeze(0), x.reshape(8, 8)),
    "joined": lambda x, i: (jnp.concatenate([x, x + 1]), jnp.stack((x, x)), jnp.stack((x, x + 1))),
    "read": lambda x, i: (x[:, 1:3], x[..., None], x[i], x[i, i], x[0, i], x[::-2], x[-1]),
    "written": lambda x, i: (x.at[0].set(1.0), x.at[i].add(x), x.at[:, 2].mul(2), x.at[i].max(0)),
    "taken": lambda x, i: (jnp.take(x, i, 0), jnp.take_along_axis(x, i[:, None], 1)),
    "made": lambda x, i: (jnp.arange(4), jnp.arange(4.0), jnp.zeros_like(x), jnp.tril(x),
                          jnp.ones((2, 2), jnp.bfloat16), jnp.eye(3)),
    "products": lambda x, i: (x @ x, jnp.dot(x, x + 1), jnp.einsum("ij,kj->ik", x, x),
                              jnp.einsum("ij,jk", x, x)),
    "others": lambda x, i: (nn.gelu(x), nn.one_hot(i, 4), nn.logsumexp(x, 1), jnp.sort(x),
                            jnp.cumsum(x, 0), jnp.linalg.norm(x), x ** 0.5, x ** 1.5,
                            jnp.pad(x, 1), jnp.roll(x, 2, 1),
                            lax.dynamic_slice(x, (i[0], 0), (1, 2))),
    "drawn": lambda x, i: [draw(st.random.key(1)) for draw in (
        lambda k: random.bernoulli(k, 0.9, (8, 8)), lambda k: random.bernoulli(k, x),
        lambda k: random.uniform(k, (4,), minval=-1), lambda k: random.uniform(k, (), jnp.float16),
        lambda k: random.normal(k, (2, 3)), lambda k: random.normal(k, (2, 3), jnp.bfloat16),
        lambda k: random.randint(k, (5,), 0, 9), lambda k: random.randint(k, (5,), i[0], i[1]),
        lambda k: random.categorical(k, x), lambda k: random.categorical(k, x, axis=0),
        lambda k: random.truncated_normal(k, -1, x), lambda k: random.gumbel(k, (4,)),
        lambda k: random.exponential(k, (4,)), lambda k: random.bits(k, (2,), jnp.uint8),
        lambda k: st.vmap(lambda k: random.normal(k, (2,)))(random.split(k, 3)))],
    "weak": lambda x, i: (jnp.mean(x.sum() * 2 + jnp.asarray(1.0)), nn.softmax(jnp.full(3, 2.0))),
    "with programs": lambda x, i: (nn.softplus(x), nn.mish(x), nn.softplus(x), nn.log_sigmoid(x),
                                   jnp.logaddexp(x, 2.0), jnp.logaddexp(x, x[0])),
    "of an enclosing trace": lambda x, i: (
        st.grad(lambda v: (nn.log_softmax(v) * nn.one_hot(i, 8) * nn.softmax(x)).sum())(x + 1),
        lax.scan(lambda c, y: (c + nn.softmax(x) @ y, nn.one_hot(i, 8)), x[0], x),
        lax.cond(i[0] > 0, lambda: jnp.where(x > 0, x, 0.0), lambda: nn.softmax(x))),
    "a gradient": lambda x, i: st.grad(lambda v: (nn.log_softmax(v)[i, i].mean() + v.var()))(x),
    "a gradient with programs": lambda x, i: st.grad(lambda v: nn.softplus(nn.mish(v)).sum())(x),
}


def program(f: Any, *args: Any) -> Any:
    return st.jit(lambda *xs: f(*xs)).trace(*args).jaxpr


def both_ways(f: Any, *args: Any) -> tuple[Any, Any]:
    for _ in range(5):
        remembered = program(f, *args)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memoized, "BUILDERS", set())
        return remembered, program(f, *args)


@rows("name", FUNCTIONS)
def test_equations_are_the_same(name: str) -> None:
    remembered, anew = both_ways(FUNCTIONS[name], X, I)
    assert programs_equal(remembered, anew)
    assert str(remembered) == str(anew)                       # places in the source included


@pytest.mark.parametrize("spec", [P(None, None), P("X", None), P(None, "Y")])
@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
def test_equations_are_the_same_on_a_mesh(kind: AxisType, spec: Any) -> None:
    mesh = st.make_mesh((2, 4), ("X", "Y"), axis_types=(kind,) * 2)
    with st.set_mesh(mesh):
        x = st.device_put(X, st.NamedSharding(mesh, spec))
        for name in ("softmax", "moments", "numbers", "made", "drawn", "a gradient"):
            try:
                anew = both_ways(FUNCTIONS[name], x, I)
            except ShardingTypeError:
                continue                                      # Explicit typing refuses it
            assert programs_equal(*anew), name


def test_a_function_of_a_captured_value_runs_twice() -> None:
    """Once when it is seen, once for its steps."""
    calls = []

    @memoized.memoized
    def scaled(x: Any, by: Any) -> Any:
        calls.append(1)
        return jnp.sin(x) * by * x

    for _ in range(4):
        program(lambda x: st.grad(lambda v: (v * scaled(x, 2.0)).sum())(x + 1), X)
    assert len(calls) == 2


def test_what_holds_a_program_is_remembered_for_each_place() -> None:
    """It runs until it is known to hold one, and then twice in each place."""
    calls = []

    @memoized.memoized
    def smooth(x: Any) -> Any:
        calls.append(1)
        return nn.softplus(x) * 2

    def here(x: Any) -> Any:
        return smooth(x)

    def there(x: Any) -> Any:
        return smooth(x)

    counts = []
    for f in (here, there):
        for _ in range(5):
            program(f, X)
        counts.append(len(calls))
    assert counts == [4, 6]


def test_programs_have_the_place_of_their_call() -> None:
    def f(x: Any) -> Any:
        a = nn.softplus(x)
        b = nn.softplus(x)
        return a, b

    for _ in range(5):
        found = program(f, X)
        first = f.__code__.co_firstlineno
        assert [e.location.line for e in found.eqns] == [first + 1, first + 2]
        assert [{inner.location.line for inner in e.params["call_jaxpr"].eqns}
                for e in found.eqns] == [{first + 1}, {first + 2}]


def test_a_call_has_its_own_place() -> None:
    def f(x: Any) -> Any:
        a = nn.softmax(x)
        b = nn.softmax(x + 1)
        return a, b

    lines = [e.location.line for e in program(f, X).eqns]
    first = f.__code__.co_firstlineno
    assert sorted({*lines}) == [first + 1, first + 2]


def test_warnings_come_each_time() -> None:
    z = X.astype(np.complex64)

    def warned(f: Any, *args: Any) -> int:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            program(f, *args)
        return len(found)

    for f, args in ((lambda x: jnp.mean(x, dtype=np.float64), (X,)),
                    (lambda x: jnp.concatenate([x, x], dtype=np.float32), (z,)),
                    (lambda x: x.at[0].set(1.5), (I,))):
        counts = [warned(f, *args) for _ in range(3)]
        assert len({*counts}) == 1, counts


def test_caches_can_be_emptied() -> None:
    program(FUNCTIONS["softmax"], X, I)
    assert any(isinstance(row.cache, memoized.Known) and len(row) for row in CACHES.values())
    st.clear_caches()
    assert not any(isinstance(row.cache, memoized.Known) and len(row) for row in CACHES.values())
