"""Several processes in one: `as_process` and `run_processes`.

A program for many hosts runs once on each: the same program, but each process owns some of the
devices and sees the blocks of arrays on them. Here each process is a thread, so that such a program
can be tried on one machine:

    def program():
        x = make_array_from_process_local_data(sharding, load(process_index()))
        return float(loss(x))            # all processes compute it together

Processes communicate through a coordinator (arrays/processes/coordinator.py).
"""
from __future__ import annotations

import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...ir.diagnostics.errors import ProcessMismatchError
from ...ir.meshes.process import ProcessIdentity, process_scope
from ...ir.settings.context import STATE, config
from .coordinator import coordinator_scope, current_coordinator
from .rendezvous import ThreadCoordinator, World

Dealing = int | Sequence[int] | None


class _Open:
    """The worlds that threads have entered with `as_process`, by how devices are dealt."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.worlds: dict[tuple[int, ...], World] = {}


_open = _Open()


def deal_devices(count: int, local_device_count: Dealing = None) -> tuple[int, ...]:
    """For each device, in order of ids, the process that owns it.

    count: the number of processes. local_device_count: devices of each process, or one number for
      each; by default the configured devices are dealt out evenly, the first processes getting one
      more where that does not come out.
    Raises ValueError where a process would have no device.
    """
    if local_device_count is None:
        total = int(config.read("jax_num_cpu_devices"))
        if total < count:
            raise ValueError(
                f"{total} devices cannot be dealt to {count} processes. Start fewer, or simulate "
                f"more devices with config.update('jax_num_cpu_devices', {count}).")
        each = [total // count + (p < total % count) for p in range(count)]
    elif isinstance(local_device_count, int):
        each = [local_device_count] * count
    else:
        each = [int(n) for n in local_device_count]
        if len(each) != count:
            raise ValueError(f"local_device_count needs one number for each of {count} processes, "
                             f"got {len(each)}")
    if any(n < 1 for n in each):
        raise ValueError(f"every process needs a device, got local_device_count={each}")
    return tuple(p for p, n in enumerate(each) for _ in range(n))


@contextlib.contextmanager
def as_process(index: int, of: int, *, local_device_count: Dealing = None
               ) -> Iterator[ProcessIdentity]:
    """Within it the calling thread is process `index` of `of`, and sees what that process sees.

    The other processes are other threads that enter `as_process` with the same numbers. Values of
    the process's own devices need nobody; a computation on an array that several processes hold
    waits for all, and `ProcessMismatchError` ends them if one is missing or does otherwise.

    index: from 0. of: the number of processes. local_device_count: devices of each process, or a
      sequence of one number each; by default the devices are dealt out evenly, in order.
    Raises ValueError for a number out of range, RuntimeError if the process runs already.

    >>> with st.distributed.as_process(1, of=4):
    ...     st.process_index(), st.process_count(), st.local_devices()
    (1, 4, [CpuDevice(id=2), CpuDevice(id=3)])
    """
    if of < 1 or not 0 <= index < of:
        raise ValueError(f"there is no process {index} of {of}: numbers go from 0 to {of - 1}")
    owners = deal_devices(of, local_device_count)
    now = current_coordinator()
    if now is not None and now.identity is ProcessIdentity(index, owners):
        yield now.identity               # already there
        return
    with _open.lock:
        world = _open.worlds.get(owners)
        if world is None or world.broken is not None:
            world = _open.worlds[owners] = World(of)
        world.enter(index)
    error: BaseException | None = None
    try:
        with process_scope(index, owners) as identity, \
                coordinator_scope(ThreadCoordinator(world, identity)):
            yield identity
    except BaseException as e:
        error = e
        raise
    finally:
        with _open.lock:
            if world.leave(index, error, for_good=False) and _open.worlds.get(owners) is world:
                del _open.worlds[owners]


def run_processes(function: Callable[..., Any], count: int, *args: Any,
                  local_device_count: Dealing = None, **kwargs: Any) -> list[Any]:
    """Run `function` in `count` simulated processes side by side; their results, in order.

    It is called with the arguments given, and with the number of the process before them if it
    needs one more. `exec` runs a script's text in each process as a module of its own, as
    `__main__`. The context mesh and the configuration of the caller hold in all processes.

    local_device_count: devices of each process, or a sequence of one number each; by default the
      devices are dealt out evenly, in order.
    Raises what a process raised, with a note that names it: the first process by number, and one
    that failed by itself before those that waited for it.

    >>> st.distributed.run_processes(lambda: st.local_device_count(), 4)
    [2, 2, 2, 2]
    >>> st.distributed.run_processes(lambda i, x: i * x, 3, 10)
    [0, 10, 20]
    """
    if count < 1:
        raise ValueError(f"a program needs a process to run it, got count={count}")
    owners = deal_devices(count, local_device_count)
    world = World(count, started=True)
    numbered = _takes_one_more(function, args, kwargs)
    alone = function in (exec, eval) and len(args) == 1 and "globals" not in kwargs
    results: list[Any] = [None] * count
    errors: list[BaseException | None] = [None] * count
    inherited = (STATE.mesh, STATE.abstract_mesh, STATE.overrides, STATE.override_entries)

    def process(index: int) -> None:
        STATE.mesh, STATE.abstract_mesh, STATE.overrides, STATE.override_entries = inherited
        world.enter(index)
        try:
            with process_scope(index, owners) as identity, \
                    coordinator_scope(ThreadCoordinator(world, identity)):
                first = (index,) if numbered else ()
                last = ({"__name__": "__main__"},) if alone else ()
                results[index] = function(*first, *args, *last, **kwargs)
        except BaseException as e:
            errors[index] = e
        finally:
            world.leave(index, errors[index], for_good=True)

    threads = [threading.Thread(target=contextvars.copy_context().run, args=(process, i),
                                name=f"process {i} of {count}", daemon=True) for i in range(count)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)         # not for ever, so that an interrupt comes through
    except BaseException:
        world.stop("the processes were interrupted")
        raise
    _raise_first(errors, count)
    return results


def _raise_first(errors: Sequence[BaseException | None], count: int) -> None:
    failed = [(i, e) for i, e in enumerate(errors) if e is not None]
    if not failed:
        return
    # An error that came to all from a call they made together is the same one, in copies.
    index, first = next(((i, e) for i, e in failed if not isinstance(e, ProcessMismatchError)),
                        failed[0])
    first.add_note(f"in process {index} of {count}")
    raise first


def _takes_one_more(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
                    ) -> bool:
    """Does the function need one more positional argument than it is given?"""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [p for p in parameters if p.default is p.empty and p.name not in kwargs
              and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(needed) == len(args) + 1

