"""Checks of a call's arguments: that they are arrays, and which of them are donated.

Errors name the argument and a remedy.
"""
from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from ...ir.diagnostics.diagnostic import Help, Remedy, error, fail
from ...ir.diagnostics.errors import JaxRuntimeError
from ...ir.settings.context import config
from ...ir.types import ArrayType
from ...ir.values.shape_struct import ShapeDtypeStruct
from ...ir.values.typeof import typeof
from ...runtime.arrays.array import ArrayImpl
from ...tracer.staging.signature import Arguments
from ...tracer.trees import tree
from ..execution.executable import Executable


def abstract(x: Any) -> ArrayType:
    """The type of an argument. Raises ValueError for what only converts to an array."""
    if hasattr(x, "__jax_array__"):
        raise ValueError("Triggering __jax_array__() during abstractification is no longer "
                         "supported: convert the argument with `jnp.asarray`, or register its "
                         "class as a pytree.")
    return typeof(x)


def argument_type(x: Any, function: Any, name: str) -> ArrayType:
    try:
        return typeof(x)
    except TypeError:
        raise error(
            TypeError,
            f"Error interpreting argument to {function} as an abstract array. The problematic "
            f"value is of type {type(x)} and was passed to the function at path {name}.\n"
            "This typically means that a jit-wrapped function was called with a non-array "
            "argument, and this argument was not marked as static using the static_argnums or "
            "static_argnames parameters of jax.jit.", code="not-an-array",
            help=_static_help(x, name)) from None


def refuse_large(x: Any, name: str) -> NoReturn:
    """Raise OverflowError for an argument that no integer of 32 bits, or of 64, is."""
    raise OverflowError("An overflow was encountered while parsing an argument to a jitted "
                        f"computation, whose argument path is {name}. Got {type(x)} with value {x}"
                        ) from None


def refuse_metadata(raised: ValueError) -> NoReturn:
    """Raise ValueError for a structure that cannot be compared with that of an earlier call."""
    raise error(
        ValueError, "Exception raised while checking equality of metadata fields of pytree. Make "
        "sure that metadata fields are hashable and have simple equality semantics. (Note: arrays "
        "cannot be passed as metadata fields!)", code="metadata",
        help="make the field a child of its class: a data field, not a static one") from raised


def _static_help(x: Any, name: str) -> Help:
    """What to do about an argument, or a part of one, that is not an array."""
    try:
        hash(x)
        hashable = True
    except TypeError:
        hashable = False
    if name.isidentifier() and hashable:
        return Remedy(f"mark `{name}` static, with `static_argnames`", f"static {name}")
    whole = re.split(r"[.\[]", name)[0] or name
    if not hashable:
        return f"pass an array for {name}, or close over the value"
    return (f"{name} is a part of the argument `{whole}`: pass it as an argument of its own and "
            "mark that static, or close over it")


def run_in_python(f: Any, args: Any, kwargs: Any) -> None:
    """Call a function that `debug_nans` has stopped with these numbers of Python, if there are any,
    as JAX does: their arithmetic has errors of its own (ZeroDivisionError)."""
    if any(type(x) in (int, float, complex) for x in tree.leaves((args, kwargs))):
        with config.override(jax_disable_jit=True):
            f(*args, **kwargs)


def check_values(arguments: Arguments, leaves: Sequence[Any], args: Any, kwargs: Any) -> None:
    """Raise TypeError for an argument that has a type but no value."""
    for i, x in enumerate(leaves):
        if isinstance(x, (ShapeDtypeStruct, ArrayType)):
            name = arguments.leaf_names(args, kwargs)[i]
            aval = x if isinstance(x, ArrayType) else x.aval
            fail(TypeError, f"Argument '{name}' of shape {aval.str_short()} of type {type(x)} "
                 "is not a valid JAX type.", code="not-an-array",
                 help="call `lower` or `eval_shape` with types, the function with "
                      "arrays")


def qualified_name(f: Any) -> str:
    """What messages call a function: its name with where it is defined, else its repr."""
    return getattr(f, "__qualname__", None) or str(f)


def donated(arguments: Arguments, args: Any, kwargs: Any, leaves: Sequence[Any],
            executable: Executable) -> tuple[list[int], list[str]]:
    """Which leaves give their buffers to results, and the types of those that no result can use.

    Raises JaxRuntimeError where one that does is passed to the call twice.
    """
    gone: list[int] = []
    if not arguments.donate_nums and not arguments.donate_names:
        return gone, []
    spare = [(t.shape, t.dtype) for t in executable.avals]
    others: list[int] = []
    given = arguments.donated(args, kwargs)
    for i, (x, gives) in enumerate(zip(leaves, given, strict=True)):
        if not gives or not executable.used[i] or not isinstance(x, ArrayImpl):
            continue
        if (x.aval.shape, x.aval.dtype) in spare:
            spare.remove((x.aval.shape, x.aval.dtype))
            gone.append(i)
        else:
            others.append(i)
    sizes = [math.prod(shape) for shape, _ in spare]      # a result of another shape, then
    unusable = []
    for i in others:
        size = leaves[i].aval.size
        if size in sizes:
            sizes.remove(size)
            gone.append(i)
        else:
            unusable.append(str(leaves[i].aval))
    if len({*map(id, leaves)}) < len(leaves):
        names = arguments.leaf_names(args, kwargs)
        for i in gone:
            for j, x in enumerate(leaves):
                if x is leaves[i] and j != i and executable.used[j]:
                    _refuse_twice(names[i], names[j],
                                  "donate the same buffer twice in" if j in gone else
                                  "use a buffer that was previously donated in the same call to"
                                  if i < j else
                                  "donate a buffer which is also used by the same call to")
    return gone, unusable


def _refuse_twice(given: str, other: str, what: str) -> None:
    fail(JaxRuntimeError, f"Attempt to {what} Execute(): `{given}` and `{other}` are one array",
         code="donated-twice", because=("a result may be written into the buffer of a donated "
                                        "argument while the other is still to be read",),
         help=f"pass a copy for `{given}` (`jnp.copy`), or do not donate it")
