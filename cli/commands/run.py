"""`run`: a program on simulated devices, its results, and where its time goes."""
from __future__ import annotations

import argparse
import contextlib
import math
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ...driver.execution.programs import check_memory, run_program
from ...engines.engine import reports
from ...ir.diagnostics.errors import ShardtraceError
from ...ir.kernels.key_data import storage_dtype
from ...ir.settings.context import config
from ...ir.support.environment import ENGINES
from ...ir.support.progress import steps
from ...ir.types import ArrayType
from ...runtime.profile import Profile, profile
from ..arguments import amount, count, positive
from ..output import Output
from ..problems import FINDING, Problem, failure
from ..results import difference, most_operations, summaries, tolerance, worst_result
from ..select import one
from ..targets import Found, FoundFunction, parameter_names
from .explain import explained

_VALUES = 1000           # of a result that are printed in full


def run(options: argparse.Namespace) -> int:
    """Run a target; prints its results, and with --profile where the time went."""
    found = one(options.target, options)
    local = found.local
    if options.engine in ("jax", "mpi") and (options.profile or options.trace):
        raise Problem(f"--engine {options.engine}: profiles are of the simulated and the "
                      "per_device engine" + (
                          "; JAX has a profiler of its own" if options.engine == "jax" else ""))
    if isinstance(found, FoundFunction) and found.others:
        print(f"shardtrace run: `{found.name}` is called in {found.others + 1} ways; this is the "
              f"first", file=sys.stderr)
    names = parameter_names(local)
    types = local.global_in or local.in_avals
    try:
        check_memory(local)
    except ShardtraceError as error:
        raise failure(error, f"running `{found.name}`") from error
    values = arguments(found, names, types, options)
    profiled: Profile | None = None
    try:
        with found.printing(), rounded_alike(options.compare):
            with steps(f"running {found.name}"):
                results = run_program(local, values, options.engine)
            if options.profile or options.trace:
                profiled = profile(local, *values, executor=options.engine,
                                   repeat=options.repeat)
            other = "per_device" if options.engine == "simulated" else "simulated"
            compared = run_program(local, values, other) if options.compare else []
    except Exception as error:
        raise failure(error, f"running `{found.name}`") from error
    if not reports(options.engine):
        return 0
    if options.trace and profiled is not None:
        profiled.save_chrome_trace(options.trace, modelled=explained(found, options))
    if options.save:
        named: dict[str, Any] = {f"result{i}": r for i, r in enumerate(results)}
        np.savez(options.save, **named)
    differences = [difference(a, b) for a, b in zip(results, compared, strict=False)]
    terms = most_operations(local) if options.compare else 1
    allowed = [tolerance(r.dtype, terms) if options.tolerance is None else options.tolerance
               for r in results]
    wrong = [i for i, d in enumerate(differences) if d > allowed[i]]
    _print(options, found, results, profiled, differences, allowed, terms)
    return FINDING if wrong else 0


def rounded_alike(compared: bool = True) -> contextlib.AbstractContextManager[Any]:
    """Where results of engines are compared, all round each value, as the per-device one does."""
    return config.override(shardtrace_allow_excess_precision=False) if compared else (
        contextlib.nullcontext())


def _loaded(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an archive, by name. Raises Problem for entries that are not arrays."""
    try:
        with open(path, "rb") as file:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise ValueError("it holds one array without a name; numpy.savez names them")
            return dict(archive)
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile) as problem:
        raise Problem(f"--load {path}: it cannot be read: {problem}") from problem


def arguments(found: Found, names: list[str], types: Any, options: argparse.Namespace
              ) -> list[np.ndarray]:
    """A value for each parameter: from `--load`, else the function's own, else random."""
    given = _loaded(options.load) if options.load else {}
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise Problem(f"{options.load} has {', '.join(unknown)}, but the parameters are "
                      f"{', '.join(names)}")
    rng = np.random.default_rng(options.seed)
    own = found.values()
    if len(own) != len(names):
        own = [None] * len(names)
    values = []
    made_up = []
    for name, aval, own_value in zip(names, types, own, strict=True):
        random = random_value(rng, aval)            # drawn always: a value depends on its place
        value = given.get(name, random if own_value is None else own_value)
        if own_value is None and name not in given:
            made_up.append(f"{name}: {aval.str_short(True)}")
        if value.shape != aval.shape:
            raise Problem(f"argument {name} has shape {value.shape}, the program wants {aval}")
        values.append(np.asarray(value, storage_dtype(aval.dtype)))
    if made_up:
        listed = ", ".join(made_up[:8]) + (f" and {len(made_up) - 8} more" if made_up[8:] else "")
        print(f"shardtrace run: random values, of seed {options.seed}, stand for {listed}; "
              "--load FILE.npz gives others", file=sys.stderr)
    return values


def random_value(rng: np.random.Generator, aval: ArrayType) -> np.ndarray:
    """Random numbers of a type: normal, small integers, or truth values."""
    dtype, shape = storage_dtype(aval.dtype), aval.shape
    if dtype.kind in "iu":
        return rng.integers(0, 10, shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.standard_normal(math.prod(shape)).reshape(shape).astype(dtype)


def _print(options: argparse.Namespace, found: Found, results: list[np.ndarray],
           profiled: Profile | None, differences: list[float], allowed: list[float],
           terms: int) -> None:
    """Print results, and what the options ask for besides: whether executors agree, and the
    profile. terms: operations for each element, which widen the tolerance.
    """
    local = found.local
    types = local.global_out or local.out_avals
    out = Output(options)
    most = _VALUES if options.most is None else options.most
    worst = worst_result(differences, allowed)
    if out.as_json:
        listed = [{"type": str(t), "shape": list(r.shape), "dtype": str(r.dtype),
                   **({"values": r.tolist()} if r.size <= most else {})}
                  for t, r in zip(types, results, strict=True)]
        out.json({"name": found.name, "executor": options.engine, "results": listed,
                  **({"profile": profiled.to_dict()} if profiled else {}),
                  **({"difference": 0.0 if worst is None else differences[worst],
                      "tolerance": 0.0 if worst is None else allowed[worst]}
                     if options.compare else {})})
        return
    if options.values or options.most is not None:
        for t, value in zip(types, results, strict=True):
            out.as_it_is(f"{t}\n" + np.array2string(value, threshold=most,
                                                    max_line_width=out.width))
    else:
        out.text("\n".join(summaries(found.result_names(len(results)), types, results)))
    if options.compare:
        if worst is None:
            out.text("\nthe executors agree: there are no results")
        else:
            why = "" if options.tolerance is not None else (
                f" for {results[worst].dtype}"
                + (f", {terms:,} operations an element" if allowed[worst] else ""))
            verdict = "DIFFER" if differences[worst] > allowed[worst] else "agree"
            out.text(f"\nthe executors {verdict}: largest difference {differences[worst]:.3g} of "
                     f"the largest value, {allowed[worst]:.2g} allowed{why}")
    if profiled is not None:
        out.text("")
        if out.is_rich:
            out.renderable(profiled.table(width=out.width))
        else:
            out.as_it_is(profiled.text(out.width))
    if options.trace:
        out.text(f"\ntrace written to {options.trace}; open it in https://ui.perfetto.dev")


def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of `run`."""
    sub.add_argument("--seed", type=count, default=0, help="of random arguments (default 0)")
    sub.add_argument("--load", type=Path, metavar="FILE.npz",
                     help="arguments by parameter name; others are the file's own, or random")
    sub.add_argument("--save", type=Path, metavar="FILE.npz", help="write the results")
    sub.add_argument("--engine", "--executor", choices=ENGINES, default="simulated",
                     help="all devices at once (default), each alone, JAX's devices, or the ranks "
                          "of an MPI job")
    sub.add_argument("--compare", action="store_true",
                     help="run the other executor too; exit status 1 where results differ")
    sub.add_argument("--tolerance", type=amount, metavar="X",
                     help="difference that --compare allows, as a part of the largest value "
                          "(default by dtype and length of sums: 1e-4 for float32; integers equal)")
    sub.add_argument("--profile", action="store_true", help="say where the time goes")
    sub.add_argument("--repeat", type=positive, default=3, metavar="N",
                     help="runs that a profile takes the fastest of (default 3)")
    sub.add_argument("--trace", type=Path, metavar="FILE.json",
                     help="write measured and modelled time in the Chrome trace format")
    sub.add_argument("--values", action="store_true",
                     help="print the values of the results, not a summary")
    sub.add_argument("--most", type=count, metavar="N",
                     help=f"print at most so many values of a result (default {_VALUES})")
