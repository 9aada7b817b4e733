"""Overriding attributes within a `with` block: settings, meshes, observers of equations.

An interrupt may come between any two steps, also while a block is entered or left. What it leaves
changed is put back by the block's object as it goes, and by the outermost call of the package that
it passes (`put_back`).
"""
from __future__ import annotations

import contextlib
from typing import Any

_NOTHING = object()


class override(contextlib.ContextDecorator):
    """Within the block `place` has these attributes, then those that it had before.

    place: an object, or a `threading.local`: then it is changed for this thread. gives: what `as`
    names. What another block has changed since, and not put back, stays as it is.
    """

    __slots__ = ("_after", "_before", "_gives", "_where", "place")

    def __init__(self, place: Any, gives: Any = None, /, **after: Any) -> None:
        self._before: dict[str, Any] | None = None
        self.place, self._gives, self._after = place, gives, after

    def _recreate_cm(self) -> override:
        return override(self.place, self._gives, **self._after)

    def __enter__(self) -> Any:
        self._where = where = self.place.__dict__
        self._before = {name: where.get(name, _NOTHING) for name in self._after}
        where.update(self._after)
        return self._gives

    def __exit__(self, *exception: object) -> None:
        try:
            self._leave()
        except BaseException:
            self._leave()               # an interrupt may have come into the first
            raise

    def keep(self) -> None:
        """Let what was changed stay so."""
        self._before = None

    def _leave(self) -> None:
        before, where = self._before, self._where
        for name, value in before.items() if before is not None else ():
            if value is _NOTHING:
                where.pop(name, None)
            else:
                where[name] = value
        self._before = None

    def __del__(self) -> None:
        before = getattr(self, "_before", None)
        if before is not None and all(
                [self._where.get(name) is value for name, value in self._after.items()]):
            self._leave()
