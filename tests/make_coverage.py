"""Write docs/coverage.md: which public names of JAX are here, and why the others are not.

    python tests/make_coverage.py

JAX's names are in tests/golden/public_names.txt (`tests/record_names.py`), the reasons in
`coverage_of_names.py`.
"""
from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import coverage_of_names as coverage

if __name__ == "__main__":
    coverage.DOCUMENT.write_text(coverage.document())
    print(coverage.DOCUMENT)
