"""Ops that call functions of the host: `debug_print`, `debug_callback`, `pure_callback`,
`io_callback`.

The function gets the operands as arrays and gives the results, whose types `result_avals` says. It
is called once, with whole values, or inside of a manual region once for every place along the
region's `axes`, with the blocks there; `partitioned` asks for the blocks outside of regions too.
What a function may do to the world is the op's `effect`: prints and debug callbacks ("debug") and
io callbacks ("io") are kept as they stand, pure ones ("host") go where nothing needs their results.

How a call is put together from the operands is given by three params: the last operands are the
`keywords`, the others are positional. Where an argument is a container, or no array, `in_tree` is
the structure of (args, kwargs) and `static_args` the (leaf number, value) pairs that are no arrays.
Names and params are those of JAX's primitives where it has them.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...diagnostics.diagnostic import fail
from ...meshes.manual_state import NOT_MANUAL, ManualState
from ...op import Op, defop
from ...rules.factor import PASS, REPLICATE, Factor
from ...rules.rule import FactorRule
from ...support.lazy import lazy_import, lazy_pattern
from ...trees.pytree import unflatten
from ...types import ArrayType

_string = lazy_import("string")

Params = dict[str, Any]


class ByIdentity:
    """An argument of a host function that cannot be hashed, as it stands in params: by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


def call_arguments(operands: Sequence[Any], params: Params) -> tuple[tuple, dict[str, Any]]:
    """(args, kwargs) with which the function of a callback equation is called."""
    in_tree, keywords = params["in_tree"], params["keywords"]
    if in_tree is None:
        n = len(operands) - len(keywords)
        return tuple(operands[:n]), dict(zip(keywords, operands[n:], strict=True))
    static = dict(params["static_args"])
    arrays = iter(operands)
    leaves = []
    for i in range(in_tree.num_leaves):
        if i not in static:
            leaves.append(next(arrays))
            continue
        value = static[i]
        leaves.append(value.value if isinstance(value, ByIdentity) else value)
    return unflatten(in_tree, leaves)


# -- format strings --------------------------------------------------------------------------------

# What a field may look up: an argument, its elements, and what an array says of itself. Whatever
# else a field could reach (`{x.__class__...}`) leads out of the program, which may be anybody's.
_FIELD = lazy_pattern(r"(\w*)(\[\w+\]|\.(dtype|ndim|shape|size|T|real|imag))*", re.ASCII)
_SPEC = lazy_pattern(r"(.?[<>=^])?[-+ ]?z?#?0?\d{0,3}[_,]?(\.\d{1,2})?[a-zA-Z%]?")


def format_fields(fmt: str) -> Iterator[tuple[str, str]]:
    """The fields of a format string with their specs. Raises ValueError for one that looks up
    more than arguments, or whose spec is computed or asks for more than 999 characters."""
    for _, field, spec, _ in _string.Formatter().parse(fmt):
        if field is None:
            continue
        if not _FIELD.fullmatch(field):
            fail(ValueError, f"the field {field[:80]!r} of a debug print looks up more than an "
                 "argument", code="format-field",
                 help="give what is to be printed as an argument of its own")
        if not _SPEC.fullmatch(spec or ""):
            fail(ValueError, f"the format {spec[:80]!r} of a debug print is no simple one, of a "
                 "width under 1,000 and a precision under 100", code="format-spec",
                 help="format the value before, and print the text")
        yield field, spec or ""


# -- typing ----------------------------------------------------------------------------------------

def _infer_print(*types: ArrayType, fmt: str, ordered: bool = False, partitioned: bool = False,
                 log: bool = False,
                 np_printoptions: tuple = (), keywords: tuple[str, ...] = (), in_tree: Any = None,
                 static_args: tuple = (), axes: tuple[str, ...] = ()) -> list:
    if not isinstance(fmt, str):
        raise TypeError(f"a debug print has a text as its format, not {fmt!r}")
    for _ in format_fields(fmt):
        pass
    return []


def _infer_debug(*types: ArrayType, callback: Any, ordered: bool = False,
                 partitioned: bool = False, keywords: tuple[str, ...] = (), in_tree: Any = None,
                 static_args: tuple = (), axes: tuple[str, ...] = ()) -> list:
    return []


def _declared(result_avals: tuple[ArrayType, ...]) -> list[tuple]:
    return [(t.shape, t.dtype, False) for t in result_avals]


def _infer_pure(*types: ArrayType, callback: Any, result_avals: tuple[ArrayType, ...],
                vmap_method: str | None = None, sharding: Any = None,
                keywords: tuple[str, ...] = (), in_tree: Any = None, static_args: tuple = (),
                axes: tuple[str, ...] = (), varying: bool = False) -> list:
    return _declared(result_avals)


def _infer_io(*types: ArrayType, callback: Any, result_avals: tuple[ArrayType, ...],
              ordered: bool = False, sharding: Any = None, keywords: tuple[str, ...] = (),
              in_tree: Any = None, static_args: tuple = (), axes: tuple[str, ...] = (),
              varying: bool = False) -> list:
    return _declared(result_avals)


def _rule(operand_shapes: tuple, result_shapes: tuple, *, partitioned: bool = False, **_: Any
          ) -> FactorRule:
    """The function sees whole values, or blocks in whatever way they are cut."""
    factors: list[Factor] = []

    def side(shapes: tuple) -> tuple:
        maps = []
        for shape in shapes:
            first = len(factors)
            factors.extend(Factor(f"f{first + d}", n, PASS if partitioned else REPLICATE,
                                  blocked=True) for d, n in enumerate(shape))
            maps.append(tuple((first + d,) for d in range(len(shape))))
        return tuple(maps)

    return FactorRule(side(operand_shapes), side(result_shapes), tuple(factors))


def _states(op: Op, types: Sequence[ArrayType], params: Params) -> list[ManualState]:
    """Traced, results count as the same on all devices, as in JAX; `varying` says the facts."""
    state = ManualState(frozenset(params["axes"])) if params.get("varying") else NOT_MANUAL
    return [state] * len(params.get("result_avals", ()))


# -- derivatives -----------------------------------------------------------------------------------

def _refuse_pure(*_: Any, **__: Any) -> Any:
    raise ValueError("Pure callbacks do not support JVP. Please use `jax.custom_jvp` to use "
                     "callbacks while taking gradients.")


def _refuse_pure_transpose(*_: Any, **__: Any) -> Any:
    raise ValueError("Pure callbacks do not support transpose. Please use `jax.custom_vjp` to use "
                     "callbacks while taking gradients.")


def _refuse_io(*_: Any, **__: Any) -> Any:
    raise ValueError("IO callbacks do not support JVP.")


def _refuse_io_transpose(*_: Any, **__: Any) -> Any:
    raise ValueError("IO callbacks do not support transpose.")


def _nothing(ct: Any, *operands: Any, **_: Any) -> list[None]:
    return [None] * len(operands)


def _callback(name: str, doc: str, *, infer: Callable[..., Any], **fields: Any) -> Op:
    """Declare a call of a function on the host, with values that are whole unless `partitioned`."""
    return defop(
        name, doc=doc, infer=infer, multiple_results=True, rule=_rule, explicit="unsharded",
        manual=_states,
        arithmetic=False, **fields)


debug_print_p = _callback(
    "debug_print", "Print `fmt`, with its fields filled by the operands.", infer=_infer_print,
    jvp="zero", transpose=_nothing,
    effect="debug")
debug_callback_p = _callback(
    "debug_callback", "Call `callback` with the operands, for what it does.", infer=_infer_debug,
    jvp="zero", transpose=_nothing,
    effect="debug")

inspect_sharding_p = defop(
    "inspect_sharding", doc="Call `callback` with the sharding that the operand gets.",
    infer=lambda x, *, callback: [], multiple_results=True,
    rule=lambda operands, results, *, callback: _rule(operands, results, partitioned=True),
    explicit="unsharded", pending="keep", manual=_states, jvp="zero", transpose=_nothing,
    batch=lambda operands, dims, size, *, callback: (
        inspect_sharding_p.bind(*operands, callback=callback), []),
    arithmetic=False, effect="debug")
pure_callback_p = _callback(
    "pure_callback",
    "The results of `callback`, of types `result_avals`; it is called for these alone.",
    infer=_infer_pure,
    jvp=_refuse_pure, transpose=_refuse_pure_transpose,
    effect="host")
io_callback_p = _callback(
    "io_callback",
    "The results of `callback`, of types `result_avals`; it is called whether or not they are "
    "used.",
    infer=_infer_io,
    jvp=_refuse_io, transpose=_refuse_io_transpose,
    effect="io")
