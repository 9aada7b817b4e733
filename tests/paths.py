"""Where tests find the repository's files, from whichever folder they lie in."""
import pathlib

TESTS = pathlib.Path(__file__).parent
ROOT = TESTS.parent
GOLDEN = TESTS / "golden"
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
