"""Communication budgets as tests.

`assert_comm` fails if a function exceeds its budget, and lists the collectives with their lines.
"""
from __future__ import annotations

import math
import numbers
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import error, fail
from ...ir.ops.communication.collective_kinds import KINDS
from ...ir.support.spelling import close_match
from ...report.equal_collectives import grouped, places
from ...report.explained_collective import ExplainedCollective
from ...report.explanation import Explanation
from ...report.render import excerpt, quantity
from ..jit.stages import Compiled, Lowered
from .explain import explain

_HELP = "`st.explain` of the function, with the same arguments, says {}"


def assert_comm(fun: Any, *args: Any, max_bytes: int | None = None,
                kinds: Mapping[str, int] | None = None, axis: str | Sequence[str] | None = None,
                max_peak_bytes: int | None = None, exact: bool = False, **kwargs: Any) -> None:
    """Raise AssertionError unless `fun(*args, **kwargs)` communicates as stated.

    max_bytes: most bytes that a device may receive. kinds: how many collectives of each kind
    ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute") there may be,
    loops multiplied; kinds that are not named may not occur. exact: fewer are wrong too. axis:
    count only collectives over this mesh axis (or one of these). max_peak_bytes: most bytes that a
    device may hold. Arguments may be arrays or ShapeDtypeStructs; `fun` may be an explanation, or a
    lowered or compiled function.

    Raises ValueError or TypeError for a budget that could not fail: one without a limit, of an
    unknown kind or mesh axis, or that is not a number; and where arguments are missing.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> a = st.ShapeDtypeStruct((8, 64), np.float32, sharding=st.NamedSharding(mesh, P("x")))
    >>> st.testing.assert_comm(lambda a: a.sum(0), a, max_bytes=448, kinds={"all-reduce": 1})
    """
    __tracebackhide__ = True             # of pytest: it shows the test's line, not this one
    check_limits(max_bytes=max_bytes, kinds=kinds, axis=axis, max_peak_bytes=max_peak_bytes,
                 exact=exact)
    found = explained(fun, *args, **kwargs)
    _check_axes(axis, found.partitioned.mesh.axis_names)
    wanted = {axis} if isinstance(axis, str) else set(axis or ())
    chosen = [c for c in found.collectives
              if not wanted or wanted & {str(a).partition(":")[0] for a in c.mesh_axes}]
    over = f" over {', '.join(sorted(wanted))}" if wanted else ""
    received = sum(c.total_bytes for c in chosen)
    if max_bytes is not None and received > max_bytes:
        _refuse(found, chosen, f"each device receives {received:,} bytes{over}, "
                               f"{received - max_bytes:,} more than the {max_bytes:,} allowed")
    if kinds is not None:
        counts: dict[str, int] = {}
        for c in chosen:
            counts[c.kind] = counts.get(c.kind, 0) + c.count
        wrong = [f"{counts.get(k, 0)} {k} instead of {kinds.get(k, 0)}"
                 for k in sorted({*counts, *kinds})
                 if counts.get(k, 0) > kinds.get(k, 0)
                 or (exact and counts.get(k, 0) < kinds.get(k, 0))]
        if wrong:
            _refuse(found, [c for c in chosen if counts[c.kind] != kinds.get(c.kind, 0)],
                    f"it has {', '.join(wrong)}{over}")
    if max_peak_bytes is not None and found.peak_bytes > max_peak_bytes:
        held = ", ".join(f"{h.name} ({quantity(h.nbytes, 'B')})" for h in found.memory.held[:3])
        raise error(AssertionError, f"{found.name} holds {found.peak_bytes:,} bytes a device, "
                    f"{found.peak_bytes - max_peak_bytes:,} more than the {max_peak_bytes:,} "
                    f"allowed", code="memory-budget", location=found.memory.location,
                    label="the peak is here", because=(f"the largest then are {held}",),
                    help=_HELP.format("what else would hold less"))
    return None


def explained(fun: Any, *args: Any, **kwargs: Any) -> Explanation:
    """What is known of a function on arguments, of a stage, or is an explanation already."""
    if isinstance(fun, Explanation):
        return fun
    return fun.explain() if isinstance(fun, Lowered | Compiled) else explain(fun)(*args, **kwargs)


def check_limits(*, max_bytes: Any = None, kinds: Any = None, axis: Any = None,
                 max_peak_bytes: Any = None, exact: Any = False) -> None:
    """Raise TypeError or ValueError for limits that are none, or that nothing could exceed."""
    if max_bytes is None and kinds is None and max_peak_bytes is None:
        fail(ValueError, "a budget needs a limit: max_bytes, kinds or max_peak_bytes",
             code="empty-budget", help="to allow no communication, give `max_bytes` a 0")
    for name, value in (("max_bytes", max_bytes), ("max_peak_bytes", max_peak_bytes)):
        if value is not None:
            _check_number(name, value)
    if axis is not None and not (isinstance(axis, str) and axis) and not (
            isinstance(axis, Collection) and axis and all(isinstance(a, str) for a in axis)):
        fail(TypeError, f"axis must be the name of a mesh axis, or several, got {axis!r}",
             code="budget-type", help="write axis='data', or axis=('data', 'model')")
    if axis is not None and max_bytes is None and kinds is None:
        fail(ValueError, "axis says which collectives max_bytes and kinds count; neither is given",
             code="empty-budget", help="give max_bytes or kinds, or leave axis out")
    if not isinstance(exact, bool):
        fail(TypeError, f"exact must be True or False, got {exact!r}", code="budget-type",
             help="write exact=True, or leave it out")
    if kinds is None:
        if exact:
            fail(ValueError, "exact says how kinds are counted; kinds is not given",
                 code="empty-budget",
                 help="give kinds, such as {'all-reduce': 1}, or leave exact out")
        return
    if not isinstance(kinds, Mapping):
        fail(TypeError, f"kinds must be a number for each kind of collective, got {kinds!r}",
             code="budget-type", help="give a dict of the kinds' names and numbers")
    known = sorted(KINDS)
    for kind, count in kinds.items():
        if kind not in known:
            fail(ValueError, f"{kind!r} is no kind of collective; kinds are {', '.join(known)}",
                 code="budget-kind", help=close_match(kind, known) or ())
        _check_number(f"the number of {kind}", count)


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not (
            isinstance(value, numbers.Integral) or math.isfinite(value)):
        fail(TypeError, f"{name} must be a finite number, got {value!r}", code="budget-type",
             help="give a number, such as 1_000_000")
    if value < 0:
        fail(ValueError, f"{name} must not be negative, got {value}", code="budget-type",
             help="write 0 to allow none")


def _check_axes(axis: str | Sequence[str] | None, known: Sequence[str]) -> None:
    for name in [axis] if isinstance(axis, str) else axis or ():
        if name not in known:
            fail(ValueError, f"no collective can be over {name!r}: the mesh has "
                 f"{', '.join(map(str, known)) or 'no axes'}", code="unknown-axis",
                 help=close_match(name, known) or ())


def _refuse(found: Explanation, chosen: Sequence[ExplainedCollective], text: str) -> None:
    """Fail with the collectives that exceed a budget, the costliest first, with their lines and the
    reason for the first.
    """
    __tracebackhide__ = True
    groups = sorted(grouped(chosen), key=lambda g: -sum(c.total_bytes for c in g))
    costliest = [g[0] for g in groups]
    listed = [f"{c.kind} over {', '.join(map(str, c.mesh_axes))}: {c.received_bytes:,} B"
              f"{f' x {c.count}' if c.count != 1 else ''}{places(g)}, {c.source}\n"
              f"{excerpt(c.source)}".rstrip() for g, c in zip(groups[:8], costliest, strict=False)]
    notes = (costliest[0].verdict, *costliest[0].cause.lines()) if costliest else ()
    raise error(AssertionError, f"{found.name}: {text}", code="communication-budget",
                location=costliest[0].source if costliest else found.memory.location,
                label="most of it is from here" if len(costliest) > 1 else "it is from here",
                because=notes, notes=tuple(listed), help=_HELP.format("what avoids it"))
