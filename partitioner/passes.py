"""The passes from a traced program to the one that every device runs, in order."""
from __future__ import annotations

import math

from ..ir.facts import UNEVEN
from ..ir.meshes.mesh import AbstractMesh
from ..ir.op import names_with
from ..ir.ops.control.custom import CALLS
from ..ir.ops.control.loops_and_branches import REGIONS
from ..ir.ops.movement.slicing import slice_p
from ..ir.passes import Pass, pipeline, run_passes
from ..ir.program import Program
from ..ir.rewriting.inline import inline
from ..ir.rewriting.inside import inside
from ..ir.rewriting.pattern import needed
from ..ir.rewriting.rewrite import Rewrites
from ..ir.rewriting.unread import drop_dead
from ..ir.spec import PartitionSpec
from ..ir.support.lazy import lazy_import
from ..ir.support.named_tuple import NamedTuple
from .cost.prices import Objective, Prices
from .lowering.localize import localize
from .optimization.combine import COMBINED, combine, combine_as_xla
from .optimization.common_subexpressions import dedupe
from .optimization.hoist import hoist_invariants
from .optimization.multiplications import MULTIPLICATIONS
from .optimization.own_blocks import CUT_FIRST, FOLD_GATHERS, FORM_SCATTERS
from .optimization.rows_of_one import ROWS_OF_ONE
from .optimization.scatters_of_xla import SCATTERS_OF_XLA
from .optimization.shared_rows import share_rows
from .optimization.written_sums import WRITTEN_SUMS
from .policy import OWN, POLICIES, TRIED, XLA, Policy
from .preparation.checks import drop_checks
from .preparation.constants import split_constants
from .preparation.dead_code import drop_unread
from .preparation.identities import IDENTITIES, drop_identities
from .preparation.to_place import arrange, arrange_as_xla
from .preparation.uneven import pad_uneven
from .preparation.window_updates import REDUCE_SLICES
from .preparation.xla.derivatives import as_jax_derives
from .preparation.xla.lowering import broadcast_operands
from .preparation.xla.visit_order import in_visit_order
from .propagation.fully_specified import decide, is_decided
from .propagation.resolve import propagate
from .resharding.move_reshards import move_reshards
from .resharding.note_padding import note_padding
from .resharding.reshards import insert_reshards
from .resharding.routes import route_reshards

as_xla = lazy_import(".resharding.as_xla", __package__)
unit_axes = lazy_import(".preparation.unit_axes", __package__)


class PartitionRequest(NamedTuple):
    """The arguments of the pipeline besides the program; see `partition`.

    skip: names of passes to leave out; `optimize` stands for several. objective: what plans are
    judged by. keeps: the program carries the decisions of a frozen plan: no other plan is made, and
    reshards stay where they are. compared: the seconds of a step up to which several plans are made
    and the best taken. draft: the plan is only judged by what it costs: nothing is verified, and no
    reasons are given.
    """
    mesh: AbstractMesh
    in_shardings: tuple[PartitionSpec | None, ...]
    out_shardings: tuple[PartitionSpec | None, ...]
    objective: Objective
    skip: frozenset[str] = frozenset()
    keeps: bool = False
    compared: float = math.inf
    draft: bool = False

    def prices(self, program: Program) -> Prices:
        """The prices by which layouts of a program are chosen."""
        return self.objective.prices(program.mesh, self.keeps)

    @property
    def policy(self) -> Policy:
        """What plans for the objective do where there is a choice; of one that is tried for another
        objective, what makes it shorter.
        """
        name, judged_by = self.objective.name, self.objective.tried_for
        return TRIED if judged_by and name == "xla" else POLICIES[name]

    @property
    def left_out(self) -> frozenset[str]:
        """The names of all passes to leave out, including those that the objective or the mesh has
        no use for.
        """
        return self.skip.union(_OF_OTHERS[POLICIES[self.objective.name].plans],
                               _OPTIMIZING if "optimize" in self.skip else (),
                               _DECIDED if self.keeps else (),
                               () if 1 in self.mesh.axis_sizes else ("drop-unit-axes",))


def _inside_loops(program: Program, request: PartitionRequest) -> Program:
    """The program with nested programs taken through the passes from this one to the last before
    `combine`.
    """
    left_out = request.left_out
    return inside(program, lambda body: run_passes(SIMPLIFY, body, request, skip=left_out))


def _combined(program: Program, request: PartitionRequest) -> Program:
    program = inside(program, lambda body: _combined(body, request))
    objective = request.objective
    judged_by = objective.tried_for or objective.name
    if POLICIES[judged_by].combines_sums:
        return combine_as_xla(program)
    return combine(program, objective._replace(name="time").prices(program.mesh),
                   other_forms=judged_by == "time", as_xla=objective.name == "xla")


def _rewriting(name: str, rewrites: Rewrites, doc: str, plans: str = "", optimizes: bool = True
               ) -> Pass:
    """A pass of declared rewrites: it changes no program without ops that their patterns have."""
    ops = frozenset().union(*[needed(one.pattern) for one in rewrites.rewrites])
    return Pass(name, "optimized", lambda p, r: rewrites(p), doc, ops, plans=plans,
                optimizes=optimizes)


# XLA takes each equation by itself: it plans nothing ahead, and delays and rewrites nothing.
PREPARE = pipeline(
    Pass("drop-checks", "inlined", lambda p, r: drop_checks(p),
         "checks for debugging are not made; others have to be values of the program by now",
         frozenset({"check"}), inside=True, needed=True),
    Pass("inline", "inlined", lambda p, r: inline(p),
         "calls are replaced by what they call", CALLS, inside=True, needed=True),
    Pass("drop-unit-axes", "inlined", lambda p, r: unit_axes.drop_unit_axes(p),
         "mesh axes of one device split nothing, so that no layout names them"),
    Pass("drop-unread", "inlined", lambda p, r: drop_unread(p),
         "what nothing reads asks for no layout", decides=True),
    Pass("jax-derivatives", "inlined", lambda p, r: as_jax_derives(p),
         "slopes multiply in JAX's order, as each factor has a layout of its own",
         frozenset({"mul"}), inside=True, plans="xla", decides=True),
    Pass("drop-identities", "inlined", lambda p, r: drop_identities(p),
         "what changes nothing is not computed", IDENTITIES, inside=True),
    Pass("merge-slices", "inlined", lambda p, r: dedupe(p, p.ops - {slice_p}),
         "equal slices are one before they are split", plans="xla", decides=True),
    Pass("visit-order", "inlined", lambda p, r: in_visit_order(p),
         "equations come in the order in which XLA visits them, as conflicts are settled in order",
         plans="xla", decides=True),
    Pass("split-constants", "inlined", lambda p, r: split_constants(p),
         "what is computed from constants alone is computed once for each reader, in its layout",
         plans="xla", decides=True),
    Pass("broadcast-operands", "inlined", lambda p, r: broadcast_operands(p),
         "operands that elementwise equations repeat are repeated by equations of their own",
         plans="xla", decides=True),
    Pass("arrange", "inlined", lambda p, r: arrange(p),
         "concatenations and splits say how far rows are moved", plans="own",
         decides=True),
    Pass("arrange-as-xla", "inlined", lambda p, r: arrange_as_xla(p),
         "splits are slices; concatenations of an end and a beginning say how far rows are moved",
         plans="xla", decides=True),
    Pass("pad-uneven", "inlined",
         lambda p, r: pad_uneven(p, r.mesh, r.in_shardings, r.out_shardings,
                                 r.policy, r.objective.kept_rows),
         "dimensions that axes would split, but do not divide, are padded so that they do",
         names_with(UNEVEN), inside=True, decides=True),
)

# Each of these makes room for the next.
SIMPLIFY = pipeline(
    Pass("inside-loops", "optimized", _inside_loops,
         "programs of loops and branches have been through the passes that follow",
         REGIONS, inside=True, optimizes=True),
    Pass("hoist", "optimized", lambda p, r: hoist_invariants(p),
         "what a loop repeats on the same values, exchanges above all, is done once, before it",
         frozenset({"scan", "while"}), optimizes=True),
    _rewriting("multiply", MULTIPLICATIONS,
               "products that add nothing up are multiplications, which are fused"),
    _rewriting("write-into-sums", WRITTEN_SUMS,
               "what is added to sums that are written at indices is added before"),
    _rewriting("reduce-slices", REDUCE_SLICES,
               "what was masked before it is reduced is sliced where its dimension is not split",
               plans="own"),
    Pass("dedupe", "optimized",
         lambda p, r: dedupe(p, r.policy.repeated),
         "equal equations are computed once, and so their collectives done once", optimizes=True),
    _rewriting("fold-gathers", FOLD_GATHERS,
               "the own block of what was gathered along the same axes is the block itself",
               plans="own"),
    _rewriting("cut-first", CUT_FIRST, "blocks are cut out before they are transposed or scanned",
               plans="xla", optimizes=False),
    _rewriting("form-scatters", FORM_SCATTERS,
               "an all-reduce of which every device keeps its own block is a reduce-scatter, of "
               "what is not transposed yet", plans="own"),
    _rewriting("form-scatters-as-xla", SCATTERS_OF_XLA,
               "an all-reduce of which every device keeps its own block, and all of it, is a "
               "reduce-scatter", plans="xla", optimizes=False),
    _rewriting("rows-of-one", ROWS_OF_ONE,
               "rows that one device has are sent by it alone, to each the part that it wants",
               plans="own"),
    Pass("drop-dead", "optimized", lambda p, r: drop_dead(p),
         "what nothing reads is not computed", optimizes=True),
    Pass("share-rows", "optimized", lambda p, r: share_rows(p),
         "rows of one value that devices lack come in one exchange",
         frozenset({"exchange_rows"}), plans="own", optimizes=True),
)

PIPELINE = pipeline(
    *PREPARE,
    Pass("propagate", "resolved",
         lambda p, r: decide(p, r.mesh, r.in_shardings, r.out_shardings) if (
             is_decided(p, r.mesh)) else propagate(
                 p, r.mesh, r.in_shardings, r.out_shardings, r.objective.carried_rows,
                 POLICIES[r.objective.name], r.objective.idle),
         "open dimensions get the axes that their factors have elsewhere", needed=True),
    Pass("insert-reshards", "resharded",
         lambda p, r: insert_reshards(p, r.prices(p), r.draft, r.objective.wide),
         "operands are brought to what each equation can run with, where that moves least",
         plans="own", needed=True),
    Pass("shard-as-xla", "resharded",
         lambda p, r: as_xla.shard_as_xla(p, r.prices(p), r.draft),
         "operands are brought to what each equation runs with in XLA, by its steps", plans="xla"),
    Pass("move-reshards", "resharded", lambda p, r: move_reshards(p, r.prices(p)),
         "reshards stand where they cost least: later, and outside of loops",
         frozenset({"reshard"}), inside=True, plans="own", decides=True, optimizes=True),
    Pass("route-reshards", "resharded", lambda p, r: route_reshards(p, r.prices(p)),
         "values go to other layouts by the cheapest way", frozenset({"reshard"}), inside=True,
         plans="own", optimizes=True),
    Pass("note-padding", "resharded", lambda p, r: note_padding(p),
         "reshards say how many of their rows are padding", frozenset({"reshard"}), inside=True,
         needed=True),
    Pass("localize", "local", lambda p, r: localize(p, POLICIES[r.objective.name]),
         "blocks instead of whole values, collectives instead of reshards", needed=True),
    *SIMPLIFY,
    # joined parts are hidden from other passes, so it comes last, in nested programs too
    Pass("combine", "optimized", _combined,
         "small exchanges that do not wait for each other are one", COMBINED, inside=True,
         optimizes=True),
)
_DECIDED = frozenset([step.name for step in PIPELINE if step.decides])
_OPTIMIZING = frozenset([step.name for step in PIPELINE if step.optimizes])
# By kind of plan, the passes to leave out.
_OF_OTHERS = {kind: frozenset([step.name for step in PIPELINE if step.plans not in ("", kind)])
              for kind in (OWN.plans, XLA.plans)}
