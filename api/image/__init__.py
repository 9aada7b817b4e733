"""Resizing of images, as in `jax.image`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.tracer.image import ResizeMethod, resize, scale_and_translate

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]
