"""`autoshard`: the specs under which a function is fastest, within a limit of memory."""
from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..driver.analysis.applied_changes import Changed, inlined
from ..driver.analysis.explain import explain, explain_program
from ..driver.jit.jit import jit
from ..driver.jit.jitted import Jitted
from ..driver.jit.stages import Traced
from ..ir.diagnostics.diagnostic import fail
from ..ir.diagnostics.errors import MemoryLimitError
from ..ir.meshes.mesh import AbstractMesh, Mesh
from ..ir.passes import DONATED, OBJECTIVE, Requests
from ..ir.program import Program
from ..ir.settings.context import config
from ..ir.shardings.sharding import NamedSharding
from ..ir.spec import PartitionSpec
from ..ir.support.named_tuple import NamedTuple
from ..ir.support.spelling import close_match, none_such
from ..ir.values.shape_struct import ShapeDtypeStruct
from ..ir.values.typeof import typeof
from ..partitioner.cost.hardware import Hardware
from ..partitioner.cost.prices import Objective
from ..partitioner.cost.topology import Topology
from ..partitioner.stages import with_attribute
from ..report.advice.changes import Argument, Change, Result, edited
from ..report.explanation import Explanation
from ..tracer.shardings.mesh_context import use_abstract_mesh
from ..tracer.trees import tree
from .meshes import given_mesh, meshes_of, searched_mesh
from .proposal import Proposal
from .proposal_data import Row
from .search import Search, SearchResult
from .trials import Trials

LARGE = 150                # equations from which on a chosen mesh has two axes at most
SEARCHED, OF_LARGE = 3, 2  # meshes that are searched in full, and those for a large program


def autoshard(fun: Callable[..., Any], *args: Any, mesh: Any = None,
              hardware: str | Hardware | None = None, memory_limit: float | None = None,
              fixed: Mapping[str, PartitionSpec] | None = None,
              topology: Sequence[int] | Topology | None = None) -> Proposal:
    """The specs of arguments and results, and constraints on values inside, under which `fun` is
    fastest on `args`.

    fun: a function, jitted or not, or one of `interop.from_jax`. args: arrays or ShapeDtypeStructs,
      whose own shardings are ignored.
    mesh: a mesh; sizes by axis name, {"data": 512, "model": 8}; or a number of devices, for the
      best mesh that they can form. By default the mesh of the arguments, or of the context.
    hardware, topology: as for `explain`. memory_limit: the most bytes that a device may hold at
      once; by default the memory of the hardware.
    fixed: specs that are given, by the path of an argument ("params['w']") or a result
      ("result[0]"); `*` stands for any part of a path.
    Raises MemoryLimitError if no plan within the limit is found, with the least memory that was;
    TypeError and ValueError for something that is no mesh, for a mesh that has Manual axes or does
    not fit, and for unknown paths; and whatever tracing raises.

    Every plan is partitioned, and judged by the time of a step that `explain` prints. The named
    plans (data, FSDP, tensor, sequence parallel and mixtures of them) are always among the
    candidates, so none of them is better than the answer. Equal calls give equal answers.

    Sharding
      Auto: the search chooses every spec; constraints in `fun` stay.
      Explicit: the search uses the mesh with Auto axes, and so does the plan (`found.mesh`): its
        function takes arguments over Explicit axes, within their context or without. Arguments
        with the specs that are found have the types that this gives; where they disagree an error
        names a fix.
      Manual: the body of a `shard_map` stays as it is written.

    >>> x, w = (st.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((4096, 512), (512, 512)))
    >>> found = st.autoshard(lambda x, w: jnp.tanh(x @ w), x, w, mesh={"data": 8})
    >>> found.specs["x"], found.received_bytes
    (P('data', None), 0)
    """
    jitted = fun if isinstance(fun, Jitted) else jit(fun)
    given, named = jitted.traced_arguments(args, {})
    return _proposed(jitted, given, named, mesh, hardware, memory_limit, fixed, topology)


def autoshard_traced(traced: Traced, *, mesh: Any = None, hardware: str | Hardware | None = None,
                     memory_limit: float | None = None,
                     fixed: Mapping[str, PartitionSpec] | None = None,
                     topology: Sequence[int] | Topology | None = None) -> Proposal:
    """As `autoshard`, for a traced function and the arguments that it was traced with."""
    jitted = traced._jitted
    assert isinstance(jitted, Jitted)
    args, kwargs = tree.unflatten(traced.in_tree, traced._leaves)
    args, kwargs = jitted.arguments.merge(args, kwargs, traced._static)
    return _proposed(jitted, args, kwargs, mesh, hardware, memory_limit, fixed, topology)


def _proposed(jitted: Jitted, args: Sequence[Any], kwargs: dict[str, Any], mesh: Any,
              hardware: str | Hardware | None, memory_limit: float | None,
              fixed: Mapping[str, PartitionSpec] | None,
              topology: Sequence[int] | Topology | None) -> Proposal:
    """Search the specs of a function, and describe the best plan as a `Proposal`: specs in the
    trees of arguments and results, and the function with them.
    """
    args, kwargs, static = jitted.arguments.split(args, kwargs)
    asked = given_mesh(mesh, tree.leaves((args, kwargs)))
    types: Callable[[Any], AbstractContextManager[Any]] = nullcontext
    if not isinstance(asked, int) and asked.explicit_axes:
        asked, types = searched_mesh(asked), _over
    objective = objective_of(hardware, memory_limit)

    def placed(one: Mesh | AbstractMesh) -> tuple[Sequence[Any], dict[str, Any]]:
        given, named = tree.map(lambda x: _placed(x, one), (tuple(args), kwargs))
        return jitted.arguments.merge(given, named, static)

    def on(one: Mesh | AbstractMesh) -> tuple[Subject, Traced]:
        given, named = placed(one)
        with types(one):
            traced = jitted.trace(*given, **named)
        return Subject(traced.jaxpr, one, tuple(traced._donated())), traced

    found = searched(lambda one: on(one)[0], asked, objective, fixed or {}, topology)
    subject, traced = on(found.mesh)
    plan = found.result.best.plan
    trees = (tree.unflatten(traced.in_tree, [found.mesh_sharding(s) for s in plan.arguments]),
             tree.unflatten(traced.out_tree, [None if s is None else found.mesh_sharding(s)
                                              for s in plan.results]))
    numbers = [i for i, a in enumerate(tree.unflatten(traced.in_tree, list(subject.donated))[0])
               if tree.leaves(a) and all(tree.leaves(a))]
    changes = found.changes()

    made = _Planned if types is _over else Changed
    base = jitted.judged_by(hardware=objective.hardware, **(
        {"memory_limit": objective.memory_limit} if found.result.best.limited else {}))

    def with_plan() -> Changed:
        return made(base, changes, found.mesh, padded=False)

    given, named = placed(found.mesh)

    def explanation() -> Explanation:
        with types(found.mesh):
            return explain(with_plan(), objective.hardware, topology=found.topology)(
                *given, **named)

    return found.proposal(trees, numbers).made_by(with_plan, explanation)


class _Planned(Changed):
    """A function with a plan over Auto axes, whatever the axes of the context's mesh are."""

    def _trace(self, *args: Any) -> tuple[Program, Any, list[Any]]:
        with _over(self._mesh):
            return super()._trace(*args)


def _over(mesh: Mesh | AbstractMesh) -> AbstractContextManager[Any]:
    """A block in which a mesh is the context's."""
    return use_abstract_mesh(mesh.abstract_mesh if isinstance(mesh, Mesh) else mesh)


def autoshard_program(program: Program, *, hardware: str | Hardware | None = None,
                      memory_limit: float | None = None,
                      fixed: Mapping[str, PartitionSpec] | None = None,
                      topology: Sequence[int] | Topology | None = None) -> Proposal:
    """As `autoshard`, for a TRACED program without a function, on its own mesh."""
    asked = given_mesh(program.mesh, ())
    assert not isinstance(asked, int)
    mesh = searched_mesh(asked)
    assert isinstance(mesh, AbstractMesh)
    objective = objective_of(hardware, memory_limit)
    donated = program.attributes.get(DONATED) or (False,) * len(program.invars)
    bare = program.replace(attributes={
        k: v for k, v in program.attributes.items() if k != Requests.KEY})
    found = searched(lambda one: Subject(bare, mesh, tuple(donated)), mesh, objective, fixed or {},
                     topology)
    plan = found.result.best.plan
    arguments = tuple([found.mesh_sharding(s) for s in plan.arguments])
    results = tuple([None if s is None else found.mesh_sharding(s) for s in plan.results])
    inside = [c for c in found.changes() if not isinstance(c, Argument | Result)]
    whole = edited(found.program, inside, mesh) if inside else found.program
    if found.result.best.limited:
        whole = with_attribute(whole, OBJECTIVE, objective.as_attribute)
    return found.proposal(((arguments, {}), results), ()).made_by(None, lambda: explain_program(
        whole, objective.hardware, in_shardings=plan.arguments, topology=found.topology))


class Subject(NamedTuple):
    """A traced program on a mesh. donated: the numbers of its donated arguments."""
    program: Program
    mesh: Mesh | AbstractMesh
    donated: tuple[bool, ...]


class Searched(NamedTuple):
    """The answer on the best mesh. program: the program that was searched, its calls inlined.
    tried: number of plans tried, on all meshes. meshes: those that were searched, with the seconds
    of their best plans.
    """
    program: Program
    mesh: Mesh | AbstractMesh
    topology: Topology
    trials: Trials
    result: SearchResult
    names: tuple[Sequence[str], Sequence[str]]
    tried: int
    meshes: tuple[tuple[AbstractMesh, float], ...] = ()

    def mesh_sharding(self, spec: PartitionSpec | None) -> NamedSharding:
        return NamedSharding(self.mesh, spec or PartitionSpec())

    def changes(self) -> list[Change]:
        """The plan as changes of the function."""
        plan, (arguments, results) = self.result.best.plan, self.names
        found: list[Change] = [Argument(i, name, spec or PartitionSpec()) for i, (name, spec)
                               in enumerate(zip(arguments, plan.arguments, strict=True))]
        found += [Result(i, name, spec) for i, (name, spec)
                  in enumerate(zip(results, plan.results, strict=True)) if spec is not None]
        return [*found, *self.trials.changes(plan)]

    def proposal(self, trees: tuple[Any, Any], donated: Sequence[int]) -> Proposal:
        plan, (arguments, results) = self.result.best.plan, self.names
        program = self.program
        rows = ([_row(n, v.aval, s or PartitionSpec(), self.mesh) for n, v, s in zip(
                    arguments, program.invars, plan.arguments, strict=True)],
                [_row(n, v.aval, s, self.mesh) for n, v, s in zip(
                    results, program.outvars, plan.results, strict=True)])
        inside = self.trials.changes(plan)
        meshes = self.meshes if len(self.meshes) > 1 else ()
        return Proposal(program, self.mesh, self.topology, self.result, rows, inside, trees,
                        self.tried, self.trials.limit, donated, meshes)


def objective_of(hardware: str | Hardware | None, memory_limit: float | None) -> Objective:
    """The objective by which plans are judged: time, under a limit of memory. Raises ValueError for
    an invalid limit and for an unknown device.
    """
    objective = Objective.of("time", hardware or config.read("shardtrace_hardware"),
                             memory_limit or config.read("shardtrace_memory_limit"))
    if memory_limit is not None and memory_limit <= 0:
        fail(ValueError, f"memory_limit must be the number of bytes that a device may hold, such "
             f"as 80e9, got {memory_limit!r}", code="memory-limit",
             help="leave it out for what the hardware has")
    if not objective.memory_limit:
        objective = objective._replace(memory_limit=int(objective.hardware.memory))
    return objective


def searched(subject_on: Callable[[Any], Subject], asked: Mesh | AbstractMesh | int,
             objective: Objective, fixed: Mapping[str, PartitionSpec],
             topology: Sequence[int] | Topology | None) -> Searched:
    """The answer on a mesh, or on the best mesh of a number of devices."""
    if not isinstance(asked, int):
        found = _search(subject_on(asked), objective, fixed, topology)
        done = found.finished()
        _check_memory(done, objective)
        return done
    candidates: list[_Prepared] = []
    for mesh in meshes_of(asked):
        if len(mesh.axis_sizes) > 2 and candidates and candidates[0].equations > LARGE:
            continue
        try:
            candidates.append(_search(subject_on(mesh), objective, fixed, topology))
        except ValueError:
            if mesh.axis_sizes == (asked,):      # of other meshes, some do not fit the hardware
                raise
    candidates.sort(key=lambda c: c.search.outlook())
    tried, meshes = 0, []
    best: Searched | None = None
    large = candidates[0].equations > LARGE
    for c in candidates[:OF_LARGE if large else SEARCHED]:
        done = c.finished(tried)
        tried = done.tried
        meshes.append((c.search.trials.mesh, done.result.best.figures.time))
        if best is None or done.result.best.rank < best.result.best.rank:
            best = done
    assert best is not None
    best = best._replace(tried=tried, meshes=tuple(sorted(meshes, key=lambda m: m[1])))
    _check_memory(best, objective)
    return best


class _Prepared(NamedTuple):
    """A search that is ready to run."""
    search: Search
    mesh: Mesh | AbstractMesh
    topology: Topology
    names: tuple[Sequence[str], Sequence[str]]
    equations: int

    def finished(self, tried: int = 0) -> Searched:
        result = self.search.run()
        return Searched(self.search.program, self.mesh, self.topology, self.search.trials, result,
                        self.names, tried + result.tried)


def _search(subject: Subject, objective: Objective, fixed: Mapping[str, PartitionSpec],
            topology: Sequence[int] | Topology | None) -> _Prepared:
    """A search over a subject's program on its mesh, with what the user fixed as pins."""
    mesh = subject.mesh.abstract_mesh if isinstance(subject.mesh, Mesh) else subject.mesh
    program = inlined(subject.program, padded=False)
    arguments = list(subject.program.arg_names or ()) or [
        v.name or f"argument {i}" for i, v in enumerate(program.invars)]
    results = ["result" + name for name in (subject.program.result_names or [
        f"[{i}]" if len(program.outvars) > 1 else "" for i in range(len(program.outvars))])]
    pins = _pinned(fixed, arguments, results, program, mesh)
    if not isinstance(topology, Topology):
        topology = Topology.of(objective.hardware, {str(a): n for a, n in mesh.shape.items()},
                               topology)
    trials = Trials(program, mesh, subject.donated, objective, topology)
    search = Search(trials, *pins)
    return _Prepared(search, subject.mesh, topology, (arguments, results), search.equations)


def _pinned(fixed: Mapping[str, PartitionSpec], arguments: Sequence[str], results: Sequence[str],
            program: Program, mesh: AbstractMesh
            ) -> tuple[list[PartitionSpec | None], list[PartitionSpec | None]]:
    """The specs that are given, per argument and per result."""
    found: dict[str, PartitionSpec] = {}
    for pattern, spec in fixed.items():
        if not isinstance(spec, PartitionSpec):
            fail(TypeError, f"fixed[{pattern!r}] must be a PartitionSpec, got {spec!r}",
                 code="fixed", help="write P('data', None), or P() for a whole copy on each device")
        unknown = [str(a) for a in spec.axes() if a not in mesh.shape]
        if unknown:
            fail(ValueError, f"fixed[{pattern!r}] is {spec}: the mesh has no axis "
                 f"{', '.join(unknown)}; it has {', '.join(map(str, mesh.axis_names))}",
                 code="fixed", help=close_match(unknown[0], mesh.axis_names) or ())
        written = re.compile(".*".join(map(re.escape, pattern.split("*"))))
        names = [n for n in (*arguments, *results) if written.fullmatch(n)]
        if not names:
            fail(ValueError, none_such(pattern, (*arguments, *results), "argument or result"),
                 code="fixed", help="write a path as in the names of arguments, params['w'], or a "
                                    "pattern, params*")
        found |= dict.fromkeys(names, spec)
    return ([found.get(n) for n in arguments], [found.get(n) for n in results])


def _check_memory(done: Searched, objective: Objective) -> None:
    best = done.result.best
    if best.fits:
        return
    memory, limit = best.figures.memory, objective.memory_limit
    largest = "; ".join([f"{h.name}: {h.type}, {h.nbytes:,} bytes" for h in memory.held[:3]])
    fail(MemoryLimitError,
         f"RESOURCE_EXHAUSTED: no plan was found for `{done.program.name}` within {limit:,} bytes "
         f"of memory on each device; the least that was found is {best.figures.peak_bytes:,}.",
         location=memory.location, label="the peak is here",
         notes=(f"{done.tried} plans were tried; arguments are {memory.argument_bytes:,} bytes of "
                f"the least; the largest values there: {largest}",),
         help="give more devices, donate arguments that are not needed later (donate_argnums), or "
              "compute values again instead of keeping them (shardtrace.checkpoint)")


def _row(name: str, aval: Any, spec: PartitionSpec | None, mesh: Mesh | AbstractMesh) -> Row:
    parts = math.prod([mesh.shape[a] for a in (spec.axes() if spec is not None else ())])
    nbytes = math.prod(aval.shape) * aval.dtype.itemsize
    bare = re.sub(r"@[^,\]]*|\{.*?\}| on .*", "", aval.str_short(True))
    return Row(name, bare, spec, -(-nbytes // parts))


def _placed(x: Any, mesh: Mesh | AbstractMesh) -> Any:
    """A struct for an argument on the mesh, not laid out yet."""
    t = typeof(x)
    return ShapeDtypeStruct(t.shape, t.dtype, sharding=NamedSharding(mesh, PartitionSpec()),
                            weak_type=t.weak_type)
