"""Write docs/coverage.md: which public names of JAX are here, and why the others are not.

    python -m tests.repository.make_coverage

JAX's names are in tests/golden/public_names.txt (`tests/record/names.py`), the reasons in
`coverage_of_names.py`.
"""
from __future__ import annotations

from . import coverage_of_names as coverage

if __name__ == "__main__":
    coverage.DOCUMENT.write_text(coverage.document())
    print(coverage.DOCUMENT)
