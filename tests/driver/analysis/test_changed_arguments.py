"""Changes inside of a function, for arguments that lie on no mesh yet."""
import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.driver.analysis.applied_changes import Changed
from shardtrace.ir.source.location import UNKNOWN
from shardtrace.report.advice.changes import Argument, Constrain
from shardtrace.report.reasons.value_paths import Place
from shardtrace.sharding import PartitionSpec as P

from ...specs import struct


def test_numpy_arrays_go_into_a_function_of_which_a_value_inside_is_pinned():
    mesh = st.make_mesh((4, 2), ("data", "model"))
    x, w = np.ones((8, 16), np.float32), np.ones((16, 8), np.float32)
    changes = [Argument(0, "x", P("data")), Argument(1, "w", P()),
               Constrain((Place((), 0, 0),), "h", P(None, "model"), UNKNOWN)]
    changed = Changed(st.jit(lambda x, w: jnp.tanh(x @ w)), changes, mesh)
    np.testing.assert_allclose(np.asarray(changed(x, w)), np.tanh(x @ w), rtol=1e-6)


def test_what_is_made_of_an_argument_that_nobody_placed_is_pinned_on_an_abstract_mesh():
    mesh = st.sharding.AbstractMesh((4, 2), ("data", "model"))
    x, w = struct((8, 16), "data", mesh=mesh), st.ShapeDtypeStruct((16, 8), np.float32)
    changes = [Constrain((Place((), 0, 0),), "tanh(w)", P(None, "model"), UNKNOWN)]
    changed = Changed(st.jit(lambda x, w: x @ jnp.tanh(w)), changes, mesh)
    assert changed.lower(x, w).compile().output_shardings.spec == P("data", "model")
