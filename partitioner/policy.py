"""Policies: the choices inside of passes in which XLA's plans differ from ours, one field each.

A pass that only one kind of plan goes through says so itself (`Pass.plans` in passes.py), and each
kind has a search for strategies of its own (choice/lookahead.py, choice/xla/). The stages that both
go through ask the policy.
"""
from __future__ import annotations

from collections.abc import Mapping

from ..ir.op import Op
from ..ir.ops.communication.collective import all_gather_invariant_p, all_to_all_p, ppermute_p
from ..ir.support.environment import OBJECTIVES
from ..ir.support.named_tuple import NamedTuple

_NO_OPS: frozenset[Op] = frozenset()


class Policy(NamedTuple):
    """The choices of one kind of plan. plans: its name in `Pass.plans`.

    pads_strides: odd sizes of windows more than one row apart are padded, too. masks_always:
    padding is masked where an op would see it, even if it is known to have no effect. splits_few:
    dimensions of fewer rows than devices, though not of one, are padded, too.
    gathers_padded_indices: padded indices at which something is written are gathered, and padded
    anew. joins_across: rows that axes do not divide are joined while another dimension is split.
    keeps_padded_arguments: an argument that is padded inside is laid out as without padding.
    requests_first: what is asked of results reaches what they are made of before anything else
    does. loops_as_results: what a loop carries and stacks has the layout of its result inside of
    it, as in Shardy. halos_by_permutes: rows of other devices come by permutations, even if these
    move more. copies_groups: values are copied inside of groups of devices before they change
    layouts. sums_by_dimension: partial results are reduced over the axes of one dimension after
    another. repeated: exchanges that are not merged with equal ones. combines_sums: all-reduces are
    combined, however large, and nothing else. breadth_first: devices run equations in breadth-first
    order, from which the peak of memory follows.
    """
    plans: str
    pads_strides: bool = True
    masks_always: bool = False
    splits_few: bool = False
    gathers_padded_indices: bool = False
    joins_across: bool = False
    keeps_padded_arguments: bool = False
    requests_first: bool = False
    loops_as_results: bool = False
    halos_by_permutes: bool = False
    copies_groups: bool = False
    sums_by_dimension: bool = False
    repeated: frozenset[Op] = _NO_OPS
    combines_sums: bool = False
    breadth_first: bool = False


OWN = Policy("own")
XLA = Policy(
    "xla", pads_strides=False, masks_always=True, splits_few=True, gathers_padded_indices=True,
    joins_across=True, keeps_padded_arguments=True, requests_first=True, loops_as_results=True,
    halos_by_permutes=True, copies_groups=True, sums_by_dimension=True, combines_sums=True,
    breadth_first=True,
    repeated=frozenset((all_gather_invariant_p, all_to_all_p, ppermute_p)))     # each has a channel

TRIED = XLA._replace(splits_few=False, gathers_padded_indices=False, joins_across=False,
                     repeated=_NO_OPS)
"""XLA's for a plan that is tried for another objective: without what never makes it shorter."""

POLICIES: Mapping[str, Policy] = {**dict.fromkeys(OBJECTIVES, OWN), "xla": XLA}
"""By the name of the objective."""
