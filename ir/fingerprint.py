"""Equality of programs: fingerprints, and comparison up to names.

Fingerprints are equal only for programs that cannot be distinguished. Unlike in `programs_equal`,
names, reasons and source locations count, so that a program found by its fingerprint prints and
reports exactly what the one it replaces would.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from .program import Atom, Equation, Literal, Program, Var
from .source.location import Location
from .support.named_tuple import NamedTuple

MOST_BYTES = 1 << 20        # of captured arrays: whoever keeps a program keeps these alive
_SCALARS = frozenset((np.bool_, np.int32, np.int64, np.float32, np.float64))    # the usual ones
MOST_COMPARED = 1 << 10     # of an array that may change, hence is compared by its bytes


class _Unkeyed(Exception):
    """Something in the program can change, cannot be compared, or is too large to be kept."""


class Abstracted(NamedTuple):
    """What a program's key leaves out: the places of its equations, by number, with the first
    location at each, and the numbers in it.
    """
    places: dict[tuple, int]
    locations: list[Location]
    numbers: list[Literal]


def fingerprint(program: Program, abstracted: Abstracted | None = None) -> tuple | None:
    """A key, valid as long as the program lives; None for programs that should not be kept.

    These are the ones that capture large arrays, or arrays that may change. It is made in a bulk
    stage, with the collector paused. abstracted: takes the places and the numbers of the program's
    own equations, which are no part of the key then, only which places are one.
    """
    try:
        if program.consts and sum(
                getattr(x, "nbytes", 0) for _, x in program.consts) > MOST_BYTES:
            return None
        key = _program(program, abstracted)
        hash(key)
    except (_Unkeyed, TypeError):
        return None
    return key


def _program(program: Program, abstracted: Abstracted | None = None) -> tuple:
    """The parts of a program's key: its equations in one flat row, variables by number."""
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
            if abstracted is not None:
                if place not in abstracted.places:
                    abstracted.places[place] = len(abstracted.places)
                    abstracted.locations.append(last)
                place = abstracted.places[place]
        instance: Any = eqn.instance
        rows += (instance if instance.identity is instance else _params(eqn), place, transform,
                 eqn.reason)
        for a in eqn.invars:
            if a in numbers:
                rows += (numbers[a],)
            else:
                x: Any = a.val                                          # type: ignore[union-attr]
                if abstracted is not None:
                    abstracted.numbers.append(a)                            # type: ignore[arg-type]
                    rows += ((a.aval, x.__class__),)
                else:
                    rows += ((a.aval, x.dtype, x.tobytes()) if x.__class__ in _SCALARS
                             else literal_key(a),)                      # type: ignore[arg-type]
        for v in eqn.outvars:
            numbers[v] = count
            count += 1
            rows += v.aval, v.name
    return (program.name, program.level, program.mesh, program.global_in, program.global_out,
            program.arg_names, program.result_names, program.attributes.get("meshes", ()),
            tuple([(v.aval, v.name) for v in program.invars]), tuple(consts), tuple(rows),
            tuple([numbers[a] if a in numbers else literal_key(a)          # type: ignore
                   for a in program.outvars]))


def _params(eqn: Equation) -> tuple:
    """The op and its params, where equal ones are not one use."""
    return (eqn.op, *[(name, _param(value)) for name, value in eqn.params.items()])


def _param(value: Any) -> Any:
    """A param in a form that can be hashed, and is equal only for params that print and run alike.
    """
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


def programs_equal(a: Program, b: Program) -> bool:
    """Structural equality: same equations, types, params and constants, whatever the names.

    Locations and reasons do not count. Constants are compared bit for bit.
    """
    if (a.level is not b.level or a.mesh is not b.mesh or len(a.eqns) != len(b.eqns)
            or a.global_in != b.global_in or a.global_out != b.global_out
            or a.in_avals != b.in_avals or a.out_avals != b.out_avals
            or len(a.consts) != len(b.consts)):
        return False
    same: dict[Var, Var] = dict(zip(a.invars, b.invars, strict=True))
    for (va, xa), (vb, xb) in zip(a.consts, b.consts, strict=True):
        if va.aval is not vb.aval or not _values_equal(xa, xb):
            return False
        same[va] = vb

    def atoms_equal(x: Atom, y: Atom) -> bool:
        if isinstance(x, Literal):
            return isinstance(y, Literal) and x.aval is y.aval and _values_equal(x.val, y.val)
        return same.get(x) is y

    for ea, eb in zip(a.eqns, b.eqns, strict=True):
        if (ea.op is not eb.op or len(ea.invars) != len(eb.invars)
                or len(ea.outvars) != len(eb.outvars)
                or not all(map(atoms_equal, ea.invars, eb.invars))
                or not params_equal(ea.params, eb.params)):
            return False
        for va, vb in zip(ea.outvars, eb.outvars, strict=True):
            if va.aval is not vb.aval:
                return False
            same[va] = vb
    return all(map(atoms_equal, a.outvars, b.outvars))


def params_equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    if a.keys() != b.keys():
        return False
    return all(_param_equal(a[k], b[k]) for k in a)


def _param_equal(x: Any, y: Any) -> bool:
    """Are two params equal, programs in them up to names?"""
    if isinstance(x, Program):
        return isinstance(y, Program) and programs_equal(x, y)
    if isinstance(x, tuple) and isinstance(y, tuple):
        return len(x) == len(y) and all(map(_param_equal, x, y))
    if isinstance(x, (np.ndarray, np.generic)):
        return _values_equal(x, y)
    if type(x) is float and type(y) is float:
        return x.hex() == y.hex()          # NaN equals itself, 0.0 is not -0.0
    return x is y or x == y


def _values_equal(x: Any, y: Any) -> bool:
    if x is y:
        return True
    # Arrays of random keys refuse `np.asarray`; `value` is what they hold.
    x, y = np.asarray(getattr(x, "value", x)), np.asarray(getattr(y, "value", y))
    return x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
