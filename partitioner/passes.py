"""The passes from a traced program to the one that every device runs, in order."""
from __future__ import annotations

from ..ir.mesh import AbstractMesh
from ..ir.passes import Pass
from ..ir.phases import in_phase
from ..ir.program import Program
from ..ir.rewriting.unread import drop_dead
from ..ir.spec import PartitionSpec
from ..ir.support.environment import OPTIMIZE
from ..ir.support.named_tuple import NamedTuple
from .cost.prices import Objective, Prices
from .lowering.localize import localize
from .optimization.combine import COMBINED, combine
from .optimization.hoist import hoist
from .optimization.optimize import FOLD_GATHERS, FORM_SCATTERS, dedupe
from .optimization.shared_rows import share_rows
from .preparation.arrange import arrange
from .preparation.boxes import BOXES
from .preparation.inline import inline
from .preparation.uneven import evened
from .propagation.decided import decide, is_decided
from .propagation.resolve import propagate
from .regions import INLINED, REGIONS, inside
from .resharding.loop_sums import move_sums
from .resharding.reshards import insert_reshards


class Job(NamedTuple):
    """What is asked of the pipeline besides the program; see `partition`. skip: passes that are
    left out, by name; `optimize` stands for several. objective: what plans are judged by.
    """
    mesh: AbstractMesh
    in_shardings: tuple[PartitionSpec | None, ...]
    out_shardings: tuple[PartitionSpec | None, ...]
    objective: Objective
    skip: frozenset[str] = frozenset()

    def prices(self, program: Program) -> Prices:
        """What the layouts of a program are chosen by."""
        return self.objective.prices(program.mesh)

    @property
    def left_out(self) -> frozenset[str]:
        """All of these passes, by their own names."""
        return self.skip.union(OPTIMIZE) if "optimize" in self.skip else self.skip


def _inside_loops(program: Program, job: Job) -> Program:
    """The programs in a program after the passes from this one to the last before `combine`."""
    left_out = job.left_out

    def simplified(body: Program) -> Program:
        for step in SIMPLIFY:
            if step.name not in left_out and not step.idle(body.op_names, body.holds_programs):
                body = in_phase(step.name, step.run, body, job)
        return body
    return inside(program, simplified)


def _combined(program: Program, job: Job) -> Program:
    return combine(inside(program, lambda body: _combined(body, job)),
                   job.objective._replace(name="time").prices(program.mesh))


PREPARE: tuple[Pass, ...] = (
    Pass("inline", "inlined", lambda p, job: inline(p),
         "calls are replaced by what they call", frozenset(INLINED), inside=True),
    Pass("even-slices", "inlined", lambda p, job: evened(p),
         "arithmetic on slices that no mesh divides is done on what they are slices of",
         frozenset({"slice", *BOXES}), inside=True),
    Pass("arrange", "inlined", lambda p, job: arrange(p),
         "concatenations, splits and updates of rows say how far rows are moved"),
)

# One makes room for the next.
SIMPLIFY: tuple[Pass, ...] = (
    Pass("inside-loops", "optimized", _inside_loops,
         "programs of loops and branches have been through the passes that follow",
         frozenset(REGIONS), inside=True),
    Pass("hoist", "optimized", lambda p, job: hoist(p),
         "collectives that a loop repeats on the same values are done once, before it",
         frozenset({"scan", "while"})),
    Pass("dedupe", "optimized", lambda p, job: dedupe(p),
         "equal equations are computed once, and so their collectives done once"),
    Pass("fold-gathers", "optimized", lambda p, job: FOLD_GATHERS(p),
         "the own block of what was gathered along the same axes is the block itself",
         frozenset({"all_slice"})),
    Pass("form-scatters", "optimized", lambda p, job: FORM_SCATTERS(p),
         "an all-reduce of which every device keeps its own block is a reduce-scatter",
         frozenset({"all_slice"})),
    Pass("drop-dead", "optimized", lambda p, job: drop_dead(p),
         "what nothing reads is not computed"),
    Pass("share-rows", "optimized", lambda p, job: share_rows(p),
         "rows of one value that devices lack come in one exchange",
         frozenset({"exchange_rows"})),
)

PIPELINE: tuple[Pass, ...] = (
    *PREPARE,
    Pass("propagate", "resolved",
         lambda p, job: (decide if is_decided(p, job.mesh) else propagate)(
             p, job.mesh, job.in_shardings, job.out_shardings),
         "open dimensions get the axes that their factors have elsewhere"),
    Pass("insert-reshards", "resharded", lambda p, job: insert_reshards(p, job.prices(p)),
         "operands are brought to what each equation can run with, where that moves least"),
    Pass("move-sums", "resharded", lambda p, job: move_sums(p, job.prices(p)),
         "reshards stand where they cost least: later, and outside of loops",
         frozenset({"reshard"}), inside=True),
    Pass("localize", "local", lambda p, job: localize(p),
         "blocks instead of whole values, collectives instead of reshards"),
    *SIMPLIFY,
    # it hides parts from the others, so it comes last, in all programs
    Pass("combine", "optimized", _combined,
         "small exchanges that do not wait for each other are one", COMBINED, inside=True),
)
