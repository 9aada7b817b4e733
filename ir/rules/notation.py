"""Factor rules in Shardy's notation, translated to ours.

    ([i, k],[k, j])->([i, j]) {i=8, k=16, j=32} reduction={k}      Shardy
    i k, k j -> i j | k:sum                                        here

Between brackets a comma separates dimensions, and the factors of one are written side by side:
`[ij, k]` has a dimension of two factors. A factor is a letter, or one with a number (`z_1`).
"""
from __future__ import annotations

import re

from .parse import RuleError

_TENSOR = re.compile(r"\[([^\[\]]*)\]")
_FACTOR = re.compile(r"[A-Za-z](?:_\d+)?")
_SIZE = re.compile(rf"({_FACTOR.pattern})\s*=\s*(\d+)")
_SETS = {"reduction": "sum", "need_replication": "replicate", "permutation": "halo"}
_SET = re.compile(r"(\w+)\s*=\s*\{([^{}]*)\}")
_HEAD = re.compile(r"#sdy\.op_sharding_rule<(.*)>")


def rule_text(text: str) -> tuple[str, dict[str, int]]:
    """A rule in either notation as ours, and the sizes of factors that it says. Raises RuleError
    for one that begins like Shardy's and cannot be read.
    """
    body = text.strip()
    head = _HEAD.fullmatch(body)
    body = head[1].strip() if head else body
    if not body.startswith("(["):
        return text, {}
    left, arrow, rest = body.partition("->")
    close = rest.find(")")
    if not arrow or close < 0:
        raise RuleError(f"rule {text!r} has no `->` between operands and results in parentheses")
    right, rest = rest[:close + 1], rest[close + 1:]
    kinds, blocked = [], set()
    for name, factors in _SET.findall(rest):
        own = _FACTOR.findall(factors)
        if name == "blocked_propagation":
            blocked |= {*own}
        elif name in _SETS:
            kinds += [(f, _SETS[name]) for f in own]
        else:
            raise RuleError(f"rule {text!r}: there is no {name!r}, but {', '.join(_SETS)} and "
                            "blocked_propagation")
    rest = _SET.sub("", rest).replace("custom", "")
    sizes = {name: int(n) for name, n in _SIZE.findall(rest)}
    left_over = _SIZE.sub("", rest).strip(" {},")
    if left_over:
        raise RuleError(f"rule {text!r}: cannot read {left_over!r}")
    words = [f"{f}{'!' if f in blocked else ''}:{word}" for f, word in kinds]
    named = {f for f, _ in kinds}
    words += [f"{f}!:pass" for f in sorted(blocked - named)]
    tail = f" | {' '.join(words)}" if words else ""
    return f"{_side(left, text)} -> {_side(right, text)}{tail}", sizes


def _side(side: str, text: str) -> str:
    """One side of a rule of Shardy's, `([i, jk],[k])`, as a side of ours, `i (j k), k`."""
    tensors = []
    for inner in _TENSOR.findall(side):
        dims = []
        for dim in inner.split(",") if inner.strip() else ():
            factors = _FACTOR.findall(dim)
            if dim.strip() in ("...", "1"):
                dims.append(dim.strip())
            elif not factors or _FACTOR.sub("", dim).strip():
                raise RuleError(f"rule {text!r}: cannot read dimension {dim.strip()!r}")
            else:
                dims.append(factors[0] if len(factors) == 1 else f"({' '.join(factors)})")
        tensors.append(" ".join(dims))
    if _TENSOR.sub("", side).strip(" (),"):
        raise RuleError(f"rule {text!r}: cannot read {side.strip()!r}")
    return ", ".join(tensors)
