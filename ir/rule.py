"""Factor rules: which dimensions of an op's operands and results are the same thing.

A rule abstracts an equation as an einsum over *factors*. Each dimension of each operand and result
is a list of factors, major to minor; equal factors correspond:

    i k, k j -> i j | k:sum            a matrix product; `k` is summed
    (i j) k -> i j k                   a reshape: one dimension is two factors
    ..., ... -> ...                    elementwise: one factor a dimension
    b k -> b k | k!:replicate          a sort along k, through which no sharding flows

The kind after `|` says what the op does along a factor, hence what it costs to shard it; without
one a factor passes through. `1` is a dimension of size one (no factor), `!` a blocked factor.
From this one string come Auto propagation in both directions, which shardings an equation can
accept, the collectives of its lowering, batching and cost. After Shardy's op sharding rules
(github.com/openxla/shardy, docs/propagation.md).
"""
from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Dim = tuple[int, ...]            # factors of a dimension, major to minor; () for size one
Map = tuple[Dim, ...]            # the dimensions of one operand or result

PASS, REDUCE, HALO, REPLICATE, SCAN, INDEXED, ORDERED = (
    "pass", "reduce", "halo", "replicate", "scan", "indexed", "ordered")
KINDS = (PASS, REDUCE, HALO, REPLICATE, SCAN, INDEXED, ORDERED)
REDUCERS = ("sum", "max", "min", "prod", "and", "or", "xor", "argmax", "argmin")


@dataclass(frozen=True)
class Factor:
    """One factor: its name, size, kind, and for reductions and scans the combining operator.

    blocked: sharding must not flow along it, whatever its kind.
    offset, reach, stride, valid: of a halo factor; result position p (of a factor that is summed,
    position p of the kernel) reads `reach` source rows from p * stride + offset on, of which only
    rows valid[0] to valid[1] (not included) matter (None: all; operator "ring": the first row
    follows on the last). Without a reach there is no exchange of this form, and the factor may not
    stay split, but where the operator says how: "mirror" for blocks that change places, "joined"
    for operands one after the other.
    spread: source rows lie so far apart, with nothing in between.
    """
    name: str
    size: int
    kind: str = PASS
    operator: str = ""
    blocked: bool = False
    offset: int = 0
    reach: int = 0
    stride: int = 1
    valid: tuple[int, int] | None = None
    spread: int = 1

    @property
    def splittable(self) -> bool:
        """May the local op run with this factor sharded, its emitter or a reduction doing the rest?

        A scan exchanges totals, `indexed(sum)` leaves a pending sum of what each device owns, in
        `indexed(own)` each writes what it owns, `ordered(top)` merges the best of each block,
        `ordered(columns)` sorts blocks as columns.
        """
        if self.kind in (PASS, SCAN):
            return True
        if self.kind == HALO:
            return self.reach > 0 or self.operator in ("mirror", "joined")
        if self.kind == REDUCE:
            return True
        return (self.kind, self.operator) in (
            (INDEXED, "sum"), (INDEXED, "own"), (ORDERED, "top"), (ORDERED, "columns"))

    def splittable_over(self, devices: int) -> bool:
        """May it with the factor over so many devices, as far as its own size matters?

        Columns must be long enough (ops/column_sort.py).
        """
        if self.operator != "columns":
            return self.splittable
        rows, rest = divmod(self.size, devices)
        return not rest and not rows % devices and rows >= 2 * (devices - 1) ** 2

    @property
    def leaves_sum(self) -> bool:
        """Is the result a pending sum over the axes of this factor?"""
        return self.operator == "sum" and self.kind in (REDUCE, INDEXED)

    @property
    def reducer(self) -> str:
        """The monoid of the reduction that a split leaves to be done at once; "" for none."""
        bare = self.kind == REDUCE and self.operator not in ("sum", "argmax", "argmin")
        return self.operator if bare else ""


@dataclass(frozen=True)
class FactorRule:
    """Factors of every dimension of every operand and result; `factors[f]` describes factor f."""
    operands: tuple[Map, ...]
    results: tuple[Map, ...]
    factors: tuple[Factor, ...]
    memo: dict = field(default_factory=dict, compare=False, hash=False, repr=False)

    def carriers(self, f: int) -> tuple[tuple[int, int, int], ...]:
        """Where factor f occurs: (tensor, dim, position in the dim), operands, then results."""
        table = self.memo.get("carriers")
        if table is None:
            lists: list[list[tuple[int, int, int]]] = [[] for _ in self.factors]
            for t, dims in enumerate(self.operands + self.results):
                for d, factors in enumerate(dims):
                    for p, g in enumerate(factors):
                        lists[g].append((t, d, p))
            table = self.memo["carriers"] = tuple(tuple(x) for x in lists)
        return table[f]

    def __str__(self) -> str:
        def dim(d: Dim) -> str:
            if not d:
                return "1"
            names = " ".join(self.factors[f].name for f in d)
            return names if len(d) == 1 else f"({names})"

        def side(maps: tuple[Map, ...]) -> str:
            return ", ".join(" ".join(dim(d) for d in m) for m in maps)

        kinds = []
        for f in self.factors:
            if f.kind == PASS and not f.blocked:
                continue
            word = f.operator if f.kind == REDUCE else f.kind
            if f.kind == HALO and f.reach:
                stride = f.stride if f.spread == 1 else f"{f.stride}/{f.spread}"
                window = (f.offset, f.reach, stride, *(f.valid or ()))
                word += f"({','.join(map(str, (*window, *filter(None, [f.operator]))))})"
            elif f.reach:
                word += f"({f.offset},{f.reach},{f.stride})"
            elif f.operator and f.kind != REDUCE:
                word += f"({f.operator})"
            kinds.append(f"{f.name}{'!' if f.blocked else ''}:{word}")
        tail = " | " + " ".join(kinds) if kinds else ""
        return f"{side(self.operands)} -> {side(self.results)}{tail}"


class RuleError(ValueError):
    """A rule string that is malformed or does not fit the types it is applied to."""


_TOKEN = re.compile(r"\(|\)|\.\.\.|[A-Za-z_][A-Za-z_0-9]*|1|,")


@functools.cache
def _parse(text: str) -> tuple[Any, Any, dict[str, tuple[str, str, bool, tuple[Any, ...]]]]:
    """Rule text -> (operand maps, result maps, kinds), factors still by name."""
    body, _, kind_text = text.partition("|")
    left, arrow, right = body.partition("->")
    if not arrow:
        raise RuleError(f"rule {text!r} has no `->`")
    kinds = {}
    for item in kind_text.split():
        name, colon, word = item.partition(":")
        blocked = name.endswith("!")
        name = name.rstrip("!")
        match = re.fullmatch(r"(\w+)(?:\(([^)]*)\))?", word) if colon else None
        if colon and not match:
            raise RuleError(f"kind {item!r} of rule {text!r}: write `factor:kind`")
        kind, argument = (match.group(1), match.group(2) or "") if match else (PASS, "")
        if kind in REDUCERS:
            kinds[name] = (REDUCE, kind, blocked, _window(argument))
        elif kind == HALO and argument and argument not in ("mirror", "joined"):
            ring = "ring" if argument.endswith(",ring") else ""
            kinds[name] = (HALO, ring, blocked, _window(argument.removesuffix(",ring")))
        elif kind in KINDS:
            kinds[name] = (kind, argument, blocked, ())
        else:
            raise RuleError(f"unknown kind {kind!r} in rule {text!r}; one of "
                            f"{', '.join(KINDS + REDUCERS)}")
    return _parse_side(left, text), _parse_side(right, text), kinds


def _window(text: str) -> tuple[Any, ...]:
    """`offset,reach,stride[/spread][,first,last]` as offset, reach, stride, valid, spread."""
    if not text:
        return ()
    offset, reach, stride, *valid = text.split(",")
    stride, _, spread = stride.partition("/")
    return (int(offset), int(reach), int(stride), tuple(map(int, valid)) or None, int(spread or 1))


def _parse_side(side: str, text: str) -> tuple:
    maps: list[tuple] = []
    current: list[tuple[str, ...]] = []
    group: list[str] | None = None
    if _TOKEN.sub("", side).strip():
        raise RuleError(f"rule {text!r}: cannot read {_TOKEN.sub('', side).strip()!r}")
    for token in _TOKEN.findall(side):
        if token == ",":
            maps.append(tuple(current))
            current = []
        elif token == "(":
            if group is not None:
                raise RuleError(f"rule {text!r}: nested parentheses")
            group = []
        elif token == ")":
            if group is None:
                raise RuleError(f"rule {text!r}: unmatched `)`")
            current.append(tuple(group))
            group = None
        elif group is not None:
            group.append(token)
        else:
            current.append(() if token == "1" else (token,))
    if group is not None:
        raise RuleError(f"rule {text!r}: unmatched `(`")
    maps.append(tuple(current))
    return tuple(maps)


def make_rule(text: str, operand_shapes: Iterable[tuple[int, ...]],
              result_shapes: Iterable[tuple[int, ...]],
              sizes: Mapping[str, int] | None = None) -> FactorRule:
    """The rule `text` for operands and results of these shapes.

    sizes: of factors inside compound dimensions; those of plain dimensions are read off the shapes.
    `...` stands for as many dimensions as a tensor has beyond those written; it may be shorter for
    scalars (none). In elementwise rules an operand dimension of size 1 whose result is larger
    carries no factor. Raises RuleError where text and shapes do not fit.
    """
    return _build(text, tuple(operand_shapes), tuple(result_shapes),
                  tuple(sorted(sizes.items())) if sizes else ())


class _Pattern:
    """A rule text for operands and results of given ranks: all that does not hang on sizes.

    dims: per tensor and dimension, the factors there, as numbers; names: by number. single: per
    tensor, the dimensions that are one factor, as (dimension, factor).
    """

    __slots__ = ("dims", "kinds", "names", "single")

    def __init__(self, text: str, operands: tuple[int, ...], results: tuple[int, ...]) -> None:
        left, right, kinds = _parse(text)
        if len(operands) == 0 and left == ((),):
            left = ()
        if len(left) != len(operands) and len(left) == 1 and ("...",) in left[0]:
            left = left * len(operands)
        if len(left) != len(operands) or len(right) != len(results):
            raise RuleError(f"rule {text!r} has {len(left)} operands and {len(right)} results, "
                            f"the equation {len(operands)} and {len(results)}")
        order: dict[str, int] = {}
        tensors: list[Map] = []
        for pattern, rank in zip(left + right, operands + results, strict=True):
            dims: list[tuple[str, ...]] = []
            for d in pattern:
                if d == ("...",):
                    dims += [(f"d{i}",) for i in range(max(rank - (len(pattern) - 1), 0))]
                else:
                    dims.append(d)
            if len(dims) != rank:
                raise RuleError(f"rule {text!r}: {len(dims)} dimensions for shapes of rank {rank}")
            for d in dims:
                for name in d:
                    if name not in order:
                        order[name] = len(order)
            tensors.append(tuple([(order[d[0]],) if d and not d[1:] else
                                  tuple([order[name] for name in d]) for d in dims]))
        self.dims = tuple(tensors)
        self.names = tuple(order)
        plain = (PASS, "", False, ())
        self.kinds = tuple([kinds.get(name, plain) for name in order] if kinds
                           else [plain] * len(order))
        self.single = tuple([tuple([(i, d[0]) for i, d in enumerate(dims) if d and not d[1:]])
                             for dims in tensors])


_pattern = functools.lru_cache(maxsize=8192)(_Pattern)
_factor = functools.lru_cache(maxsize=65536)(Factor)


@functools.lru_cache(maxsize=65536)
def _build(text: str, operand_shapes: tuple, result_shapes: tuple, given: tuple) -> FactorRule:
    pattern = _pattern(text, tuple(map(len, operand_shapes)), tuple(map(len, result_shapes)))
    shapes = operand_shapes + result_shapes
    sizes: list[int | None] = [None] * len(pattern.names)
    for single, shape in zip(pattern.single, shapes, strict=True):
        for d, f in single:
            n, before = shape[d], sizes[f]
            if before is None or n > before:
                sizes[f] = n
    if given:
        place = {name: f for f, name in enumerate(pattern.names)}
        for name, n in given:
            if name in place:
                sizes[place[name]] = n
    maps: list[Map] = []
    for dims, single, shape in zip(pattern.dims, pattern.single, shapes, strict=True):
        if 1 in shape:
            ones = [d for d, f in single if shape[d] == 1 and sizes[f] != 1]
            if ones:
                dims = tuple([() if d in ones else split for d, split in enumerate(dims)])
        maps.append(dims)
    factors = []
    for name, size, (kind, operator, blocked, window) in zip(pattern.names, sizes, pattern.kinds,
                                                             strict=True):
        if size is None:
            raise RuleError(f"rule {text!r}: the size of factor {name!r} is not known")
        if window:
            factors.append(_factor(name, size, kind, operator, blocked, *window))
        else:
            factors.append(_factor(name, size, kind, operator, blocked))
    n = len(operand_shapes)
    return FactorRule(tuple(maps[:n]), tuple(maps[n:]), tuple(factors))
