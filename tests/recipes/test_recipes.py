"""The recipes of CONTRIBUTING.md, proved by doing: each is a commit, applied to a copy of the tree.

`NAME.diff` is what one writes for it, its test included. All are applied to one copy, where their
tests run, and those of the suite that go over every op, function, pass and device. One that no
longer applies is written anew: `git apply -3 NAME.diff`, mend, `git diff --cached > NAME.diff`.
"""
from __future__ import annotations

import importlib.util
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
    "engine": (("tests/engines/test_engine.py",), "test_checked or engines_are_those"),
    "error": (("tests/repository/test_docstrings.py",), "too_few or TooFew or says_what_it_is"),
    "hardware": (("tests/partitioner/cost/test_hardware.py", "tests/cli/test_help.py",
                  "tests/partitioner/cost/test_cost_model_page.py"),
                 "workstation or hardware or figures_of_the_file or page_that_fits"),
    "numpy_function": (("tests/repository/test_docstrings.py",), "rescale"),
    "op": (("tests/ir/ops/test_every_op.py", "tests/ir/ops/test_references.py",
            *(["tests/engines/test_every_op.py"] if importlib.util.find_spec("jax") else [])),
           "versin"),
    "pass": (("tests/partitioner/test_skipped_passes.py", "tests/ir/rewriting/test_rewrites.py"),
             "drop-absolutes or absolute-of-absolute"),
}
FILES = {"engine": 2, "error": 2, "hardware": 2, "numpy_function": 1, "op": 3, "pass": 3}
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


def changed(diff: pathlib.Path) -> tuple[list[str], list[str]]:
    """The files that a recipe touches: those of tests, and all others."""
    names = re.findall(r"^\+\+\+ b/(.*)$", diff.read_text(), re.MULTILINE)
    tests = [name for name in names if re.match(r"tests/.*/test_.*\.py$", name)]
    return tests, [name for name in names if name not in tests]


@pytest.fixture(scope="module")
def outcomes(copy: pathlib.Path) -> tuple[str, list[tuple[str, str]]]:
    """What a run of the tests of all recipes printed, and each test with its outcome."""
    files = {name: None for diff in RECIPES for name in (*changed(diff)[0], *SUITE[diff.stem][0])}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-rA", "-p", "no:cacheprovider", "-k",
         " or ".join(names for _, names in SUITE.values()), *files],
        cwd=copy, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(copy / "installed")})
    said = done.stdout + done.stderr
    return said, re.findall(r"^(PASSED|FAILED|ERROR) (.*)$", said, re.MULTILINE)


@pytest.mark.parametrize("diff", RECIPES, ids=[diff.stem for diff in RECIPES])
def test_a_recipe_takes_few_files_and_its_tests_pass(
        diff: pathlib.Path, outcomes: tuple[str, list[tuple[str, str]]]) -> None:
    tests, others = changed(diff)
    assert len(others) == FILES[diff.stem], others
    files, names = SUITE[diff.stem]
    said, found = outcomes
    assert found and not [test for outcome, test in found if outcome != "PASSED"], said[-4000:]
    for name in (*tests, *files):
        ran = [test for _, test in found if test.startswith(name)
               and any(word.lower() in test.lower() for word in names.split(" or "))]
        assert ran, f"{name} has no test of {names}: {said[-3000:]}"
