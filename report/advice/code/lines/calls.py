"""Equations as calls: how the user would write each op, by the texts of its operands."""
from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from .....ir.program import Atom, Equation
from .expressions import axes_text


class Unwritten(Exception):
    """There is no expression for a value."""


class Writer(Protocol):
    """Writes values: `operand` in parentheses where an operator is next to them. maker: the
    equation that has to be written for a value, None if it has a text itself.
    """

    def now(self, a: Atom) -> Atom: ...

    def of(self, a: Atom) -> str: ...

    def operand(self, a: Atom) -> str: ...

    def maker(self, a: Atom) -> Equation | None: ...


def axes_of(axes: Sequence[int]) -> str:
    """One dimension, or several, as an argument."""
    return str(axes[0] if len(axes) == 1 else tuple(axes))


def _dot_general(r: Writer, eqn: Equation) -> str:
    (left, right), (lb, rb) = eqn.params["dimension_numbers"]
    x, y = eqn.invars
    kept = eqn.params.get("preferred_element_type")
    if kept is not None and kept != eqn.outvars[0].aval.dtype or (
            x.aval.dtype != y.aval.dtype or eqn.params.get("precision") is not None):
        raise Unwritten
    if not lb and left == (x.aval.ndim - 1,) and right == (max(0, y.aval.ndim - 2),) and (
            y.aval.ndim <= 2):
        return f"{r.operand(x)} @ {r.operand(y)}"
    if not lb and left == (*range(x.aval.ndim)[-len(left):],) and right == (*range(len(left)),):
        return f"jnp.tensordot({r.of(x)}, {r.of(y)}, {len(left)})"
    letters = iter(string.ascii_lowercase)
    of_x = [next(letters) for _ in range(x.aval.ndim)]
    of_y = [""] * y.aval.ndim
    for i, j in (*zip(left, right, strict=True), *zip(lb, rb, strict=True)):
        of_y[j] = of_x[i]
    of_y = [c or next(letters) for c in of_y]
    out = [of_x[i] for i in lb] + [c for i, c in enumerate(of_x) if i not in (*left, *lb)] + [
        c for j, c in enumerate(of_y) if j not in (*right, *rb)]
    return (f'jnp.einsum("{"".join(of_x)},{"".join(of_y)}->{"".join(out)}", '
            f"{r.of(x)}, {r.of(y)})")


def _slice(r: Writer, eqn: Equation) -> str:
    (x,), p = eqn.invars, eqn.params
    if p.get("strides") is not None and {*p["strides"]} != {1}:
        raise Unwritten
    parts = [f"{start or ''}:{end if end < n else ''}" for start, end, n in zip(
        p["start_indices"], p["limit_indices"], x.aval.shape, strict=True)]
    while len(parts) > 1 and parts[-1] == ":":
        parts.pop()
    return f"{r.operand(x)}[{', '.join(parts)}]"


def _reshape(r: Writer, eqn: Equation) -> str:
    if eqn.op.name == "reshape" and eqn.params.get("dimensions") is not None:
        raise Unwritten
    source, shape = r.now(eqn.invars[0]), eqn.outvars[0].aval.shape
    while (made := r.maker(source)) is not None and (
            made.op.name == "squeeze" or made.op.name == "reshape"
            and made.params.get("dimensions") is None):
        source = r.now(made.invars[0])      # the last of several in a row is enough
    return r.of(source) if source.aval.shape == shape else (
        f"{r.operand(source)}.reshape({', '.join(map(str, shape))})")


def _broadcast(r: Writer, eqn: Equation) -> str:
    (x,), shape, dims = eqn.invars, eqn.params["shape"], eqn.params["broadcast_dimensions"]
    if not x.aval.shape:
        return f"jnp.full({tuple(shape)}, {r.of(x)})"
    ones = tuple([shape[d] if d in dims and x.aval.shape[dims.index(d)] > 1 else 1
                  for d in range(len(shape))])
    text = r.operand(x) if ones == x.aval.shape else f"{r.operand(x)}.reshape{ones}"
    return text if ones == tuple(shape) else f"jnp.broadcast_to({text}, {tuple(shape)})"


def _all_gather(r: Writer, eqn: Equation) -> str:
    p = eqn.params
    tiled = ", tiled=True" if p["tiled"] else ""
    same = ', to="invarying"' if eqn.op.name == "all_gather_invariant" else ""
    return (f"lax.all_gather({r.of(eqn.invars[0])}, {axes_text(eqn.axes)}, "
            f"axis={p['all_gather_dimension']}{tiled}{same})")


def _reduce_scatter(r: Writer, eqn: Equation) -> str:
    tiled = ", tiled=True" if eqn.params["tiled"] else ""
    return (f"lax.psum_scatter({r.of(eqn.invars[0])}, {axes_text(eqn.axes)}, "
            f"scatter_dimension={eqn.params['scatter_dimension']}{tiled})")


def _all_to_all(r: Writer, eqn: Equation) -> str:
    p = eqn.params
    if p["axis_index_groups"] is not None:
        raise Unwritten
    tiled = ", tiled=True" if p["tiled"] else ""
    return (f"lax.all_to_all({r.of(eqn.invars[0])}, {axes_text(eqn.axes)}, {p['split_axis']}, "
            f"{p['concat_axis']}{tiled})")


def _dynamic_slice(r: Writer, eqn: Equation) -> str:
    x, *starts = eqn.invars
    sizes = tuple(eqn.params["slice_sizes"])
    cut = [d for d, n in enumerate(sizes) if n != x.aval.shape[d]]
    if len(cut) == 1:
        d = cut[0]
        return f"lax.dynamic_slice_in_dim({r.of(x)}, {r.of(starts[d])}, {sizes[d]}, {d})"
    return f"lax.dynamic_slice({r.of(x)}, ({', '.join(map(r.of, starts))}), {sizes})"


def along(r: Writer, eqn: Equation) -> str:
    """A gather that takes, along one dimension, the elements at as many places; "" for another."""
    x, at = eqn.invars[0], eqn.invars[-1]
    made = r.maker(at) if eqn.op.name == "gather" else None
    if made is None or made.op.name != "reshape" or at.aval.shape != (
            *made.invars[0].aval.shape, 1) or {*eqn.params["slice_sizes"]} != {1}:
        return ""
    (d, *others), batch = eqn.params["dimension_numbers"].start_index_map, [
        d for d in range(x.aval.ndim)]
    if others or made.invars[0].aval.ndim != x.aval.ndim or tuple(
            eqn.params["dimension_numbers"].operand_batching_dims) != tuple(
                [b for b in batch if b != d]):
        return ""
    return f"jnp.take_along_axis({r.of(x)}, {r.of(made.invars[0])}, {d})"


def _iota(r: Writer, eqn: Equation) -> str:
    aval = eqn.outvars[0].aval
    if aval.ndim != 1:
        return (f"lax.broadcasted_iota(jnp.{aval.dtype.name}, {aval.shape}, "
                f"{eqn.params['dimension']})")
    return f"jnp.arange({aval.shape[0]}, dtype=jnp.{aval.dtype.name})"


def _scan(r: Writer, eqn: Equation) -> str:
    reverse = ", reverse=True" if eqn.params["reverse"] else ""
    return f"lax.{eqn.op.name}({r.of(eqn.invars[0])}, {eqn.params['axis']}{reverse})"


def _top_k(r: Writer, eqn: Equation) -> str:
    (x,), axis = eqn.invars, eqn.params["axis"]
    along = "" if axis == x.aval.ndim - 1 else f", axis={axis}"
    return f"lax.top_k({r.of(x)}, {eqn.params['k']}{along})"


def _listed(r: Writer, eqn: Equation) -> str:
    return f"[{', '.join(map(r.of, eqn.invars))}]"


def pairs_text(perm: Sequence[tuple[int, int]]) -> str:
    """The pairs of a `ppermute`, by their rule where there is one: to the next device, say."""
    n = len(perm)
    for text, source, target in (("(i, i + 1)", 0, 1), ("(i + 1, i)", 1, 0)):
        if sorted(perm) == sorted([(i + source, i + target) for i in range(n)]):
            return f"[{text} for i in range({n})]"
    shift = (perm[0][0] - perm[0][1]) % n
    if sorted(perm) == sorted([((i + shift) % n, i) for i in range(n)]):
        return f"[((i + {shift}) % {n}, i) for i in range({n})]"
    return str([tuple(pair) for pair in perm])


CALLS: Mapping[str, Callable[[Writer, Equation], str]] = {
    "dot_general": _dot_general, "slice": _slice, "reshape": _reshape, "iota": _iota,
    "broadcast_in_dim": _broadcast, "all_gather": _all_gather,
    "all_gather_invariant": _all_gather, "reduce_scatter": _reduce_scatter,
    "dynamic_slice": _dynamic_slice, "all_to_all": _all_to_all,
    "axis_index": lambda r, e: f"lax.axis_index({axes_text(e.axes)})",
    "concatenate": lambda r, e: f"jnp.concatenate({_listed(r, e)}, {e.params['dimension']})",
    "transpose": lambda r, e: (
        f"{r.operand(e.invars[0])}.transpose{tuple(e.params['permutation'])}"),
    "squeeze": _reshape,
    "rev": lambda r, e: f"jnp.flip({r.of(e.invars[0])}, {axes_of(e.params['dimensions'])})",
    "top_k": _top_k, "cumsum": _scan, "cumprod": _scan, "cummax": _scan, "cummin": _scan,
    "cumlogsumexp": _scan,
    "ppermute": lambda r, e: (f"lax.ppermute({r.of(e.invars[0])}, {axes_text(e.axes)}, "
                              f"{pairs_text(e.params['perm'])})"),
}
