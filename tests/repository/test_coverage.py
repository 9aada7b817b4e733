"""docs/coverage.md says truly which of JAX's names are here, and why the others are not."""
from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ..paths import ROOT
from ..rows import rows
from . import coverage_of_names as coverage


@pytest.mark.parametrize("module", coverage.FULL)
def test_nine_of_ten_names_are_here(module):
    here, count = coverage.share(module)
    assert here >= 0.9 * count, coverage.missing(module)


@rows("module", coverage.MODULES)
def test_every_missing_name_has_a_reason(module):
    for name in coverage.missing(module):
        assert coverage.reason(module, name)


@pytest.mark.parametrize("module", sorted(coverage.REASONS))
def test_every_reason_is_about_a_missing_name(module):
    assert sorted(coverage.REASONS[module]) == sorted(coverage.missing(module))


def test_the_document_is_current():
    assert coverage.DOCUMENT.read_text() == coverage.document(), (
        "run python -m tests.repository.make_coverage")


def test_every_public_module_of_jax_is_listed():
    """With the share that is here, or under one that is out of scope, which says why."""
    known = coverage.other_modules()
    assert not {m for m in coverage.OUTSIDE if not any(coverage.outside(k) == m for k in known)}
    for module, names in known.items():
        if names and coverage.outside(module) is None:
            assert coverage.offered()[module], f"say why jax.{module} is not here"


def test_the_recorded_names_are_those_of_jax():
    """In a process of its own: modules that others have imported are names, too."""
    pytest.importorskip("jax")
    run = subprocess.run(
        [sys.executable, "-c", "import json; from tests.repository import coverage_of_names as c; "
         "print(json.dumps({m: c.public_names('jax', m) for m in c.MODULES}))"],
        cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    wanted = coverage.recorded()
    for module in coverage.MODULES:
        assert [tuple(row) for row in found[module]] == wanted[module]


# Modules that can be imported only beside packages that JAX does not bring.
OPTIONAL = ("experimental.mosaic.gpu.", "experimental.roofline.", "experimental.source_mapper.")


def test_the_recorded_modules_are_those_of_jax():
    pytest.importorskip("jax")
    run = subprocess.run(
        [sys.executable, "-c", "import json; from tests.repository import coverage_of_names as c; "
         "print(json.dumps(c.all_modules('jax')))"], cwd=ROOT, capture_output=True, text=True,
        check=True)
    found, known = [{m for m in modules if m and not m.startswith(OPTIONAL)} for modules in (
        json.loads(run.stdout), (*coverage.other_modules(), *coverage.MODULES))]
    assert found == known
