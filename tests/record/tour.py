"""Record what JAX prints for the tour and for the cells in tests/docs, into tests/golden.

    python -m tests.record.tour ORACLE [name ...]

ORACLE is a Python interpreter that has jax 0.10.2 and rich. Every file runs in a process of its
own, since the number of devices is fixed once the first array exists.
"""
from __future__ import annotations

import pathlib
import subprocess
import sys

from ..paths import EXAMPLES, GOLDEN, TESTS

TOUR = EXAMPLES / "sharding_tour.py"
OWN_PART = "# ## 6. Watching the types"


def record(oracle: str, source: pathlib.Path, target: pathlib.Path, *options: str) -> None:
    runner = TESTS / "docs" / "run_cells.py"
    command = [oracle, str(runner), str(source), "--library", "jax", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{source.name} failed under the oracle:\n{done.stderr}")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(done.stdout)
    print(f"{source.name}: {done.stdout.count('%% ')} cells")


def main(oracle: str, *names: str) -> None:
    if not names or "sharding_tour" in names:
        record(oracle, TOUR, GOLDEN / "sharding_tour.txt", "--until", OWN_PART)
    for source in sorted((TESTS / "docs" / "tour_cells").glob("*.py")):
        if not names or source.stem in names:
            record(oracle, source, GOLDEN / "tour_cells" / f"{source.stem}.txt")


if __name__ == "__main__":
    main(*sys.argv[1:])
