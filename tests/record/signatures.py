"""Record the signatures of JAX's functions into tests/golden/signatures.txt, for tests/tracer.

    ORACLE -m tests.record.signatures          ORACLE: a Python with jax 0.10.2
"""
from __future__ import annotations

import warnings

warnings.simplefilter("ignore")

import jax  # noqa: E402 - after the filter
import jax.lax.linalg  # noqa: E402

from ..tracer import signatures  # noqa: E402

if __name__ == "__main__":
    found = signatures.surface(jax)
    signatures.TABLE.write_text("".join(
        f"{name}\t{text}".rstrip() + "\n" for name, text in sorted(found.items())))
    print(len(found), "signatures")
