"""What `tests/record/signatures.py` and `test_signatures.py` share: signatures as text."""
from __future__ import annotations

import enum
import inspect
from typing import Any

from ..paths import GOLDEN

TABLE = GOLDEN / "signatures.txt"


def default(value: Any) -> str:
    """A default in the same words for both libraries."""
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    text = repr(value).split(" at 0x")[0]
    unset = text.endswith(" object") or text in ("<not-specified>", "UnspecifiedValue")
    return "None" if unset else text.rpartition("sharding.")[2]


def signature(f: Any) -> str | None:
    """Names, kinds and defaults of the parameters, without types; None for what tells none, and for
    enumerations, whose are Python's.
    """
    if isinstance(f, enum.EnumMeta):
        return None
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return None
    texts = []
    for p, before in zip(parameters, [None, *parameters], strict=False):
        name = f"{p.name}={default(p.default)}" if p.default is not p.empty else p.name
        if before is not None and before.kind is p.POSITIONAL_ONLY is not p.kind:
            texts.append("/")
        if p.kind is p.KEYWORD_ONLY and not (before and before.kind in (
                p.KEYWORD_ONLY, p.VAR_POSITIONAL)):
            texts.append("*")
        texts.append({p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "") + name)
    if parameters and parameters[-1].kind is inspect.Parameter.POSITIONAL_ONLY:
        texts.append("/")
    return ", ".join(texts)


def public(holder: Any, prefix: str) -> dict[str, str]:
    """Signatures of the public functions of a module or an object."""
    found = {}
    for name in dir(holder):
        if name.startswith("_") or name.endswith("_p"):
            continue
        try:
            value = getattr(holder, name)
        except Exception:
            continue
        if callable(value) and not inspect.ismodule(value):
            text = signature(value)
            if text is not None:
                found[f"{prefix}.{name}"] = text
    return found


def surface(package: Any) -> dict[str, str]:
    """All signatures of a package that are compared: jax's, or this one's."""
    jnp, lax, nn = package.numpy, package.lax, package.nn
    x = jnp.ones((2, 2))
    holders = {"jax": package, "random": package.random, "tree": package.tree,
               "tree_util": package.tree_util, "ops": package.ops, "jnp": jnp,
               "jnp.linalg": jnp.linalg, "jnp.fft": jnp.fft, "lax": lax,
               "lax.linalg": lax.linalg, "nn": nn, "nn.initializers": nn.initializers,
               "Array": x, "Array.at[]": x.at[0],
               "jnp.add": jnp.add, "jnp.logaddexp": jnp.logaddexp}
    found: dict[str, str] = {}
    for prefix, holder in holders.items():
        found.update(public(holder, prefix))
    return found


def recorded() -> dict[str, str]:
    """JAX's signatures."""
    rows = (row.split("\t") for row in TABLE.read_text().splitlines())
    return {row[0]: row[1] if len(row) > 1 else "" for row in rows}
