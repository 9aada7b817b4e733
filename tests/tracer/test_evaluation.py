"""Programs run on values, also within a trace, and what they close over."""
from __future__ import annotations

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P


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


def test_a_program_is_evaluated_on_the_mesh_that_it_names():
    mesh = st.make_mesh((2, 2), ("x", "y"))
    rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P("y"))
    region = st.shard_map(lambda x: x * 2, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    constant = st.device_put(np.arange(4, dtype=np.float32), columns)
    x = jnp.arange(4.0)
    for f in (st.jit(lambda x: x * 2, in_shardings=rows, out_shardings=columns), region,
              lambda x: st.jit(region)(x) + 1,
              lambda x: st.lax.with_sharding_constraint(x + constant, rows) * 2):
        program = st.make_jaxpr(f)(x)
        run = st.extend.core.jaxpr_as_fun(program)
        for found in (run(x), st.jit(run)(x), st.core.eval_jaxpr(
                program.jaxpr, [value + 0 for _, value in program.consts], x)):
            np.testing.assert_array_equal(found[0], f(x))
            assert found[0].sharding.device_set == mesh.device_set
        slopes = st.grad(lambda x, run=run: run(x)[0].sum())(x)
        np.testing.assert_array_equal(slopes, 2 * np.ones(4))
