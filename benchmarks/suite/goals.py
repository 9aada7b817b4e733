"""What the figures are held to: ratios within one run, and how each is read from a report."""
from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# Below this peak, in bytes, a program's memory is the interpreter's own and says nothing.
SMALLEST_PEAK = 4_000_000

# Programs that stand for what users write, each with what it is held to: column, goal.
CLASSES = (
    ("bfloat16, elementwise on 1M", "numpy", 1.5), ("float16, elementwise on 1M", "numpy", 1.5),
    ("gelu, exact, on 1M", "jax", 3), ("erf, sigmoid, softplus on 512K", "jax", 3),
    ("segment_sum of 20,000 rows", "jax", 1.5), ("rows scattered and added", "jax", 1.5),
    ("embedding, gradient of the table", "jax", 1.5), ("random, 1M bits", "numpy", 2),
    ("random, 1M normal", "numpy", 2), ("dropout on 1M", "numpy", 2),
    ("solve, cholesky, inv, det of 2,048 8x8", "jax", 1.3), ("products of 8,192 8x8", "jax", 1.3),
    ("convnet, a training step", "jax", 1.3), ("layer norm and its gradient", "jax", 1.3),
    # each fails without a rewrite of the executor's (benchmarks/mechanisms.py --goals)
    ("rows of a split table looked up", "numpy", 3), ("rows at clipped places", "numpy", 0.21),
    ("integers divided, rounded down", "numpy", 1.3),
    ("a cache written where steps are valid", "numpy", 15),
    ("32 layers taken by index, their gradient", "numpy", 1.6),
    ("running maxima, associative scan", "numpy", 0.88),
    ("kalman filter, 50 steps of 64 series", "numpy", 2),
    ("gaussian elimination of 64 rows", "numpy", 2.3),
    ("64 steps of gradient descent, scanned", "numpy", 1.2),
    ("sums over windows, their gradient", "numpy", 0.6),
    ("gated recurrence, its gradient", "numpy", 1.75))
PEAK = 1.25                     # memory of a run, at most, over that of plain numpy


@dataclass(frozen=True)
class Row:
    """A goal and what was found. mean, worst: None where nothing is asked of them or known.

    what: what is compared. culprit: the name of the worst. compiled: what is found with the extra
    `llvm`, where one program is measured.
    """
    what: str
    mean: float | None = None
    mean_goal: float | None = None
    worst: float | None = None
    worst_goal: float | None = None
    culprit: str = ""
    compiled: float | None = None

    @property
    def known(self) -> bool:
        return self.mean is not None or self.worst is not None

    @property
    def met(self) -> bool:
        return not any(found is not None and goal is not None and found > goal
                       for found, goal in ((self.mean, self.mean_goal),
                                           (self.worst, self.worst_goal)))

    @property
    def met_compiled(self) -> bool:
        """Is it met with the extra `llvm` alone?"""
        return (not self.met and self.compiled is not None and self.worst_goal is not None
                and self.compiled <= self.worst_goal)


def geometric(values: Iterable[float]) -> float | None:
    """Geometric mean; None of nothing."""
    found = [math.log(v) for v in values if v > 0]
    return math.exp(sum(found) / len(found)) if found else None


def exponent(sizes: dict[str, float]) -> float:
    """By what power of the size a time grows, from the smallest to the largest."""
    small, large = min(sizes, key=float), max(sizes, key=float)
    return math.log(sizes[large] / sizes[small]) / math.log(float(large) / float(small))


def growth_of(sizes: dict[str, float]) -> float:
    """The time at the largest size as a multiple of that at the smallest."""
    return sizes[max(sizes, key=float)] / sizes[min(sizes, key=float)]


def rows(report: Any) -> list[Row]:
    """One row a goal, in the order in which a program meets them."""
    out = [
        _over("time to trace / JAX", report.column("trace"), 1 / 8, 1 / 4),
        _over("traced to first result / JAX's lower and compile", report.column("first"),
              1 / 50, 1 / 10),
        _over("the same for a program traced anew / JAX", report.column("again"), None, None),
        _over("trace in a new process / JAX in one", report.column("new trace"), None, None),
        _over("first result in a new process / JAX in one", report.column("new first"), None,
              None),
        _one("dispatch of a small jitted call / JAX", report.dispatch("dispatch, one small array"),
             1 / 8),
        _one("dispatch with 100 leaves / JAX", report.dispatch("dispatch, 100 leaves"), 1 / 8),
        _over("run / plain numpy", report.column("numpy"), 0.95, 1.3),
        _over("run / JAX", report.column("jax"), 0.7, None),
        _one("chain of 20 on 4M floats / plain numpy",
             report.column("numpy").get("chain of 20 on 4M floats"), 0.35),
        _over("run with 512 devices / with 8", report.width_ratios(), None, 1.2),
        _over("peak memory of a run / plain numpy", report.column("allocated"), None, PEAK),
        _over("the same, resident", report.column("resident"), None, PEAK),
    ]
    for name, column, most in CLASSES:
        library = "numpy" if column == "numpy" else "JAX"
        out.append(_one(f"{name} / {library}", report.column(column).get(name), most,
                        report.column(f"compiled / {column}").get(name)))
    out += _situations(report.situations)
    for row, sizes in report.growth.get("equations", {}).items():
        out.append(_one(f"30,000 equations / 3,000: {row}", growth_of(sizes), 11))
    of_mesh = report.growth.get("mesh", {})
    for subject in ("trace", "partition", "explain"):
        found = {name.split(": ", 1)[1]: growth_of(sizes) for name, sizes in of_mesh.items()
                 if name.startswith(f"{subject}:")}
        out.append(_over(f"65,536 abstract devices / 8: {subject}", found, None, 1.05))
    for row, sizes in report.growth.get("axes", {}).items():
        out.append(_one(f"6 mesh axes / 1: {row}", growth_of(sizes), None))
    own = report.start.get("shardtrace")
    if own:
        out.append(_one("import, seconds", own["import"], 0.25))
        out.append(_one("import with numpy names, seconds", own["with numpy names"], 0.25))
        out.append(_one("import and first result, seconds", own["first result"], None))
    return [row for row in out if row.known]


def _situations(found: dict[str, dict[str, float]]) -> list[Row]:
    def ratio(row: str, other: str) -> float | None:
        by = found.get(row, {})
        return by["shardtrace"] / by[other] if "shardtrace" in by and other in by else None
    single = "shardtrace, one BLAS thread"
    return [
        _one("import to first result, README, processor seconds",
             found.get("cold", {}).get("shardtrace"), 0.15),
        _one("trace with another number / JAX", ratio("another number", "jax"), 0.06),
        _one("trace with another line / JAX", ratio("another line", "jax"), 0.06),
        _one("small products / on one BLAS thread", ratio("alone", single), 1.2),
        _one("the same beside a busy process", ratio("busy", single), 1.2)]


def _over(what: str, found: dict[str, float], mean: float | None, worst: float | None) -> Row:
    if not found:
        return Row(what)
    culprit = max(found, key=lambda k: found[k])
    return Row(what, geometric(found.values()), mean, found[culprit], worst, culprit)


def _one(what: str, found: float | None, goal: float | None, compiled: float | None = None) -> Row:
    return Row(what, worst=found, worst_goal=goal, compiled=compiled)
