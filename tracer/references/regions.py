"""References as arguments of `shard_map`.

Each is split as its in_spec says: inside the region it is a reference to a block, and the blocks
that it holds at the end are an extra result, with that spec.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..staging.signature import function_name
from ..trees import tree
from .frames import BOXES
from .passing import named_references, passing
from .ref import AnyRef, inner_refs, last_values, references, refuse_result


def of_blocks(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call(region, args)`. The region gives specs of arguments, leaf by leaf (`leaf_specs`), and
    another region like it, of a function with further results (`with_results`)."""
    @functools.wraps(call)
    def wrapped(region: Any, args: tuple[Any, ...]) -> Any:
        places = references(tree.leaves(args)) if BOXES.data else []
        if not places:
            return call(region, args)
        leaves, treedef = tree.flatten(args)
        given = [leaves[i] for i in places]
        names = named_references(region.f, "shard_map", args)
        passed = passing(region.f, "shard_map", names)
        values = tree.unflatten(treedef, [x[...] if i in places else x
                                          for i, x in enumerate(leaves)])
        specs = region.leaf_specs(values)

        @functools.wraps(region.f)
        def pure(*blocks: Any) -> Any:
            inner = tree.leaves(blocks)
            refs = inner_refs([inner[i] for i in places], list(names.values()))
            for i, ref in zip(places, refs, strict=True):
                inner[i] = ref
            with passed:
                result = region.f(*tree.unflatten(treedef, inner))
            for x in tree.leaves(result):
                if isinstance(x, AnyRef):
                    refuse_result(function_name(region.f), x, "shard_map")
            return result, last_values(refs)

        result, blocks = region.with_results(pure, [specs[i] for i in places])(values)
        for ref, value in zip(given, blocks, strict=True):
            ref[...] = value
        return result

    return wrapped
