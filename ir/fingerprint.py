"""Fingerprints: keys that are equal only for programs that cannot be distinguished.

Unlike in `programs_equal`, names, reasons and source locations count, so that a program found by
its fingerprint prints and reports exactly what the one it replaces would.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from .program import Equation, Literal, Program
from .source.location import Location
from .support.named_tuple import NamedTuple

MOST_BYTES = 1 << 20        # of captured arrays: whoever keeps a program keeps these alive
_SCALARS = frozenset((np.bool_, np.int32, np.int64, np.float32, np.float64))    # the usual ones
MOST_COMPARED = 1 << 10     # of an array that may change, hence is compared by its bytes


class _Unkeyed(Exception):
    """Something in the program can change, cannot be compared, or is too large to be kept."""


class Lifted(NamedTuple):
    """What a program's key leaves out: the places of its equations, by number, with the first
    location at each, and the numbers in it.
    """
    places: dict[tuple, int]
    locations: list[Location]
    numbers: list[Literal]


def fingerprint(program: Program, lifted: Lifted | None = None) -> tuple | None:
    """A key, valid as long as the program lives; None for programs that should not be kept.

    These are the ones that capture large arrays, or arrays that may change. It is made in a bulk
    stage, with the collector paused. lifted: takes the places and the numbers of the program's own
    equations, which are no part of the key then, only which places are one.
    """
    try:
        if program.consts and sum(
                getattr(x, "nbytes", 0) for _, x in program.consts) > MOST_BYTES:
            return None
        key = _program(program, lifted)
        hash(key)
    except (_Unkeyed, TypeError):
        return None
    return key


def _program(program: Program, lifted: Lifted | None = None) -> tuple:
    numbers: dict[Any, int] = {v: n for n, v in enumerate(program.invars)}
    consts = []
    for v, value in program.consts:
        numbers[v] = len(numbers)
        consts.append((v.aval, v.name, _captured(value)))
    count = len(numbers)
    rows: list[Any] = []
    last = transform = None
    place: Any = None
    for eqn in program.eqns:
        if eqn.location is not last:            # equations made of one have one location
            last = eqn.location
            place, transform = last.place, last.transform
            if lifted is not None:
                if place not in lifted.places:
                    lifted.places[place] = len(lifted.places)
                    lifted.locations.append(last)
                place = lifted.places[place]
        instance: Any = eqn.instance
        rows += (instance if instance.identity is instance else _params(eqn), place, transform,
                 eqn.reason)
        for a in eqn.invars:
            if a in numbers:
                rows += (numbers[a],)
            else:
                x: Any = a.val                                          # type: ignore[union-attr]
                if lifted is not None:
                    lifted.numbers.append(a)                            # type: ignore[arg-type]
                    rows += ((a.aval, x.__class__),)
                else:
                    rows += ((a.aval, x.dtype, x.tobytes()) if x.__class__ in _SCALARS
                             else literal_key(a),)                      # type: ignore[arg-type]
        for v in eqn.outvars:
            numbers[v] = count
            count += 1
            rows += v.aval, v.name
    return (program.name, program.level, program.mesh, program.global_in, program.global_out,
            program.arg_names, program.result_names, program.memo.get("meshes", ()),
            tuple([(v.aval, v.name) for v in program.invars]), tuple(consts), tuple(rows),
            tuple([numbers[a] if a in numbers else literal_key(a)          # type: ignore
                   for a in program.outvars]))


def _params(eqn: Equation) -> tuple:
    """The op and its params, where equal ones are not one use."""
    return (eqn.op, *[(name, _param(value)) for name, value in eqn.params.items()])


def _param(value: Any) -> Any:
    if isinstance(value, Program):
        return _program(value)
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(map(_param, value))
    if isinstance(value, (np.ndarray, np.generic)):
        return _captured(value)
    if isinstance(value, (float, complex)):
        return type(value), repr(value)         # 0.0 is not -0.0, NaN equals itself
    return type(value), value


def literal_key(a: Literal) -> tuple:
    """Equal for literals of equal type and value, whether or not they are one object."""
    value = a.val
    if isinstance(value, np.generic):
        return a.aval, value.dtype, value.tobytes()
    return a.aval, _bytes(value)


def _captured(value: Any) -> Any:
    if isinstance(value, np.generic):
        return _bytes(value)
    if isinstance(value, np.ndarray):
        if value.nbytes > MOST_COMPARED or value.dtype.hasobject:
            raise _Unkeyed
        return value.shape, _bytes(value)
    return id(value)


def _bytes(value: Any) -> tuple:
    array = np.asarray(getattr(value, "value", value))
    return array.dtype, array.tobytes()
