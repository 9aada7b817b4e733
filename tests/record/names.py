"""Record the public names of JAX into tests/golden/public_names.txt, and those of its other
modules into public_modules.txt, for docs/coverage.md.

    ORACLE -m tests.record.names          ORACLE: a Python with jax 0.10.2

One line a name: module, name, kind (function, class, value, module, primitive).
"""
from __future__ import annotations

import os
import warnings

os.environ["JAX_PLATFORMS"] = "cpu"
warnings.simplefilter("ignore")

from ..repository import coverage_of_names as coverage  # noqa: E402 - the folder is added above

if __name__ == "__main__":
    rows = [f"{module}\t{name}\t{kind}\n" for module in coverage.MODULES
            for name, kind in coverage.public_names("jax", module)]
    coverage.TABLE.write_text("".join(rows))
    print(len(rows), "names")
    others = [f"{module}\t{','.join(coverage.defined_names('jax', module))}\n"
              for module in coverage.all_modules("jax") if module not in coverage.MODULES]
    coverage.OTHERS.write_text("".join(others))
    print(len(others), "other modules")
