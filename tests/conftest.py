"""Fixtures that all tests share: golden texts, executors, devices, settings; hypothesis profiles.

    pytest --update-golden          write what is printed now into tests/golden, then read the diff
    pytest --hypothesis-profile=thorough
"""
from __future__ import annotations

import difflib
import faulthandler
import gc
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

# Products here are small: further threads of the library of products would spin for nothing.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# JAX reads this when it is first asked for devices, in whichever test that is. What it compiles
# runs once, or twice: to optimize it takes longer, and so do the newer emitters of fused loops. On
# processors that compute with float16 themselves, and there alone, XLA joins products and sums.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8 "
                      "--xla_backend_optimization_level=0 "
                      "--xla_llvm_disable_expensive_passes=true "
                      "--xla_cpu_use_fusion_emitters=false "
                      "--xla_cpu_max_isa=AVX2")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import hypothesis
import pytest

from shardtrace.driver.caches import clear_caches
from shardtrace.ir.settings.context import config

from .executors import EXECUTORS, FURTHER
from .paths import GOLDEN

# Containers often ask for no bytecode: then each of the many processes that tests start compiles
# the package again, which takes longer than what most of them run, and pytest all test files.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

gc.disable()               # until all is collected

_MOST_WORKERS = 8          # each holds up to 2.5 GB
_LONGEST = 300.0           # seconds after which what hangs is ended
_EVERY = 60.0              # seconds after which that time begins anew, with the next test
_began = -math.inf         # when it began

hypothesis.settings.register_profile("quick", max_examples=25, deadline=None)
hypothesis.settings.register_profile("thorough", max_examples=1000, deadline=None)
hypothesis.settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=["jax", "mpi"],
                     help="run programs of both executors on it, too")
    parser.addoption("--update-golden", action="store_true", help="accept the texts printed now")


def pytest_configure(config: pytest.Config) -> None:
    global _stderr
    FURTHER[:] = filter(None, [config.option.engine])
    _stderr = os.dup(2)             # where nothing is captured yet


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """What hangs is ended and named, with what each of its threads was doing. As pytest's own
    `faulthandler_timeout`, which ends a thread and starts one for each test: many take less.
    """
    global _began
    if time.monotonic() > _began + _EVERY:
        _began = time.monotonic()
        faulthandler.dump_traceback_later(_LONGEST, exit=True, file=_stderr)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many processes run the tests: one for each processor, and no further one (0) where some
    tests are named or picked, which starts sooner. `-n 4` and `-n 0` say otherwise.
    """
    if config.option.file_or_dir or config.option.keyword or config.getoption("--update-golden"):
        return 0
    return min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity")
               else os.cpu_count() or 1, _MOST_WORKERS)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A failure is reported at once, not when all have run, which they do not where one hangs."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.nodeid} failed:\n{report.longreprtext}", file=sys.__stderr__, flush=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that look through all objects come first, while there are few; then those with most
    tests, which leaves short ones for the end.
    """
    tests = Counter(item.path for item in items)
    first = {item.path for item in items
             if "only_own_objects" in getattr(item, "fixturenames", ())}
    items.sort(key=lambda item: (item.path not in first, -tests[item.path]))


def pytest_collection_finish() -> None:
    """What is collected lives until the end: the garbage collector need not walk through it.

    Nor through all that a test makes while it makes it: of that most goes with the last reference.
    """
    gc.set_threshold(12_000_000, 5, 5)
    gc.enable()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Python looks through all objects again as it ends, which takes seconds, for nothing."""
    faulthandler.cancel_dump_traceback_later()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _what_earlier_files_left_is_set_aside() -> None:
    """So that no collection looks through it: to find what of it is in cycles, which is less than a
    tenth, would take a tenth of the time of the tests.
    """
    gc.freeze()


@pytest.fixture(scope="module")
def empty_caches() -> None:
    """What earlier files left would make room while calls are counted, where a cache is full."""
    clear_caches()


@pytest.fixture(scope="module")
def only_own_objects() -> None:
    """Full collections look at what the file's tests made alone, and `gc.get_objects` has no other.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("name.txt", text)`: text must equal tests/golden/name.txt."""
    update = request.config.getoption("--update-golden")

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            return
        assert path.exists(), f"{path} is missing; run pytest --update-golden and read it"
        kept = path.read_text()
        if kept != text:
            diff = difflib.unified_diff(kept.splitlines(), text.splitlines(), "golden", "now", "")
            pytest.fail("\n".join(diff), pytrace=False)

    return check


@pytest.fixture(params=EXECUTORS)
def executor(request: pytest.FixtureRequest) -> Iterator[str]:
    """The executor that runs what the test jits: one after the other."""
    with config.override(shardtrace_engine=request.param):
        yield request.param


@pytest.fixture
def by_bytes() -> Iterator[None]:
    """Plans are judged by the bytes that a device receives."""
    with config.override(shardtrace_objective="bytes"):
        yield


@pytest.fixture
def by_time() -> Iterator[None]:
    """Plans are judged by the time of a step, also where the folder's tests judge by bytes."""
    with config.override(shardtrace_objective="time"):
        yield


@pytest.fixture
def eight_devices() -> Iterator[None]:
    """Eight simulated devices, whatever the environment says."""
    with config.override(jax_num_cpu_devices=8):
        yield


@pytest.fixture
def kept_config() -> Iterator[None]:
    """Settings that the test updates are afterwards what they were."""
    values = dict(config._values)
    yield
    config._values.clear()
    config._values.update(values)
