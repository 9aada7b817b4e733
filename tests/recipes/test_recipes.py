"""The recipes of CONTRIBUTING.md, proved by doing: each is a commit, applied to a copy of the tree.

`NAME.diff` is what one writes for it, its test included. All are applied to one copy, where their
tests run, and those of the suite that go over every op, function, pass and device. One that no
longer applies is written anew: `git apply -3 NAME.diff`, mend, `git diff --cached > NAME.diff`.
"""
from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from ..paths import ROOT

RECIPES = sorted(pathlib.Path(__file__).parent.glob("*.diff"))
# Name -> what of the suite takes the new thing up by itself: (files, which of their tests).
SUITE = {
    "engine": ((), "checked"),
    "error": (("tests/repository/test_docstrings.py",), "too_few or TooFew or says_what_it_is"),
    "hardware": (("tests/partitioner/cost/test_hardware.py",), "workstation or hardware"),
    "numpy_function": (("tests/repository/test_docstrings.py",), "rescale"),
    "op": (("tests/ir/ops/test_every_op.py",), "versin"),
    "pass": (("tests/partitioner/test_skipped_passes.py", "tests/ir/rewriting/test_rewrites.py"),
             "drop-negations or negation-of-negation"),
}
FILES = {"engine": 2, "error": 3, "hardware": 1, "numpy_function": 2, "op": 4, "pass": 4}
IGNORED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "recipes")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy of the tree with all recipes applied, and `shardtrace` laid out as it is installed."""
    if shutil.which("git") is None:
        pytest.skip("applying a diff takes git")
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT, tree, ignore=IGNORED, dirs_exist_ok=True)
    for diff in RECIPES:
        done = subprocess.run(["git", "apply", str(diff)], cwd=tree, capture_output=True, text=True,
                              env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)})
        assert done.returncode == 0, f"{diff.name} is to be written anew: {done.stderr}"
    package = tree / "installed" / "shardtrace"
    package.mkdir(parents=True)
    for part in (*tree.iterdir(), *(tree / "api").iterdir()):
        if part.name not in ("api", "installed", "tests"):
            (package / part.name).symlink_to(part)
    return tree


def test_every_recipe_is_here() -> None:
    assert {diff.stem for diff in RECIPES} == SUITE.keys() == FILES.keys()
    told = re.findall(r"^\*\*Add an? (.*)\.\*\*|^\*\*Add (hardware)\.\*\*",
                      (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert SUITE.keys() <= {"".join(name).replace(" ", "_") for name in told}


@pytest.mark.parametrize("diff", RECIPES, ids=[diff.stem for diff in RECIPES])
def test_a_recipe_takes_few_files_and_its_tests_pass(diff: pathlib.Path,
                                                     copy: pathlib.Path) -> None:
    changed = re.findall(r"^\+\+\+ b/(.*)$", diff.read_text(), re.MULTILINE)
    tests = [name for name in changed if name.startswith("tests/") and name.endswith(".py")
             and "/test_" in name]
    assert len(changed) - len(tests) == FILES[diff.stem], changed
    files, names = SUITE[diff.stem]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-k", names,
         *tests, *files], cwd=copy, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(copy / "installed")})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= len(tests) + len(files)
