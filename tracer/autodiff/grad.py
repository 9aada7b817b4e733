"""Derivatives as users ask for them: grad, value_and_grad, vjp, jvp, linearize, linear_transpose.

Names, arguments and messages are JAX's. Each records the function, runs it forward, and gives the
results their trees back; what happens in between is in differentiate.py.
"""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...ir.api_boundary import bound_class
from ...ir.dtypes import issubdtype
from ...ir.op import OPS, LinearOperand
from ...ir.ops.derivatives import cotangent_type, full_like, has_tangent
from ...ir.program import Literal
from ...ir.types import ArrayType, same_type
from ...ir.values.shape_struct import ShapeDtypeStruct
from ...ir.values.typeof import typeof
from .. import sharding_notes
from ..references import transformations
from ..staging.signature import function_name
from ..trees import tree
from .checks import (
    check_callable,
    check_linear_tangents,
    check_reverse_input,
    check_reverse_output,
    check_scalar,
    check_tangents,
)
from .differentiate import (
    differentiable,
    finished,
    flat_operands,
    linearized,
    named_meshes,
    pushed,
)
from .forward import Linear, Mask, zero_tangent
from .gradient_cache import cached_gradient
from .pullback import VJP, pulled_back
from .replay import Scalar, evaluate, flat_program
from .transpose import backward

# -- forward ---------------------------------------------------------------------------------------


@sharding_notes.transformed
@functools.partial(transformations.differentiating, of_arguments=False)
def jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any],
        has_aux: bool = False) -> Any:
    """`(fun(*primals), its derivative in the direction tangents)`, by forward mode.

    primals, tangents: tuples of pytrees of equal structure, shapes and dtypes (float0 for
    integers); tangents are resharded as the primals are. has_aux: fun returns (result, aux), and
    aux is a third item. Raises TypeError and ValueError where primals and tangents do not match.

    >>> st.jvp(lambda x: x ** 2, (3.0,), (1.0,))
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    check_callable(fun)
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise TypeError("primal and tangent arguments to jax.jvp must be tuples or lists; found "
                        f"{type(primals).__name__} and {type(tangents).__name__}.")
    flat, in_tree = tree.flatten(tuple(primals))
    given, tangent_tree = tree.flatten(tuple(tangents))
    if in_tree != tangent_tree or isinstance(primals, list) != isinstance(tangents, list):
        raise TypeError("primal and tangent arguments to jax.jvp must have the same tree "
                        f"structure; primals have tree structure {tree.structure(primals)} whereas "
                        f"tangents have tree structure {tree.structure(tangents)}.")
    check_tangents(flat, given)
    point = differentiable(fun, flat_operands(flat), in_tree, has_aux=has_aux, word="JVPTracer")
    moving = [_laid_out(flat_operands([x])[0], typeof(p)) if has_tangent(typeof(p).dtype) else None
              for p, x in zip(flat, given, strict=True)]
    outs, found = pushed(point, moving)
    with named_meshes(point.meshes):
        found = [zero_tangent(x) if t is None else t
                 for x, t in zip(outs, found, strict=False)]
        answer = (tree.unflatten(point.out_tree, map(finished, outs[:point.count])),
                  tree.unflatten(point.out_tree, map(finished, found)))
        return (*answer, point.auxiliary(outs)) if has_aux else answer


def _laid_out(tangent: Any, t: ArrayType) -> Any:
    """A tangent with the sharding of its value, of type `t`, over Explicit axes."""
    have = typeof(tangent).sharding
    if have is t.sharding or have.mesh is not t.mesh or not t.has_explicit_mesh():
        return tangent
    return OPS["reshard"].bind(tangent, dst_sharding=t.sharding)


@sharding_notes.transformed
@transformations.differentiating
def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """`(fun(*primals), f)`, where f maps tangents of the primals to that of the result.

    f is linear and does not run `fun` again: to be used where `jvp` is wanted at one point in
    several directions. has_aux: the auxiliary data is a third item.

    >>> y, push = st.linearize(lambda x: x ** 2, 3.0)
    >>> y, push(1.0)
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))
    """
    check_callable(fun)
    flat, in_tree = tree.flatten(primals)
    values = flat_operands(flat)
    point = differentiable(fun, values, in_tree, has_aux=has_aux)
    types = [typeof(x) for x in values]
    moving = [has_tangent(t.dtype) for t in types]
    outs, linear, moved = linearized(point, moving)
    with named_meshes(point.meshes):
        results = [finished(x) for x in outs[:point.count]]
        aux = point.auxiliary(outs) if has_aux else None
    apply = Linearized(linear, in_tree, point.out_tree, types,
                       [typeof(x) for x in results], moved, point.meshes)
    answer = tree.unflatten(point.out_tree, results), apply
    return (*answer, aux) if has_aux else answer


@bound_class
class Linearized:
    """The derivative of a function at a point: tangents of arguments -> tangents of results."""

    def __init__(self, linear: Linear, in_tree: Any, out_tree: Any, types: Sequence[ArrayType],
                 out_types: Sequence[ArrayType], moved: Mask, meshes: Sequence[Any]) -> None:
        self.linear, self.in_tree, self.out_tree = linear, in_tree, out_tree
        self.types, self.out_types = tuple(types), tuple(out_types)
        self.moved, self.meshes = tuple(moved), tuple(meshes)

    @property
    def jaxpr(self) -> Any:
        """The linear program: residuals, then tangents."""
        return self.linear.program

    def __call__(self, *tangents: Any) -> Any:
        flat, given = tree.flatten(tangents)
        if given != self.in_tree:
            raise TypeError(f"expected {self.in_tree}, got {given}")
        check_linear_tangents(self.types, flat)
        moving = [x for t, x in zip(self.types, flat, strict=True) if has_tangent(t.dtype)]
        with named_meshes(self.meshes):
            outs = iter(evaluate(self.linear.program,
                                 [*self.linear.residuals, *flat_operands(moving)]))
            found = [next(outs) if m else zero_tangent(t)
                     for t, m in zip(self.out_types, self.moved, strict=True)]
            return tree.unflatten(self.out_tree, map(finished, found))


def _relinearized(rest: tuple[Any, ...], children: Iterable[Any]) -> Linearized:
    program, *more = rest
    return Linearized(Linear(program, tuple(children)), *more)


tree.register_pytree_node(
    Linearized, lambda f: (f.linear.residuals, (f.linear.program, f.in_tree, f.out_tree, f.types,
                                                f.out_types, f.moved, f.meshes)), _relinearized)


# -- reverse ---------------------------------------------------------------------------------------

@sharding_notes.transformed
@transformations.differentiating
def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False,
        reduce_axes: Sequence[Any] = ()) -> Any:
    """`(fun(*primals), f)`, where f maps a cotangent of the result to those of the primals.

    f takes a pytree like the result, and gives a tuple with a pytree like each primal: the
    products of the cotangent with the Jacobian. It raises ValueError for cotangents of other
    types: a cotangent has its value's type with unreduced and reduced axes swapped. has_aux: fun
    returns (result, aux), and aux is a third item.

    >>> y, pull = st.vjp(lambda x, w: x * w, jnp.array([3.0]), jnp.array([4.0]))
    >>> y, pull(jnp.array([1.0]))
    (Array([12.], dtype=float32), (Array([4.], dtype=float32), Array([3.], dtype=float32)))
    """
    if reduce_axes:
        raise NotImplementedError("reduce_axes argument to vjp is deprecated")
    check_callable(fun)
    flat, in_tree = tree.flatten(primals)
    values = flat_operands(flat)
    point = differentiable(fun, values, in_tree, has_aux=has_aux)
    types = [typeof(x) for x in values]
    outs, linear, moved = linearized(point, [has_tangent(t.dtype) for t in types])
    with named_meshes(point.meshes):
        results = [finished(x) for x in outs[:point.count]]
        aux = point.auxiliary(outs) if has_aux else None
    pull = VJP(function_name(fun), linear, in_tree, point.out_tree, types,
               [typeof(x) for x in results], moved, point.meshes, values)
    answer = tree.unflatten(point.out_tree, results), pull
    return (*answer, aux) if has_aux else answer


@sharding_notes.transformed
def grad(fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
         holomorphic: bool = False, allow_int: bool = False, reduce_axes: Sequence[Any] = ()
         ) -> Callable[..., Any]:
    """A function that computes the gradient of `fun`, whose result is one number, by reverse mode.

    argnums: the argument to differentiate by, or a sequence, which gives a tuple of gradients;
    each is a pytree like its argument. has_aux: fun returns (number, aux), the gradient function
    (gradient, aux). holomorphic: arguments and result are complex. allow_int: accept integers,
    whose gradients are of dtype float0. Raises TypeError for a result that is no scalar, and for
    integer arguments.

    >>> def loss(w, x):
    ...     return ((x @ w) ** 2).sum()
    >>> st.grad(loss)(jnp.array([1.0, 2.0]), jnp.eye(2))
    Array([2., 4.], dtype=float32)
    """
    value_and = value_and_grad(fun, argnums, has_aux=has_aux, holomorphic=holomorphic,
                               allow_int=allow_int, reduce_axes=reduce_axes)

    @functools.wraps(fun, updated=())
    def grad_f(*args: Any, **kwargs: Any) -> Any:
        answer, g = value_and(*args, **kwargs)
        return (g, answer[1]) if has_aux else g

    return grad_f


@sharding_notes.transformed
@transformations.with_gradients
def value_and_grad(fun: Callable[..., Any], argnums: int | Sequence[int] = 0,
                   has_aux: bool = False, holomorphic: bool = False, allow_int: bool = False,
                   reduce_axes: Sequence[Any] = ()) -> Callable[..., Any]:
    """A function that computes the value of `fun` and its gradient together: (value, gradient).

    The arguments are those of `grad`; with has_aux it returns ((value, aux), gradient).

    >>> st.value_and_grad(lambda x: x ** 3)(2.0)
    (Array(8., dtype=float32, weak_type=True), Array(12., dtype=float32, weak_type=True))
    """
    if reduce_axes:
        raise NotImplementedError("reduce_axes argument to grad is deprecated")
    check_callable(fun)
    argnums = index_or_indices(argnums)

    @functools.wraps(fun, updated=())
    def value_and_grad_f(*args: Any, **kwargs: Any) -> Any:
        partial, moving = by_argnums(fun, argnums, args, kwargs)
        flat, in_tree = tree.flatten(tuple(moving))
        for leaf in flat:
            check_reverse_input("grad", holomorphic, allow_int, leaf)
        values = flat_operands(flat)
        point = differentiable(partial, values, in_tree, has_aux=has_aux)
        types = [typeof(x) for x in values]
        count = point.count

        def derive() -> list[Any]:
            outs, linear, moved = linearized(point, [has_tangent(t.dtype) for t in types])
            with named_meshes(point.meshes):
                outs[:count] = [finished(x) for x in outs[:count]]
            check_scalar(tree.unflatten(point.out_tree, outs[:count]))
            for leaf in outs[:count]:
                check_reverse_output("grad", holomorphic, leaf)
            with named_meshes(point.meshes):
                found = pulled_back(linear, types, moved, [_one(x) for x in outs[:count]])
            return [*outs, *found]

        program = point.program
        with named_meshes(point.meshes):
            both = cached_gradient(("grad", len(types), count, point.out_tree, holomorphic),
                                   program, [point.env[v] for v in program.invars], derive)
            outs, found = both[:len(program.outvars)], both[len(program.outvars):]
            value = tree.unflatten(point.out_tree, outs[:count])
            aux = point.auxiliary(outs) if has_aux else None
        g = tree.unflatten(in_tree, found)
        if isinstance(argnums, int):
            (g,) = g
        return ((value, aux) if has_aux else value), g

    return value_and_grad_f


def _one(x: Any) -> Any:
    """The cotangent 1 of a number."""
    t = typeof(x)
    if t.spec.unreduced or t.spec.reduced:      # a reduced number has a cotangent that is a sum
        return OPS["reshard"].bind(np.asarray(1, t.dtype)[()],
                                   dst_sharding=cotangent_type(t).sharding)
    if t.weak_type or not (t.varying or t.mesh.axis_names):
        return Scalar(Literal(np.asarray(1, t.dtype)[()], t))
    return full_like(LinearOperand(t), 1)


def index_or_indices(argnums: Any) -> int | tuple[int, ...]:
    """argnums as an int or a tuple of ints."""
    if isinstance(argnums, (list, tuple)):
        return tuple(operator.index(n) for n in argnums)
    return operator.index(argnums)


def by_argnums(fun: Callable[..., Any], argnums: int | tuple[int, ...], args: Sequence[Any],
               kwargs: dict[str, Any]) -> tuple[Callable[..., Any], list[Any]]:
    """(fun of the arguments `argnums` alone, these arguments). Raises as JAX does if one lacks."""
    wanted = (argnums,) if isinstance(argnums, int) else argnums
    count, most = len(args), max(wanted, default=-1)
    if most >= count:
        raise TypeError(f"differentiating with respect to {argnums=} requires at least {most + 1} "
                        "positional arguments to be passed by the caller, but got only "
                        f"{count} positional arguments.")
    if any(n < -count for n in wanted):
        raise ValueError(f"argnums={argnums} is out of range for {count} positional arguments")
    places = [n % count for n in wanted]

    def partial(*moving: Any) -> Any:
        full = list(args)
        for place, x in zip(places, moving, strict=True):
            full[place] = x
        return fun(*full, **kwargs)

    partial.__name__ = function_name(fun)
    return partial, [args[n] for n in places]


# -- linear functions ------------------------------------------------------------------------------

def linear_transpose(fun: Callable[..., Any], *primals: Any, reduce_axes: Sequence[Any] = ()
                     ) -> Callable[[Any], Any]:
    """The transpose of a function that is linear in its arguments.

    primals: arrays, or whatever has a shape and a dtype; only their types count. The result, a
    pytree itself, maps a cotangent of the function's result to a tuple of those of its arguments.
    """
    if reduce_axes:
        raise NotImplementedError("reduce_axes argument to transpose is deprecated")
    flat, in_tree = tree.flatten(primals)
    types = [ShapeDtypeStruct.like(x).aval for x in flat]
    program, captured, out_tree = flat_program(fun, types, in_tree)
    out_types = program.out_avals
    dtypes = [t.dtype for t in (*types, *out_types)]
    if not (all(issubdtype(d, np.inexact) for d in dtypes)
            or all(issubdtype(d, np.integer) for d in dtypes)):
        raise TypeError("linear_transpose only supports [float or complex] -> [float or complex], "
                        "and integer -> integer functions, but got "
                        f"{[t.dtype for t in types]} -> {[t.dtype for t in out_types]}.")

    def transposed(captured: Sequence[Any], out_cotangent: Any) -> Any:
        cts, given = tree.flatten(out_cotangent)
        if given != out_tree:
            raise TypeError("cotangent tree does not match function output, expected "
                            f"{out_tree} but got {given}")
        if not all(same_type(t, typeof(ct)) for t, ct in zip(out_types, cts, strict=True)):
            raise TypeError("cotangent type does not match function output, expected "
                            f"{list(out_types)} but got {cts}")
        found = backward(program, [*captured, *(None for _ in types)], flat_operands(cts))
        return tree.unflatten(in_tree, [
            finished(_zeros(t) if ct is None else ct)
            for t, ct in zip(types, found[len(captured):], strict=True)])

    return tree.Partial(transposed, captured)


def _zeros(t: ArrayType) -> Any:
    return full_like(LinearOperand(t), 0)
