"""The lazy import helper: nothing is imported before an attribute is used."""

import inspect
import sys

import pytest

from shardtrace.ir.support.lazy import lazy_import, lazy_names


@pytest.fixture
def module_file(tmp_path, monkeypatch):
    """A module that nobody has imported yet."""
    (tmp_path / "imported_late.py").write_text("answer = 42\n__version__ = '7'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "imported_late"
    sys.modules.pop("imported_late", None)


def test_the_module_is_imported_at_the_first_use_only(module_file):
    lazy = lazy_import(module_file)
    assert repr(lazy) == "<lazy module 'imported_late'>"
    assert not inspect.isclass(lazy) and not hasattr(lazy, "__wrapped__")
    assert module_file not in sys.modules
    assert lazy.answer == 42
    assert module_file in sys.modules
    assert lazy.__version__ == "7" and "answer" in dir(lazy)


def test_later_changes_of_the_module_are_seen(module_file, monkeypatch):
    lazy = lazy_import(module_file)
    assert lazy.answer == 42
    monkeypatch.setattr(sys.modules[module_file], "answer", 43)
    assert lazy.answer == 43
    with pytest.raises(AttributeError, match="no attribute 'question'"):
        _ = lazy.question


def test_a_missing_module_is_reported_at_its_use():
    lazy = lazy_import("there_is_no_such_module")
    with pytest.raises(ModuleNotFoundError):
        _ = lazy.anything


@pytest.mark.parametrize("name", ["", ".relative"])
def test_names_must_be_absolute(name):
    with pytest.raises(ValueError, match="absolute module name"):
        lazy_import(name)


def test_modules_of_ones_own_package_are_named_as_in_imports(module_file, tmp_path):
    (tmp_path / "late_package").mkdir()
    (tmp_path / "late_package" / "__init__.py").write_text("")
    (tmp_path / "late_package" / "part.py").write_text("answer = 43\n")
    assert lazy_import(".part", "late_package").answer == 43


def test_names_of_a_package_that_load_late(tmp_path, monkeypatch):
    (tmp_path / "gathering").mkdir()
    (tmp_path / "gathering" / "__init__.py").write_text(
        "from shardtrace.ir.support.lazy import lazy_names\nearly = 1\n"
        "__getattr__, __dir__ = lazy_names(__name__, {'part': ('late', 'later'), 'whole': ()})\n")
    (tmp_path / "gathering" / "part.py").write_text("late, later = 2, 3\n")
    (tmp_path / "gathering" / "whole.py").write_text("found = 4\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    package = __import__("gathering")
    assert {"early", "late", "later", "part", "whole"} <= set(dir(package))
    assert "gathering.part" not in sys.modules
    assert (package.late, package.later, package.whole.found) == (2, 3, 4)
    assert "late" in vars(package) and "gathering.part" in sys.modules
    with pytest.raises(AttributeError, match="module 'gathering' has no attribute 'latest'"):
        _ = package.latest
    assert lazy_names("gathering", {})[1]() == sorted(vars(package))
