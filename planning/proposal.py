"""The answer of `autoshard`: specs for arguments and results, constraints inside, and the reasons.

The data is in proposal_data.py. `str()` gives the table of specs, the plan's figures next to those
of the named plans, and the code to paste.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..report.explanation import Explanation
from . import proposal_text as text
from .proposal_data import ProposalData


class Proposal(ProposalData):
    """The plan that `shardtrace.autoshard` proposes; its data are those of `ProposalData`.

    jit(): the function with the plan; explanation: of its collectives; code: the code to paste.
    """

    _jitted: Callable[[], Any] | None = None
    _explain: Callable[[], Explanation]

    def made_by(self, jitted: Callable[[], Any] | None, explain: Callable[[], Explanation]
                ) -> Proposal:
        """The proposal, with the functions that make the jitted function and the explanation."""
        self._jitted, self._explain = jitted, explain
        return self

    @functools.cached_property
    def explanation(self) -> Explanation:
        """Every collective of the plan with its line, reason and cost."""
        return self._explain()

    def jit(self) -> Any:
        """The function jitted with the plan; it computes the same values.

        Raises ValueError for a program that was read from text, since there is no function.
        """
        if self._jitted is None:
            raise ValueError(f"{self.name} was read from a text: there is no function to jit")
        return self._jitted()

    @property
    def code(self) -> str:
        """The code that gives a function this plan."""
        return text.code(self)

    def text(self, width: int = 100) -> str:
        """Everything but the explanation, as text."""
        return text.report(self, width)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return (f"<proposal for {self.name} on {self.topology}: "
                f"{text.figures_line(self.figures)}>")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, for JSON."""
        return text.as_dict(self)
