"""The speed suite: its programs give numpy's values, and the page is in step with it."""
from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest

from ..paths import DOCS, module_of_benchmarks

PAGE = DOCS / "performance.md"

suite = module_of_benchmarks("suite")
document = module_of_benchmarks("suite.document")
goals = module_of_benchmarks("suite.goals")
library = module_of_benchmarks("suite.library")
quiet = module_of_benchmarks("suite.quiet")
race = module_of_benchmarks("suite.race")
report = module_of_benchmarks("suite.report")
worker = module_of_benchmarks("suite.worker")

PROGRAMS = suite.names()
LONG = {"10,000 flat equations", "24 layers step, unrolled, auto", "24 layers step, scanned"}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in PROGRAMS])
def test_a_program_gives_the_values_of_plain_numpy(name: str) -> None:
    p = PROGRAMS[name]
    arguments = p.arguments(np.random.default_rng(0))
    plain = library.plain_function(p)(*library.map_tree(library.plain_value, arguments))
    lib = library.Library("shardtrace", p.mesh, p.explicit)
    with lib.context():
        found = lib.root.jit(p.make(lib))(*library.map_tree(lib.put, arguments))
    off = race.difference([np.asarray(x) for x in library.leaves(plain)],
                          [library.plain_value(np.asarray(x)) for x in library.leaves(found)])
    assert off <= p.equal


def test_names_are_unique_and_meshes_have_eight_devices() -> None:
    assert len(PROGRAMS) == len(library.PROGRAMS)
    for p in PROGRAMS.values():
        assert np.prod(list(p.mesh.values())) == 8
        assert p.wide is None or (np.prod(list(p.wide.values())) == 512
                                  and list(p.wide) == list(p.mesh))


def test_the_page_names_the_machine_every_program_and_every_goal() -> None:
    text = PAGE.read_text()
    assert tuple(re.findall(r"^## (.*)$", text, re.MULTILINE)) == document.HEADINGS
    assert all(section.strip() for section in re.split(r"^## .*$", text, flags=re.MULTILINE))
    assert re.search(r"Measured \d{4}-\d\d-\d\d on: processor .+, cores \d+, memory", text)
    rows = re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE)
    assert [name for name in rows if name in PROGRAMS] == list(PROGRAMS)
    for what in ("time to trace / JAX", "traced to first result / JAX's lower and compile",
                 "dispatch of a small jitted call / JAX", "dispatch with 100 leaves / JAX",
                 "run / plain numpy", "run / JAX", "chain of 20 on 4M floats / plain numpy",
                 "run with 512 devices / with 8", "peak memory of a run / plain numpy",
                 "30,000 equations / 3,000: verify", "65,536 abstract devices / 8: explain",
                 "import, seconds"):
        assert what in rows, f"{what} is missing: write the page again"
    for own in (document.METHOD, document.SOURCES, document.PROFILE):
        assert own.strip() in text


def times(**samples: list[float]) -> object:
    return race.Times(samples=samples, equations=3, allocated=10_000_000)


def test_a_report_reads_ratios_and_goals_from_times() -> None:
    found = report.Report({"processor": "any"}, "2000-01-01")
    name = "chain of 20 on 4M floats"
    found.programs[name] = {
        "shardtrace": times(trace=[1.0, 3.0, 2.0], compile=[0.5], first=[0.1], steady=[3.0]),
        "numpy": times(steady=[4.0]),
        "jax": times(trace=[20.0], compile=[60.0], steady=[3.0])}
    gelu = "gelu, exact, on 1M"
    found.programs[gelu] = {"shardtrace": times(steady=[8.0]), "jax": times(steady=[2.0]),
                            race.COMPILED: times(steady=[4.0])}
    found.programs[name]["jax"].stolen = [0.0] * 18 + [0.02, 0.18]
    assert found.ratios(name) == pytest.approx(
        {"trace": 0.1, "first": 0.01, "numpy": 0.75, "jax": 1.0, "allocated": 1.0})
    rows = {row.what: row for row in goals.rows(found)}
    assert (rows[f"{gelu} / JAX"].met, rows[f"{gelu} / JAX"].met_compiled) == (False, True)
    assert rows["time to trace / JAX"].met
    assert rows["run / plain numpy"].met
    assert not rows["run / JAX"].met
    assert not rows["chain of 20 on 4M floats / plain numpy"].met
    assert report.Report.from_data(json.loads(json.dumps(found.data()))) == found
    page = document.document(found)
    assert f"| run / JAX | mean 0.7 | 2 | 4 | above |  | {gelu} |" in page
    assert f"| {gelu} / JAX | 3 |  | 4 | above | 2 |  |" in page
    assert f"With the extra `llvm`, so are: {gelu} / JAX. Above" in page
    assert "took 1.0% of a core in the mean of the measurements (in nine of ten 2.0% or" in page


@pytest.mark.parametrize(("sizes", "power"), [
    ({"3000": 1.0, "30000": 10.0}, 1.0), ({"8": 2.0, "512": 2.0}, 0.0),
    ({"1": 1.0, "8": 64.0}, 2.0)])
def test_growth_is_told_as_a_power_of_the_size(sizes: dict[str, float], power: float) -> None:
    assert goals.exponent(sizes) == pytest.approx(power)


def test_workers_answer_and_say_what_went_wrong() -> None:
    p = PROGRAMS["add one"]
    process = race.Process(sys.executable, "shardtrace", p)
    try:
        assert set(process.ask("cold_stages")) == {"new trace", "new first"}
        assert process.ask("equations") == 1
        assert len(process.ask("trace", times=2)) == 2
        assert process.ask("nothing") is None
        assert "nothing" in process.error
    finally:
        process.close()


def test_what_others_disturbed_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "PAUSE", 0.0)

    def measured(taken: list[float]) -> tuple[int, int]:
        """Which of the tries counts, and how many there were. taken: seconds in each."""
        clock = [t for seconds in taken for t in (0.0, seconds)]
        tries = []

        def measure() -> int:
            tries.append(0)
            return len(tries)
        value, share = quiet.undisturbed(measure, lambda: clock.pop(0))
        assert (share == 0) == (taken[value - 1] == 0)
        return value, len(tries)
    assert measured([0.0]) == (1, 1)
    assert measured([5.0, 0.0]) == (2, 2)
    assert measured([9e9, 1e3, 9e9, 9e9]) == (2, 4)


def test_time_taken_by_others_is_counted() -> None:
    before = quiet.stolen()
    assert 0.0 <= before <= quiet.stolen()
