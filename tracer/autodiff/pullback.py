"""What `vjp` returns: the transposed derivative of a function at a point, a pytree of residuals.

A residual that is one of the arguments themselves stands in `args_res`, where it can be replaced
(by a copy that was kept elsewhere, say); what the function computed is in `opaque_residuals`.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from ...ir.api_boundary import bound_class
from ...ir.ops.derivatives import has_tangent
from ...ir.settings.phases import phase
from ...ir.types import ArrayType
from ..references.ref import AnyRef
from ..staging.tracer import Tracer
from ..trees import tree
from .checks import check_cotangents
from .differentiate import finished, flat_operands, named_meshes
from .forward import Linear, Mask
from .transpose import backward, zero_cotangent


class _Marker:
    """Stands in the place of a gradient: what shall become of it, or what became."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))


class NotNeeded(_Marker):
    """In `args_res`, stands for an argument that the derivative does not look at."""


class GradValue(_Marker):
    """For `with_refs`: the gradient by this argument is to be returned."""


class DontWant(_Marker):
    """For `with_refs`: the gradient by this argument is not needed."""


class GradRef(_Marker):
    """Returned for an argument whose gradient was added to a reference."""


class DidntWant(_Marker):
    """Returned for an argument whose gradient is not needed."""


ad = SimpleNamespace(DidntWant=DidntWant, DontWant=DontWant, GradRef=GradRef, GradValue=GradValue)
"""What stands in the place of gradients, see `VJP.with_refs`."""
for _kind in (NotNeeded, GradRef, DidntWant):          # which jitted functions may return
    tree.register_pytree_node(_kind, lambda _: ((), None), lambda _, __, kind=_kind: kind())


@bound_class
class VJP:
    """The transposed derivative of a function at a point: a function of the result's cotangent.

    args_res: for each argument the residuals that are its leaves, NotNeeded() for other leaves.
    opaque_residuals: the other residuals. Both are lists, read when it is called, and its children
    as a pytree. jaxpr: the linear program that is transposed: residuals, then tangents.

    >>> y, pull = st.vjp(lambda a, b: a * jnp.sin(b), jnp.ones(2), jnp.zeros(2))
    >>> pull.args_res, len(pull.opaque_residuals)
    ([Array([1., 1.], dtype=float32), NotNeeded()], 2)
    >>> pull(jnp.ones(2))
    (Array([0., 0.], dtype=float32), Array([1., 1.], dtype=float32))
    """

    def __init__(self, name: str, linear: Linear, in_tree: Any, out_tree: Any,
                 types: Sequence[ArrayType], out_types: Sequence[ArrayType], moved: Mask,
                 meshes: Sequence[Any], arguments: Sequence[Any] = ()) -> None:
        """arguments: the leaves at which the derivative was taken."""
        self._name, self.jaxpr = name, linear.program
        self.in_tree, self.out_tree = in_tree, out_tree
        self._types, self._out_types = tuple(types), tuple(out_types)
        self._moved, self._meshes = tuple(moved), tuple(meshes)
        # Of each residual: an argument's leaf that is the same value, each leaf taken once; or -1.
        where: dict[int, list[int]] = {}
        for i in range(len(arguments) - 1, -1, -1):
            where.setdefault(_identity(arguments[i]), []).append(i)
        places: list[int] = []
        for r in linear.residuals:
            found = where.get(_identity(r))
            places.append(found.pop() if found else -1)
        self._places = tuple(places)
        leaves: list[Any] = [NotNeeded()] * in_tree.num_leaves
        for place, r in zip(places, linear.residuals, strict=True):
            if place >= 0:
                leaves[place] = r
        self.args_res: list[Any] = list(tree.unflatten(in_tree, leaves))
        self.opaque_residuals: list[Any] = [
            r for place, r in zip(places, linear.residuals, strict=True) if place < 0]

    # -- as a pytree ---------------------------------------------------------------------------
    def _flattened(self) -> tuple[Any, tuple[Any, ...]]:
        return (self.args_res, self.opaque_residuals), (
            self._name, self.jaxpr, self.in_tree, self.out_tree, self._types, self._out_types,
            self._moved, self._meshes, self._places)

    @classmethod
    def _unflattened(cls, rest: tuple[Any, ...], children: Iterable[Any]) -> VJP:
        self = object.__new__(cls)
        (self._name, self.jaxpr, self.in_tree, self.out_tree, self._types, self._out_types,
         self._moved, self._meshes, self._places) = rest
        self.args_res, self.opaque_residuals = children
        return self

    # -- use -----------------------------------------------------------------------------------
    def _residuals(self) -> list[Any]:
        """The values of the residuals, in the order of the program's parameters."""
        leaves = tree.leaves(self.args_res, is_leaf=lambda x: type(x) is NotNeeded)
        rest = iter(self.opaque_residuals)
        return [leaves[place] if place >= 0 else next(rest) for place in self._places]

    def __call__(self, out_ct: Any, *extra_args: Any) -> Any:
        if extra_args:
            raise TypeError(
                f"The function returned by `jax.vjp` applied to {self._name} was called with "
                f"{len(extra_args) + 1} arguments, but functions returned by `jax.vjp` must be "
                "called with a single argument corresponding to the single value returned by the "
                "function being differentiated (even if that returned value is a tuple or other "
                "container).")
        cts, given = tree.flatten(out_ct)
        if given != self.out_tree:
            raise ValueError(
                "unexpected tree structure.\n\nThe argument to a VJP function returned by "
                "`jax.vjp` must match the pytree structure of the differentiated function "
                f"{self._name}.\n\nBut the tree structures differ: the result has {self.out_tree}, "
                f"the argument {given}.")
        check_cotangents(self._out_types, cts)
        with named_meshes(self._meshes):
            return tree.unflatten(self.in_tree, pulled_back(
                Linear(self.jaxpr, tuple(self._residuals())), self._types, self._moved, cts))

    def with_refs(self, *places: Any) -> Callable[[Any], Any]:
        """This pullback, but adding gradients to references, and giving GradRef() in their place.

        places: like the arguments, with a reference, `ad.GradValue()` or `ad.DontWant()` for each
        leaf.

        >>> _, pull = st.vjp(lambda a, b: a * b, 2.0, 3.0)
        >>> total = st.new_ref(10.0)
        >>> pull.with_refs(total, st.ad.DontWant())(1.0), total[...]
        ((GradRef(), DidntWant()), Array(13., dtype=float32, weak_type=True))
        """
        wanted, given = tree.flatten(places)
        if given != self.in_tree:
            raise ValueError(f"with_refs takes a tree like the arguments, {self.in_tree}, but got "
                             f"{given}")

        def pull(out_ct: Any) -> Any:
            cts, found = tree.leaves(self(out_ct)), []
            for ct, place in zip(cts, wanted, strict=True):
                if isinstance(place, AnyRef):
                    place.addupdate(ct)
                found.append(GradRef() if isinstance(place, AnyRef) else
                             DidntWant() if isinstance(place, DontWant) else ct)
            return tree.unflatten(self.in_tree, found)

        return pull

    def __repr__(self) -> str:
        return (f"VJP(of {self._name}, in_tree={self.in_tree}, out_tree={self.out_tree}, "
                f"args_res={self.args_res}, opaque_residuals={self.opaque_residuals})")


def pulled_back(linear: Linear, types: Sequence[ArrayType], moved: Mask, cts: Sequence[Any]
                ) -> list[Any]:
    """Cotangents of arguments of these types, from those of the results of their linear map.

    moved: which results depend on the arguments.
    """
    kept = [ct for ct, m in zip(cts, moved, strict=True) if m]
    residuals = flat_operands(linear.residuals)
    moving = [has_tangent(t.dtype) for t in types]
    with phase("transpose", len(linear.program.eqns)):
        found = backward(linear.program, [*residuals, *(None for m in moving if m)],
                         flat_operands(kept))
    rest = iter(found[len(residuals):])
    back = [next(rest) if m else None for m in moving]
    return [finished(zero_cotangent(t) if ct is None else ct)
            for t, ct in zip(types, back, strict=True)]


def _identity(x: Any) -> int:
    """A number that two objects share where they are one value: a variable has many tracers."""
    return id(x.variable) if isinstance(x, Tracer) else id(x)


tree.register_pytree_node(VJP, VJP._flattened, VJP._unflattened)
