"""An explanation: every collective of a partitioned program with its line, reason, cost and remedy.

It is data first (`collectives`, totals); `table()`, `str()`, `to_dict()` and `_repr_html_` render
the same for people and programs. Suggestions are searched on first use.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..ir.source.wording import duration
from ..ir.support.lazy import lazy_import
from . import render
from .analysis import Analysis
from .gaps import Gap, gaps
from .propagation.freedom import FreedomMap
from .propagation.steps import Propagation
from .warnings.warnings import warnings_of
from .warnings.waste import Waste

_data = lazy_import(".views.data", __package__)
_page = lazy_import(".views.page", __package__)


class Explanation(Analysis):
    """What a partitioned program exchanges, why, what it costs, and what would avoid it.

    collectives: in program order. topology: the hardware and where the mesh lies on it. figures:
    the totals. lower_bound: bytes that the program's changes of layout move at least; gap: received
    bytes over that (1.0: nothing to gain without other layouts).
    """

    @property
    def warnings(self) -> tuple[Waste, ...]:
        """Waste in the program: number, line and fix of each kind (report/warnings/warnings.py)."""
        return warnings_of(self)

    def gaps(self) -> list[Gap]:
        """Beside each operation that communicates the least that would do; the furthest first.

        >>> mesh = st.make_mesh((8,), ("x",))
        >>> a = st.ShapeDtypeStruct((64, 4096), np.float32,
        ...                         sharding=st.NamedSharding(mesh, P(None, "x")))
        >>> gap = st.explain(lambda a: jnp.cumsum(a, 1))(a).gaps()[0]
        >>> gap.op, gap.lower_bound
        ('cumsum', 256)
        """
        return gaps(self.parts)

    def propagation(self) -> Propagation:
        """What propagation did, step by step, and what disagreed in the end.

        >>> mesh = st.make_mesh((8,), ("x",))
        >>> a = st.ShapeDtypeStruct((64, 64), np.float32, sharding=st.NamedSharding(mesh, P("x")))
        >>> print(*st.explain(lambda a: jnp.tanh(a))(a).propagation().heading(), sep="\\n")
        <lambda>: 1 annotation, 2 steps
          `in_shardings[0]`, argument `a`: `a` is f32[64@x,64]
        """
        return Propagation(self.partitioned, self.reasons)

    def freedom(self) -> FreedomMap:
        """Which dimensions can be split together, who decided them, and what each is worth.

        >>> mesh = st.make_mesh((8,), ("x",))
        >>> a = st.ShapeDtypeStruct((64, 64), np.float32, sharding=st.NamedSharding(mesh, P("x")))
        >>> found = st.explain(lambda a: jnp.tanh(a) * 2)(a).freedom()
        >>> for f in found.freedoms:
        ...     print(*[(str(m), m.by) for m in f.members])
        ('`a`.0', 'you') ('`jnp.tanh(a)`.0', 'propagation') ('`jnp.tanh(a) * 2`.0', 'propagation')
        ('`a`.1', 'you') ('`jnp.tanh(a)`.1', 'nobody') ('`jnp.tanh(a) * 2`.1', 'nobody')
        """
        return FreedomMap(self.reasons, self.search.whole)

    def to_dict(self, suggestions: bool = True) -> dict[str, Any]:
        """Everything as plain data, for JSON."""
        return render.as_dict(self, suggestions)

    def view(self, suggestions: int = 3) -> dict[str, Any]:
        """What there is to see, as plain data: values and collectives at the user's lines, the
        programs of all stages, times, memory (report/views/data.py). suggestions: for how many of
        the costliest collectives what avoids them is looked for.
        """
        return _data.view_data(self, suggestions)

    def to_html(self, suggestions: int = 3) -> str:
        """All of it as one page of HTML that needs nothing else, to be kept or sent to somebody.

        >>> mesh = st.make_mesh((8,), ("x",))
        >>> a = st.ShapeDtypeStruct((8, 64), np.float32, sharding=st.NamedSharding(mesh, P("x")))
        >>> page = st.explain(lambda a: a.sum(0))(a).to_html()
        >>> page.startswith("<!doctype html>"), "all-reduce over x" in page
        (True, True)
        """
        return _page.page_of([self.view(suggestions)], self.name, render.text(self, suggestions))

    def summary(self, count: int | None = None) -> str:
        """The totals, and a line for each of the `count` most expensive collectives (None: all)."""
        return render.summary(self, count)

    def table(self, suggestions: int = 3) -> Any:
        """A rich renderable: totals, collectives, reasons, and advice for the `suggestions` most
        expensive ones.
        """
        return render.table(self, suggestions)

    def text(self, suggestions: int = 3, width: int = 100, each: bool = False) -> str:
        """All of it as text, with advice for the `suggestions` most expensive collectives. Of many,
        those with a common cause are shown together; each: show all of them in full.
        """
        return render.text(self, suggestions, width, each)

    def blocks(self, suggestions: int = 3, width: int = 100, each: bool = False) -> Iterator[str]:
        """`text` in blocks, each as soon as it is known; a line ends each block."""
        return render.blocks(self, suggestions, width, each)

    def __str__(self) -> str:
        return render.text(self)

    def __repr__(self) -> str:
        n = len(self.collectives)
        return (f"<explanation of {self.name} on {self.topology}: {n} "
                f"collective{'' if n == 1 else 's'}, {self.received_bytes:,} B received, "
                f"{duration(self.time)}>")

    def _repr_html_(self) -> str:
        return render.html(self)
