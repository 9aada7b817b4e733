"""Checks that a call's arguments are arrays. Errors name the argument and a remedy."""
from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ...ir.diagnostics.diagnostic import Help, Remedy, error, fail
from ...ir.settings.context import config
from ...ir.types import ArrayType
from ...ir.values.shape_struct import ShapeDtypeStruct
from ...ir.values.typeof import typeof
from ...tracer.staging.signature import Arguments
from ...tracer.trees import tree


def abstract(x: Any) -> ArrayType:
    """The type of an argument. Raises ValueError for what only converts to an array."""
    if hasattr(x, "__jax_array__"):
        raise ValueError("Triggering __jax_array__() during abstractification is no longer "
                         "supported: convert the argument with `jnp.asarray`, or register its "
                         "class as a pytree.")
    return typeof(x)


def argument_type(x: Any, function: Any, name: str) -> ArrayType:
    """The type of an argument; what is no array is refused, by the name of the argument."""
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


def other_type(function: Any, arguments: Arguments, leaves: Sequence[Any], i: int, in_tree: Any,
               refused: Exception) -> ArrayType:
    """The type of an argument that `abstract` refuses with this error. One that has a shape and a
    dtype is replaced by a struct of these; for all others an error names the argument.
    """
    x = leaves[i]
    if isinstance(refused, TypeError) and hasattr(x, "shape") and hasattr(x, "dtype") and (
            not isinstance(x, (np.ndarray, np.generic))):
        leaves[i] = ShapeDtypeStruct(x.shape, x.dtype)              # type: ignore[index]
        return typeof(leaves[i])
    name = arguments.leaf_names(*tree.unflatten(in_tree, leaves))[i]
    if isinstance(refused, OverflowError):
        refuse_large(x, name)
    return argument_type(x, function, name)


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
