"""Write examples/sharding_tour.ipynb from examples/sharding_tour.py, with the printed results.

    python -m tests.docs.make_notebook

The script is the source; the notebook has the same cells; a test of
tests/repository fails where the two differ.
"""
from __future__ import annotations

import json

from ..paths import EXAMPLES
from . import run_cells

TOUR = EXAMPLES / "sharding_tour.py"


def notebook(text: str, outcomes: list[run_cells.Outcome]) -> dict:
    """The notebook's JSON: one cell for each `# %%` of the script, outputs as plain text."""
    results = iter(outcomes)
    cells = []
    for number, block in enumerate(text.split("# %%")[1:]):
        header, body = block.split("\n", 1)
        common = {"id": f"cell-{number:02}", "metadata": {}}
        if "[markdown]" in header:
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.strip().split("\n")]
            cells.append({"cell_type": "markdown", "source": _lines("\n".join(lines)), **common})
            continue
        output = next(results).output
        stream = {"name": "stdout", "output_type": "stream", "text": _lines(output)}
        cells.append({
            "cell_type": "code",
            "execution_count": None,
            "outputs": [stream] if output else [],
            "source": _lines(body.strip("\n")),
            **common,
        })
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    outcomes = run_cells.run_file(TOUR, "shardtrace")
    failed = [outcome for outcome in outcomes if outcome.error_classes]
    if failed:
        raise SystemExit(run_cells.render(failed))
    content = notebook(TOUR.read_text(), outcomes)
    TOUR.with_suffix(".ipynb").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
