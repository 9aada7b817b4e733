"""Per-device programs written by hand, and both executors on them."""
from __future__ import annotations

import math

import numpy as np
import pytest

from shardtrace.arrays.storage import Stored
from shardtrace.engines.engine import ENGINES
from shardtrace.ir.builder import ProgramBuilder
from shardtrace.ir.dtypes import is_extended
from shardtrace.ir.meshes.manual_state import ManualState
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.op import OPS
from shardtrace.ir.ops import dialect
from shardtrace.ir.program import Level, Literal, Program, Var
from shardtrace.ir.shardings.normalized import unsharded
from shardtrace.ir.shardings.sharding import named_sharding_abstract
from shardtrace.ir.spec import axis_factor, spec_from_entries
from shardtrace.ir.types import array_type
from shardtrace.runtime.per_device.executor import compile_per_device
from shardtrace.runtime.simulation.executor import compile_simulated

from ..comparisons import same_bits
from ..executors import FURTHER, forget_plans

assert dialect.OPS is OPS


class LocalProgram:
    """Builds a LOCAL program: parameters by global shape and spec, then equations on blocks.

    Operands of one equation are brought to a common varying set with `pvary`, as tracing does.
    """

    def __init__(self, **sizes: int) -> None:
        self.sizes = sizes
        names = tuple(sizes)
        self.mesh = AbstractMesh(tuple(sizes.values()), names)
        self.frozen = AbstractMesh(tuple(sizes.values()), names, (AxisType.Explicit,) * len(names))
        self.manual = AbstractMesh(tuple(sizes.values()), names, (AxisType.Manual,) * len(names))
        self.builder = ProgramBuilder(self.manual, Level.LOCAL)
        self.invars: list = []
        self.global_in: list = []

    def whole_type(self, shape, entries, dtype, unreduced=()):
        spec = spec_from_entries(tuple(tuple(e) for e in entries), frozenset(unreduced))
        return array_type(tuple(shape), as_dtype(dtype),
                          sharding=named_sharding_abstract(self.frozen, spec))

    def local_type(self, shape, dtype, varying):
        bases = {a.split(":")[0] for a in varying}
        return array_type(tuple(shape), as_dtype(dtype),
                          sharding=unsharded(len(shape), self.manual), manual=ManualState(bases))

    def arg(self, shape, entries=None, dtype=np.float32, unreduced=()):
        """A parameter; entries: for each dimension a tuple of axes."""
        entries = ((),) * len(shape) if entries is None else entries
        whole = self.whole_type(shape, entries, dtype, unreduced)
        varying = {a for e in entries for a in e} | set(unreduced)
        var = Var(self.local_type(whole.local_shape(), dtype, varying), f"x{len(self.invars)}")
        self.invars.append(var)
        self.global_in.append(whole)
        return var

    def literal(self, value, dtype=np.float32):
        value = np.asarray(value, dtype)
        return Literal(value[()], self.local_type((), dtype, ()))

    def emit(self, op_name, /, *operands, **params):
        op = OPS[op_name]
        if op.collective is None and len(operands) > 1:
            varying = frozenset().union(*(v.aval.varying for v in operands))
            operands = [self._vary(v, varying) for v in operands]
        out = self.builder.emit(op, operands, params)
        return out if op.multiple_results else out[0]

    def _vary(self, v, varying):
        missing = varying - v.aval.varying
        if not missing:
            return v
        return self.builder.emit(OPS["pvary"], [v], {"axes": tuple(sorted(missing))})[0]

    def program(self, *results):
        """results: (variable, entries) or (variable, entries, unreduced axes)."""
        outs, types = [], []
        for var, entries, *rest in results:
            counts = [math.prod(self.frozen.axis_size(a) for a in e) for e in entries]
            shape = [n * c for n, c in zip(var.aval.shape, counts, strict=True)]
            outs.append(var)
            types.append(self.whole_type(shape, entries, var.aval.dtype, *rest))
        return Program("test", self.invars, self.builder.eqns, outs, mesh=self.manual,
                       consts=self.builder.consts, level=Level.LOCAL, global_in=self.global_in,
                       global_out=types)

    def values(self, seed=0):
        """Random whole arguments that fit the parameters, as stored values."""
        rng = np.random.default_rng(seed)
        out = []
        for t in self.global_in:
            lead = tuple(a for a in self.sizes if a in t.sharding.spec.unreduced
                         and self.sizes[a] > 1)
            shape = tuple(self.sizes[a] for a in lead) + t.shape
            out.append(Stored(random_array(rng, shape, t.dtype), lead))
        return out


def as_dtype(dtype):
    return dtype if is_extended(dtype) else np.dtype(dtype)


def random_array(rng, shape, dtype):
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -9, 9, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return rng.standard_normal(shape).astype(np.float32).astype(dtype)


def of_devices(stored, mesh):
    """For each device the whole array with its part of the leading dimensions, stacked."""
    out = []
    for at in np.ndindex(*mesh.axis_sizes):
        where = []
        for a in stored.lead:
            base, _, size, rest = axis_factor(a, mesh.shape)
            where.append(at[mesh.axis_names.index(base)] // rest % size)
        out.append(stored.data[tuple(where)])
    return np.array(out)


def assert_same(a, b, mesh, rtol=2e-5, atol=2e-5):
    """Two stored values are equal on every device, up to rounding of their largest elements."""
    if a.lead == b.lead:
        x, y = a.data, b.data
    else:
        x, y = of_devices(a, mesh), of_devices(b, mesh)
    assert x.dtype == y.dtype
    assert x.shape == y.shape
    if same_bits(x, y):
        return
    if x.dtype.kind in "biu":
        np.testing.assert_array_equal(x, y)
    else:
        kind = np.complex128 if x.dtype.kind == "c" else np.float64
        x, y = x.astype(kind), y.astype(kind)
        scale = max(1.0, float(np.max(np.abs(y), initial=0.0, where=np.isfinite(y))))
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol * scale)


def both(program, mesh, arguments, rtol=2e-5, atol=2e-5):
    """Results of the simulated executor, checked against the per-device executor."""
    simulated = compile_simulated(program, mesh)(arguments)
    alone = compile_per_device(program, mesh)(arguments)
    assert len(simulated) == len(alone)
    for a, b in zip(simulated, alone, strict=True):
        assert_same(a, b, mesh, rtol, atol)
    for name in FURTHER:
        loaded = ENGINES[name].load(program, mesh)
        loaded.trusts_types = False                     # types made by hand
        for a, b in zip(loaded(arguments), alone, strict=True):
            assert_same(a, b, mesh, rtol, atol)
    return simulated


@pytest.fixture(autouse=True)
def plans_made_anew(request):
    """Where a test sets what plans depend on: a program that equals one before would run
    as that one was planned."""
    if "monkeypatch" in request.fixturenames:
        forget_plans()


@pytest.fixture(scope="session")
def local():
    return LocalProgram


@pytest.fixture(scope="session")
def run_both():
    return both
