"""Jacobians and Hessians: derivatives in every direction of a basis, by vmap.

`jacfwd` pushes a basis of the arguments forward, `jacrev` pulls a basis of the results back; the
basis is unsharded along the new dimension. A leaf of a Jacobian has the result's dimensions first,
then the argument's, each with its own sharding.
"""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.dtypes import canonicalize_dtype
from ..ir.op import OPS
from ..ir.ops.derivatives import convert_like, explicit_sharding, slice_along
from ..ir.settings.context import x64_enabled
from ..ir.shardings.sharding import named_sharding_abstract
from ..ir.spec import spec_from_entries
from ..ir.types import ArrayType
from ..ir.values.typeof import typeof
from . import sharding_notes
from .autodiff.checks import (
    check_callable,
    check_forward_input,
    check_forward_output,
    check_reverse_input,
    check_reverse_output,
)
from .autodiff.forward import matching
from .autodiff.grad import by_argnums, index_or_indices, jvp, vjp
from .batching.vmap import vmap
from .trees import tree


@sharding_notes.transformed
def jacfwd(fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
           holomorphic: bool = False) -> Callable[..., Any]:
    """A function that computes the Jacobian of `fun` by forward mode, a pass per argument element.

    It suits functions of few arguments and many results. The result is the tree of fun's result,
    with the tree of the arguments `argnums` in each leaf: leaves have the result's shape, then
    the argument's. has_aux, holomorphic: as in `grad`.

    >>> st.jacfwd(lambda x: x ** 2)(jnp.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    check_callable(fun)
    argnums = index_or_indices(argnums)

    @functools.wraps(fun, updated=())
    def jacfun(*args: Any, **kwargs: Any) -> Any:
        partial, moving = by_argnums(fun, argnums, args, kwargs)
        for leaf in tree.leaves(moving):
            check_forward_input(holomorphic, leaf)
        push = functools.partial(_push, partial, tuple(moving), has_aux)
        value, columns, *aux = vmap(
            push, out_axes=(None, -1, None) if has_aux else (None, -1))(_basis(tuple(moving)))
        for leaf in tree.leaves(value):
            check_forward_output(holomorphic, leaf)
        example = moving[0] if isinstance(argnums, int) else tuple(moving)
        jacobian = tree.map(lambda y, j: _unravel(example, typeof(y), j, last=True), value, columns)
        return (jacobian, *aux) if has_aux else jacobian

    return jacfun


def _push(fun: Callable[..., Any], primals: tuple[Any, ...], has_aux: bool, tangents: Any) -> Any:
    return jvp(fun, primals, tangents, has_aux=has_aux)


@sharding_notes.transformed
def jacrev(fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
           holomorphic: bool = False, allow_int: bool = False) -> Callable[..., Any]:
    """A function that computes the Jacobian of `fun` by reverse mode, a pass per result element.

    It suits functions of many arguments and few results. The result is that of `jacfwd`. has_aux,
    holomorphic, allow_int: as in `grad`.

    >>> st.jacrev(lambda x: x ** 2)(jnp.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float32)
    """
    check_callable(fun)
    argnums = index_or_indices(argnums)

    @functools.wraps(fun, updated=())
    def jacfun(*args: Any, **kwargs: Any) -> Any:
        partial, moving = by_argnums(fun, argnums, args, kwargs)
        for leaf in tree.leaves(moving):
            check_reverse_input("jacrev", holomorphic, allow_int, leaf)
        value, pull, *aux = vjp(partial, *moving, has_aux=has_aux)
        for leaf in tree.leaves(value):
            check_reverse_output("jacrev", holomorphic, leaf)
        rows = vmap(pull)(_basis(value))
        given, example = ((rows[0], moving[0]) if isinstance(argnums, int)
                          else (rows, tuple(moving)))
        jacobian = tree.map(lambda x, j: _unravel(value, typeof(x), j, last=False), example, given)
        jacobian = tree.transpose(tree.structure(example), tree.structure(value), jacobian)
        return (jacobian, *aux) if has_aux else jacobian

    return jacfun


jacobian = jacrev


@sharding_notes.transformed
def hessian(fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
            holomorphic: bool = False) -> Callable[..., Any]:
    """A function that computes the Hessian of `fun`: `jacfwd` of `jacrev`.

    The result has the tree of the arguments `argnums` twice; leaves have both their shapes.

    >>> st.hessian(lambda x: (x ** 3).sum())(jnp.array([1.0, 2.0]))
    Array([[ 6.,  0.],
           [ 0., 12.]], dtype=float32)
    """
    return jacfwd(jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic), argnums,
                  has_aux=has_aux, holomorphic=holomorphic)


# -- the basis -------------------------------------------------------------------------------------

def _basis(values: Any) -> Any:
    """For a pytree of arrays with n elements in all: the tree with a first dimension of n more,
    in whose i-th entry the i-th element is 1 and all others are 0."""
    leaves, treedef = tree.flatten(values)
    types = [typeof(x) for x in leaves]
    count, start = sum(t.size for t in types), 0
    out = []
    for t in types:
        rows: Any = np.eye(count, t.size, -start, dtype=t.dtype).reshape(count, *t.shape)
        if t.weak_type or canonicalize_dtype(t.dtype, x64_enabled()) != t.dtype:
            rows = OPS["convert_element_type"].bind(rows, new_dtype=t.dtype, weak_type=t.weak_type,
                                                    sharding=None)
        out.append(_placed(rows, t, ((), *t.entries)))
        start += t.size
    return tree.unflatten(treedef, out)


def _placed(x: Any, like: ArrayType, entries: Sequence[tuple[str, ...]]) -> Any:
    """x, split over Explicit axes as `entries` says."""
    sharding = explicit_sharding(like)
    x = matching(x, like)
    if sharding is None:
        return x
    spec = spec_from_entries(tuple(entries))
    return OPS["reshard"].bind(x, dst_sharding=named_sharding_abstract(like.mesh, spec))


def _unravel(example: Any, t: ArrayType, j: Any, last: bool) -> Any:
    """Cut the dimension of basis elements (the last one of j, or the first) into the parts of
    `example`, each with its own shape. t: the type of the other dimensions."""
    leaves, treedef = tree.flatten(example)
    out, start = [], 0
    dim = t.ndim if last else 0
    for x in leaves:
        xt = typeof(x)
        part = _cut(j, dim, start, math.prod(xt.shape))
        start += math.prod(xt.shape)
        shape = (*t.shape, *xt.shape) if last else (*xt.shape, *t.shape)
        basis = ((),) * (xt.ndim if last else len(shape) - t.ndim)     # whole, as vmap leaves it
        own = (*t.entries, *basis) if last else (*basis, *t.entries)
        sharding = explicit_sharding(t) or explicit_sharding(xt)
        if sharding is not None:
            mesh = sharding.mesh.abstract_mesh
            sharding = named_sharding_abstract(mesh, spec_from_entries(own))
        if typeof(part).shape != shape:
            part = OPS["reshape"].bind(part, new_sizes=shape, dimensions=None, sharding=sharding)
        out.append(convert_like(part, t) if part.dtype == t.dtype else part)     # weak as that is
    return tree.unflatten(treedef, out)


def _cut(x: Any, dim: int, start: int, count: int) -> Any:
    shape = typeof(x).shape
    if shape[dim] == count:
        return x
    return OPS["slice"].bind(x, **slice_along(shape, dim, start, start + count))
