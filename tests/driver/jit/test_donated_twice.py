"""An array that is donated and passed once more is refused, as in JAX, with nothing written."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp

from ...real_jax import real_jax

CASES: dict[str, Any] = {
    "first": (lambda x, y: x + y, 0), "second": (lambda x, y: x + y, 1),
    "both": (lambda x, y: (x + y, x - y), (0, 1)), "one result": (lambda x, y: x + y, (0, 1)),
    "other not read": (lambda x, y: x + 1, 0), "not read": (lambda x, y: y + 1, 0),
}


def outcome(case: str, lib: Any) -> tuple[Any, bool]:
    """What is said, or the results; and whether the array is still there."""
    f, given = CASES[case]
    x = lib.numpy.arange(4.0)
    try:
        found = lib.jit(f, donate_argnums=given)(x, x)
    except lib.errors.JaxRuntimeError as e:
        text = str(e).removeprefix("INVALID_ARGUMENT: ")
        return text[:text.index("Execute()")], not x.is_deleted()
    return [np.asarray(v).tolist() for v in lib.tree.leaves(found)], not x.is_deleted()


@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.parametrize("case", CASES)
def test_as_in_jax(case: str) -> None:
    said, kept = outcome(case, st)
    assert (said, kept) == outcome(case, real_jax())
    assert kept == isinstance(said, str) or case == "not read"


def test_after_calls_that_are_known() -> None:
    f = st.jit(lambda x, y: x[::-1] + y, donate_argnums=0)
    for _ in range(4):
        f(jnp.arange(4.0), jnp.ones(4))
    x = jnp.arange(4.0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="`x` and `y` are one array"):
            f(x, x)
    assert x.tolist() == [0, 1, 2, 3]
    assert f(x, x + 0).tolist() == [3, 3, 3, 3]
