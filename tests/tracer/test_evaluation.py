"""Programs run on values, also within a trace, and what they close over."""
from __future__ import annotations

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp


def test_what_a_function_closes_over_in_a_trace_is_a_constant_of_its_program() -> None:
    @st.jit
    def f(x):
        program = st.make_jaxpr(lambda y: y * x + 1)(2.0)
        assert len(program.jaxpr.invars) == 1 and len(program.consts) == 1
        assert "const x" in str(program)
        return st.core.eval_jaxpr(program.jaxpr, program.consts, 3.0)[0]

    assert f(5.0) == 16 and st.grad(f)(5.0) == 3


def test_other_values_in_the_place_of_constants() -> None:
    table = jnp.arange(3.0)
    program = st.make_jaxpr(lambda y: y * table)(2.0)
    np.testing.assert_array_equal(st.core.eval_jaxpr(program, program.consts, 2.0)[0], [0, 2, 4])
    np.testing.assert_array_equal(st.core.eval_jaxpr(program, [jnp.ones(3)], 2.0)[0], [2, 2, 2])
    np.testing.assert_array_equal(st.core.eval_jaxpr(program, (), 2.0)[0], [0, 2, 4])


def test_the_type_of_a_tangent() -> None:
    assert st.typeof(jnp.ones(2)).to_tangent_aval() is st.typeof(jnp.ones(2))
    assert st.typeof(jnp.arange(2)).to_tangent_aval().dtype == st.dtypes.float0
