"""What `tests/record/placement.py` and `test_placement.py` share: expressions about arrays.

Each line of tests/golden/placement.txt is an expression over `jax` (here: shardtrace), `jnp`, `np`
and the names below, evaluated once on an Auto and once on an Explicit mesh of 4 by 2 devices; what
comes of it in JAX stands behind it, separated by tabs (`=`: the same on both). In a line that is
not recorded yet, `A` stands for each of `OPERANDS`.

An outcome is a description of arrays (type, spec or device, committed, weighted sum), the repr of
anything else, or `!` with an exception's class, built-in base and text.
"""
from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np

from ..paths import GOLDEN

TABLE = GOLDEN / "placement.txt"
KINDS = ("Auto", "Explicit")
SAME = "="               # in the third column: as in the second
OPERANDS = {"xy": ("x", "y"), "x": ("x",), "y": (None, "y"), "t": (("x", "y"),), "r": (),
            "u": None, "d3": 3}


def names(jax: Any, jnp: Any, kind: str) -> dict[str, Any]:
    """What the expressions are about, of `jax` or of what stands for it."""
    sharding = jax.sharding
    named, P = sharding.NamedSharding, sharding.PartitionSpec
    devices = jax.devices()[:8]
    m = jax.make_mesh((4, 2), ("x", "y"), axis_types=(getattr(sharding.AxisType, kind),) * 2)
    a = np.arange(32, dtype=np.float32).reshape(8, 4) / 8 + 1

    def s(*partitions: Any, **sets: Any) -> Any:
        return named(m, P(*partitions, **sets))

    def put(value: Any, *partitions: Any, **sets: Any) -> Any:
        return jax.device_put(value, s(*partitions, **sets))

    def deleted(*partitions: Any) -> Any:
        out = put(a, *partitions)
        out.delete()
        return out

    def blocks(value: Any, *partitions: Any) -> list[Any]:
        """The one-device arrays of a sharded array, made one by one."""
        return [jax.device_put(value[i], d)
                for d, i in s(*partitions).devices_indices_map(value.shape).items()]

    def inside(f: Any) -> Any:
        with jax.set_mesh(m):
            return f()

    def each(f: Any, items: Any) -> list[Any]:
        return [f(i) for i in items]

    operands = {}
    for name, spec in OPERANDS.items():
        if spec is None:
            operands[name] = jnp.asarray(a)
        elif isinstance(spec, int):
            operands[name] = jax.device_put(a, devices[spec])
        else:
            operands[name] = put(a, *spec)
    k = np.arange(32, dtype=np.int32).reshape(8, 4)
    return {"jax": jax, "jnp": jnp, "np": np, "P": P, "NS": named, "m": m, "d": devices, "a": a,
            "k": k, "s": s, "put": put, "deleted": deleted, "blocks": blocks, "inside": inside,
            "each": each, "SDS": jax.ShapeDtypeStruct, "One": sharding.SingleDeviceSharding,
            "Mesh": sharding.Mesh, "operands": operands, "AxisType": sharding.AxisType, **{
                name: getattr(jax, name) for name in (
                    "make_array_from_single_device_arrays", "make_array_from_callback",
                    "make_array_from_process_local_data", "device_put", "device_get")}}


def outcome(expression: str, environment: dict[str, Any]) -> str:
    """What comes of an expression, in one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return described(eval(expression, environment))
    except Exception as error:
        base = next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
        text = re.sub(r"\n *--> .*|\nSee https.*|\n-{9}.*", "", str(error), flags=re.DOTALL)
        text = re.sub(r"(?<=from line )\S*/", "", text)
        return f"!{type(error).__name__}({base}): " + plain(text)


def described(x: Any) -> str:
    """An outcome that is no exception."""
    if isinstance(x, (list, tuple)):
        left, right = ("[", "]") if isinstance(x, list) else ("(", ")")
        return left + "; ".join(map(described, x)) + right
    if isinstance(x, dict):
        return "{" + "; ".join(f"{k}: {described(x[k])}" for k in sorted(x)) + "}"
    if hasattr(x, "sharding") and hasattr(x, "committed"):
        sharding = x.sharding
        spec = getattr(sharding, "spec", None)
        where = (f"{spec}" if spec is not None and len(sharding.device_set) > 1
                 else f"device {min(e.id for e in sharding.device_set)}")
        weak = "~" if x.weak_type else ""
        committed = "committed" if x.committed else "free"
        kept = weak + x.aval.str_short(True)
        if getattr(spec, "unreduced", None):
            return f"{kept} {plain(where)} {committed}"
        return f"{kept} {plain(where)} {committed} {_sum(np.asarray(x))}"
    if isinstance(x, np.ndarray):
        return f"numpy {x.dtype}{list(x.shape)} {_sum(x)}"
    if isinstance(x, (set, frozenset)):
        return "{" + ", ".join(sorted(map(repr, x))) + "}"
    return plain(repr(x))


def _sum(x: np.ndarray) -> str:
    """A weighted sum, in as many digits as two libraries agree on."""
    numbers = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64).reshape(-1)
    total = complex((numbers * (1 + np.arange(x.size) % 7)).sum())
    return f"{total.real:.3e}" if total.imag == 0 else f"{total.real:.3e}{total.imag:+.3e}j"


def plain(text: str) -> str:
    """One line without addresses; sets in order, however they were printed."""
    text = re.sub(r"0x[0-9a-f]+", "0x", " ".join(text.split()))
    text = re.sub(r"<class '[\w.]*\.(\w+)'>", r"<class '\1'>", text)
    for theirs, ours in (("'PartitionSpec'", "'P'"), ("'DynamicJaxprTracer'", "'Tracer'"),
                         ("'jaxlib._jax.ArrayImpl'", "'ArrayImpl'"),
                         ("<DLDeviceType.kDLCPU: 1>", "1")):
        text = text.replace(theirs, ours)

    def ordered(match: re.Match[str]) -> str:
        return "{" + ", ".join(sorted(match[1].split(", "))) + "}"

    return re.sub(r"(?:frozenset\()?\{([\w', ]+)\}\)?", ordered, text)


def agrees(ours: str, theirs: str) -> bool:
    """Is `ours` what `theirs` asks for?

    Results are equal. Errors have the same built-in base class and the same first sentence; where
    JAX stumbles (AssertionError and the like), any error will do.
    """
    if ours == theirs:
        return True
    mine, other = _ERROR.fullmatch(ours), _ERROR.fullmatch(theirs)
    if mine is None or other is None:
        return False
    if other[1] in ("AssertionError", "AttributeError", "IndexError"):
        return True
    return mine[1] == other[1] and _sentence(other[2]) in _plain_numbers(mine[2])


_ERROR = re.compile(r"!\w+\((\w+)\): ?(.*)")


def _sentence(text: str) -> str:
    """The first sentence of a message, without what only one of the libraries says."""
    return _END.split(_plain_numbers(text))[0].strip().rstrip(".")


_END = re.compile("|".join((
    r"(?<=[\w)\]}`']{2})\. ", r", weak_type=True\)", r"\(\{Explicit", r" at which",
    r": Mismatch details", r"but got \(", r" The error occurred while", r" This occurred in")))


def _plain_numbers(text: str) -> str:
    return re.sub(r"np\.int64\((\d+)\)", r"\1", text)


def rows() -> list[list[str]]:
    """The lines of the table: the expression, then what JAX makes of it on each kind of mesh."""
    table = [line.split("\t") for line in TABLE.read_text().splitlines() if line]
    return [[*row[:2], row[1] if row[2] == SAME else row[2]] if len(row) == 3 else row
            for row in table]


def expanded(expression: str) -> list[tuple[str, str]]:
    """An expression for each operand that it is about: (operand, expression)."""
    if re.search(r"\bA\b", expression) is None:
        return [("", expression)]
    return [(name, re.sub(r"\bA\b", f"operands['{name}']", expression)) for name in OPERANDS]
