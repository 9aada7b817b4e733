"""The pytest plugin: communication budgets as a marker and as a fixture, and a report.

    @pytest.mark.comm(max_bytes="1 MB", kinds={"all-gather": 1})
    def test_step():
        step(params, batch)             # each function that is jitted here keeps to the budget

    def test_layer(comm):
        assert comm(layer, x, w).received_bytes == 24576

It is loaded by name (`-p shardtrace.studio.pytest_plugin`, or `pytest_plugins` of a conftest): as
an entry point it would make pytest rewrite the assertions of the whole package. Nothing of the
package is imported until a test is marked; comm_budgets.py does the work.
"""
from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

_KEY = pytest.StashKey[Any]()
_RECORDS = "shardtrace_comm"         # of the properties of a test's report, which xdist hands on
_CACHED = "shardtrace/comm"          # what was measured in the last run
_MARKER = ("comm(max_bytes=None, kinds=None, axis=None, max_peak_bytes=None, exact=False): what a "
           "test's functions may communicate; sizes are numbers of bytes, or texts such as '1 MB'")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("shardtrace")
    group.addoption("--comm-report", action="store_true",
                    help="tell what marked tests communicate, and what that is to the last run")
    group.addoption("--comm-report-file", metavar="FILE.md",
                    help="write this as a table for a pull request, such as $GITHUB_STEP_SUMMARY")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


def _work() -> Any:
    return importlib.import_module(".comm_budgets", __package__)


def _budgets(item: pytest.Item) -> Any:
    """The budgets of a test; None of one that is not marked and does not use the fixture."""
    found = item.stash.get(_KEY, None)
    uses = "comm" in getattr(item, "fixturenames", ())
    marker = item.get_closest_marker("comm")
    if found is None and (marker is not None or uses):
        if marker is not None and marker.args:
            raise TypeError("the comm marker takes its limits by name: comm(max_bytes='1 MB')")
        found = item.stash[_KEY] = _work().Budgets(dict(marker.kwargs) if marker else {}, uses)
    return found


@pytest.fixture
def comm(request: pytest.FixtureRequest) -> Any:
    """Explain a function and hold it to the budget of the test's `comm` marker, if it has one:
    `comm(layer, x, w)` gives the explanation. x, w may be arrays or ShapeDtypeStructs.
    """
    return _budgets(request.node)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    budgets = _budgets(item)
    if budgets is None:
        return (yield)
    try:
        with budgets.watching():
            result = yield
        try:
            budgets.check()
        except AssertionError as over:       # which says the line and the reason itself
            pytest.fail(str(over), pytrace=False)
        return result
    finally:
        item.user_properties.append((_RECORDS, budgets.records()))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        for name, records in report.user_properties:
            if name == _RECORDS:
                _FOUND[report.nodeid] = records


_FOUND: dict[str, Any] = {}          # of this run, by test


def pytest_sessionstart(session: pytest.Session) -> None:
    _FOUND.clear()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print and write the report of communication that the options ask for, beside that of the last
    run.
    """
    wanted, file = config.getoption("--comm-report"), config.getoption("--comm-report-file")
    if not (wanted or file) or hasattr(config, "workerinput"):       # its parent reports
        return
    cache = getattr(config, "cache", None)
    before = cache.get(_CACHED, {}) if cache is not None else {}
    work = _work()
    rows = work.rows(_FOUND, before)
    if wanted:
        terminalreporter.section("communication")
        for line in work.report_lines(rows):
            terminalreporter.write_line(line)
    if file:
        with open(file, "a" if file == work.step_summary() else "w", encoding="utf-8") as out:
            out.write(work.markdown(rows))
    if cache is not None:
        cache.set(_CACHED, {**before, **_FOUND})
