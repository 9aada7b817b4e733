"""What a function may communicate, as a test.

`assert_comm` fails with the collectives and their lines where a function exceeds its budget.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.diagnostic import error
from ..report.explanation import ExplainedCollective, Explanation
from ..report.render import excerpt, quantity
from .explain import explain
from .stages import Compiled, Lowered


def assert_comm(fun: Any, *args: Any, max_bytes: int | None = None,
                kinds: Mapping[str, int] | None = None, axis: str | Sequence[str] | None = None,
                max_peak_bytes: int | None = None, exact: bool = True, **kwargs: Any) -> Any:
    """Raise AssertionError unless `fun(*args, **kwargs)` communicates as is said.

    max_bytes: most bytes that a device may receive. kinds: how many collectives of each kind
    ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute") there are,
    loops multiplied; kinds that are not named may not occur. exact: fewer are wrong too. axis:
    count only collectives over this mesh axis (or one of these). max_peak_bytes: most bytes that a
    device may hold. Arguments may be arrays or ShapeDtypeStructs; `fun` may be an explanation, or a
    lowered or compiled function. Without the arguments that `fun` needs, the result is a function
    that checks for arguments.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> a = st.ShapeDtypeStruct((8, 64), np.float32, sharding=st.NamedSharding(mesh, P("x")))
    >>> st.testing.assert_comm(lambda a: a.sum(0), a, max_bytes=448, kinds={"all-reduce": 1})
    """
    if callable(fun) and not args and not kwargs and _needs_arguments(fun):
        return functools.partial(assert_comm, fun, max_bytes=max_bytes, kinds=kinds, axis=axis,
                                 max_peak_bytes=max_peak_bytes, exact=exact)
    if isinstance(fun, Explanation):
        found = fun
    elif isinstance(fun, Lowered | Compiled):
        found = fun.explain()
    else:
        found = explain(fun)(*args, **kwargs)
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
                    label="the peak is here", because=(f"the largest then are {held}",))
    return None


def _needs_arguments(fun: Callable[..., Any]) -> bool:
    if isinstance(fun, Explanation | Lowered | Compiled):
        return False
    parameters = inspect.signature(fun).parameters.values()
    return any(p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
               for p in parameters)


def _refuse(found: Explanation, chosen: Sequence[ExplainedCollective], text: str) -> None:
    dearest = sorted(chosen, key=lambda c: -c.total_bytes)
    listed = [f"{c.kind} over {', '.join(map(str, c.mesh_axes))}: {c.received_bytes:,} B"
              f"{f' x {c.count}' if c.count != 1 else ''}, {c.source}\n{excerpt(c.source)}".rstrip()
              for c in dearest[:8]]
    notes = tuple(dearest[0].cause.lines()) if dearest else ()
    raise error(AssertionError, f"{found.name}: {text}", code="communication-budget",
                location=dearest[0].source if dearest else found.memory.location,
                label="most of it is from here" if len(dearest) > 1 else "it is from here",
                because=notes, notes=tuple(listed))
