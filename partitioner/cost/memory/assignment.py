"""The memory of a run: results, temporaries placed in their memory, and one block for the others.

As in XLA, every result has memory of its own throughout the run. Until the result is computed, a
temporary may use that memory. Temporaries are placed largest first (of equal ones the earliest
first, then the longest-lived), each in the memory of a result that is large enough and free during
its live range. All others share one block. After XLA's BufferAssigner (github.com/openxla/xla,
xla/service/buffer_assignment.cc), except that the block is assumed to have no gaps.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

_MAX_RESULTS = 32              # results in whose memory a temporary may lie


class Span:
    """A buffer: its bytes, and the first and last instant of its live range. result: whether it is
    a result's. buffers: how many buffers of equal size it stands for.
    """

    __slots__ = ("buffers", "end", "nbytes", "result", "start")

    def __init__(self, nbytes: int, start: int, end: int, buffers: int = 1) -> None:
        self.nbytes, self.start, self.end = nbytes, start, end
        self.result, self.buffers = False, buffers


def block_of_temporaries(spans: Iterable[Span], count: int) -> int:
    """Bytes of the block for what lies in no result's memory. count: of instants."""
    spans = sorted(spans, key=lambda s: (-s.nbytes, s.start, -s.end))
    results = [(s.nbytes, [s.start], [s.end]) for s in spans if s.result][:_MAX_RESULTS]
    change = [0] * (count + 1)
    for s in spans:
        if s.result:
            continue
        size = s.nbytes // s.buffers
        unassigned = s.nbytes
        for nbytes, starts, ends in results:         # in the order of time, as none overlap
            if nbytes < size:
                continue
            k = bisect_left(starts, s.start)
            if (not k or ends[k - 1] < s.start) and (k == len(starts) or s.end < starts[k]):
                starts.insert(k, s.start)
                ends.insert(k, s.end)
                unassigned -= size
                break
        change[s.start] += unassigned
        change[s.end + 1] -= unassigned
    return max(accumulate(change))
