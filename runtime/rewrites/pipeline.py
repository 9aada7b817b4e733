"""The passes over a per-device program before the simulated executor plans it.

Each returns a program with equal results that takes less time or memory on numpy. The last one is
planned, and dumped (`SHARDTRACE_DUMP`). `inline-calls` and `part-exchanges` are required, since the
executor has neither calls nor variadic collectives; the others may be skipped.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from ...ir.ops.communication.variadic import VARIADIC, split_variadic
from ...ir.ops.control.custom import CALLS
from ...ir.passes import Pass, pipeline, run_passes, skipped
from ...ir.program import Program
from ...ir.rewriting.inline import inline
from ...ir.settings.context import config
from ...ir.settings.phases import in_phase
from ...ir.support.lazy import lazy_import
from ...ir.verify import verify
from .rematerialize import rematerialize, rematerialize_scans

_masked_gathers = lazy_import(".masked_gathers", __package__)
_indices = lazy_import(".indices", __package__)
_induction = lazy_import(".induction", __package__)
_join_slices = lazy_import(".join_slices", __package__)
_peepholes = lazy_import(".peepholes", __package__)
_solves = lazy_import(".solves", __package__)

EXECUTION = pipeline(
    Pass("inline-calls", "inlined-calls", inline,
         "equations of called programs stand where the call stood", CALLS, needed=True),
    Pass("part-exchanges", "parted-exchanges",
         lambda p: p.replace(eqns=[one for eqn in p.eqns for one in split_variadic(eqn)]),
         "what the partitioner exchanges at once is exchanged one by one: here none has to start",
         frozenset([op.name for op in VARIADIC.values()]), needed=True),
    Pass("masked-gathers", "whole-gathers", lambda p: _masked_gathers.gather_from_whole(p),
         "rows that devices look up where they hold them and sum are looked up in the whole array",
         frozenset({"gather"}), inside=True),
    Pass("narrow-updates", "narrowed-updates", lambda p: _peepholes.NARROW_UPDATES(p),
         "what is chosen between an array and the same updated is chosen for the part alone",
         frozenset({"dynamic_update_slice"})),
    Pass("join-slices", "joined-slices", lambda p: _join_slices.join_slices(p),
         "an array put together slice by slice is one concatenation",
         frozenset({"pad", "place"})),
    Pass("round-integers", "rounded-integers", lambda p: _peepholes.ROUND_INTEGERS(p),
         "quotients rounded down, and integer parts of floats, are one equation",
         frozenset({"ceil", "rem"})),
    Pass("solve-at-once", "solved-at-once", lambda p: _solves.SOLVE_AT_ONCE(p),
         "factors, and the two triangular systems that alone read them, are one equation",
         frozenset({"triangular_solve"})),
    Pass("count-from-front", "counted-from-front", lambda p: _indices.COUNT_FROM_FRONT(p),
         "indices that are never negative are not counted from the end", frozenset({"lt"})),
    Pass("induction-variables", "precomputed-induction",
         lambda p: _induction.precompute_induction(p),
         "what scans compute of their counters is computed before the first iteration",
         frozenset({"scan"})),
    Pass("rematerialize-scans", "rematerialized-scans", rematerialize_scans,
         "what the scan of a derivative can compute cheaply is not stacked for it",
         frozenset({"scan"})),
    Pass("rematerialize", "rematerialized", rematerialize,
         "what is cheap, and read long after it was computed, is computed where it is read"),
    Pass("share-zeros", "shared-zeros", lambda p: _peepholes.SHARE_ZEROS(p),
         "a sum that begins with zeros begins so on all devices", frozenset({"select_n"})),
    Pass("spread-windows", "spread-windows", lambda p: _peepholes.SPREAD_WINDOWS(p),
         "sums of windows over elements with zeros between them skip these",
         frozenset({"reduce_window_sum"})),
    Pass("interleave", "interleaved", lambda p: _peepholes.INTERLEAVE(p),
         "arrays whose elements alternate are joined, not spread over zeros and added",
         frozenset({"pad"})),
)


PassObserver = Callable[[int, Pass, Program], Any]


def run_execution_passes(program: Program, observe: PassObserver | None = None) -> Program:
    """The LOCAL program after all passes, which it remembers.

    observe: called with number, pass and result for each pass that changed the program.
    """
    key = "prepared", config.read("shardtrace_skip")
    found = program.memo.get(key)
    if found is None or observe is not None:
        after = _run(program, skipped(key[1]), observe)
        # True for an unchanged program: remembering itself would be a cycle
        found = program.memo[key] = after if after is not program else True
    return program if found is True else found


def dump_bodies(program: Program, observe: Callable[[int, Pass, Program, str], Any],
                numbers: Iterator[int] | None = None) -> None:
    """Report each pass that changes the program of a loop or branch, as the executor plans these
    separately. `observe` gets a name such as "scan1", too: op and number.

    program: after all passes.
    """
    numbers = itertools.count(1) if numbers is None else numbers
    for eqn, _, body in program.subprograms():
        name = f"{eqn.op.name}{next(numbers)}"
        after = run_execution_passes(body, lambda i, step, p, name=name: observe(i, step, p, name))
        dump_bodies(after, observe, numbers)


def _run(program: Program, skip: frozenset[str], observe: PassObserver | None) -> Program:
    check = config.read("shardtrace_check")

    def changed(number: int, step: Pass, before: Program, after: Program) -> Program:
        if check:
            in_phase("verify", verify, after)
        if observe is not None:
            observe(number, step, after)
        return after

    return run_passes(EXECUTION, program, skip=skip, changed=changed)
