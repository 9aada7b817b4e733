"""The data of an explanation says what is known of the program, and can be written as JSON."""
from __future__ import annotations

import inspect
import json

import pytest

from shardtrace.report.views.data import source_data, view_data

from . import programs
from .programs import CASES, explained, two_products


def line_of(fun, text):
    lines, first = inspect.getsourcelines(fun)
    return first + next(i for i, line in enumerate(lines) if text in line)


def lines_of(data, numbers):
    return {data["places"][n][1] for n in numbers if n >= 0}


@pytest.fixture(scope="module")
def data():
    return view_data(explained("two_products"))


def test_all_is_json() -> None:
    for name in CASES:
        made = view_data(explained(name), advised=1)
        assert json.loads(json.dumps(made, allow_nan=False)) == made


def test_values_stand_at_their_lines_with_their_types(data) -> None:
    (h,) = [v for v in data["values"] if v["name"] == "h"]
    assert data["types"][h["type"]]["text"] == "f32[64@data,256@model]"
    assert data["types"][h["type"]]["block"] == [8, 64]
    assert lines_of(data, [h["place"]]) == {line_of(two_products, "h = ")}
    assert data["files"][data["places"][h["place"]][0]]["path"] == programs.__file__


def test_axes_lead_back_to_the_argument_step_by_step(data) -> None:
    (h,) = [v for v in data["values"] if v["name"] == "h"]
    ways = {}
    for axis in ("data", "model"):
        at, steps = h, []
        while True:
            (step,) = [f for f in at["from"] if f[1] == axis]
            steps.append(step[3])
            if step[2] < 0:
                break
            at = data["values"][step[2]]
        ways[axis] = steps, at["name"]
    assert ways["data"] == (["tanh", "dot_general", "`in_shardings[0]`, argument `x`"], "x")
    assert ways["model"] == (["tanh", "dot_general", "`in_shardings[1]`, argument `w1`"], "w1")


def test_collectives_are_those_of_the_explanation_by_cause() -> None:
    e = explained("unrolled")
    made = view_data(e, advised=1)
    assert [(c["kind"], c["axes"], c["bytes"]) for c in made["collectives"]] == [
        (c.kind, list(c.mesh_axes), c.received_bytes) for c in e.collectives]
    members = [n for cause in made["causes"] for g in cause["groups"] for n in g["members"]]
    assert sorted(members) == list(range(len(e.collectives))) and len(members) == 40


def test_fixes_are_the_suggestions_for_the_dearest(data) -> None:
    fixes = data["causes"][0]["groups"][0]["fixes"]
    assert fixes and [f["text"] for f in fixes] == [
        s.text for s in explained("two_products").collectives[0].suggestions[:3]]


def test_equations_know_their_scope_and_the_equation_they_are_inside_of() -> None:
    made = source_data(explained("layers"))
    inside = [e for e in made["equations"] if e["inside"] >= 0]
    assert {made["equations"][e["inside"]]["op"] for e in inside} == {"scan"}
    assert any(e["op"] == "dot_general" and "mlp" in e["scope"] for e in inside)
    for e in made["equations"]:
        assert all(made["values"][v]["equation"] == made["equations"].index(e) for v in e["out"])


def test_every_collective_of_the_last_stage_is_one_row(data) -> None:
    for name in CASES:
        made = view_data(explained(name), advised=0)
        assert sorted(n for _, _, n in made["stages"][-1]["rows"] if n >= 0) == list(
            range(len(made["collectives"])))


def test_what_a_stage_changed_makes_it_of_the_one_before(data) -> None:
    for name in CASES:
        stages = view_data(explained(name), advised=0)["stages"]
        for before, now in zip(stages, stages[1:], strict=False):
            rows = [r[0] for r in before["rows"]]
            for a, b, c, d in reversed(now["changes"]):
                rows[a:b] = [r[0] for r in now["rows"][c:d]]
            assert len(rows) == len(now["rows"])
            bare = [text.split("%")[0] for text in rows]
            assert bare == [r[0].split("%")[0] for r in now["rows"]]


def test_times_are_those_of_the_cost_model(data) -> None:
    e = explained("two_products")
    assert [name for name, _ in data["timeline"]["lanes"]] == ["computation", "over model"]
    took = [0.0, 0.0]
    for lane, _, seconds, *_ in data["timeline"]["events"]:
        took[lane] += seconds
    assert took == pytest.approx([e.times.compute, e.times.communication])
    assert sum(t for _, t in data["seconds"]) == pytest.approx(e.times.compute)
    looped = explained("layers")
    assert sum(t for _, t in view_data(looped, 0)["seconds"]) == pytest.approx(looped.times.compute)
    busy = dict(view_data(looped, 0)["timeline"]["lanes"])       # every iteration counted
    assert busy.pop("computation") == pytest.approx(looped.times.compute)
    assert sum(busy.values()) == pytest.approx(looped.times.communication)


def test_memory_is_that_of_the_cost_model(data) -> None:
    e = explained("two_products")
    assert max(m[2] for m in data["memory"]["moments"]) <= e.peak_bytes == data["memory"]["peak"]
    assert {h[0] for h in data["memory"]["held"]} >= {"w1", "w2", "h"}
