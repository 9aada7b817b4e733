"""Caches: results are kept for later calls, in every cache up to a bound.

`CACHES` is the table of all of them: what each holds, and its bound. `cached` memoises a function;
other tables are `Bounded` dicts, with a row of their own. `forget` empties those of modules; tables
that belong to an object (a jitted function, an op) go with it.
"""
from __future__ import annotations

import functools
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from .environment import read

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LIMIT = read("SHARDTRACE_CACHE_SIZE", sys.maxsize)


class Cache:
    """A row of the table. name: with its module. holds: what is in it, in words. most: entries of
    it, or of each where every object of a kind has its own. cache: the one of a module, or None.
    """

    __slots__ = ("cache", "holds", "most", "name")

    def __init__(self, name: str, holds: str, most: int, cache: Any = None) -> None:
        self.name, self.holds, self.most, self.cache = name, holds, min(most, LIMIT), cache
        CACHES[name] = self

    def __len__(self) -> int:
        """Entries of the one of a module."""
        info = getattr(self.cache, "cache_info", None)
        return info().currsize if info else len(self.cache or ())

    def forget(self) -> None:
        """Empty the one of a module."""
        if self.cache is not None:
            (getattr(self.cache, "cache_clear", None) or self.cache.clear)()


CACHES: dict[str, Cache] = {}
"""All caches by name; a module's are here when it is loaded."""


def cached(most: int, holds: str = "") -> Callable[[Callable[..., T]], _lru_cache_wrapper[T]]:
    """A decorator: the results for the `most` arguments used last are kept.

    holds: what these are; the first line of the function's docstring by default.
    """
    def decorate(f: Callable[..., T]) -> _lru_cache_wrapper[T]:
        found = functools.lru_cache(min(most, LIMIT))(f)
        Cache(f"{f.__module__.partition('.')[2]}.{f.__qualname__}",
              holds or (f.__doc__ or "").partition("\n")[0], most, found)
        return found
    return decorate


def in_memo(f: F) -> F:
    """A decorator: what a function makes of a program, or of a type, is kept in the `memo` of that,
    its first argument, by the others.
    """
    @functools.wraps(f)
    def remembering(thing: Any, *others: Any, **named: Any) -> Any:
        key = (f, *others, *named.items()) if named else (f, *others)
        memo = thing.memo
        found = memo.get(key)
        if found is None:
            found = memo[key] = f(thing, *others, **named)
        return found
    return remembering          # type: ignore[return-value]


class Bounded(dict[K, V], Generic[K, V]):
    """A dict that holds no more than its row of `CACHES` says: the oldest eighth makes room.

    What is there is found as quickly as in a dict. Threads may share one.
    """

    __slots__ = ()
    row: ClassVar[Cache]

    def __setitem__(self, key: K, value: V) -> None:
        most = self.row.most
        if len(self) >= most and key not in self:
            try:
                for old in list(islice(self, 1 + most // 8)):
                    self.pop(old, None)
            except RuntimeError:            # another thread added to it: the next one makes room
                pass
        dict.__setitem__(self, key, value)


B = TypeVar("B", bound=Bounded[Any, Any])


def tables(name: str, holds: str, most: int, kind: type[B] = Bounded) -> type[B]:
    """The class of the tables of a row: one for each object of a kind."""
    row = Cache(name, holds, most)
    return type(kind.__name__, (kind,), {"__slots__": (), "row": row})  # type: ignore[return-value]


def module_table(name: str, holds: str, most: int, kind: type[B] = Bounded) -> B:
    """A table of a module, as a row of its own. name: of the table, with its module."""
    made = tables(name, holds, most, kind)
    made.row.cache = found = made()
    return found


def forget(*names: str) -> None:
    """Empty the caches of modules with these names; without names, all of them."""
    for name in names or list(CACHES):
        CACHES[name].forget()


class ProgramCache:
    """A least-recently-used cache for what holds whole programs, bounded by their equations; safe
    for any number of threads.

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
