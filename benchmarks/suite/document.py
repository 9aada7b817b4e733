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
`python benchmarks/speed.py --jax PYTHON --llvm PYTHON --write docs/performance.md` writes this
page. Every program of `benchmarks/suite/` is one function of a library, which is shardtrace or JAX
by name alone, beside a plain numpy version without devices: the same function where numpy can run
it, otherwise one written by hand (gradients, loops, `shard_map`). The results of all are compared
first; a library whose results are off gets no figures. Figures are of the core alone, without any
extra, but for the columns *with `llvm`*, of a process whose loops have been compiled.

Each library runs in a process of its own, with the interpreter that was named, one program at a
time. In every round each process does a little of everything in turn, so that whatever else the
machine does falls on all alike; figures are medians over the rounds. Between two processes there is
a pause, in which the threads of the first, which spin for a while after their work, come to rest.
On a virtual machine, other systems of the host take the processor at times, and Linux counts how
much. A measurement from which they took more than {ENOUGH:.0%} of a core is repeated, up to
{TRIES} times in all. The one that lost least counts, not the fastest.

Vector instructions change ratios, too: numpy has them for functions that XLA's compiler and BLAS
have for others. The tables are of a processor with AVX-512. One with AVX2, half as fast, gave 4.2
instead of 0.7 times JAX for products of 8x8, 1.9 instead of 1.1 for factorisations of 8x8, 4.2
instead of 3.7 for gelu and 8.8 instead of 6.3 times numpy for normal numbers, but 1.4 instead of
1.6 for float16, and met 21 goals.

Some goals calls of numpy do not reach. *Random bits* are JAX's, of Threefry: 20 rounds of an
addition, two shifts, an or and an exclusive or, with 12 additions of keys, are 112 passes over the
words. Each takes 0.1 ns an element in the cache; numpy's own generator takes 1.6 ns in all. *Normal
numbers* are XLA's to the last bit: each of about 20 steps of its polynomials is a product, a sum
and two conversions in float64, 0.8 ns together, where numpy's own normal number takes 8 ns. What
compiled loops make of both is below. *10,000 equations* of 64 numbers
are 10,000 calls. *Products of 8x8* are BLAS's, which numpy calls for each: 84 ns with OpenBLAS's
kernels for AVX2, 46 with those for AVX-512, some of which are for small matrices; the 1,024
operations of one as calls of numpy, with the stack last, take 400. *Resident memory* counts the
modules that a program is the first to need: of the 12 MB for messages over a graph, 5 are those of
`scipy.sparse`, and to sort the updates and add them in rounds takes 3 to 20 times as long as its
product.

With the extra `llvm` (`pip install 'shardtrace[llvm]'`) random numbers are computed by loops that
LLVM compiles ([compiled.py](../ir/kernels/compiled.py)), the same to the last bit. Processor time
as a multiple of numpy's own, without and with it, on an AMD EPYC with AVX-512, beside other busy
processes:

| of numbers | 1M: without | with | 16M: without | with |
| --- | ---: | ---: | ---: | ---: |
| bits | 5.1 | 1.2 | 4.9 | 0.81 |
| uniform | 5.5 | 1.4 | 5.1 | 0.97 |
| normal | 4.2 | 1.2 | 3.0 | 1.1 |
| dropout | 3.1 | 0.99 | 2.2 | 0.64 |

It begins once a process has drawn 4 million numbers, and then takes 50 to 80 ms, of which 30 load
`llvmlite`: as long as 6 million hashes in numpy.

Fused groups on large arrays become such loops, too
([compiled_steps.py](../runtime/plans/compiled_steps.py)): what lies between two calls that are not
elementwise, or that numpy approximates (exp, tanh, sin), is one loop. Those remain calls of numpy,
whose own take 0.4 to 0.5 ns, as long as four additions, and differ between processors; so the
results are the same to the last bit, and it may change from one run to the next who computes them.
Milliseconds of processor time on a million numbers, without and with it, and the first call with it
after `llvmlite` is loaded:

| program | without | with | | first |
| --- | ---: | ---: | ---: | ---: |
| additions, products, extremes and a selection in float32 | 2.3 | 0.51 | 4.5 | 13 |
| the same in bfloat16 | 2.5 | 0.47 | 5.3 | 11 |
| the same in float16 | 4.4 | 0.35 | 12.7 | 11 |
| gelu, exact | 3.2 | 1.4 | 2.2 | 30 |
| erf, sigmoid and softplus of 524,288 | 3.0 | 1.6 | 1.9 | 22 |
| chain with transcendentals | 8.4 | 4.1 | 2.0 | 30 |
| adam | 2.8 | 1.4 | 2.1 | 26 |
| gradients of a layer norm | 3.2 | 2.0 | 1.6 | 28 |
| a heat equation's step on 1024 x 1024: slices of one array | 2.0 | 0.65 | 3.1 | 11 |
| Sobel's filter on 16 x 256 x 256, likewise | 4.1 | 1.2 | 3.6 | 13 |
| integers: a product, a sum, bits | 0.88 | 0.54 | 1.6 | 9 |
| chain of 20, four of them tanh | 3.9 | 3.1 | 1.25 | 19 |
| softmax | 1.4 | 1.4 | 1.0 | 2 |

A group is compiled after 2^28 elements of numpy
calls (9 runs of gelu on a million numbers, 14 of adam): by then numpy has taken as long as
compiling will. To compile while numpy goes on would take a thread and win nothing on a busy core.

The wheel is 58 MB, and 170 when it is installed;
in memory it is 70 MB, most of it pages of its file, which processes share. Others were measured for
the same loop. numba, which is made of `llvmlite`: 1.2 ns a hash instead of 0.9, but 0.3 s to load,
and another 0.3 with its cache, 0.8 without, which it writes beside the source. numexpr, which
interprets: 3.4 ns for a single round, numpy 0.6.

- *trace*: `jit(f).trace(...)` of a new function, types and source locations included, in a process
  that has traced it before. For JAX, the same.
- *first result*: from the traced to the compiled program, and the time by which its first call is
  longer than its next three (their median). JAX is charged `lower().compile()` alone.
- *again*: the same if an identical program was partitioned before, as in a loop that jits a
  lambda. For the other figures, such programs are forgotten before each measurement.
- *new trace*, *new first*: both in a process that has traced nothing before and has asked for no
  rule. The library's import does not count; what it loads later does.
- *run*: a call of the jitted function until its results are there. Calls of less than 2 ms are
  timed many at a time.
- *memory*: the peak that `tracemalloc` sees beyond the arguments in four runs after all caches were
  cleared, so that buffers kept for later runs count. *Resident*: the growth of the resident set up
  to its peak, in a process that ran nothing before. Both only where the plain version needs
  {SMALLEST_PEAK / 1e6:g} MB or more.
- *devices*: the same arguments over 8 devices and over 512, run in turns, in new processes each
  round, because the place of buffers in memory differs between processes and matters more.
- *situations*: processor time from import to the first result of the README's program, without
  numpy's import, in a new process; of tracing a step again, unchanged, with another number, or with
  another line in it; and, by the clock, of a step of small products, alone and beside a process
  that computes without end, with as many BLAS threads as cores and with one.
- *growth*: an elementwise program of 3,000 and of 30,000 equations; programs on an `AbstractMesh`
  of 8 and of 65,536 devices; a step whose batch is split over one to six axes.
"""

SOURCES = """\
- **Types are interned.** Equal types are one object, and whatever follows from types alone (result
  types, factors, local shapes) is computed once and then looked up. Tracing an equation is a
  look-up, and the size of the mesh plays no part in it.
- **A source location is a code object and an offset** until somebody reads it.
- **All devices share one array.** A mesh axis that shards a dimension splits that dimension in
  place: the array is a view of the whole, however many devices there are. A product then runs as
  one GEMM for all devices, an `all_gather` or a slice of a device's own block costs nothing, and a
  value that devices share is stored and computed once. Only values that really differ (a partial
  sum that is read, a `shard_map` body that asks for its index) have a leading device dimension.
- **Partial sums are not formed if only their total is read**: a product and its `psum` are one
  GEMM over devices and contraction.
- **BLAS waits for no busy core.** Its threads wait for each other, and where another process has a
  core, each product waits for a time slice. So products and convolutions are shared among threads
  of our own, on cores that nobody uses at the time, and factorisations of matrices of less than
  512 rows take one thread. Into which parts a product falls depends on the machine alone, so that
  a program gives the same bits each time. Afterwards the user's own setting holds again.
- **Special functions are a few numpy calls** in float32, on many elements at once, and fuse with
  what stands around them. Factorisations, solves and products of many small matrices work the same
  way, as long as a call of LAPACK or BLAS for each costs more: matrices of a kilobyte (16x16 in
  float32) and less, factors of 3 rows and less. Where numpy calls LAPACK for a longer stack, cores
  that are free take parts of it.
- **Random numbers may be compiled**: where `llvmlite` is installed, hashes of Threefry and normal
  numbers are one loop each instead of 112 and 200 passes, after the first 4 million.
- **So may groups of elementwise steps**: what is between two reductions or transcendental functions
  is one loop, once numpy has computed it for as long as compiling takes.
- **An extreme of an array and a number** is taken by numpy's `clip`, in half of the time.
- **Memory keeps its pages**, also what numpy allocates by itself: page faults cost as much as the
  arithmetic that they interrupt.
- **Selections do not branch.** A large `where` is made of the bits of its operands, many elements
  at once; beside a zero, as in the gradient of `relu` and under masks, it is one step.
- **bfloat16 and float16 are rounded once.** What only a fused group reads stays float32 until the
  group writes it, as in what XLA fuses on GPUs; `shardtrace_allow_excess_precision` turns that off
  ([differences.md](differences.md)). float16 is made of float32 in integers of 16 bits.
- **What numpy repeats it does not copy.** Where a row or a column meets a matrix, numpy's ufuncs
  copy it into a buffer as long as there are elements; a buffer no longer than a row is left alone.
- **Added rows are a sparse product** if there are as many updates as rows.
- **Plans are straight lines.** The first run decides, equation by equation, how each is computed
  and in which buffers; later runs only call numpy. Elementwise work on large arrays is fused and
  evaluated block by block, so that intermediate values stay in cache, on both cores if that pays,
  each in registers: memory that is cut at cache lines and used again by what is computed next.
  A sum over the rows is that of the blocks' sums, in an order that depends on neither cores nor
  load. Buffers are aligned to cache lines, which alone makes them up to twice as fast to write.
- **Exchanges written by hand run as written.** Who writes a ring all-reduce, ring attention or a
  pipeline wants to see it run, with its order of additions. The measure is numpy doing the same
  exchanges block by block. The blocks of all devices are one array, so that each step is one call.
- **Results are written in place.** What a loop stacks goes straight into its row of the result,
  what a loop adds to or updates is changed where it lies, and a product is computed in the order of
  dimensions in which it is read.
- **Loop indices are computed ahead.** Whatever depends on counters and scalars alone is computed
  for all iterations at once; other scalars are numbers, not arrays.
- **A row that a loop reads and changes is indexed once.** An iteration reads what it needs of the
  array first, then changes it in place; a branch is part of the loop.
- **A program that is traced again is recognised.** A function that is jitted in a loop, or a
  `lax.scan` of a lambda outside of jit, gives the same program from the same lines each time, and
  is partitioned and planned once.
- **Recorded functions are replayed.** The equations of a softmax, a derivative rule, an op under
  `vmap` or the boundary of a `shard_map` are known for arguments of the same types; those of a
  softplus, which has a derivative rule of its own, in the place that called it. So is the
  gradient of a program that is traced again, from other lines or with other numbers in it, too.
- **A call is looked up by one key**, made of the keys that its arguments carry.
- **Little is held at a time.** A value that a derivative reads late, and that is cheap to compute
  from what is held anyway, is computed again there; groups of elementwise steps overwrite operands
  that nothing reads later.
- **The garbage collector pauses** while programs, which are graphs of small long-lived objects, are
  traced, differentiated, partitioned, planned and parsed, and while the package loads.
- **What is seldom needed loads on first use**: the text of programs and its parser, reports and
  advice on errors, linear algebra, transforms, sets, the per-device executor, scipy, rich.
- **Loading a class compiles no source**: immutable records share their methods, and the
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
            f"{where}. Ratios travel between machines better than times do.{_disturbed(report)}\n"
            f"{errors}"
            f"\n{body}\n")


def _count(report: Report) -> str:
    """How many goals are met, and which are not."""
    bounded = [row for row in rows(report) if goal(row)]
    above = [row for row in bounded if not row.met]
    compiled = [row.what for row in above if row.met_compiled]
    left = [row.what for row in above if not row.met_compiled]
    counts = f"{len(bounded) - len(above)} of {len(bounded)} goals are met."
    return counts + (f" With the extra `llvm`, so are: {'; '.join(compiled)}." if compiled else ""
                     ) + (f" Above theirs are: {'; '.join(left)}." if left else "")


def _disturbed(report: Report) -> str:
    """How much of the processor others had while programs were measured, where that is known."""
    shares = sorted(share for table in (report.programs, report.widths)
                    for times in table.values() for t in times.values() for share in t.stolen)
    if not shares:
        return ""
    mean, many = sum(shares) / len(shares), shares[len(shares) * 9 // 10]
    return (f" Other systems of the host took {mean:.1%} of a core in the mean of the measurements "
            f"(in nine of ten {many:.1%} or less).")
