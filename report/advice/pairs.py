"""Pairs of changes that are worth a trial together, of those that each make a difference alone."""
from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from .changes import Change
from .ranking import target
from .trials import Trials

Promising = tuple[float, float, tuple[Change, ...]]     # exchange time, step time, changes
_PAIRED = 12       # changes with different effects that are tried in pairs


def pairs_of(promising: Sequence[Promising], trials: Trials) -> Iterator[tuple[Change, ...]]:
    """Pairs of promising changes, each of other values than the other, the best first. Of several
    changes of the same arguments and results that have the same effect, only one with the fewest
    values is in pairs.
    """
    unlike: dict[Any, tuple[tuple[Change, ...], frozenset[tuple]]] = {}
    for *times, changes in promising:
        (tried,) = trials.known(changes)
        assert tried is not None
        of = frozenset(map(target, changes))
        effect = (*times, tried.received_bytes, tried.figures.peak_bytes, tried.figures.flops,
                  frozenset([t for t in of if t[0] in ("Argument", "Result")]))
        if effect not in unlike or len(changes) < len(unlike[effect][0]):
            unlike[effect] = changes, of
        if len(unlike) == _PAIRED:
            break
    for (_, (one, of)), (_, (other, others)) in sorted(
            itertools.combinations(enumerate(unlike.values()), 2),
            key=lambda pair: pair[0][0] + pair[1][0]):
        if of.isdisjoint(others):
            yield *one, *other
