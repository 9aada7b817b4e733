"""The memory of one run: what is allocated for all of it, and what temporaries need besides.

Results have memory of their own from the start of a run to its end, as XLA assigns it. A temporary
may lie there before the result is made: the largest first, of equal ones the one that is made
first, of these the one that lives longest, each takes a result's memory that is large enough and
free as long as it lives. All others share one block. After XLA's BufferAssigner
(github.com/openxla/xla, xla/service/buffer_assignment.cc), but that the block is taken to be filled
without gaps.
"""
from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

_TRIED = 32                    # results in whose memory a temporary may lie


class Span:
    """A buffer: its bytes, and the first and last instant at which it is held. result: whether it
    is a result's. pieces: of how many buffers of one size it is the sum.
    """

    __slots__ = ("end", "nbytes", "pieces", "result", "start")

    def __init__(self, nbytes: int, start: int, end: int, pieces: int = 1) -> None:
        self.nbytes, self.start, self.end = nbytes, start, end
        self.result, self.pieces = False, pieces


def block_of_temporaries(spans: Iterable[Span], count: int) -> int:
    """Bytes of the block for what lies in no result's memory. count: of instants."""
    spans = sorted(spans, key=lambda s: (-s.nbytes, s.start, -s.end))
    results = [(s.nbytes, [s.start], [s.end]) for s in spans if s.result][:_TRIED]
    change = [0] * (count + 1)
    for s in spans:
        if s.result:
            continue
        piece = s.nbytes // s.pieces
        left = s.nbytes
        for nbytes, starts, ends in results:         # in the order of time, as none overlap
            if nbytes < piece:
                continue
            k = bisect_left(starts, s.start)
            if (not k or ends[k - 1] < s.start) and (k == len(starts) or s.end < starts[k]):
                starts.insert(k, s.start)
                ends.insert(k, s.end)
                left -= piece
                break
        change[s.start] += left
        change[s.end + 1] -= left
    held = most = 0
    for by in change:
        held += by
        if held > most:
            most = held
    return most
