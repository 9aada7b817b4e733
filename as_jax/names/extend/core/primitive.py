"""Operations that libraries make of functions of JAX, with rules of their own.

Such a primitive is traced as what its `impl` computes, in an equation of `custom_jvp_call`, which
is inlined where a program is partitioned. The rules of `interpreters.ad.primitive_jvps` and
`interpreters.batching` are asked where the equation is differentiated or mapped. What is linear is
transposed as what it computes; rules for that, and for lowering, are not read.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .....ir.diagnostics.diagnostic import fail
from .....ir.ops.control.custom import custom_jvp_call_p
from .....ir.settings.context import STATE
from .....ir.values.typeof import typeof
from .....tracer.autodiff.custom.common import SymbolicZero, call_program
from .....tracer.autodiff.forward import zero_tangent
from .....tracer.batching.rules import Batched, MappedAxis
from .....tracer.trees import tree
from ...interpreters import ad, batching

__all__ = ["Primitive"]


class Primitive:
    """An operation by its name, and by rules that say what it means."""

    multiple_results = False
    call_primitive = map_primitive = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.impl: Callable[..., Any] | None = None
        self.abstract_eval: Callable[..., Any] | None = None

    def def_impl(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """What it computes, by functions of JAX."""
        self.impl = impl
        return impl

    def def_abstract_eval(self, abstract_eval: Callable[..., Any]) -> Callable[..., Any]:
        """The types of its results, which are those of `impl` here."""
        self.abstract_eval = abstract_eval
        return abstract_eval

    def bind(self, *args: Any, **params: Any) -> Any:
        """The result for these operands, or a list of them where it has `multiple_results`."""
        impl = self.impl
        if impl is None:
            fail(NotImplementedError, f"the primitive `{self.name}` has no `impl`, by functions of "
                                      "`jax.numpy` and `jax.lax`, which shardtrace could trace",
                 help="give it one, by `def_impl`")

        def run(*values: Any) -> tuple[Any, ...]:
            outs = impl(*values, **params)
            return tuple(outs) if self.multiple_results else (outs,)

        if STATE.interpreter is None:
            outs = run(*args)
        else:
            leaves, treedef = tree.flatten_tuple(args)
            program, captured, _ = call_program(run, leaves, treedef, self.name)
            outs = custom_jvp_call_p.bind(
                *captured, *leaves, call_jaxpr=program, jvp_jaxpr_fun=_Rules(self, params),
                num_consts=len(captured), symbolic_zeros=True)
        return list(outs) if self.multiple_results else outs[0]

    def __repr__(self) -> str:
        return self.name


class _Rules:
    """The rules of a primitive for one of its equations, on flat values."""

    closed: Sequence[Any] = ()

    def __init__(self, primitive: Primitive, params: dict[str, Any]) -> None:
        self.primitive, self.params = primitive, params
        self.__name__ = primitive.name

    def __call__(self, primals: Sequence[Any], tangents: Sequence[Any], closed: Sequence[Any] = ()
                 ) -> list[Any]:
        """Results, then their tangents."""
        rule = ad.primitive_jvps.get(self.primitive)
        if rule is None:
            fail(NotImplementedError,
                 f"Differentiation rule for '{self.primitive.name}' not implemented",
                 help="enter one with `ad.defjvp`, or in `ad.primitive_jvps`")
        outs, moved = rule(list(primals), [
            ad.Zero(t.aval) if isinstance(t, SymbolicZero) else t for t in tangents], **self.params)
        if not self.primitive.multiple_results:
            outs, moved = [outs], [moved]
        return [*outs, *(zero_tangent(typeof(x)) if type(t) is ad.Zero else t
                         for x, t in zip(outs, moved, strict=True))]

    def batch(self, axis: MappedAxis, operands: Sequence[Any], dims: Sequence[int | None]
              ) -> Batched:
        """Results of operands of which some are mapped, and the mapped dimension of each."""
        plain = batching.primitive_batchers.get(self.primitive)
        named = batching.axis_primitive_batchers.get(self.primitive)
        if plain is not None:
            outs, places = plain(tuple(operands), tuple(dims), **self.params)
        elif named is not None:
            outs, places = named(axis.size, axis.name, None, tuple(operands), tuple(dims),
                                 **self.params)
        else:
            fail(NotImplementedError, f"Batching rule for '{self.primitive.name}' not implemented",
                 help="enter one in `batching.primitive_batchers`")
        return (list(outs), list(places)) if self.primitive.multiple_results else (
            [outs], [places])
