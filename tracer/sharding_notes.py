"""Paragraphs for docstrings: what becomes of an operand's sharding in each mode of axes.

`@sharding_notes.reduction` puts the paragraph on reductions into a function's docstring, in front
of its example. Each paragraph is written once, for all functions with the same rule; the decorators
change nothing but the docstring.
"""
from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# Since Python 3.13 the compiler takes the indentation out of docstrings.
INDENT = "" if sys.version_info >= (3, 13) else "    "
EXAMPLE = f"\n\n{INDENT}>>> "


def with_example(doc: str, call: str = "", *prints: str) -> str:
    """A docstring made at run time: a text of one line, an example's call and what it prints."""
    if not call:
        return doc
    return "\n".join((f"{doc}{EXAMPLE}{call}", *(INDENT + line for line in prints)))


class _Note:
    """A paragraph with a sentence for each mode; called, a decorator that puts it in place."""

    __slots__ = ("text",)

    def __init__(self, auto: str, explicit: str, manual: str) -> None:
        lines = ["Sharding"]
        for mode, said in (("Auto", auto), ("Explicit", explicit), ("Manual", manual)):
            lines.extend(("  " if i == 0 else "    ") + line
                         for i, line in enumerate(f"{mode}: {said}".split("\n")))
        self.text = "\n\n" + "\n".join(INDENT + line for line in lines)

    def __call__(self, f: F) -> F:
        if f.__doc__:
            said, mark, example = f.__doc__.partition(EXAMPLE)
            f.__doc__ = f"{said.rstrip()}{self.text}{mark}{example}"
        return f


elementwise = _Note(
    "operands that are laid out alike are combined block by block, without communication;\n"
    "the partitioner moves those that are not.",
    "each dimension of the result is split as it is in the operands; an operand may also be\n"
    "whole there. Two different splits raise ShardingTypeError: `reshard` one of the operands.",
    "works on each device's block; the result varies over the axes that an operand varies over.")

equal = _Note(
    "operands that are laid out alike are combined block by block, without communication;\n"
    "the partitioner moves those that are not.",
    "the operands must be split alike, and the result is too; otherwise ShardingTypeError.\n"
    "Scalars go with anything.",
    "works on each device's block; the result varies over the axes that an operand varies over.")

reduction = _Note(
    "where a reduced dimension is split, each device reduces its block and a collective (an\n"
    "all-reduce, for a sum) combines the parts.",
    "the axes of the reduced dimensions disappear from the type and the others stay; a\n"
    "collective combines the parts.",
    "each device reduces its own block only; `lax.psum`, `lax.pmax` or `lax.pmin` combines them.")

ordered = _Note(
    "along a dimension that is split the devices exchange what they need; along a whole one\n"
    "nothing is communicated.",
    "the dimension it works along must be whole, else ShardingTypeError; `reshard` first. The\n"
    "other dimensions stay split as they are.",
    "works within each device's block.")

blockwise = _Note(
    "dimensions of which each index is treated alone may be split freely; along the others\n"
    "the partitioner inserts the collectives that are needed.",
    "the result has the shape and the sharding of the operand; along a dimension over which\n"
    "it combines elements a split is allowed, and costs a collective.",
    "works on each device's block alone.")

product = _Note(
    "where a contracted dimension is split, each device multiplies its blocks, and an\n"
    "all-reduce or reduce-scatter adds the partial sums.",
    "the result's dimensions are split as they are in the operands. If the contracted\n"
    "dimension is split in both, the result is ambiguous: ShardingTypeError, unless\n"
    "`out_sharding` is given. `P(...)` adds the partial sums, `P(..., unreduced={'x'})` keeps\n"
    "them.",
    "multiplies each device's blocks; over an axis that splits the contracted dimension the\n"
    "results are partial sums, for `lax.psum` to add.")

closed_product = _Note(
    "where a contracted dimension is split, each device multiplies its blocks, and an\n"
    "all-reduce or reduce-scatter adds the partial sums.",
    "the result's dimensions are split as they are in the operands. A contracted dimension\n"
    "that is split in both raises ShardingTypeError; `jnp.einsum` takes an `out_sharding`.",
    "multiplies each device's blocks; over an axis that splits the contracted dimension the\n"
    "results are partial sums, for `lax.psum` to add.")

rearranged = _Note(
    "the split moves along with the dimensions; nothing is communicated.",
    "each dimension stays split as it is, wherever it goes; new dimensions are whole.",
    "rearranges each device's block.")

reshaped = _Note(
    "a dimension stays split where the blocks allow it; otherwise it is gathered.",
    "the result's sharding is derived where only one answer is possible; otherwise say it with\n"
    "`out_sharding`, or get ShardingTypeError.",
    "reshapes each device's block: sizes are those of the block, not of the whole.")

joined = _Note(
    "nothing is communicated unless the joined dimension is split; then devices exchange rows.",
    "all arrays must be split alike, else ShardingTypeError; so is the result, also along the\n"
    "joined dimension.",
    "joins the blocks that each device has.")

cut = _Note(
    "nothing is communicated unless the dimension is split; then devices exchange rows.",
    "a dimension that is split stays split, and must be cut to sizes that its axes divide, else\n"
    "ShardingTypeError.",
    "cuts each device's block; positions count within it.")

moved = _Note(
    "nothing is communicated unless the dimension is split; then devices exchange rows.",
    "the result is split as the operand is; a split dimension must be cut or padded to sizes\n"
    "that its axes divide, else ShardingTypeError.",
    "works within each device's block; nothing crosses to a neighbour.")

indexed = _Note(
    "a dimension that is indexed may be split; the devices that hold an element pass it on by a\n"
    "collective.",
    "a dimension that is indexed must be whole, else ShardingTypeError; the others stay split.\n"
    "`x.at[i].get(out_sharding=...)` also indexes split dimensions.",
    "indexes each device's block; positions count within it.")

created = _Note(
    "the partitioner chooses the layout from the uses; each device makes its own block.",
    "whole on every device, unless `out_sharding` says otherwise.",
    "every device makes the same array of this shape: it varies over no axis (`lax.pcast` makes\n"
    "it varying where a loop's carry must be). `out_sharding` takes Explicit axes only.")

made = _Note(
    "the partitioner chooses the layout from the uses; each device makes its own block.",
    "whole on every device; `reshard` splits it.",
    "every device makes the same array of this shape: it varies over no axis.")

alike = _Note(
    "outside `jit` laid out as `a` is; inside, the partitioner chooses from the uses.",
    "split as `a` is, unless `shape` or `out_sharding` is given.",
    "the shape is that of `a`'s block, and it varies over the axes that `a` varies over.")

drawn = _Note(
    "each device draws its own block. The numbers depend on the key alone, not on the layout.",
    "whole on every device, unless `out_sharding` says otherwise; the numbers are the same.",
    "each device draws an array of this shape from the key it has: the same numbers everywhere,\n"
    "unless the key varies, as `fold_in(key, lax.axis_index('x'))` does.")

collective = _Note(
    "an error outside of `shard_map`: the partitioner itself inserts the collectives.",
    "an error outside of `shard_map`: there `reshard` and `out_sharding` move values.",
    "for use inside `shard_map` over its axes (or over the `axis_name` of a `vmap`).")

transformed = _Note(
    "the partitioner lays out the derivative as it does any other computation.",
    "a gradient is split as its argument is. Where the argument is whole and the data are\n"
    "split, a collective adds the devices' shares.",
    "differentiates each device's part. The gradient by a value that does not vary over an axis\n"
    "is summed over that axis, so that it does not vary either.")
