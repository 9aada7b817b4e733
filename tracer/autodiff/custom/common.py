"""What custom_jvp and custom_vjp share: their arguments, and how the user's functions are run."""
from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ....ir.diagnostics.diagnostic import fail
from ....ir.diagnostics.errors import UnexpectedTracerError
from ....ir.op import Op
from ....ir.program import Program
from ....ir.settings.context import STATE, config, interpreter_context, x64_enabled
from ....ir.types import ArrayType
from ....ir.values.typeof import typeof
from ...staging.signature import function_name, plain_function
from ...staging.tracer import Tracer
from ...trees import tree
from ..forward import Forward, zero_tangent
from ..recording import Recording, record
from ..replay import process, user_code

ONE = tree.structure(0)          # of an array that is all


def named_as(rule: Any, f: Any) -> None:
    """Give a callable object the names of the function f that it wraps, for messages."""
    rule.__name__ = function_name(f)
    rule.__qualname__ = getattr(f, "__qualname__", rule.__name__)
    rule.__module__ = getattr(f, "__module__", rule.__module__)


def positional(f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], word: str
               ) -> tuple[Any, ...]:
    """All arguments of a call by position, defaults filled in. Raises TypeError as JAX does."""
    plain = None if kwargs else plain_function(f)
    if plain is not None:
        code = plain.__code__
        if code.co_argcount == len(args) and not code.co_kwonlyargcount and not (
                code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)):
            return tuple(args)
    try:
        signature = inspect.signature(f)
    except (ValueError, TypeError):
        if kwargs:
            raise
        return tuple(args)
    try:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
    except TypeError as e:
        raise TypeError(
            f"The input arguments to the {word}-decorated function {function_name(f)} could not be "
            f"resolved to positional-only arguments. Binding failed with the error:\n{e}") from e
    keywords = {name: x for name, x in bound.kwargs.items() if name in kwargs or not isinstance(
        f, functools.partial)}
    if keywords:
        raise TypeError(
            f"The input arguments to the {word}-decorated function {function_name(f)} could not be "
            "resolved to positional-only arguments. Binding failed with the error:\n"
            f"The following keyword arguments could not be resolved to positions: "
            f"{', '.join(keywords)}")
    return bound.args


_RULES = ("defjvp", "defjvps", "defvjp", "def_vmap", "def_partition")


def forward_rules(self: Any, name: str) -> Any:
    """The `__getattr__` of functions with rules: what sets rules of another kind is that of the
    function within."""
    if name in _RULES:
        return getattr(self.fun, name)
    raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def fixed_positions(f: Callable[..., Any], nums: Sequence[int], names: Sequence[str]
                    ) -> tuple[int, ...]:
    """The arguments of a function with rules that are not arrays: by position and by name."""
    if not names:
        return tuple(nums)
    order = list(inspect.signature(f).parameters)
    return tuple(sorted({*nums, *[order.index(name) for name in names]}))


def split_arguments(args: Sequence[Any], nondiff: Sequence[int]
                    ) -> tuple[list[Any], list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """(differentiable arguments, the others, how to put them together again)."""
    if not nondiff:
        return list(args), [], list
    count = len(args)
    fixed = {n % count if n < 0 else n: args[n] for n in nondiff}
    moving = [x for i, x in enumerate(args) if i not in fixed]

    def merge(values: Sequence[Any]) -> list[Any]:
        it = iter(values)
        return [fixed[i] if i in fixed else next(it) for i in range(count)]

    return moving, [fixed[i] for i in sorted(fixed)], merge


def call_program(f: Callable[..., Any], leaves: Sequence[Any], treedef: Any, name: str
                 ) -> tuple[Program, list[Any], Any]:
    """The program of f on a flattened argument tuple: (program, captured values, result tree).

    Within a recording that has values, Python control flow of f sees them.
    """
    trees: list[Any] = []

    def flat(*values: Any) -> list[Any]:
        result = f(*tree.unflatten(treedef, values))
        if type(result) is Tracer:
            trees.append(ONE)
            return [result]
        outs, out_tree = tree.flatten(result)
        trees.append(out_tree)
        return outs

    interpreter = STATE.interpreter
    known = leaves if isinstance(interpreter, Recording) and interpreter.concrete else None
    program, recording = record(flat, [typeof(x) for x in leaves], name=name, values=known)
    captured = recording.captured
    if program.consts:
        captured = [x for _, x in program.consts]
        program = program.replace(invars=[*program.constvars, *program.invars], consts=())
    return program, list(captured), trees[-1]


def as_called(rule: Any) -> Any:
    """A block in which numbers are as wide as where the function that a rule belongs to was called.
    """
    wide = getattr(rule, "x64", None)
    return contextlib.nullcontext() if wide is None or wide == x64_enabled() else (
        config.override(jax_enable_x64=wide))


def run_rule(f: Callable[..., Sequence[Any]], operands: Sequence[Any], rule: Any) -> list[Any]:
    """`f(*operands)`, which runs a rule of custom_jvp, within a derivative rule.

    Of the operands some may be tangents that are not known yet: then f is recorded, with the values
    of the others at hand, and its equations are replayed.
    """
    interpreter = STATE.interpreter
    if not isinstance(interpreter, Forward):
        with user_code(rule):
            return list(f(*operands))
    outer = interpreter.outer
    with interpreter_context(outer), user_code(rule):
        place = getattr(outer, "location", None)

        def run(*values: Any) -> Sequence[Any]:
            STATE.interpreter.location = place          # type: ignore[union-attr]
            return f(*values)

        known = [None if interpreter.is_unknown(x) else x for x in operands]
        program, recording = record(run, [typeof(x) for x in operands], name=rule.__name__,
                                    values=known)
    env = dict(recording.known())
    env.update(zip(program.invars[len(recording.captured_vars):], operands, strict=True))
    return interpreter.replay(program, env)


def run_known(f: Callable[..., Sequence[Any]], operands: Sequence[Any], rule: Any) -> list[Any]:
    """`f(*operands)`, which runs a rule of custom_vjp on known values, within a derivative rule."""
    interpreter = STATE.interpreter
    outer = interpreter.outer if isinstance(interpreter, Forward) else interpreter
    with interpreter_context(outer), user_code(rule):
        return list(f(*operands))


def refuse_closed_over(tangents: Sequence[Any], word: str, rule: str) -> None:
    """Raise JAX's error where a custom function is differentiated by what it closes over."""
    if any(t is not None for t in tangents):
        fail(UnexpectedTracerError,
             f"Detected differentiation of a {word} function with respect to a closed-over value. "
             f"That isn't supported because the {rule} only specifies how to differentiate the "
             f"{word} function with respect to explicit input parameters. Try passing the "
             f"closed-over value into the {word} function as an argument, and adapting the "
             f"{rule}.", code="closed-over-value")


def untouched(op: Op, operands: Sequence[Any], params: dict[str, Any]
              ) -> tuple[list[Any], list[Any]]:
    """Results and tangents of a call whose arguments have none, whatever its rules close over."""
    results = process(op, operands, params)
    return results, [None] * len(results)


class SymbolicZero:
    """A tangent or cotangent known to be zero, as rules with `symbolic_zeros=True` get it."""

    __slots__ = ("aval",)

    def __init__(self, aval: ArrayType) -> None:
        self.aval = aval

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> Any:
        return self.aval.dtype

    def instantiate(self) -> Any:
        """Zeros of this type."""
        return zero_tangent(self.aval)

    def __repr__(self) -> str:
        return f"SymbolicZero({self.aval})"


def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """The zero tangent of a value: zeros, float0 of integers, or a `SymbolicZero` if asked for."""
    return SymbolicZero(typeof(val)) if symbolic_zeros else zero_tangent(val)


def shapes_text(treedef: Any, types: Sequence[ArrayType]) -> str:
    """A pytree of short types, for messages."""
    return str(tree.unflatten(treedef, [t.str_short() for t in types])).replace("'", "")
