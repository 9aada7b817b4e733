"""A least-recently-used cache for what holds whole programs, bounded by their equations."""
from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from .caches import Cache


class ProgramCache:
    """Values by key, least recently used first to go; safe for any number of threads.

    name, holds: in the table of caches. most: equations of all together. smallest: as how many a
    smaller thing counts. equations: how many there are.
    """

    def __init__(self, name: str, holds: str, most: int, smallest: int) -> None:
        row = Cache(name, f"{holds}; counted in equations", most, self)
        self.most, self.smallest = row.most, smallest
        self._lock = threading.RLock()
        self.things: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self.equations = 0

    def get(self, key: Hashable) -> Any:
        """The value of a key, marked as used; None if there is none."""
        with self._lock:
            found = self.things.get(key)
            if found is None:
                return None
            self.things.move_to_end(key)
            return found[0]

    def look(self, key: Hashable) -> Any:
        """The value of a key, not marked as used; None if there is none."""
        found = self.things.get(key)
        return None if found is None else found[0]

    def keep(self, key: Hashable, thing: Any, equations: int) -> None:
        """Store a value, unless it is too large or the key has one; older ones may be evicted."""
        count = max(self.smallest, equations)
        if count > self.most:
            return
        with self._lock:
            if key in self.things:
                return
            self.things[key] = thing, count
            self.equations += count
            while self.equations > self.most:
                _, (_, dropped) = self.things.popitem(last=False)
                self.equations -= dropped

    def __len__(self) -> int:
        return self.equations

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self.things.clear()
            self.equations = 0
