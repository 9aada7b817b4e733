"""The name of a test states the fact that it proves, which takes at least three words."""
import re

from ..paths import ROOT

NAMED = re.compile(r"^(?:    )?(?:async )?def test_(\w+)", re.MULTILINE)


def test_the_name_of_a_test_has_at_least_three_words():
    short = [f"{path.relative_to(ROOT)}: test_{name}"
             for path in sorted((ROOT / "tests").rglob("test_*.py"))
             for name in NAMED.findall(path.read_text()) if name.count("_") < 2]
    assert not short, "\n".join(short)
