"""The document of a measurement: docs/performance.md is written by `speed.py --write`."""
from __future__ import annotations

from pathlib import Path

from .goals import SMALLEST_PEAK, rows
from .quiet import ENOUGH, TRIES
from .report import (
    Report,
    goal,
    goal_table,
    growth_table,
    program_table,
    situation_table,
)

HEADINGS = ("Goals", "Programs", "Situations", "Growth", "How it is measured",
            "Where speed comes from", "What each mechanism gives",
            "Where time goes in a program of yours")

METHOD = f"""\
`python benchmarks/speed.py --jax PYTHON --write docs/performance.md` writes this page. Every
program of `benchmarks/suite/` is one function of a library, shardtrace or JAX by name alone, and a
plain numpy version without devices: the same function where numpy can run it, written by hand where
it cannot (gradients, loops, `shard_map`). Results of all three are compared first; a library whose
results are off has no figures.

Each library has a process of its own with the interpreter that was named, a program at a time. In
every round each process does a little of everything in turn, so that what else the machine does
falls on all alike; figures are medians over the rounds. Between two processes is a pause, in which
the threads of the first one, which spin for a while after their work, come to rest. In a virtual
machine other systems of the host take the processor at times; Linux counts that. A measurement
from which they took more than {ENOUGH:.0%} of a core is done again, up to {TRIES} times in all.
The one from which least was taken counts, not the fastest.

- *trace*: `jit(f).trace(...)` of a new function, types and source locations included, in a process
  that has traced it before. JAX's the same.
- *first result*: from traced to a compiled program, and what its first call takes longer than its
  next three (their median). JAX is charged `lower().compile()` alone.
- *again*: the same where a program that cannot be told from this one was partitioned before, as
  in a loop that jits a lambda; otherwise such programs are forgotten before each measurement.
- *new trace*, *new first*: both in a process of each library that has traced nothing before, where
  no rule has been asked for; the library's import is no part of them, what it loads later is.
- *run*: a call of the jitted function until its results are there; calls of less than 2 ms are
  timed many at a time.
- *memory*: the peak that `tracemalloc` sees beyond the arguments in four runs after all caches were
  cleared, so that buffers kept for later runs count; *resident*: the growth of the resident
  set to its peak in a process that ran nothing before. Both where the plain version needs
  {SMALLEST_PEAK / 1e6:g} MB or more.
- *devices*: the same arguments over 8 devices and over 512, run in turns, in new processes each
  round: in which memory buffers come to lie differs between processes, and decides more.
- *situations*: processor time from import to the first result of the README's program, numpy's
  import aside, in a new process; of tracing a step again, as it was, with another number or another
  line in it; and, by the clock, a step of small products alone and beside a process that computes
  without end, with as many BLAS threads as cores and with one.
- *growth*: an elementwise program of 3,000 and of 30,000 equations; programs on an `AbstractMesh`
  of 8 and of 65,536 devices; a step whose batch is split over one to six axes.
"""

SOURCES = """\
- **Types are interned.** Equality is identity, and what follows from types alone (results of ops,
  factors, local shapes) is computed once and looked up by them after. So tracing an equation is a
  look-up, and the size of a mesh never enters.
- **A source location is a code object and an offset** until somebody reads it.
- **A value of all devices is one array.** A mesh axis that shards a dimension is a split of this
  dimension, in place: the array is a view of the whole, whatever the number of devices. Products
  then run as one GEMM over all devices, an `all_gather` or an own-block slice costs nothing, and a
  value that devices share is held and computed once. Only what truly differs (a partial sum that
  somebody sees, a `shard_map` body that asks for its index) has a leading device dimension.
- **Partial sums that only their sum is seen of are not made**: a product and its `psum` are one
  GEMM over devices and contraction.
- **Short products run on one thread of BLAS**, so that none of them waits for a core that another
  process has; what the user has set is in force again behind each.
- **Special functions are handfuls of numpy calls** in float32, which take many elements at once and
  are fused with what stands around them; so are many small matrices that are factored or solved.
- **Rows are added by a sparse product** where updates are as many as rows.
- **Plans are straight lines.** The first run decides equation by equation how it is computed, with
  which buffers; later runs call numpy and nothing else. Elementwise runs on large arrays are fused
  and evaluated block by block, so that what passes between them stays in cache, on both cores where
  that pays; what a group would compute twice is computed once. Buffers begin where cache lines do,
  which alone makes them up to twice as fast to write.
- **Exchanges that are written by hand run as they are written.** A ring all-reduce, attention
  whose keys go around or a pipeline is what a user wants to see run, with its order of additions;
  its measure is numpy doing the same exchanges block by block. The blocks of all devices are one
  array, so that a step is one call for all of them.
- **Results are written where they belong.** What a loop stacks goes into its row of the whole, what
  a loop adds to or changes in part is changed in place, and a product is computed in the order of
  dimensions in which it is read.
- **Indices of a loop are computed before it.** What depends on counters and on scalar items alone
  is computed for all iterations at once; other scalars are numbers, not arrays.
- **Rows that loops read and change are one indexing each.** What an iteration reads of an array
  that it changes is read first, and the array is changed where it is; a branch stands in the loop.
- **A program traced anew is found.** A function that is jitted in a loop, or `lax.scan` of a
  lambda outside of jit, gives the same program from the same lines each time: it is partitioned
  and planned once.
- **What functions record is recorded again.** A softmax, a derivative rule, an op under `vmap`, the
  border of a `shard_map`: for arguments of the same types their equations are known. So is the
  gradient of a program that is traced anew, from the same lines, with the places of its equations.
- **A call is known by one key**, made of the keys that its arguments carry.
- **Little is held at a time.** What a derivative reads late, and is soon computed from what is held
  anyway, is computed there; groups of elementwise steps write over operands that end with them.
- **The garbage collector rests** while programs, which are graphs of small objects that stay
  alive, are traced, differentiated, partitioned and parsed, and while the package loads.
- **What is seldom needed loads when first used**: the text of programs and its parser, reports and
  advice on errors, linear algebra, transforms, sets, the per-device executor, scipy, rich.
- **Classes compile no source as they load**: immutable records share their methods, and the
  annotations of named tuples stay text.
"""

PROFILE = """\
`shardtrace.profile_phases()` tells where time goes before a program runs, and while it runs:

```python
import numpy as np
import shardtrace as st

f = st.jit(lambda x: (x @ x).sum())
with st.profile_phases() as profile:
    f(np.ones((64, 64), np.float32))
print(profile)                       # a table: phase, calls, seconds, equations
assert profile.seconds["trace"] > 0  # the same as data
```

`SHARDTRACE_PROFILE=1 python program.py` prints the table of a whole program when it ends.
"""


def mechanisms() -> str:
    """The section on mechanisms, as the page has it: it is written by hand, from measurements."""
    page = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()
    return page.split(f"\n## {HEADINGS[6]}\n")[1].partition("\n## ")[0]


def document(report: Report) -> str:
    """The page, with the figures of a report."""
    where = ", ".join(f"{what} {value}" for what, value in report.machine.items())
    errors = "".join(f"\nNot measured: {e}\n" for e in report.errors())
    texts = (f"{goal_table(report)}\n\n{_count(report)}", program_table(report),
             situation_table(report), growth_table(report), METHOD, SOURCES, mechanisms(), PROFILE)
    body = "\n\n".join(f"## {head}\n\n{text.strip()}"
                       for head, text in zip(HEADINGS, texts, strict=True))
    return (f"# Performance\n\nRatios within one run, lower is better. Measured {report.date} on: "
            f"{where}. Ratios travel between machines, times do not.{_disturbed(report)}\n{errors}"
            f"\n{body}\n")


def _count(report: Report) -> str:
    """How many goals are met, and which are not."""
    asked = [row for row in rows(report) if goal(row)]
    above = [row.what for row in asked if not row.met]
    told = f"{len(asked) - len(above)} of {len(asked)} goals are met."
    return told + (f" Above theirs are: {'; '.join(above)}." if above else "")


def _disturbed(report: Report) -> str:
    """How much of the processor others had while programs were measured, where that is known."""
    shares = sorted(share for table in (report.programs, report.widths)
                    for times in table.values() for t in times.values() for share in t.stolen)
    if not shares:
        return ""
    mean, many = sum(shares) / len(shares), shares[len(shares) * 9 // 10]
    return (f" Other systems of the host took {mean:.1%} of a core in the mean of the measurements "
            f"(in nine of ten {many:.1%} or less).")
