"""Helpers over sequences (`safe_map`, `split_list`, ...) that interpreters of jaxprs import."""
from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["concatenate", "partition_list", "safe_map", "safe_zip", "split_list", "subvals",
           "unzip2", "unzip3", "wraps"]


def _equally_long(sequences: Sequence[Iterable[Any]]) -> list[list[Any]]:
    lists = [list(s) for s in sequences]
    for other in lists[1:]:
        assert len(other) == len(lists[0]), f"length mismatch: {[len(s) for s in lists]}"
    return lists


def safe_map(f: Callable[..., Any], *args: Iterable[Any]) -> list[Any]:
    """The list of `f` of the first items, of the second, and so on. AssertionError where one of
    the sequences is longer than another.
    """
    return list(map(f, *_equally_long(args)))


def safe_zip(*args: Iterable[Any]) -> list[tuple[Any, ...]]:
    """`zip` as a list. ValueError where one of the sequences is longer than another."""
    return list(zip(*args, strict=True))


def unzip2(pairs: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The first items of pairs, and the second ones."""
    rows = list(pairs)
    return tuple([a for a, _ in rows]), tuple([b for _, b in rows])


def unzip3(triples: Iterable[tuple[Any, Any, Any]]) -> tuple[tuple[Any, ...], ...]:
    """The first items of triples, the second ones, and the third."""
    rows = list(triples)
    return tuple(tuple([row[i] for row in rows]) for i in range(3))


def split_list(args: Sequence[Any], ns: Sequence[int]) -> list[list[Any]]:
    """Parts of a list, of these lengths, and what is left."""
    ends = [0, *itertools.accumulate(ns), len(args)]
    return [list(args[a:b]) for a, b in itertools.pairwise(ends)]


def partition_list(bs: Sequence[bool], l: Sequence[Any]     # noqa: E741 - JAX's name
                   ) -> tuple[list[Any], list[Any]]:
    """The items at which `bs` is false, and the others."""
    pairs = safe_zip(bs, l)
    return [x for b, x in pairs if not b], [x for b, x in pairs if b]


def concatenate(xs: Iterable[Sequence[Any]]) -> list[Any]:
    """The items of sequences, in one list."""
    return list(itertools.chain.from_iterable(xs))


def subvals(lst: Iterable[Any], replace: Iterable[tuple[int, Any]]) -> tuple[Any, ...]:
    """The items, with those at these positions replaced."""
    items = list(lst)
    for i, value in replace:
        items[i] = value
    return tuple(items)


def wraps(wrapped: Callable[..., Any], **_: Any) -> Callable[[Callable[..., Any]], Any]:
    """`functools.wraps`."""
    return functools.wraps(wrapped)
