"""Lowering rules to MLIR: accepted, but never used, since nothing is lowered to MLIR."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["lower_fun", "register_lowering"]
_LOWERINGS: dict[Any, Any] = {}
_PLATFORMS = ("cpu", "cuda", "gpu", "rocm", "tpu")


def lower_fun(fun: Callable[..., Any], multiple_results: bool = True) -> Callable[..., Any]:
    """The rule to compute a primitive by `fun`: `fun` itself."""
    return fun


def register_lowering(prim: Any, rule: Any, platform: str | None = None, **_: Any) -> Any:
    """Keep the rule of a primitive. Raises NotImplementedError for a platform that JAX has not."""
    if platform is not None and platform not in _PLATFORMS:
        raise NotImplementedError(
            f"Registering an MLIR lowering rule for primitive {prim} for an unknown platform "
            f"{platform}. Known platforms are: {', '.join(_PLATFORMS)}.")
    _LOWERINGS[prim, platform] = rule
    return rule
