"""Batching of functions with custom derivatives: calls whose rules are mapped too.

A batched `custom_jvp_call` or `custom_vjp_call` has the batched program, and the user's rules under
a vmap: where it is differentiated they see one example at a time, as they were written for.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.op import OPS
from ...ir.ops.control.custom import custom_jvp_call_p, custom_linear_solve_p, custom_vjp_call_p
from ...ir.ops.derivatives import has_tangent
from ...ir.program import Program, Var
from ...ir.types import ArrayType
from ...ir.values.typeof import typeof
from ..autodiff.custom.common import SymbolicZero
from ..autodiff.forward import zero_tangent
from .interpreter import map_flat
from .programs import ANYWHERE, batch_program
from .rules import Batched, Dims, MappedAxis, element_type, rule, to_dim


def _element(x: Any, dim: int | None) -> tuple[Any, int | None]:
    """An operand of a rule, as `map_flat` takes it: zeros are the same for every index."""
    if isinstance(x, SymbolicZero):
        return (x if dim is None else SymbolicZero(element_type(x.aval, dim))), None
    if dim is not None and isinstance(x, np.ndarray) and x.dtype.names:      # float0
        return np.zeros(x.shape[:dim] + x.shape[dim + 1:], x.dtype), None
    return x, dim


def _known(closed: Sequence[Any], dims: Dims) -> list[tuple[Any, int | None]]:
    """The values that a rule closes over and may see, as `map_flat` takes them."""
    return [(x, d) for x, d in zip(closed, dims, strict=True) if x is not None]


def _filled(closed: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """What of these is one example's; None where a rule may not see them."""
    it = iter(values)
    return [None if x is None else next(it) for x in closed]


def _batched(axis: MappedAxis, program: Program, operands: Sequence[Any], dims: Dims
             ) -> tuple[Program, list[Any], list[int | None]]:
    """The batched program of a call with rules. Its results are mapped, since those of its rules
    may be; where no operand is, they are the same for all if the program says so."""
    wanted = [0 if any(d is not None for d in dims) else ANYWHERE] * len(program.outvars)
    return batch_program(axis, program, [typeof(x) for x in operands], dims, wanted)


def _placed(x: Any, dim: int | None, place: int | None, rule: Any) -> Any:
    """A result of a mapped rule, mapped along `place` as that of the function is."""
    if place is not None:
        return to_dim(x, dim, place, rule.axis)
    if dim is not None:
        fail(ValueError, f"a result of the rule {rule.__name__} depends on the example, the "
             "function's own result does not", code="mapped-output",
             help="return from the rule what the function returns")
    return x


@rule("custom_jvp_call")
def _batch_jvp_call(axis: MappedAxis, operands: Sequence[Any], dims: Dims,
                    types: Sequence[ArrayType], *, call_jaxpr: Program, jvp_jaxpr_fun: Any,
                    num_consts: int, **params: Any) -> Batched:
    """A call of the batched program, with the user's rule mapped; a function with a batching rule
    of its own is batched by that.
    """
    own = getattr(jvp_jaxpr_fun, "batch", None)
    if own is not None:
        return own(axis, operands[num_consts:], dims[num_consts:])
    program, captured, out_dims = _batched(axis, call_jaxpr, operands, dims)
    results = custom_jvp_call_p.bind(
        *captured, *operands, call_jaxpr=program,
        jvp_jaxpr_fun=_MappedJVP(axis, jvp_jaxpr_fun, tuple(dims), num_consts, tuple(out_dims)),
        num_consts=num_consts + len(captured), **params)
    return results, out_dims


class _MappedJVP:
    """The user's rule on flat values, mapped: primals and tangents along `dims`, results along
    `out_dims`."""

    def __init__(self, axis: MappedAxis, rule: Any, dims: Dims, num_consts: int, out_dims: Dims
                 ) -> None:
        self.axis, self.rule, self.dims, self.out_dims = axis, rule, dims[num_consts:], out_dims
        self.closed = rule.closed
        self.closed_dims = dims[num_consts - len(rule.closed):num_consts]
        self.__name__ = rule.__name__

    def __call__(self, primals: Sequence[Any], tangents: Sequence[Any], closed: Sequence[Any] = ()
                 ) -> list[Any]:
        n, end = len(primals), 2 * len(primals)
        pairs = [_element(x, d) for x, d in zip([*primals, *tangents], [*self.dims] * 2,
                                                strict=True)]
        pairs += _known(closed, self.closed_dims)
        zero: list[bool] = []           # which results are `SymbolicZero`

        def flat(*values: Any) -> list[Any]:
            results = self.rule(values[:n], values[n:end], _filled(closed, values[end:]))
            zero[:] = [isinstance(x, SymbolicZero) for x in results]
            return [x for x in results if not isinstance(x, SymbolicZero)]

        found = iter(map_flat(self.axis, flat, pairs))
        half = len(self.out_dims)
        outs = [_placed(*next(found), p, self) for p in self.out_dims]
        for out, z, place in zip(outs[:half], zero[half:], self.out_dims, strict=True):
            t = typeof(out)
            x, d = (None, None) if z else next(found)
            outs.append(SymbolicZero(t) if z else _placed(x, d, place, self)
                        if has_tangent(t.dtype) else zero_tangent(t))
        return outs


@rule("custom_vjp_call")
def _batch_vjp_call(axis: MappedAxis, operands: Sequence[Any], dims: Dims,
                    types: Sequence[ArrayType], *, call_jaxpr: Program, fwd_jaxpr_thunk: Any,
                    bwd: Any, num_consts: int, **params: Any) -> Batched:
    """A call of the batched program, with the user's two rules mapped."""
    program, captured, out_dims = _batched(axis, call_jaxpr, operands, dims)
    own, closed = tuple(dims[num_consts:]), tuple(
        dims[num_consts - len(fwd_jaxpr_thunk.closed):num_consts])
    results = custom_vjp_call_p.bind(
        *captured, *operands, call_jaxpr=program,
        fwd_jaxpr_thunk=_MappedForward(axis, fwd_jaxpr_thunk, own, closed, tuple(out_dims)),
        bwd=_MappedBackward(axis, bwd, own, tuple(out_dims)),
        num_consts=num_consts + len(captured), **params)
    return results, out_dims


class _MappedForward:
    """`fwd`, mapped; the tree of its residuals says along which dimension each is mapped."""

    def __init__(self, axis: MappedAxis, fwd: Any, dims: Dims, closed_dims: Dims, out_dims: Dims
                 ) -> None:
        self.axis, self.fwd, self.dims, self.out_dims = axis, fwd, dims, out_dims
        self.closed, self.closed_dims = fwd.closed, closed_dims
        self.is_eager = getattr(fwd, "is_eager", False)
        self.__name__ = getattr(fwd, "__name__", "fwd")

    def __call__(self, primals: Sequence[Any], moved: Sequence[bool], symbolic: bool,
                 closed: Sequence[Any]) -> tuple[list[Any], list[Any], Any]:
        found: list[Any] = []
        count = len(primals)

        def flat(*values: Any) -> list[Any]:
            outs, residuals, res_tree = self.fwd(values[:count], moved, symbolic,
                                                 _filled(closed, values[count:]))
            found.append((len(outs), res_tree))
            return [*outs, *residuals]

        pairs = map_flat(self.axis, flat, [*zip(primals, self.dims, strict=True),
                                           *_known(closed, self.closed_dims)])
        n, res_tree = found[-1]
        outs = [_placed(x, d, p, self)
                for (x, d), p in zip(pairs[:n], self.out_dims, strict=True)]
        return outs, [x for x, _ in pairs[n:]], (res_tree, tuple(d for _, d in pairs[n:]))


class _MappedBackward:
    """`bwd`, mapped: the cotangent of an operand that is not is the sum over the mapped axis."""

    def __init__(self, axis: MappedAxis, bwd: Any, dims: Dims, out_dims: Dims) -> None:
        self.axis, self.bwd, self.dims, self.out_dims = axis, bwd, dims, out_dims
        self.__name__ = getattr(bwd, "__name__", "bwd")

    def __call__(self, residuals: Sequence[Any], res_tree: Any, cts: Sequence[Any]) -> list[Any]:
        inner_tree, res_dims = res_tree
        n, axis = len(residuals), self.axis
        given: list[bool] = []

        def flat(*values: Any) -> list[Any]:
            found = self.bwd(values[:n], inner_tree, values[n:])
            given[:] = [ct is not None for ct in found]
            return [ct for ct in found if ct is not None]

        pairs = map_flat(axis, flat, [*zip(residuals, res_dims, strict=True),
                                      *map(_element, cts, self.out_dims)])
        it = iter(pairs)
        return [self._of_operand(*next(it), place) if has else None
                for has, place in zip(given, self.dims, strict=True)]

    def _of_operand(self, ct: Any, dim: int | None, place: int | None) -> Any:
        if place is not None:
            return to_dim(ct, dim, place, self.axis)
        if dim is None:
            if all(d is None for d in self.out_dims):           # the call is one, not one for each
                return ct
            return OPS["mul"].bind(ct, np.asarray(self.axis.size, typeof(ct).dtype)[()])
        return OPS["reduce_sum"].bind(ct, axes=(dim,), out_sharding=None)


@rule("custom_linear_solve")
def _batch_linear_solve(axis: MappedAxis, operands: Sequence[Any], dims: Dims,
                        types: Sequence[ArrayType], *, call_jaxpr: Program,
                        maps: tuple[Program, ...], num_consts: int) -> Batched:
    """One solve of all systems: right sides and solutions are mapped whether they differ or not."""
    size = len(operands) - num_consts
    consts = operands[:num_consts]
    sides = [to_dim(x, d, 0, axis) for x, d in zip(operands[num_consts:], dims[num_consts:],
                                                   strict=True)]
    taken = [typeof(x) for x in (*consts, *sides)]
    mapped = [*dims[:num_consts], *(0,) * size]
    batched, captured = [], []
    for program in (call_jaxpr, *maps):
        wanted = [0] * size + [ANYWHERE] * (len(program.outvars) - size)
        batched.append(batch_program(axis, program, taken, mapped, wanted))
        captured += batched[-1][1]
    programs = []
    before = 0
    for program, own, _ in batched:       # each takes what any of them closes over
        unused = [Var(typeof(x)) for x in captured]
        unused[before:before + len(own)] = program.invars[:len(own)]
        programs.append(program.replace(invars=[*unused, *program.invars[len(own):]],
                                        arg_names=()))
        before += len(own)
    results = custom_linear_solve_p.bind(
        *captured, *consts, *sides, call_jaxpr=programs[0], maps=tuple(programs[1:]),
        num_consts=len(captured) + num_consts)
    return results, batched[0][2]
