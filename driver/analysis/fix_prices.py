"""The cost of the fixes that an error suggests: bytes received when the fixed code is partitioned.
"""
from __future__ import annotations

from ...ir.diagnostics.diagnostic import PRICES
from ...ir.program import Program
from ...ir.support.lazy import lazy_import
from ...partitioner.pipeline import Options, partition

_kinds = lazy_import("...ir.ops.communication.collective_kinds", __package__)

_QUIET = Options(dump=False)


def received_bytes(program: Program) -> int:
    """Bytes that the busiest device receives in one run of a traced program over Explicit axes.

    >>> from shardtrace.driver.fix_prices import received_bytes
    >>> mesh = st.make_mesh((8,), ("x",), axis_types=(st.sharding.AxisType.Explicit,))
    >>> with st.set_mesh(mesh):
    ...     a = jnp.zeros((8, 64), jnp.float32, out_sharding=P("x", None))
    ...     received_bytes(st.make_jaxpr(lambda a: st.reshard(a, P(None, None)))(a))
    1792
    """
    specs = [v.aval.spec if v.aval.has_explicit_mesh() else None for v in program.invars]
    return _kinds.total_received(partition(program, mesh=program.mesh, in_shardings=specs,
                                           options=_QUIET).local)


def install() -> None:
    """Let errors state these prices."""
    if received_bytes not in PRICES:
        PRICES.append(received_bytes)
