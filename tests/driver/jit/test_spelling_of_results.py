"""How specs of results that nobody asked for are spelled: with empty last entries, or without."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
from tests.real_jax import real_jax

AUTO_SPECS = ((), (None,), (None, None), ("x",), ("y", None), (None, "y"), (("x", "y"), None))


@pytest.mark.parametrize(("types", "specs"), [
    ("AA", AUTO_SPECS), ("EA", AUTO_SPECS), ("AE", AUTO_SPECS[:-1]), ("EE", AUTO_SPECS)])
def test_results_are_spelled_as_in_jax(types, specs):
    """Like the first argument where no axis is Explicit; in full where the type says it all."""
    def spelled(m, jnp):
        kinds = {"A": m.sharding.AxisType.Auto, "E": m.sharding.AxisType.Explicit}
        mesh = m.make_mesh((2, 4), ("x", "y"), axis_types=tuple(kinds[t] for t in types))
        data = np.zeros((8, 8, 8), np.float32)

        def put(spec):
            return m.device_put(data, m.sharding.NamedSharding(mesh, m.P(*spec)))

        with m.set_mesh(mesh):
            return {(one, other): [
                str(r.sharding.spec) for r in m.jit(lambda v, w: (
                    v * 2, w * 2, v, jnp.zeros((4, 3, 2)), jnp.zeros(4)))(put(one), put(other))]
                for one, other in zip(specs, specs[1:] + specs[:1], strict=True)}

    jax = real_jax()
    assert spelled(st, st.numpy) == spelled(jax, jax.numpy)


@pytest.mark.parametrize("shape", [(1, 8), (8, 1), (1, 1)])
def test_axes_of_size_1_are_in_no_result_that_is_not_laid_out_like_the_first_argument(shape):
    def spelled(m, jnp):
        mesh = m.make_mesh(shape, ("x", "y"), axis_types=(m.sharding.AxisType.Auto,) * 2,
                           devices=m.devices()[:max(shape)])
        data = np.zeros((16, 8), np.float32)

        def put(spec):
            return m.device_put(data, m.sharding.NamedSharding(mesh, m.P(*spec)))

        return {(one, other): [str(r.sharding.spec) for r in m.jit(lambda v, w: (
            v * 2, w * 2, v.T, v.sum(0), v[None], v))(put(one), put(other))]
            for one, other in ((("x", "y"), ()), ((), ("x", "y")), (("x",), ("x", "y")),
                               ((None, "x"), ("y",)), ((("x", "y"),), (None, "y")))}

    jax = real_jax()
    assert spelled(st, st.numpy) == spelled(jax, jax.numpy)
