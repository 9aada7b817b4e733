"""What a traced program means: its equations, one by one, by ops.py, on whole arrays.

A value is a list with an array for each place: one place outside of `shard_map`, inside one for
each position along its manual axes. Loops and branches go on with the places that take part. Only
the program as it was traced is read; nothing of the partitioner, the runtime or the evaluators is
used, but for random bits and matrix decompositions (`TRUSTED`), where many results are right.
"""
from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from shardtrace.ir.dtypes import compute_dtype
from shardtrace.ir.kernels.key_data import storage_dtype
from shardtrace.ir.program import Equation, Literal, Program, Var

from .elements import Array
from .ops import CHECKS, COLLECTIVES, ELSEWHERE, REFERENCES

Values = list[Array]                    # one for each place
Place = dict[str, int]                  # its coordinate along each manual axis

TRUSTED = {*CHECKS} | {name for name in ELSEWHERE if name.startswith(("random_", "rng_"))}
CALLS = {"jit": "jaxpr", "checkpoint": "jaxpr", "composite": "jaxpr",
         "custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
SAME = {"pvary", "preduced", "assume_invarying", "vary_unreduced_cast_p", "reduced_vary_cast_p",
        "reshard", "sharding_constraint"}
BITWISE = {"bitcast_convert_type", "nextafter", "reduce_precision"}     # of the dtype as it is
# Their rounding is that of the sum of the magnitudes.
SUMS = {"dot_general", "reduce_sum", "cumsum", "conv_general_dilated", "reduce_window_sum", "fft",
        "scatter-add", "psum", "psum_invariant", "reduce_scatter", "unreduced_psum", "add", "sub",
        "add_any", "select_and_scatter_add", "ragged_dot_general"}
# Evaluators of these stop a series early, or have polynomials: off by so many roundings. Tests of
# ops and engines are as lenient with these.
COARSE = {"regularized_incomplete_beta": 200, "polygamma": 200, "zeta": 200, "igamma": 20,
          "igammac": 20, "igamma_grad_a": 100, "digamma": 20, "lgamma": 20, "erf_inv": 20,
          "bessel_i0e": 20, "bessel_i1e": 20, "random_gamma_grad": 100}
# By elimination, rotations and the like: off as by roundings of the largest that is given.
SOLVED = {"cholesky", "cholesky_update", "eig", "eigh", "geqrf", "hessenberg", "lu", "qr", "schur",
          "solve", "svd", "triangular_solve", "tridiagonal", "tridiagonal_solve"}
MOST_ROUNDS = 10_000
WIDER = {np.dtype(a): np.dtype(b) for a, b in ((np.float32, np.float64),
                                               (np.complex64, np.complex128))}


class NoReference(Exception):
    """The program has something whose meaning is judged elsewhere."""


def interpret(program: Program, args: Sequence[Any], *, noise: np.random.Generator | None = None,
              wide: bool = False) -> Values:
    """The results of a traced program.

    noise: each result is off by a few roundings, drawn from it: how far the results then differ is
    how well they are known. wide: all floats of 32 bits have 64.
    """
    reader = Interpreter(noise, wide)
    with np.errstate(all="ignore"):
        values = [[reader.rounded(np.asarray(x), v.aval.dtype)]
                  for x, v in zip(args, program.invars, strict=True)]
        return [v[0] for v in reader.run(program, values, [{}])]


def epsilon(dtype: np.dtype) -> float:
    return 0.0 if dtype.kind in "biu" else float(ml_dtypes.finfo(dtype).eps)


class Interpreter:
    """Runs programs at some places; see the head of the file."""

    def __init__(self, noise: np.random.Generator | None, wide: bool) -> None:
        self.noise, self.wide = noise, wide
        self.sizes: dict[str, int] = {}         # of the manual axes met so far

    def dtype(self, declared: Any) -> np.dtype:
        dtype = storage_dtype(declared)
        return WIDER.get(dtype, dtype) if self.wide else dtype

    def rounded(self, x: Any, declared: Any) -> Array:
        dtype, x = self.dtype(declared), np.asarray(x)
        if x.dtype == object and dtype.kind not in "iu":
            return np.array(x.tolist(), dtype)
        return x if x.dtype == dtype else x.astype(dtype)

    def run(self, program: Program, operands: Sequence[Values], places: Sequence[Place]
            ) -> list[Values]:
        known: dict[Var, Values] = dict(zip(program.invars, operands, strict=True))
        for v, x in program.consts:
            known[v] = [self.rounded(constant(x), v.aval.dtype)] * len(places)

        def value(a: Any) -> Values:
            if isinstance(a, Literal):
                return [self.rounded(constant(a.val), a.aval.dtype)] * len(places)
            return known[a]

        for eqn in program.eqns:
            results = self.equation(eqn, [value(a) for a in eqn.invars], places)
            known.update(zip(eqn.outvars, results, strict=True))
        return [value(a) for a in program.outvars]

    def equation(self, eqn: Equation, operands: list[Values], places: Sequence[Place]
                 ) -> list[Values]:
        name, params = eqn.op.name, eqn.params
        if name in CALLS:
            return self.run(params[CALLS[name]], operands, places)
        if name in CONTROL:
            return CONTROL[name](self, params, operands, places)
        if name in SAME:
            return operands
        if name == "axis_index":
            axes = params["axis_name"]
            return [[np.asarray(position([p[a] for a in axes], [self.sizes[a] for a in axes]),
                                np.int32) for p in places]]
        types = [v.aval for v in eqn.outvars]
        if name in COLLECTIVES:
            return [[self.result(eqn, x, types[0], operands[0][k:k + 1]) for k, x in enumerate(
                exchanged(self, name, params, operands[0], places))]]
        outs: list[Values] = [[] for _ in types]
        done: dict[tuple[int, ...], list[Array]] = {}       # places may hold the same arrays
        for k in range(len(places)):
            xs = [v[k] for v in operands]
            key = tuple(map(id, xs))
            if key not in done:
                if self.noise is not None and name in SOLVED:
                    xs = [self.moved(x, largest(x)) for x in xs]
                done[key] = [self.result(eqn, x, t, xs) for x, t in zip(
                    self.applied(eqn, xs), types, strict=True)]
            for out, x in zip(outs, done[key], strict=True):
                out.append(x)
        return outs

    def applied(self, eqn: Equation, xs: list[Array]) -> Sequence[Any]:
        op, params = eqn.op, eqn.params
        if op.name == "triangular_solve" and not params["unit_diagonal"] and not np.diagonal(
                xs[0], axis1=-2, axis2=-1).all():
            raise NoReference("a singular matrix")     # NaN or infinities, as the blocks are cut
        if op.name in TRUSTED:
            assert op.evaluate is not None
            if op.arithmetic:
                xs = [x.astype(compute_dtype(x.dtype), copy=False) for x in xs]
            out = op.evaluate(0, *xs, **params)
            return out if op.multiple_results else [out]
        if op.name == "reduce":
            return self.reduced(xs, **params)
        if op.name not in REFERENCES or op.name == "cholesky" and not np.isfinite(xs[0]).all():
            raise NoReference(op.name)
        if op.name not in BITWISE:
            xs = [x.astype(np.float32) if x.dtype.kind == "V" else x for x in xs]
        if "new_dtype" in params:
            params = {**params, "new_dtype": self.dtype(params["new_dtype"])}
        elif self.wide and "dtype" in params:
            params = {**params, "dtype": self.dtype(params["dtype"])}
        elif self.wide and params.get("out_dtype") is not None:
            params = {**params, "out_dtype": self.dtype(params["out_dtype"])}
        if op.name == "gather" and params["mode"].name == "PROMISE_IN_BOUNDS":
            read = params["mode"]
            params = {**params, "mode": type(read).CLIP}        # as XLA reads what is kept
            beyond = {**params, "mode": type(read).FILL_OR_DROP, "fill_value": np.nan}
            if self.wide and np.isnan(REFERENCES["gather"](
                    np.zeros(xs[0].shape), *xs[1:], **beyond)).any():
                raise NoReference("an index out of bounds")
        if (op.name == "conv_general_dilated" and self.noise is not None
                and self.noise.random() < 0.5):
            xs, params = [with_zeros(xs[0], params), xs[1]], unpadded(params)
        out = REFERENCES[op.name](*xs, **params)
        return out if op.multiple_results else [out]

    def result(self, eqn: Equation, x: Any, t: Any, operands: list[Array]) -> Array:
        """Rounded to the dtype of its type, and off by a little where that is asked for."""
        x = self.rounded(x, t.dtype)
        if x.shape != t.shape:
            raise AssertionError(f"{eqn.op.name} gives {x.shape}, its type is {t}")
        if self.noise is None or not eqn.op.arithmetic or x.dtype.kind not in "fcV":
            return x
        if eqn.op.name in ("neg", "abs", "max", "min", "sign", "round", "floor", "ceil", "real",
                           "imag", "conj", "reduce_max", "reduce_min", "select_n", "clamp"):
            return x
        if eqn.op.name == "fft":    # sums of sums: which of them have infinities is not said
            x = np.where(np.isfinite(x), x, self.noise.choice([np.nan, np.inf, -np.inf], x.shape)
                         ).astype(x.dtype)
        scale = np.abs(x)
        if eqn.op.name in SUMS:
            of = [largest(o) for o in operands][:1 if eqn.op.name.startswith("scatter") else 2]
            product = eqn.op.name in ("dot_general", "conv_general_dilated", "ragged_dot_general")
            terms = max([1, *(o.size for o in operands)]) / max(1, x.size)
            scale = scale + (math.prod(of) if product else max(of)) * math.sqrt(max(1.0, terms))
        return self.moved(x, scale * COARSE.get(eqn.op.name, 1))

    def moved(self, x: Array, scale: Any) -> Array:
        """Off by a few roundings of numbers of this size."""
        assert self.noise is not None
        if x.dtype.kind not in "fcV":
            return x
        unit = max(epsilon(x.dtype), epsilon(np.dtype(np.float32)))
        moved = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) + (
            self.noise.uniform(-4, 4, x.shape) * unit * scale)
        return np.where(np.isfinite(moved), moved, x).astype(x.dtype)

    def reduced(self, xs: list[Array], *, jaxpr: Program, dimensions: Sequence[int]) -> list[Array]:
        """Rows folded with a program."""
        count = len(xs) // 2
        kept = [n for d, n in enumerate(xs[0].shape) if d not in dimensions]
        rows = [np.moveaxis(x, dimensions, range(len(dimensions))).reshape(
            (-1 if x.size else 0, *kept)) for x in xs[:count]]
        out = [np.broadcast_to(x, kept) for x in xs[count:]]
        for row in zip(*rows, strict=True):
            each = [np.zeros(kept, x.dtype) for x in out]
            for index in np.ndindex(*kept):
                found = self.run(jaxpr, [[np.asarray(v[index])] for v in (*out, *row)], [{}])
                for x, f in zip(each, found, strict=True):
                    x[index] = f[0]
            out = each
        return out


def largest(x: Array) -> float:
    """The largest finite magnitude in it."""
    y = np.abs(x.astype(np.complex128))
    return float(np.max(np.where(np.isfinite(y), y, 0), initial=0.0))


def with_zeros(x: Array, params: Any) -> Array:
    """A convolution's operand with its padding, which times an infinity may be NaN or nothing."""
    config = [(0, 0, 0)] * x.ndim
    for d, (low, high), apart in zip(params["dimension_numbers"].lhs_spec[2:], params["padding"],
                                     params["lhs_dilation"], strict=True):
        config[d] = (low, high, apart - 1)
    return REFERENCES["pad"](x, np.zeros((), x.dtype), padding_config=config)


def unpadded(params: Any) -> Any:
    return {**params, "padding": [(0, 0) for _ in params["padding"]],
            "lhs_dilation": [1 for _ in params["padding"]]}


def constant(x: Any) -> Array:
    """The elements of a captured array; of keys their words."""
    return np.asarray(getattr(x, "_numpy_storage", x))


def position(coordinates: Sequence[int], sizes: Sequence[int]) -> int:
    out = 0
    for c, n in zip(coordinates, sizes, strict=True):
        out = out * n + c
    return out


# -- control flow ---------------------------------------------------------------------------

def scan(self: Interpreter, params: Any, operands: list[Values], places: Sequence[Place]
         ) -> list[Values]:
    consts, carry = params["num_consts"], params["num_carry"]
    body, length = params["jaxpr"], params["length"]
    fixed, state = operands[:consts], operands[consts:consts + carry]
    xs = operands[consts + carry:]
    items: list[list[Values]] = []
    order = range(length)
    for i in reversed(order) if params["reverse"] else order:
        out = self.run(body, [*fixed, *state, *([x[i] for x in v] for v in xs)], places)
        state = out[:carry]
        items.append(out[carry:])
    if params["reverse"]:
        items.reverse()
    stacked = []
    for j, v in enumerate(body.outvars[carry:]):
        empty = np.zeros((0, *v.aval.shape), self.dtype(v.aval.dtype))
        stacked.append([np.stack([item[j][k] for item in items]) if items else empty
                        for k in range(len(places))])
    return [*state, *stacked]


def at(values: Sequence[Values], which: Sequence[int]) -> list[Values]:
    return [[v[k] for k in which] for v in values]


def while_loop(self: Interpreter, params: Any, operands: list[Values], places: Sequence[Place]
               ) -> list[Values]:
    a, b = params["cond_nconsts"], params["body_nconsts"]
    of_cond, of_body, state = operands[:a], operands[a:a + b], [list(v) for v in operands[a + b:]]
    active = list(range(len(places)))
    for _ in range(MOST_ROUNDS):
        here = [places[k] for k in active]
        (goes,) = self.run(params["cond_jaxpr"], at([*of_cond, *state], active), here)
        active = [k for k, go in zip(active, goes, strict=True) if go]
        if not active:
            return state
        out = self.run(params["body_jaxpr"], at([*of_body, *state], active),
                       [places[k] for k in active])
        for v, new in zip(state, out, strict=True):
            for k, x in zip(active, new, strict=True):
                v[k] = x
    raise NoReference("a loop that does not end")


def cond(self: Interpreter, params: Any, operands: list[Values], places: Sequence[Place]
         ) -> list[Values]:
    branches = params["branches"]
    chosen = [max(0, min(int(i), len(branches) - 1)) for i in operands[0]]
    outs: list[list[Any]] = [[None] * len(places) for _ in branches[0].outvars]
    for i, branch in enumerate(branches):
        which = [k for k, c in enumerate(chosen) if c == i]
        if which:
            found = self.run(branch, at(operands[1:], which), [places[k] for k in which])
            for out, values in zip(outs, found, strict=True):
                for k, x in zip(which, values, strict=True):
                    out[k] = x
    return outs


def block_of(x: Array, entries: Any, place: Place, sizes: dict[str, int]) -> tuple[slice, ...]:
    """Where the block of a place lies in the whole array."""
    index = []
    for n, axes in itertools.zip_longest(x.shape, entries, fillvalue=()):
        parts = math.prod(sizes[a] for a in axes)
        size = n // parts
        at = position([place[a] for a in axes], [sizes[a] for a in axes])
        index.append(slice(at * size, (at + 1) * size))
    return tuple(index)


def shard_map(self: Interpreter, params: Any, operands: list[Values], places: Sequence[Place]
              ) -> list[Values]:
    mesh, specs = params["mesh"], params["in_specs"]
    axes = [a for a in mesh.axis_names if a in params["manual_axes"]]
    sizes = {a: mesh.axis_size(a) for a in axes}
    self.sizes.update(sizes)
    if any(s.unreduced or s.reduced for s in (*specs, *params["out_specs"])):
        raise NoReference("a sum that is pending where shard_map begins or ends")
    inner = [dict(zip(axes, c, strict=True)) for c in np.ndindex(*sizes.values())]
    blocks = [[v[k][block_of(v[k], s.entries, c, sizes)] for k in range(len(places)) for c in inner]
              for v, s in zip(operands, specs, strict=True)]
    found = self.run(params["jaxpr"], blocks, [{**p, **c} for p in places for c in inner])
    outs = []
    for values, spec in zip(found, params["out_specs"], strict=True):
        entries, whole = spec.entries, []
        for k in range(len(places)):
            own = values[k * len(inner):(k + 1) * len(inner)]
            shape = [n * math.prod(sizes[a] for a in dim)
                     for n, dim in itertools.zip_longest(own[0].shape, entries, fillvalue=())]
            x = np.zeros(shape, own[0].dtype)
            for c, block in reversed(list(zip(inner, own, strict=True))):
                x[block_of(x, entries, c, sizes)] = block       # the first device's comes last
            whole.append(x)
        outs.append(whole)
    return outs


CONTROL: dict[str, Callable[..., list[Values]]] = {
    "scan": scan, "while": while_loop, "cond": cond, "shard_map": shard_map}


# -- exchanges ------------------------------------------------------------------------------

def exchanged(self: Interpreter, name: str, params: Any, values: Values, places: Sequence[Place]
              ) -> list[Any]:
    """What a collective gives at each place, group by group."""
    axes = params.get("axes", params.get("axis_name"))
    groups: dict[tuple, list[int]] = {}
    order = sorted(range(len(places)), key=lambda k: [places[k][a] for a in axes])
    for k in order:
        rest = tuple(c for a, c in places[k].items() if a not in axes)
        groups.setdefault(rest, []).append(k)
    if any(len(g) != math.prod(self.sizes[a] for a in axes) for g in groups.values()):
        raise NoReference("a collective of some of the devices")
    smaller = params.get("axis_index_groups")
    out: list[Any] = [None] * len(places)
    for members in groups.values():
        for part in smaller or [range(len(members))]:
            which = [members[i] for i in part]
            blocks = np.stack([values[k].astype(np.float32) if values[k].dtype.kind == "V"
                               else values[k] for k in which])
            for k, x in zip(which, COLLECTIVES[name](blocks, **params), strict=True):
                out[k] = x
    return out
