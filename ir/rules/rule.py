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

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from ..support.caches import cached
from .factor import HALO, INDEXED, PASS, REDUCE, Factor, Kind, Split, fields_text
from .parse import RuleError, parse_rule

Dim = tuple[int, ...]            # factors of a dimension, major to minor; () for size one
Map = tuple[Dim, ...]            # the dimensions of one operand or result

_RULE = ("operands", "results", "factors")
_of_rule = attrgetter(*_RULE)


class FactorRule:
    """Factors of every dimension of every operand and result; `factors[f]` describes factor f.

    pattern: what it shares with the rules that differ from it in sizes alone; None for a rule that
    was not made of one. info, memo: what others know of the rule.
    """

    __slots__ = ("factors", "info", "memo", "operands", "pattern", "results")

    def __init__(self, operands: tuple[Map, ...], results: tuple[Map, ...],
                 factors: tuple[Factor, ...], pattern: Pattern | None = None) -> None:
        self.operands, self.results, self.factors = operands, results, factors
        self.pattern = pattern
        self.info: Any = None
        self.memo: dict = {}

    def __eq__(self, other: object) -> bool:
        return _of_rule(self) == _of_rule(other) if type(other) is FactorRule else NotImplemented

    def __hash__(self) -> int:
        return hash(_of_rule(self))

    def __repr__(self) -> str:
        return fields_text(self, _RULE)

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

    def without_sums(self) -> FactorRule:
        """The rule for values that cannot be added up: look-ups take whole dimensions.
        """
        return FactorRule(self.operands, self.results, tuple([
            Factor(f.name, f.size, INDEXED, blocked=f.blocked)
            if f.kind == INDEXED and f.leaves_sum else f for f in self.factors]))

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


def make_rule(text: str, operand_shapes: Iterable[tuple[int, ...]],
              result_shapes: Iterable[tuple[int, ...]],
              sizes: Mapping[str, int] | None = None) -> FactorRule:
    """The rule `text` for operands and results of these shapes.

    sizes: of factors inside compound dimensions; those of plain dimensions are read off the shapes.
    `...` stands for as many dimensions as a tensor has beyond those written; it may be shorter for
    scalars (none). In elementwise rules an operand dimension of size 1 whose result is larger
    carries no factor. Raises RuleError where text and shapes do not fit.
    """
    operands, results = tuple(operand_shapes), tuple(result_shapes)
    if sizes is None:
        return rule_of_text(text, operands, results)
    return _pattern(text, tuple(map(len, operands)), tuple(map(len, results))).rule(
        operands, results, sizes)


@cached(4096)
def rule_of_text(text: str, operands: tuple, results: tuple) -> FactorRule:
    """`make_rule` where all sizes are read off the shapes, which are in tuples."""
    ranks = tuple(map(len, operands)), tuple(map(len, results))
    if text == ELEMENTWISE and len(results) == 1:
        return _elementwise(*ranks).rule(operands, results)
    return _pattern(text, *ranks).rule(operands, results)


PLAIN: Kind = (PASS, "", False, ())
SUMMED: Kind = (REDUCE, "sum", False, ())
_NO_KINDS: dict[str, Kind] = {}
_NO_SIZES: dict[str, int] = {}


class Pattern:
    """All of a rule that does not depend on sizes, for operands and results of given ranks.

    operands, results: their dimensions, with factors as numbers in the order of first appearance;
    dims: of both. names, kinds: of the factors. plain: whether all pass through and none is
    blocked. memo: what others know of rules made of it.
    """

    __slots__ = ("_whole", "dims", "kinds", "memo", "names", "operands", "plain", "ranks",
                 "results")

    def __init__(self, operands: Sequence[Sequence[Split]], results: Sequence[Sequence[Split]],
                 kinds: Mapping[str, Kind] = _NO_KINDS) -> None:
        order: dict[str, int] = {}
        for dims in (*operands, *results):
            for split in dims:
                for name in (split,) if split.__class__ is str else split:  # type: ignore
                    if name not in order:
                        order[name] = len(order)   # type: ignore[index]
        self._set(tuple([tuple([
            (order[split],) if split.__class__ is str else                   # type: ignore
            tuple([order[name] for name in split]) if split else () for split in dims])
            for dims in (*operands, *results)]), len(operands), tuple(order), kinds)

    def _set(self, dims: tuple[Map, ...], operands: int, names: tuple[str, ...],
             kinds: Mapping[str, Kind]) -> None:
        """Set what follows from dimensions, names and kinds."""
        self.dims, self.names = dims, names
        self.operands, self.results = dims[:operands], dims[operands:]
        self.ranks = tuple(map(len, dims))
        self.plain = not kinds
        self.kinds = (tuple([kinds[n] if n in kinds else PLAIN for n in names]) if kinds
                      else (PLAIN,) * len(names))
        self.memo: dict[Any, Any] = {}
        self._whole: dict[tuple[Map, ...], Pattern] = {}

    def rule(self, operand_shapes: tuple, result_shapes: tuple,
             given: Mapping[str, int] = _NO_SIZES) -> FactorRule:
        """The rule for these shapes. given: sizes of factors inside compound dimensions."""
        shapes = operand_shapes + result_shapes
        if tuple(map(len, shapes)) != self.ranks:
            raise RuleError(f"a rule for ranks {self.ranks} does not fit shapes {shapes}")
        sizes: list[int] = [-1] * len(self.names)
        ones = False
        for dims, shape in zip(self.dims, shapes, strict=True):
            for split, n in zip(dims, shape, strict=True):
                if split and not split[1:]:
                    f = split[0]
                    if n > sizes[f]:
                        if sizes[f]:                # of 1 beside 0 nothing is left
                            sizes[f] = n
                    elif not n:
                        sizes[f] = 0
                    ones = ones or n == 1
        if given:
            sizes = [given.get(name, n) for name, n in zip(self.names, sizes, strict=True)]
        if -1 in sizes:
            raise RuleError(f"rule {self}: the size of factor {self.names[sizes.index(-1)]!r} is "
                            "not known")
        factors = tuple([
            _factor(name, size) if kind is PLAIN else _factor(name, size, *kind[:3], *kind[3])
            for name, size, kind in zip(self.names, sizes, self.kinds, strict=True)])
        pattern = self._without_ones(shapes, sizes) if ones else self
        return FactorRule(pattern.operands, pattern.results, factors, pattern)

    def _without_ones(self, shapes: tuple, sizes: Sequence[int]) -> Pattern:
        """Dimensions of size one along which other tensors are longer carry no factor."""
        dims = tuple([tuple([() if n == 1 and split and not split[1:] and sizes[split[0]] != 1
                             else split for split, n in zip(dims, shape, strict=True)])
                      for dims, shape in zip(self.dims, shapes, strict=True)])
        if dims == self.dims:
            return self
        found = self._whole.get(dims)
        if found is None:
            found = self._whole[dims] = Pattern.__new__(Pattern)
            found._set(dims, len(self.operands), self.names,
                       {} if self.plain else dict(zip(self.names, self.kinds, strict=True)))
        return found

    def __str__(self) -> str:
        factors = [_factor(name, 1, *kind[:3], *kind[3])
                   for name, kind in zip(self.names, self.kinds, strict=True)]
        return repr(str(FactorRule(self.operands, self.results, tuple(factors))))


ELEMENTWISE = "... -> ..."


@cached(4096)
def _elementwise(operands: tuple[int, ...], results: tuple[int, ...]) -> Pattern:
    """The pattern of one factor a dimension, for tensors of these ranks."""
    pattern = Pattern.__new__(Pattern)
    names = max(operands + results)
    pattern._set(tuple([_each(rank) for rank in operands + results]), len(operands),
                 tuple([f"d{d}" for d in range(names)]), _NO_KINDS)
    return pattern


@cached(1024, "maps from each dimension to itself")
def _each(rank: int) -> Map:
    return tuple([(d,) for d in range(rank)])


@cached(4096)
def _pattern(text: str, operands: tuple[int, ...], results: tuple[int, ...]) -> Pattern:
    """The pattern that a text gives for operands and results of these ranks."""
    left, right, kinds = parse_rule(text)
    if len(operands) == 0 and left == ((),):
        left = ()
    if len(results) == 0 and right == ((),):
        right = right[1:]
    if len(left) != len(operands) and len(left) == 1 and "..." in left[0]:
        left = left * len(operands)
    if len(left) != len(operands) or len(right) != len(results):
        raise RuleError(f"rule {text!r} has {len(left)} operands and {len(right)} results, "
                        f"the equation {len(operands)} and {len(results)}")
    tensors: list[list[Split]] = []
    for t, (written, rank) in enumerate(zip(left + right, operands + results, strict=True)):
        dims: list[Split] = []
        for d in written:
            if d == "...":
                dims += [f"d{i}" for i in range(max(rank - (len(written) - 1), 0))]
            else:
                dims.append(d)
        if len(dims) != rank:
            which = f"operand {t}" if t < len(left) else f"result {t - len(left)}"
            raise RuleError(f"rule {text!r}: {which} has {len(dims)} dimensions for shapes of "
                            f"rank {rank}")
        tensors.append(dims)
    return Pattern(tensors[:len(operands)], tensors[len(operands):], kinds)


_factor = cached(4096)(Factor)
