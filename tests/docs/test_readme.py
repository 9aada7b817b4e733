"""The README tells the truth: its example runs, and prints the dump that is shown."""
from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

from ..paths import ROOT

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_example_prints_the_dump(tmp_path: pathlib.Path) -> None:
    (example,) = [text for language, text in BLOCKS if language == "python"]
    dump = next(text for language, text in BLOCKS if text.startswith("mesh "))
    program = tmp_path / "layer.py"
    program.write_text(example)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, rest = done.stdout.split("\n", 1)
    assert f"`{first}`" in README
    assert re.sub(r"^file .*\n?", "", rest, flags=re.MULTILINE).strip() == dump.strip()


def test_example_runs_in_jax_with_other_imports(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("jax")
    (example,) = [text for language, text in BLOCKS if language == "python"]
    program = tmp_path / "layer.py"
    program.write_text(example.replace("shardtrace", "jax"))
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True,
                          env={**os.environ, **flags})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("P('data',") and "all-reduce" in done.stdout


def test_ci_runs_the_commands_of_the_readme() -> None:
    ci = (ROOT / ".ci" / "run").read_text()
    commands = [text for language, text in BLOCKS if text.startswith("python -m venv")]
    assert len(commands) == 2
    for command in commands:
        for part in command.strip().split(" && ")[1:]:
            assert part.replace(".venv/bin/", "").replace("pip install ", "") in ci, part
