"""What finds the causes of collectives, and the changes that avoid them."""
from __future__ import annotations

import functools
from collections.abc import Sequence

from ..ir.support.collector import collector_paused
from ..partitioner.collectives import CollectiveRecord
from ..partitioner.cost.figures import Figures, figures
from ..partitioner.cost.topology import Topology
from ..partitioner.pipeline import Partitioned
from .advice.candidates import Candidates
from .advice.layouts.freedoms import Freedoms, freedoms_of
from .advice.suggestion import Found
from .advice.suggestions import Search
from .advice.trials import Subject
from .reasons.causes import Cause
from .reasons.explain_collective import Reasons


class Explainer:
    """Finds the cause of each collective of a partitioned program, and the changes that avoid it,
    when they are asked for. It knows what is exchanged, and none of those who ask, so that nothing
    is left behind when they go.

    records: what is exchanged, operand by operand, each with its seconds over all runs. trials,
    seconds: what `Search` may take.
    """

    def __init__(self, subject: Subject, topology: Topology, trials: int | None, seconds: float
                 ) -> None:
        self.subject, self.topology = subject, topology
        self.trials, self.seconds = trials, seconds
        self.partitioned: Partitioned = subject.partitioned
        self.records: Sequence[tuple[CollectiveRecord, float]] = ()
        self._causes: dict[int, Cause] = {}

    @functools.cached_property
    def reasons(self) -> Reasons:
        """What finds the causes; made when one is asked for."""
        with collector_paused():
            return Reasons(self.partitioned)

    @functools.cached_property
    def figures(self) -> Figures:
        with collector_paused():
            return figures(self.partitioned.local, self.topology, self.subject.donated)

    @functools.cached_property
    def freedoms(self) -> Freedoms | None:
        """The freedoms of the arguments; None if there are not several, or without propagation."""
        return freedoms_of(self.partitioned)

    def cause(self, record: CollectiveRecord) -> Cause:
        """Why this is exchanged."""
        if id(record) not in self._causes:
            with collector_paused():
                self._causes[id(record)] = self.reasons.cause(record)
        return self._causes[id(record)]

    @functools.cached_property
    def search(self) -> Search:
        """What tries changes of the program, within one budget."""
        with collector_paused():
            return Search(self.subject, self.topology, self.figures,
                          Candidates(self.partitioned, self.reasons, [
                              (r, self.cause(r), seconds) for r, seconds in self.records],
                                     self.freedoms),
                          self.trials, self.seconds)

    def suggestions(self, record: CollectiveRecord, cause: Cause) -> Found:
        """Changes that avoid this, the best first."""
        with collector_paused():
            return self.search.suggestions(record, cause)
