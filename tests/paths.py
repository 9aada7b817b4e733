"""Where tests find the repository's files, from whichever folder they lie in."""
import functools
import importlib
import pathlib
import sys
from types import ModuleType

TESTS = pathlib.Path(__file__).parent
ROOT = TESTS.parent
GOLDEN = TESTS / "golden"
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"


def module_of_benchmarks(name: str) -> ModuleType:
    """A module of benchmarks/. They import each other by name alone."""
    folder = str(ROOT / "benchmarks")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)


@functools.cache
def module_of_site(name: str) -> ModuleType:
    """A module of docs/site. They import each other by name alone, which nobody else should."""
    before = {*sys.modules}
    sys.path.insert(0, str(DOCS / "site"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)
        for other in {*sys.modules} - before:
            if str(getattr(sys.modules[other], "__file__", "")).startswith(str(DOCS / "site")):
                del sys.modules[other]
