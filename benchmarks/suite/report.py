"""What was measured, as a table, as data and as a document."""
from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from .goals import SMALLEST_PEAK, Row, exponent, geometric, rows
from .library import PROGRAMS
from .race import COMPILED, Times
from .situations import KINDS

COLUMNS = {"trace": "trace / JAX", "first": "first / JAX", "again": "again / JAX",
           "new trace": "new trace / JAX", "new first": "new first / JAX",
           "numpy": "run / numpy", "jax": "run / JAX", "compiled / numpy": "with `llvm` / numpy",
           "compiled / jax": "with `llvm` / JAX", "allocated": "memory / numpy",
           "resident": "resident / numpy"}


@dataclass
class Report:
    """Figures by program and library, and those of growth and start; see speed.py."""
    machine: dict[str, str]
    date: str
    programs: dict[str, dict[str, Times]] = field(default_factory=dict)
    widths: dict[str, dict[str, Times]] = field(default_factory=dict)
    growth: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    start: dict[str, dict[str, float]] = field(default_factory=dict)
    situations: dict[str, dict[str, float]] = field(default_factory=dict)

    def ratios(self, name: str) -> dict[str, float]:
        """The ratios of one program that are known, by column."""
        times = self.programs[name]
        own, plain, jax, compiled = (times.get(lib, Times())
                                     for lib in ("shardtrace", "numpy", "jax", COMPILED))
        pairs = {"trace": (own.median("trace"), jax.median("trace")),
                 "first": (own.first_result, jax.median("compile")),
                 "again": (own.median("again"), jax.median("compile")),
                 **{kind: (own.median(kind), jax.median(kind))
                    for kind in ("new trace", "new first")},
                 "numpy": (own.median("steady"), plain.median("steady")),
                 "jax": (own.median("steady"), jax.median("steady")),
                 "compiled / numpy": (compiled.median("steady"), plain.median("steady")),
                 "compiled / jax": (compiled.median("steady"), jax.median("steady")),
                 **{kind: (getattr(own, kind), getattr(plain, kind))
                    for kind in ("allocated", "resident") if plain.allocated >= SMALLEST_PEAK}}
        return {column: a / b for column, (a, b) in pairs.items() if a is not None and b}

    def column(self, column: str) -> dict[str, float]:
        """A ratio by program, of those that count."""
        timed = {p.name for p in PROGRAMS if p.timed}
        found = {name: self.ratios(name).get(column) for name in self.programs if name in timed}
        return {name: ratio for name, ratio in found.items() if ratio is not None}

    def dispatch(self, name: str) -> float | None:
        """A call, as a part of JAX's."""
        return self.ratios(name).get("jax") if name in self.programs else None

    def width_ratios(self) -> dict[str, float]:
        """Runs on many devices as multiples of those on few, by program."""
        found = {}
        for name, times in self.widths.items():
            few, many = times["few"].median("steady"), times["many"].median("steady")
            if few and many:
                found[name] = many / few
        return found

    def errors(self) -> list[str]:
        """What could not be measured, and why."""
        return [f"{name}, {lib}: {t.error}" for table in (self.programs, self.widths)
                for name, times in table.items() for lib, t in times.items() if t.error]

    def program_line(self, name: str) -> str:
        """A program's times and ratios on a line."""
        ratios = self.ratios(name)
        own = self.programs[name]["shardtrace"]
        cells = "  ".join(f"{COLUMNS[c]} {r:.3f}" for c, r in ratios.items())
        steady, trace, first = own.median("steady"), own.median("trace"), own.first_result
        return (f"{name}: run {seconds(steady)}, trace {seconds(trace)}, first {seconds(first)}, "
                f"{own.equations} equations  {cells}"
                + "".join(f"  [{lib}: {t.error}]" for lib, t in self.programs[name].items()
                          if t.error))

    def width_line(self, name: str) -> str:
        """Few and many devices on a line."""
        times = self.widths[name]
        ratio = self.width_ratios().get(name, float("nan"))
        errors = [f"  [{lib}: {t.error}]" for lib, t in times.items() if t.error]
        return f"{name}: 512 devices / 8 {ratio:.3f}{''.join(errors)}"

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Report:
        """What `data` gave."""
        def times(tables: Any) -> dict[str, dict[str, Times]]:
            return {name: {lib: Times(**t) for lib, t in table.items()}
                    for name, table in tables.items()}
        return cls(data["machine"], data["date"], times(data["programs"]), times(data["widths"]),
                   data["growth"], data["start"], data.get("situations", {}))

    def data(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return asdict(self) | {
            "ratios": {name: self.ratios(name) for name in self.programs},
            "goals": [asdict(row) | {"met": row.met} for row in rows(self)]}


def seconds(value: float | None) -> str:
    """With a unit, three digits."""
    if value is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def goal(row: Row) -> str:
    """The bounds of a goal, in words."""
    bounds = [f"{name}{number(value)}" for name, value in
             (("mean ", row.mean_goal), ("worst ", row.worst_goal)) if value is not None]
    return ", ".join(bounds) if row.mean_goal is not None else number(row.worst_goal)


def table(head: list[str], lines: list[list[str]]) -> str:
    """In Markdown; the first column to the left, the others to the right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *lines))


def goal_table(report: Report) -> str:
    """Each goal, what was found, and whether it is met."""
    return table(["what", "goal", "mean", "worst", "met", "with `llvm`", "the worst"], [
        [row.what, goal(row), number(row.mean), number(row.worst),
         ("yes" if row.met else "above") if goal(row) else "", number(row.compiled), row.culprit]
        for row in rows(report)])


def program_table(report: Report) -> str:
    """The ratios of every program, with the times that they come from."""
    lines = []
    for name, times in report.programs.items():
        own, ratios = times.get("shardtrace", Times()), report.ratios(name)
        lines.append([name, str(own.equations), seconds(own.median("trace")),
                      seconds(own.first_result), seconds(own.median("steady")),
                      *(number(ratios.get(c)) for c in COLUMNS)])
    means = [number(geometric(report.column(c).values())) for c in COLUMNS]
    lines.append(["geometric mean", "", "", "", "", *means])
    return table(["program", "equations", "trace", "first result", "run", *COLUMNS.values()],
                 lines)


def situation_table(report: Report) -> str:
    """A cold process, a trace again, a busy neighbour: each library's figures, and the ratio."""
    lines = []
    for row, what in KINDS.items():
        by = report.situations.get(row, {})
        own, jax, single = (by.get(lib) for lib in (
            "shardtrace", "jax", "shardtrace, one BLAS thread"))
        show = number if row.endswith("modules") else seconds
        lines.append([what, *(show(x) if x is not None else "" for x in (own, jax)),
                      *(number(own / x) if own is not None and x else "" for x in (jax, single))])
    return table(["what", "shardtrace", "JAX", "/ JAX", "/ one BLAS thread"], lines)


def growth_table(report: Report) -> str:
    """Times by size, and the power of the size by which they grow."""
    lines = []
    for subject, found in report.growth.items():
        for row, sizes in found.items():
            text = ", ".join(f"{int(n):,}: {seconds(t)}" for n, t in sizes.items())
            lines.append([f"{subject}: {row}", text, f"{exponent(sizes):.2f}"])
    for name, ratio in report.width_ratios().items():
        few = {"8": 1.0, "512": ratio}
        text = ", ".join(f"{n}: {seconds(report.widths[name][key].median('steady'))}"
                         for n, key in (("8", "few"), ("512", "many")))
        lines.append([f"devices: {name}", text, f"{exponent(few):.2f}"])
    return table(["what", "time by size", "exponent"], lines)


def show(report: Report) -> None:
    """All tables, on the terminal."""
    print(", ".join(f"{k} {v}" for k, v in report.machine.items()))
    for text in (program_table(report), situation_table(report), growth_table(report),
                 goal_table(report)):
        print(f"\n{_aligned(text)}")
    for error in report.errors():
        print(f"not measured: {error}")


def _aligned(text: str) -> str:
    """A Markdown table with columns of one width."""
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines()
             if "---" not in line]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in
                               enumerate(zip(row, widths, strict=True))) for row in cells)

