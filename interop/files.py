"""Tells the user's own files from those of libraries."""
from __future__ import annotations

import os
import sysconfig

from ..ir.support.caches import cached

_PLACES = tuple([os.path.realpath(path) + os.sep for path in (
    *map(sysconfig.get_path, ("purelib", "platlib", "stdlib")), os.path.dirname(__file__))])


@cached(4096)
def is_library(file: str) -> bool:
    """Is a file installed, a part of Python, or one of these, rather than the user's own?"""
    return (file.startswith("<frozen") or "/site-packages/" in file
            or os.path.realpath(file).startswith(_PLACES))
