"""Every op, tested from its own declaration on its samples.

    evaluator    agrees with tests/references; its results have the inferred shapes and dtypes; with
                 leading device dimensions it does what a loop over devices does
    rule         sharding one factor two ways and putting the blocks together changes nothing
    batching     the default, or the op's own rule, does what a loop over examples does
    derivatives  jvp agrees with finite differences; <A x, y> = <x, A^T y> for transposes

Ops run by their evaluators alone, through a small interpreter.
"""
from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from shardtrace.ir.diagnostics.errors import IndivisibleError, ShardingTypeError
from shardtrace.ir.dtypes import compute_dtype
from shardtrace.ir.facts import COMMUTES, UNEVEN
from shardtrace.ir.inference.infer import infer
from shardtrace.ir.kernels.key_data import storage_dtype
from shardtrace.ir.meshes.manual_state import ManualState
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.op import LinearOperand, Sample
from shardtrace.ir.ops.derivatives import push_forward
from shardtrace.ir.ops.dialect import OPS, Op
from shardtrace.ir.rules.factor import PASS, Factor
from shardtrace.ir.rules.rule import FactorRule
from shardtrace.ir.settings.context import abstract_mesh_context, interpreter_context
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.spec import P
from shardtrace.ir.types import ArrayType, array_type

from ...comparisons import same_bits
from ...references.ops import REFERENCES

ELEMENTWISE = "... -> ..."
Arrays = Sequence[np.ndarray]
Test = Callable[[Op, Sample], None]

SAMPLES = {op.name: list(op.samples()) for op in OPS.values()
           if op.samples is not None and op.evaluate is not None}
ALL = [(OPS[name], sample) for name, samples in sorted(SAMPLES.items()) for sample in samples]


def on_each(cases: Sequence[tuple[Op, Sample]]) -> Callable[[Test], Callable[[Op], None]]:
    """Makes of a test on a sample one for each op, on all its samples; a note says which failed."""
    by_op: dict[Op, list[Sample]] = {}
    for op, sample in cases:
        by_op.setdefault(op, []).append(sample)

    def made(test: Test) -> Callable[[Op], None]:
        @pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in by_op])
        def on_samples(op: Op) -> None:
            for sample in by_op[op]:
                try:
                    test(op, sample)
                except BaseException as error:
                    error.add_note(f"{op.name} of {sample.operands}, params {sample.params}")
                    raise
        return on_samples
    return made


# -- running ops ----------------------------------------------------------------------------------

def types_of(arrays: Arrays) -> tuple[ArrayType, ...]:
    return tuple(array_type(x.shape, x.dtype) for x in arrays)


def results_of(op: Op, arrays: Arrays, params: dict[str, Any], lead: int = 0) -> list[np.ndarray]:
    """Run the evaluator as an executor does: widen, pad ranks, compute, cast."""
    local = [np.empty(x.shape[lead:], x.dtype) for x in arrays]
    types = infer(op, types_of(local), params)
    if op.rule == ELEMENTWISE:
        rank = max((x.ndim for x in local), default=0)
        arrays = [x.reshape(x.shape[:lead] + (1,) * (rank - v.ndim) + v.shape)
                  for x, v in zip(arrays, local, strict=True)]
    if op.arithmetic:
        arrays = [x.astype(compute_dtype(x.dtype), copy=False) for x in arrays]
    with np.errstate(all="ignore"):
        out = op.evaluate(lead, *arrays, **params)
    out = list(out) if op.multiple_results else [out]
    assert len(out) == len(types)
    return [np.asarray(x).astype(storage_dtype(t.dtype), copy=False)
            for x, t in zip(out, types, strict=True)]


class Evaluating:
    """An interpreter that computes with evaluators, on numpy arrays."""

    def process(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        return results_of(op, [np.asarray(x) for x in operands], params)


@contextlib.contextmanager
def evaluating() -> Iterator[None]:
    with interpreter_context(Evaluating()):
        yield


def same(a: Any, b: Any, tolerance: float = 1.0) -> None:
    """Equal up to the rounding of a few operations; exactly, for integers and booleans."""
    a, b = np.asarray(a), np.asarray(b)
    if same_bits(a, b):
        return
    assert a.shape == b.shape
    if a.dtype.kind not in "fc":
        np.testing.assert_array_equal(a, b)
        return
    wide = a.dtype in (np.float64, np.complex128) and b.dtype != np.float32
    scale = (1e-12 if wide else 2e-5) * tolerance
    np.testing.assert_allclose(a, b, rtol=scale, atol=scale)


def another(x: np.ndarray, i: int) -> np.ndarray:
    """The i-th variant of an operand: its elements in another order, or a nearby scalar."""
    if i == 0:
        return x
    if x.size > 1:
        return np.random.default_rng(i).permutation(x.ravel()).reshape(x.shape)
    if x.dtype.kind == "b":
        return x ^ np.bool_(i % 2)
    if x.dtype.kind in "iu":
        return x + np.asarray(i % 2, x.dtype)
    return (x * np.asarray(1 + i / 16)).astype(x.dtype)


# -- evaluators -----------------------------------------------------------------------------------

def test_every_op_says_what_it_does_and_has_samples() -> None:
    for name, op in OPS.items():
        assert op.doc, name
        # Random keys are no numpy dtype, and shardings need a mesh: they have tests of their own.
        elsewhere = (name.startswith(("random_", "rng_")) or op.manual is not None
                     or op.collective is not None or "reshard" in name or "constraint" in name)
        if op.evaluate is not None and not elsewhere:
            assert SAMPLES.get(name), f"{name} has no samples"


@on_each(ALL)
def test_evaluator_agrees_with_reference(op: Op, sample: Sample) -> None:
    if op.name not in REFERENCES:
        return
    out = results_of(op, sample.operands, dict(sample.params))
    expected = REFERENCES[op.name](*map(np.asarray, sample.operands), **sample.params)
    expected = list(expected) if op.multiple_results else [expected]
    for a, b in zip(out, expected, strict=True):
        # Integers are those of machines; floats of the reference may be more accurate.
        same(a, np.asarray(b).astype(np.result_type(a.dtype, np.float64)
                                     if a.dtype.kind in "fc" else a.dtype))


@on_each(ALL)
def test_results_have_the_inferred_shape_and_dtype(op: Op, sample: Sample) -> None:
    types = infer(op, types_of(sample.operands), dict(sample.params))
    with np.errstate(all="ignore"):
        rank = max((x.ndim for x in sample.operands), default=0)
        operands = [x.reshape((1,) * (rank - x.ndim) + x.shape) if op.rule == ELEMENTWISE else x
                    for x in sample.operands]
        out = op.evaluate(0, *operands, **sample.params)
    out = list(out) if op.multiple_results else [out]
    assert ([(np.shape(x), np.asarray(x).dtype) for x in out]
            == [(t.shape, storage_dtype(t.dtype)) for t in types])


LEADS = ((), (3,), (2, 3))


@on_each(ALL)
def test_device_dimensions_are_a_loop_over_devices(op: Op, sample: Sample) -> None:
    for sizes in LEADS[1:]:
        loop_over_devices(op, sample, sizes)


def loop_over_devices(op: Op, sample: Sample, sizes: tuple[int, ...]) -> None:
    count, lead, params = len(sample.operands), len(sizes), dict(sample.params)
    shapes = [tuple(sizes)] * count
    patterns = [shapes]
    for i in range(count):      # one operand that does not vary, or varies along one axis only
        partial = tuple(n if d == i % lead and lead > 1 else 1 for d, n in enumerate(sizes))
        patterns.append([partial if j == i else s for j, s in enumerate(shapes)])
    for pattern in patterns:
        stacked = []
        for j, (x, s) in enumerate(zip(sample.operands, pattern, strict=True)):
            devices = [another(x, 5 * i + j if i else 0) for i in range(int(np.prod(s)))]
            stacked.append(np.stack(devices).reshape(*s, *x.shape))
        out = results_of(op, stacked, params, lead)
        for device in np.ndindex(*sizes):
            own = [x[tuple(i if n != 1 else 0 for i, n in zip(device, x.shape, strict=False))]
                   for x in stacked]
            for whole, alone in zip(out, results_of(op, own, params), strict=True):
                index = tuple(i if n != 1 else 0
                              for i, n in zip(device, whole.shape[:lead], strict=True))
                same(whole[index], alone)


# -- rules ----------------------------------------------------------------------------------------

COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and,
           "or": np.bitwise_or, "xor": np.bitwise_xor, "prod": np.multiply}


def block(x: np.ndarray, dims: Any, rule: FactorRule, f: int, half: int) -> np.ndarray:
    """The half of x along factor f, which may lie inside compound dimensions."""
    shape, index, local = [], [], []
    for n, factors in zip(x.shape, dims, strict=True):
        sizes = [rule.factors[g].size for g in factors] if len(factors) > 1 else [n] * len(factors)
        shape += sizes or [n]
        for g, size in zip(factors, sizes, strict=True):
            index.append(slice(half * size // 2, (half + 1) * size // 2) if g == f else slice(None))
        index += [] if factors else [slice(None)]
        local.append(n // 2 if f in factors else n)
    return x.reshape(shape)[tuple(index)].reshape(local)


def splits(rule: FactorRule, tensors: Arrays) -> Iterator[tuple[int, Factor]]:
    """Factors that can be split two ways: those that fill the dimensions that carry them."""
    for f, factor in enumerate(rule.factors):
        whole = all(int(np.prod([rule.factors[g].size for g in dims[d]])) == x.shape[d]
                    for x, dims in zip(tensors, rule.operands + rule.results, strict=True)
                    for d in range(x.ndim) if f in dims[d])
        if factor.splittable and factor.size % 2 == 0 and factor.size and whole:
            yield f, factor


def resizes(op: Op, sample: Sample) -> bool:
    """Is a factor carried by dimensions of other sizes in the results than in the operands?"""
    operands, params = types_of(sample.operands), dict(sample.params)
    results = infer(op, operands, params)
    rule = op.factor_rule(tuple(t.shape for t in operands), tuple(t.shape for t in results), params)

    def sizes(types: Sequence[ArrayType], maps: Sequence[Any]) -> set[tuple[int, int]]:
        return {(f, n) for t, dims in zip(types, maps, strict=True)
                for n, factors in zip(t.shape, dims, strict=True) if len(factors) == 1
                for f in factors}

    given = sizes(operands, rule.operands)
    return any(f in dict(given) and (f, n) not in given for f, n in sizes(results, rule.results))


@pytest.mark.parametrize("name", sorted(name for name, samples in SAMPLES.items() if samples))
def test_what_can_be_padded_and_resizes_dimensions_says_so(name: str) -> None:
    op = OPS[name]
    assert (UNEVEN in op.facts) == (
        op.padded is not None and any(resizes(op, sample) for sample in SAMPLES[name]))


@on_each([(op, s) for op, s in ALL if COMMUTES in op.facts])
def test_what_commutes_gives_the_same_with_its_operands_exchanged(op: Op, sample: Sample) -> None:
    params, (x, y) = dict(sample.params), sample.operands
    (one,), (other,) = results_of(op, (x, y), params), results_of(op, (y, x), params)
    assert same_bits(one, other) or one.dtype.kind == "c" and np.allclose(one, other)


@on_each([(op, s) for op, s in ALL if op.localize is None])
def test_sharding_a_factor_changes_nothing(op: Op, sample: Sample) -> None:
    params = dict(sample.params)
    whole = results_of(op, sample.operands, params)
    rule = op.factor_rule(tuple(x.shape for x in sample.operands),
                          tuple(x.shape for x in whole), params)
    assert len(rule.operands) == len(sample.operands) and len(rule.results) == len(whole)
    for f, factor in splits(rule, [*sample.operands, *whole]):
        halves = []
        for half in (0, 1):
            operands = [block(x, dims, rule, f, half)
                        for x, dims in zip(sample.operands, rule.operands, strict=True)]
            shapes = tuple(block(x, dims, rule, f, half).shape
                           for x, dims in zip(whole, rule.results, strict=True))
            local = params if op.resize is None else op.resize(
                params, tuple(x.shape for x in operands), shapes)
            out = results_of(op, operands, local)
            assert tuple(x.shape for x in out) == shapes, factor.name
            halves.append(out)
        for x, dims, first, second in zip(whole, rule.results, *halves, strict=True):
            if factor.kind == PASS or any(f in d for d in dims):
                same(first, block(x, dims, rule, f, 0))
                same(second, block(x, dims, rule, f, 1))
            else:
                same(COMBINE[factor.operator](first, second), x, 5)


# -- batching -------------------------------------------------------------------------------------

def default_batch(op: Op, operands: Arrays, dims: Sequence[int | None], size: int,
                  params: dict[str, Any]) -> tuple[list[np.ndarray], list[int]]:
    """One more dimension in front of every operand and result."""
    moved = [x if d is None else np.moveaxis(x, d, 0) for x, d in zip(operands, dims, strict=True)]
    if op.rule == ELEMENTWISE:
        rank = max(x.ndim - (d is not None) for x, d in zip(moved, dims, strict=True))
        moved = [x if d is not None else x[None] for x, d in zip(moved, dims, strict=True)]
        moved = [x.reshape(x.shape[:1] + (1,) * (rank + 1 - x.ndim) + x.shape[1:]) for x in moved]
    else:
        moved = [np.broadcast_to(x, (size, *x.shape)) if d is None else x
                 for x, d in zip(moved, dims, strict=True)]
    out = results_of(op, moved, params)
    return out, [0] * len(out)


@on_each(ALL)
def test_batching_is_a_loop_over_examples(op: Op, sample: Sample) -> None:
    size, params, count = 3, dict(sample.params), len(sample.operands)
    if not count or op.name == "rng_bit_generator":      # all bits come from the first state
        return
    everything = [[0] * count, [-1] * count]
    alone = [[0 if j == i else None for j in range(count)] for i in range(count)]
    for dims in everything + (alone if count > 1 else []):
        examples = [[another(x, 3 * i + j if i and d is not None else 0) for i in range(size)]
                    for j, (x, d) in enumerate(zip(sample.operands, dims, strict=True))]
        places = [None if d is None else x.ndim if d == -1 else 0
                  for x, d in zip(sample.operands, dims, strict=True)]
        operands = [xs[0] if d is None else np.stack(xs, d)
                    for xs, d in zip(examples, places, strict=True)]
        if op.batch is None:
            out, out_dims = default_batch(op, operands, places, size, params)
        else:
            with evaluating():
                out, out_dims = op.batch(operands, places, size, **params)
        for i in range(size):
            alone_out = results_of(op, [xs[i] for xs in examples], params)
            for x, d, expected in zip(out, out_dims, alone_out, strict=True):
                same(x if d is None else np.take(x, i, d), expected)


# -- derivatives ----------------------------------------------------------------------------------

WIDER = {np.dtype(a): np.dtype(b) for a, b in ((np.float32, np.float64),
                                               (np.complex64, np.complex128))}
DIFFERENTIABLE = [(op, s) for op, s in ALL if s.grad and op.jvp not in (None, "zero")]
LINEAR = [(op, s) for op, s in ALL if s.grad and op.transpose is not None]


def widened(sample: Sample) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Operands in float64 and complex128, and params that name dtypes likewise."""
    operands = [x.astype(WIDER.get(x.dtype, x.dtype)) for x in sample.operands]
    params = {k: WIDER.get(v, v) if isinstance(v, np.dtype) else v
              for k, v in sample.params.items()}
    return operands, params


def direction(x: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    out = rng.normal(size=x.shape)
    return (out + 1j * rng.normal(size=x.shape) if x.dtype.kind == "c" else out).astype(x.dtype)


def moving_sets(op: Op, operands: Arrays) -> Iterator[tuple[int, ...]]:
    floats = [i for i, x in enumerate(operands) if x.dtype.kind in "fc"]
    yield tuple(floats)
    if len(floats) > 1:
        yield from ((i,) for i in floats)


@on_each(DIFFERENTIABLE)
def test_jvp_agrees_with_finite_differences(op: Op, sample: Sample) -> None:
    operands, params = widened(sample)
    step = 1e-6
    for moving in moving_sets(op, operands):
        tangents = [direction(x, i) if i in moving else None for i, x in enumerate(operands)]
        try:
            with evaluating():
                outs, out_tangents = push_forward(op, operands, tangents, params)
        except ValueError as error:
            assert "not supported" in str(error)     # JAX has no derivative by this operand
            continue
        ahead, behind = (
            results_of(op, [x if t is None else x + s * step * t
                            for x, t in zip(operands, tangents, strict=True)], params)
            for s in (1, -1))
        plain = results_of(op, operands, params)
        for out, t, x, a, b in zip(outs, out_tangents, plain, ahead, behind, strict=True):
            same(out, x)
            if a.dtype.kind not in "fc":
                assert t is None
                continue
            slope = (a - b) / (2 * step)
            t = np.zeros_like(slope) if t is None else np.asarray(t)
            assert t.shape == x.shape and t.dtype == x.dtype
            np.testing.assert_allclose(t, slope, rtol=2e-6, atol=2e-7)


def pairing(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    return float(sum(np.sum(np.real(x * y)) for x, y in zip(xs, ys, strict=True)))


@on_each(LINEAR)
def test_transpose_is_the_adjoint(op: Op, sample: Sample) -> None:
    operands, params = widened(sample)
    types = types_of(operands)
    for linear in op.linear_sets(len(operands), types, params):
        if any(operands[i].dtype.kind not in "fc" for i in linear):
            continue
        given = [LinearOperand(t) if i in linear else x
                 for i, (x, t) in enumerate(zip(operands, types, strict=True))]
        point = [direction(x, i) if i in linear else x for i, x in enumerate(operands)]
        origin = [np.zeros_like(x) if i in linear else x for i, x in enumerate(operands)]
        # A constant part, such as the padding of a pad, is not the business of the transpose.
        out = [x - c for x, c in zip(results_of(op, point, params), results_of(op, origin, params),
                                     strict=True)]
        cts = [direction(x, 9 + i) for i, x in enumerate(out)]
        with evaluating():
            back = op.transpose(cts if op.multiple_results else cts[0], *given, **params)
        assert len(back) == len(operands)
        for i in range(len(operands)):
            if i in linear:
                assert np.shape(back[i]) == types[i].shape and back[i].dtype == types[i].dtype
            else:
                assert back[i] is None
        np.testing.assert_allclose(pairing(out, cts), pairing([point[i] for i in linear],
                                                              [back[i] for i in linear]),
                                   rtol=1e-9, atol=1e-9)


class Value:
    """A value of which only the type is known."""

    def __init__(self, aval: ArrayType) -> None:
        self.aval, self.shape, self.dtype = aval, aval.shape, aval.dtype


class Typing:
    """An interpreter that only infers types; operands are made to vary as the others do."""

    def __init__(self, mesh: AbstractMesh) -> None:
        self.mesh = mesh

    def process(self, op: Op, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
        types = [x.aval if isinstance(x, Value) else
                 array_type(np.shape(x), np.asarray(x).dtype) for x in operands]
        varying = frozenset().union(*(t.varying for t in types))
        types = [t if t.varying == varying else t.update(
            sharding=NamedSharding(self.mesh, t.spec), manual=ManualState(varying)) for t in types]
        return [Value(t) for t in infer(op, tuple(types), params, self.mesh)]


EXPLICIT = AbstractMesh((2,), ("x",), (AxisType.Explicit,))
MANUAL = AbstractMesh((2,), ("x",), (AxisType.Manual,))


def sharded_types(sample: Sample) -> Iterator[tuple[AbstractMesh, tuple[ArrayType, ...]]]:
    """The operand types, with one dimension split, or varying over a manual axis."""
    shapes = [x.shape for x in sample.operands]
    rank = max((len(s) for s in shapes), default=0)
    for d in range(rank):
        specs = [P(*("x" if i == d and len(s) == rank and s[d] % 2 == 0 else None
                     for i in range(len(s)))) for s in shapes]
        yield EXPLICIT, tuple(array_type(x.shape, x.dtype, False, NamedSharding(EXPLICIT, spec))
                              for x, spec in zip(sample.operands, specs, strict=True))
    yield MANUAL, tuple(array_type(x.shape, x.dtype, False, NamedSharding(MANUAL, P()),
                                   ManualState({"x"})) for x in sample.operands)


@contextlib.contextmanager
def typing(mesh: AbstractMesh) -> Iterator[None]:
    """Operands that Explicit typing refuses, or warns of, are no business of these tests."""
    with interpreter_context(Typing(mesh)), abstract_mesh_context(mesh), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            yield
        except IndivisibleError:
            pass
        except ShardingTypeError as error:
            if "not divisible" not in str(error):
                raise


def accepted(op: Op, operands: Sequence[Value], params: dict[str, Any]) -> Any:
    """The results, None if the operands are split as the op does not take them."""
    try:
        return op.bind(*operands, **params)
    except (ShardingTypeError, NotImplementedError):
        return None


@on_each(DIFFERENTIABLE)
def test_tangents_have_the_types_of_their_primals(op: Op, sample: Sample) -> None:
    params = dict(sample.params)
    for mesh, types in sharded_types(sample):
        operands = [Value(t) for t in types]
        moving = [x if t.dtype.kind in "fc" else None for x, t in zip(operands, types, strict=True)]
        if op.name in ("polygamma", "regularized_incomplete_beta"):
            moving[:-1] = [None] * (len(moving) - 1)
        with typing(mesh):
            if accepted(op, operands, params) is None:
                continue
            if op.name == "sort" and any(any(t.entries) for t in types):
                with pytest.raises(ShardingTypeError, match="Arguments to sort must have equal"):
                    push_forward(op, operands, moving, params)      # as in JAX
                continue
            outs, tangents = push_forward(op, operands, moving, params)
            for out, tangent in zip(outs, tangents, strict=True):
                assert tangent is None or tangent.aval is out.aval


@on_each(LINEAR)
def test_cotangents_have_the_types_of_their_operands(op: Op, sample: Sample) -> None:
    params = dict(sample.params)
    for mesh, types in sharded_types(sample):
        for linear in op.linear_sets(len(types), types, params):
            operands = [Value(t) for t in types]
            with typing(mesh):
                outs = accepted(op, operands, params)
                if outs is None:
                    continue
                given = [LinearOperand(t) if i in linear else x
                         for i, (x, t) in enumerate(zip(operands, types, strict=True))]
                cts = op.transpose(outs, *given, **params)
                for i in linear:
                    assert cts[i].aval is types[i]


@on_each([(op, s) for op, s in ALL if op.batch is not None])
def test_a_split_batch_stays_split(op: Op, sample: Sample) -> None:
    params, count = dict(sample.params), len(sample.operands)
    plain = [array_type(x.shape, x.dtype, False, NamedSharding(EXPLICIT, P()))
             for x in sample.operands]
    split = [array_type((2, *t.shape), t.dtype, False, NamedSharding(EXPLICIT, P("x")))
             for t in plain]
    for dims in [[0] * count, *([0 if j == i else None for j in range(count)]
                                for i in range(count))]:
        operands = [Value(t if d is None else s)
                    for t, s, d in zip(plain, split, dims, strict=True)]
        with typing(EXPLICIT):
            try:
                outs, out_dims = op.batch(operands, dims, 2, **params)
            except (ShardingTypeError, NotImplementedError):
                continue        # Explicit typing asks for an out_sharding
            for out, d in zip(outs, out_dims, strict=True):
                if d is not None:
                    assert out.aval.entries[d] == ("x",), (dims, out.aval)


def test_ops_linear_in_an_operand_can_be_transposed() -> None:
    for name, op in OPS.items():
        declared = callable(op.linear) or bool(op.linear)
        if declared and op.jvp != "zero" and op.collective is None:
            assert op.transpose is not None, name


def test_samples_cover_factors_of_every_kind() -> None:
    kinds = set()
    for op, sample in itertools.chain.from_iterable(
            [(OPS[name], s) for s in samples] for name, samples in SAMPLES.items()):
        out = infer(op, types_of(sample.operands), dict(sample.params))
        rule = op.factor_rule(tuple(x.shape for x in sample.operands),
                              tuple(t.shape for t in out), dict(sample.params))
        kinds |= {f.kind for f in rule.factors}
    assert {"pass", "reduce", "scan", "ordered", "replicate"} <= kinds
