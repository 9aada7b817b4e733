"""HLO text of CPU, GPU and TPU jobs: every notation, and counts that are JAX's own program's."""
from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

from shardtrace import interop
from shardtrace.cli.main import main
from shardtrace.interop.hlo.read import HloError, first_group, read
from shardtrace.interop.hlo.report import report_of

from ..paths import GOLDEN

GPU = (GOLDEN / "hlo" / "gpu.txt").read_text()


def test_collectives_are_counted_with_their_loops_branches_and_lines() -> None:
    found = report_of(GPU.splitlines(), "h100")
    assert (found.name, found.devices) == ("jit_step", 8)
    rows = {c.kind: c for c in found.collectives}
    assert len(rows) == len(found.collectives) == 6
    gather, scatter = rows["all-gather"], rows["reduce-scatter"]
    assert (gather.times, gather.is_known, gather.is_async) == (24, True, True)
    assert (gather.group_size, gather.operand_bytes, gather.received_bytes) == (
        4, 16 * 128 * 2, 3 * 16 * 128 * 2)
    assert (scatter.times, scatter.received_bytes) == (24, 3 * 16 * 128 * 2)
    assert (gather.place.file, gather.place.line) == ("/home/me/train.py", 12)
    assert (rows["all-to-all"].group, rows["all-to-all"].received_bytes) == ((0, 4), 64)
    permute = rows["collective-permute"]
    assert permute.in_branch and permute.pairs[0] == (0, 1) and permute.received_bytes == 32
    total = rows["all-reduce"]
    assert (total.group_size, total.arrays, total.received_bytes) == (8, 2, 2 * 4100 * 7 // 8)
    assert rows["collective-broadcast"].received_bytes == 1024
    assert found.received_bytes == sum(c.total_bytes for c in found.collectives)
    assert all(c.seconds > 0 for c in found.collectives)


def test_a_loop_without_a_count_runs_as_its_condition_says() -> None:
    text = re.sub(r", backend_config=\{\"known_trip.*", "", GPU)
    gather = next(c for c in report_of(text.splitlines()).collectives if c.kind == "all-gather")
    assert (gather.times, gather.is_known) == (24, False)
    unknown = text.replace("%n = s32[] constant(24)", "%n = s32[] get-tuple-element(%c), index=2")
    gather = next(c for c in report_of(unknown.splitlines()).collectives if c.kind == "all-gather")
    assert (gather.times, gather.is_known) == (1, False)


@pytest.mark.parametrize(("text", "group"), [
    ("{{0,2},{1,3}}", (0, 2)), ("{}", tuple(range(8))), ("[2,4]<=[8]", (0, 1, 2, 3)),
    ("[4,2]<=[2,4]T(1,0)", (0, 4)), ("[2,2,2]<=[8]", (0, 1)),
    ("mesh['x'=2,'y'=4] {'y'}", (0, 1, 2, 3)), ("mesh['x'=2,'y'=4] {'x'}", (0, 4)),
    ("mesh['x'=2,'y'=2,'z'=2] {'x','z'}", (0, 1, 4, 5)),
    ("mesh['x'=8] {'x':(1)2}", (0, 4)), ("mesh['x'=8] {'x':(2)4}", (0, 1, 2, 3)),
])
def test_every_notation_of_groups(text: str, group: tuple[int, ...]) -> None:
    assert first_group(text, 8) == group


def test_a_mesh_may_have_its_devices_in_another_order() -> None:
    line = ("  %a = f32[4]{0} all-reduce(%x), replica_groups=mesh['a'=1,'b'=4,'c'=2], "
            "device_ids=([2,4]T(1,0)) {'c'}, to_apply=%add")
    module = read(["HloModule f, num_partitions=8", "ENTRY %m (x: f32[4]) -> f32[4] {", line, "}"])
    assert module.computations["m"].exchanges[0].group == (0, 4)


@pytest.mark.parametrize(("text", "message"), [
    ("", "no line begins with HloModule"),
    ("HloModule f\n", "has no computations"),
    ("ENTRY %main (x: f32[]) -> f32[] {\n}\n", "line 1: a computation begins"),
    ("HloModule f\nHloModule g\n", "line 2: a second module begins"),
    ("HloModule f\nENTRY %m (x: f32[]) -> f32[] {\n  %y = f32[ all-reduce(%x)\n}\n",
     "line 3: cannot read the instruction"),
])
def test_what_is_no_hlo_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(HloError, match=message):
        read(text.splitlines())


def test_a_module_that_calls_itself_ends() -> None:
    text = GPU.replace("calls=%nothing", "calls=%body")
    assert report_of(text.splitlines()).collectives


def test_the_command_prints_a_table_or_json(tmp_path: Any, capsys: Any) -> None:
    path = tmp_path / "dump.txt"
    path.write_text(GPU)
    assert main(["hlo", str(path), "--hardware", "h100", "--width", "100"]) == 0
    found = capsys.readouterr().out
    assert "6 collectives" in found and "train.py:12" in found and "24" in found
    assert "*: in a branch that may not be taken" in found
    assert main(["hlo", str(path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["collectives"]) == 6
    assert main(["hlo", str(tmp_path / "none.txt")]) != 0
    assert "cannot read" in capsys.readouterr().err
    path.write_text("nothing")
    assert main(["hlo", str(path)]) != 0
    assert "no line begins with HloModule" in capsys.readouterr().err


def test_without_jax_functions_say_what_to_install(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    for f in (interop.from_jax, interop.xla_report):
        with pytest.raises(ImportError, match=r"pip install 'shardtrace\[jax\]'"):
            f(abs, 1.0)
