"""Says of a program of the fuzzer whether both executors, and JAX, give what it means.

What it means is `references.interpreter.interpret` of the traced program. Floats may be off by what
a few roundings in each equation make of the results, which a second reading with noise shows.
"""
from __future__ import annotations

import collections
import contextlib
import functools
import linecache
import pathlib
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

import shardtrace as st
from shardtrace.ir.program import Program

from ..paths import TESTS
from ..references.interpreter import NoReference, interpret
from .maker import sample
from .text import PRELUDE, Case

RIGHT, REFUSED, UNJUDGED, MORE = "right", "refused", "unjudged", "JAX refuses"
BESIDE_ITSELF = "JAX differs from itself"       # another way gives what shardtrace gives
ABORTED = "JAX aborts"
FINE = (RIGHT, REFUSED, UNJUDGED, MORE, BESIDE_ITSELF, ABORTED)
PACKAGE = str(pathlib.Path(st.__file__).parent)
READINGS = 6
ONE_BY_ONE = "op by op"
# What is rightly refused when a program runs: one that would hang on hardware, and one in which
# JAX finds no derivative either until then.
LATE = ("deadlock", "can't apply forward-mode autodiff (jvp) to a custom_vjp")


MET: collections.Counter[str] = collections.Counter()       # ops of traced programs


class Outcome(NamedTuple):
    """kind: one of FINE, or what failed.

    sign: the same for failures of one cause.
    """
    kind: str
    sign: str = ""
    detail: str = ""

    @property
    def failed(self) -> bool:
        return self.kind not in FINE


class Wrong(Exception):
    """A result is not what the program means."""


def names_of(library: Any) -> dict[str, Any]:
    """What the text of a program uses."""
    names = {"jax": library, "jnp": library.numpy, "lax": library.lax, "nn": library.nn, "np": np,
             "functools": functools, "P": library.sharding.PartitionSpec, "sample": sample}
    exec(PRELUDE, names)
    return names


NAMES = names_of(st)


def function_of(case: Case, names: dict[str, Any] = NAMES) -> Callable[..., Any]:
    space = dict(names)
    exec(compile("\n".join(case.body.lines()), "<fuzz>", "exec"), space)
    return space[case.body.name]


@functools.cache
def mesh_of(library: Any, sizes: tuple[int, ...], axis_types: tuple[str, ...]) -> Any:
    kinds = tuple(getattr(library.sharding.AxisType, k) for k in axis_types)
    return library.make_mesh(sizes, ("x", "y", "z")[:len(sizes)], axis_types=kinds,
                             devices=library.devices()[:int(np.prod(sizes))])


@contextlib.contextmanager
def placed(case: Case, library: Any = st) -> Iterator[list[Any]]:
    """The arguments on the case's mesh, which is set."""
    mesh = mesh_of(library, case.sizes, case.axis_types)
    spec, sharding = library.sharding.PartitionSpec, library.sharding.NamedSharding
    with (library.set_mesh(mesh), warnings.catch_warnings(), np.errstate(all="ignore"),
          st.config.override(jax_traceback_filtering="off")):      # `foreign` reads all frames
        warnings.simplefilter("ignore")
        yield [library.device_put(x, sharding(mesh, spec(*a.entries)))
               for a, x in zip(case.args, case.arrays(), strict=True)]


def ops_of(program: Program) -> Iterator[str]:
    """The ops of a program and of those that it holds."""
    yield from (op.name for op in program.ops)
    for _, _, held in program.subprograms():
        yield from ops_of(held)


def trace(case: Case, function: Callable[..., Any]) -> Any:
    with placed(case) as xs:
        return st.jit(function).trace(*xs)


def foreign(error: BaseException) -> bool:
    """Was it raised by none of the package's own checks, nor by the user's code?

    The package says what it refuses by `raise` or `fail`; an error that numpy or Python raise
    inside of it is a mistake of the package.
    """
    if isinstance(error, (st.errors.ShardtraceError, Wrong, NoReference)):
        return False
    if isinstance(error, (AssertionError, RecursionError, ZeroDivisionError, KeyError,
                          UnboundLocalError)):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return True
    last = frames[-1]
    if not last.filename.startswith(PACKAGE) or last.filename.startswith(str(TESTS)):
        # In the text of the program itself Python complains of the program.
        return last.filename not in ("<fuzz>", "<string>")
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    return not (line.startswith("raise") or last.name in ("fail", "reject", "error"))


def sign_of(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__)
              if f.filename.startswith(PACKAGE) and not f.filename.startswith(str(TESTS))]
    where = f"{pathlib.Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} {where}"


def of_error(error: BaseException, stage: str) -> Outcome:
    if isinstance(error, Wrong):
        return Outcome("wrong", stage, str(error))
    if isinstance(error, NoReference):
        return Outcome(UNJUDGED, f"no reference: {error}")
    text = "".join(traceback.format_exception(error))
    if isinstance(error, TooSlow):
        return Outcome("slow", f"slow, {stage}", text)
    if str(error).startswith(LATE):
        return Outcome(REFUSED, str(error)[:30])
    if foreign(error):
        return Outcome("foreign", f"{sign_of(error)}, {stage}", text)
    if stage == ONE_BY_ONE:         # slices and indices that are numbers are indices there
        return Outcome(UNJUDGED, f"{type(error).__name__}, {stage}")
    # Once a program is traced, it can be partitioned and run.
    return Outcome(REFUSED if stage == "trace" else "refused late",
                   f"{type(error).__name__}, {stage}", text)


class SECOND:
    """The engine that runs programs besides the simulation."""
    engine = "per_device"


class TooSlow(BaseException):
    """A program takes more time than any should."""


def judge(case: Case) -> Outcome:
    """What becomes of the program in shardtrace."""
    stage = "trace"
    try:
        with placed(case) as xs:
            f = st.jit(function_of(case))
            program = f.trace(*xs).jaxpr
            MET.update(ops_of(program))
            stage = "simulated"
            together = f(*xs)
            stage = "per device"
            with st.config.override(shardtrace_engine=SECOND.engine):
                alone = f(*xs)
            stage = "reference"
            wanted = Wanted(program, case.arrays())
            stage = "types"
            for a, b, v in zip(together, alone, program.outvars, strict=True):
                check_types(a, b, v.aval)
            stage = "simulated"
            for k, x in enumerate(together):
                if not x.sharding.spec.unreduced:
                    wanted.check(k, np.asarray(x), f"result {k}")
            stage = "per device"
            for k, x in enumerate(alone):
                for shard in () if x.sharding.spec.unreduced else x.addressable_shards:
                    wanted.check(k, np.asarray(shard.data), f"result {k} on {shard.device}",
                                 shard.index)
            other = other_way(case)
            if other:
                stage, run = other
                for k, x in enumerate(run(xs)):
                    if not x.sharding.spec.unreduced:
                        wanted.check(k, np.asarray(x), f"result {k}")
            return Outcome(UNJUDGED, "ill-conditioned") if wanted.unknown else Outcome(RIGHT)
    except (Exception, TooSlow) as error:
        return of_error(error, stage)


def other_way(case: Case) -> tuple[str, Callable[[list[Any]], Sequence[Any]]] | None:
    """Some programs also run op by op, some with all their arguments donated."""
    f = function_of(case)
    if case.seed % 8 == 1:
        return ONE_BY_ONE, lambda xs: f(*xs)
    if case.seed % 8 == 2:
        donated = tuple(range(len(case.args)))
        return "donated", lambda xs: st.jit(f, donate_argnums=donated)(*xs)
    return None


def check_types(a: Any, b: Any, t: Any) -> None:
    for x in (a, b):
        if (x.shape, x.dtype, x.weak_type) != (t.shape, t.dtype, t.weak_type):
            raise Wrong(f"the result is {x.aval}, its type was {t}")
    if not a.sharding.is_equivalent_to(b.sharding, a.ndim):
        raise Wrong(f"{a.sharding} simulated, {b.sharding} per device")
    if not t.mesh.empty and a.aval.str_short() != t.str_short():
        raise Wrong(f"the result is {a.aval}, its type was {t}")


class Wanted:
    """What the results of a traced program are, and how well they are known."""

    def __init__(self, program: Any, arrays: Sequence[np.ndarray]) -> None:
        self.program, self.arrays = program, arrays
        self.values = interpret(program, arrays)
        self.readings: list[list[np.ndarray]] = []
        self.judged = self.seen = 0

    @property
    def unknown(self) -> bool:
        """Is nothing known of any result?"""
        return bool(self.seen) and not self.judged

    def check(self, k: int, got: np.ndarray, what: str, index: Any = ...) -> None:
        want = self.values[k][index]
        if got.shape != want.shape or got.dtype != want.dtype:
            raise Wrong(f"{what} is {got.dtype}{list(got.shape)} instead of "
                        f"{want.dtype}{list(want.shape)}")
        self.seen += got.size
        good = agrees(got, want, base(want))
        if good.all():
            self.judged += got.size
            return
        if not self.readings:
            self.readings = [interpret(self.program, self.arrays,
                                       noise=np.random.default_rng(i)) for i in range(READINGS)]
        others = [r[k][index] for r in self.readings]
        with np.errstate(all="ignore"):
            if want.dtype.kind in "biu":
                known = np.all([o == want for o in others], axis=0)
                spread: Any = 0.0
            else:
                x = wide(want)
                known = np.all([np.isfinite(wide(o)) & np.isfinite(x) | agrees(o, want, 0.0)
                                for o in others], axis=0)
                spread = np.max([np.nan_to_num(np.abs(wide(o) - x), nan=0.0, posinf=0.0)
                                 for o in others], axis=0)
                known &= (spread <= 0.02 * (np.abs(x) + np.nanmax(np.where(
                    np.isfinite(x), np.abs(x), 0), initial=1e-30))) | ~np.isfinite(x)
        self.judged += int(known.sum())
        bad = known & ~agrees(got, want, base(want) + 4 * spread)
        if bad.any():
            at = tuple(int(i[0]) for i in np.nonzero(bad)) if got.ndim else ()
            raise Wrong(f"{what} at {at} is {got[at]} instead of {want[at]} "
                        f"({int(bad.sum())} of {bad.size} elements)")


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def base(want: np.ndarray) -> Any:
    if want.dtype.kind in "biu":
        return 0.0
    x = np.abs(wide(want))
    unit = max(float(ml_dtypes.finfo(want.dtype).eps), 1.2e-7)
    return 4 * unit * np.nanmax(np.where(np.isfinite(x), x, 0), initial=1e-30)


def agrees(got: np.ndarray, want: np.ndarray, tolerance: Any) -> np.ndarray:
    if want.dtype.kind in "biu":
        return np.asarray(got == want)
    with np.errstate(all="ignore"):
        if want.dtype.kind == "c":
            return (agrees(got.real, want.real, tolerance) & agrees(got.imag, want.imag, tolerance)
                    | ~np.isfinite(got) & ~np.isfinite(want))
        a, b = wide(got), wide(want)
        return np.asarray((a == b) | np.isnan(a) & np.isnan(b) | (np.abs(a - b) <= tolerance))
