"""A function of split arguments against the same on whole ones, by both executors and the meter."""
from __future__ import annotations

import numpy as np

import shardtrace as st
from shardtrace.arrays.storage import Stored
from shardtrace.ir.source.location import UNKNOWN
from shardtrace.runtime import measure
from shardtrace.runtime.per_device.executor import compile_per_device
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

NAMES = "xyz"


def agree(f, args, specs, out=None, sizes=(8,), rtol=1e-6, exact=False):
    """Bytes received per device by `f`, after checking what it gives and what is said of it.

    args: whole numpy values; specs: theirs, tuples of entries; out: that of all results, or None.
    exact: compare bits.
    """
    mesh = st.make_mesh(sizes, tuple(NAMES[:len(sizes)]), axis_types=(AxisType.Auto,) * len(sizes))
    held = [st.device_put(x, NamedSharding(mesh, P(*s))) for x, s in zip(args, specs, strict=True)]
    wanted = {} if out is None else {"out_shardings": NamedSharding(mesh, P(*out))}
    compiled = st.jit(f, **wanted).lower(*held).compile()
    expected = st.tree.leaves(f(*args))
    program = compiled.program
    alone = compile_per_device(program, mesh.abstract_mesh)([Stored(x) for x in args])
    for name, found in (("simulated", st.tree.leaves(compiled(*held))),
                        ("alone", [s.data for s in alone])):
        for a, b in zip(found, expected, strict=True):
            a, b = np.asarray(a), np.asarray(b)
            assert a.dtype == b.dtype and a.shape == b.shape, name
            if exact:
                assert a.tobytes() == b.tobytes(), f"{name}: {a} is not {b}"
            else:
                np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol, err_msg=name)
    records, measured = compiled.collectives(), measure(compiled, *held)
    assert [(r.kind, r.received_bytes * r.count) for r in records] \
        == [(m.kind, m.busiest) for m in measured]
    for record in records:
        assert record.source is not UNKNOWN and record.equation.reason, record
    return sum(r.received_bytes * r.count for r in records)
