"""Training steps of JAX's libraries, imported: the values of JAX, and the lines of the models."""
from __future__ import annotations

import pathlib

import numpy as np
import pytest

import shardtrace as st
from shardtrace import interop
from shardtrace.sharding import PartitionSpec as P

from ..executors import EXECUTORS
from . import models
from .programs import equations

jax, jnp = models.jax, models.jnp
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", models.MODELS)
def test_an_imported_step_is_that_of_jax(name: str) -> None:
    step, args = models.MODELS[name]()
    wanted = jax.tree.leaves(step(*args))
    mesh = st.make_mesh((8,), ("d",))
    specs = jax.tree.map(lambda x: P("d") if jnp.ndim(x) and len(x) % 8 == 0 else P(), args)
    for executor in EXECUTORS:
        with st.config.override(shardtrace_engine=executor):
            imported = interop.from_jax(step, *args, mesh=mesh, in_shardings=specs)
            found = jax.tree.leaves(imported(*args))
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=2e-5)
    explanation = st.explain(imported)()
    assert explanation.collectives
    own = [e for e in equations(imported.trace().jaxpr) if e.location.file]
    here = [e for e in own if pathlib.Path(e.location.file) == pathlib.Path(models.__file__)]
    assert len(here) > 0.97 * len(own)
