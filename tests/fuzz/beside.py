"""Says of a program of the fuzzer whether JAX gives what shardtrace does, types included.

JAX runs in a process of its own, since XLA aborts the process that it is in on some programs.
"""
from __future__ import annotations

import importlib
import multiprocessing
import types
from typing import Any, NamedTuple

import numpy as np

import shardtrace as st

from .judge import (
    ABORTED,
    BESIDE_ITSELF,
    MORE,
    NAMES,
    RIGHT,
    UNJUDGED,
    Outcome,
    TooSlow,
    Wanted,
    Wrong,
    function_of,
    names_of,
    of_error,
    placed,
)
from .text import Case

SECONDS = 120
PROGRAMS = 500                      # that one process runs: XLA keeps what it compiled


class Found(NamedTuple):
    """What a program gives in JAX. types: as `x.aval` prints them."""
    types: list[str]
    weak: list[bool]
    values: list[np.ndarray]


class Refused(Exception):
    """JAX refuses the program."""


class Aborted(Exception):
    """JAX ends its process, or does not end."""


class Oracle:
    """JAX, begun when first asked and again whenever it has ended."""

    def __init__(self) -> None:
        self._process: Any = None
        self._asked = 0

    def run(self, case: Case, whole: bool = True) -> Found:
        """What the program gives in JAX. whole: compiled at once, not op by op."""
        if self._asked == PROGRAMS:
            self.close()
        if self._process is None:
            spawn = multiprocessing.get_context("spawn")
            self._ours, their_end = spawn.Pipe()
            self._process = spawn.Process(target=_answer, args=(their_end,), daemon=True)
            self._process.start()
            their_end.close()
            self._asked = 0
        self._asked += 1
        try:
            self._ours.send((case, whole))
            found = self._ours.recv() if self._ours.poll(SECONDS) else None
        except (EOFError, ConnectionError):
            found = None
        except BaseException:               # its answer would be taken for that to the next
            self.close()
            raise
        if found is None:
            self.close()
            raise Aborted
        if isinstance(found, str):
            raise Refused(found)
        return found

    def close(self) -> None:
        """End its process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._ours.close()
            self._process = None


def _answer(asked: Any) -> None:
    jax = importlib.import_module("jax")
    jax.config.update("jax_num_cpu_devices", st.device_count())
    names = names_of(jax)
    while True:
        try:
            case, whole = asked.recv()
        except EOFError:
            return
        try:
            answer: Any = _run(case, jax, names, whole)
        except Exception as error:
            answer = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        asked.send(answer)


def _run(case: Case, jax: types.ModuleType, names: dict[str, Any], whole: bool) -> Found:
    with placed(case, jax) as xs:
        f = function_of(case, names)
        if whole:
            results = jax.block_until_ready(jax.jit(f)(*xs))
        else:
            with jax.disable_jit():
                results = f(*xs)
    return Found([str(x.aval) for x in results], [x.weak_type for x in results],
                 [np.asarray(x) for x in results])


def judge_beside(case: Case, oracle: Oracle) -> Outcome:
    """Whether JAX gives the same results, dtypes and types. The program runs in shardtrace."""
    with placed(case) as xs:
        f = st.jit(function_of(case, NAMES))
        program = f.trace(*xs).jaxpr
        ours = f(*xs)
        types_of = [str(x.aval) for x in ours]
        weak = [x.weak_type for x in ours]
    try:
        theirs = oracle.run(case)
        if theirs.types != types_of:
            raise Wrong(f"types {types_of}, in JAX {theirs.types}")
        if theirs.weak != weak:
            raise Wrong(f"weak {weak}, in JAX {theirs.weak}")
        wanted = Wanted(program, case.arrays())
        for k, x in enumerate(theirs.values):
            try:
                wanted.check(k, x, f"JAX's result {k}")
            except Wrong:
                if not _right_alone(case, k, wanted, oracle):
                    raise
                return Outcome(BESIDE_ITSELF, "on one device, or op by op")
        return Outcome(UNJUDGED, "ill-conditioned") if wanted.unknown else Outcome(RIGHT)
    except Refused as error:
        return Outcome(MORE, str(error)[:80])
    except Aborted:
        return Outcome(ABORTED, f"seed {case.seed}")
    except (Exception, TooSlow) as error:
        found = of_error(error, "jax")
        return found._replace(kind="differs from JAX" if found.kind == "wrong" else found.kind)


def _right_alone(case: Case, k: int, wanted: Wanted, oracle: Oracle) -> bool:
    """Does JAX give this result as it should be on one device, compiled whole or op by op?"""
    alone = case._replace(sizes=(1,) * len(case.sizes))
    for whole in (True, False):
        try:
            wanted.check(k, oracle.run(alone, whole).values[k], "alone")
            return True
        except Exception:
            continue
    return False


def runs_in(case: Case, oracle: Oracle) -> bool:
    """Does JAX run this program?"""
    try:
        oracle.run(case)
        return True
    except (Refused, Aborted):
        return False
