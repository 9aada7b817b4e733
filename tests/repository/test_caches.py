"""Every cache has a bound and stands in the table of caches; memory reaches a plateau."""
from __future__ import annotations

import ast
import functools
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shardtrace as st
from shardtrace.ir.support.caches import CACHES, Bounded, ProgramCache, tables
from shardtrace.tracer.staging.memoized import Known

from ..paths import ROOT

ROOMS = ("ir", "tracer", "partitioner", "arrays", "runtime", "report", "driver", "api", "cli")
# Module-level containers that functions write to and that are no caches: filled by declarations,
# one entry for what the user registers, or weak.
REGISTRIES = {
    "driver/jit/jitted.py": {"JITTED"}, "driver/jit/shared_traces.py": {"CLAIMS", "_WAITING"},
    "ir/api_boundary.py": {"_BOUNDED", "_MADE"},
    "ir/support/caches.py": {"CACHES"}, "ir/meshes/device.py": {"_TABLE"},
    "ir/dtypes/table.py": {"KEY_DTYPES", "_BY_LONG", "_BY_SHORT", "_KEYS"},
    "ir/meshes/manual_state.py": {"_states"}, "ir/meshes/mesh.py": {"_ABSTRACT_MESHES", "_MESHES"},
    "ir/op.py": {"OPS"},
    "ir/param_types.py": {"PARAM_TYPES"}, "ir/passes.py": {"PASSES"},
    "ir/meshes/process.py": {"_IDENTITIES"},
    "ir/shardings/sharding.py": {"_NAMED", "_SINGLE"}, "ir/spec.py": {"_TABLE"},
    "ir/types.py": {"_types"}, "ir/shardings/normalized.py": {"_no_sharding"},
    "partitioner/propagation/divisibility.py": {"_given"},
    "arrays/array.py": {"_KEYS"}, "arrays/host_view.py": {"_REFERENCED"},
    "arrays/live.py": {"_known"}, "ir/support/threads.py": {"_POOL"},
    "ir/kernels/matrices/blas_threads.py": {"_FOUND"},
    "tracer/autodiff/call_rules.py": {"CALL_RULES"},
    "tracer/random/user_generators.py": {"_DTYPES", "_IMPLS"},
}
WRITES = {"append", "add", "setdefault", "update", "extend", "insert"}


def modules() -> Iterator[Any]:
    for found in pkgutil.iter_modules(st.__path__, "shardtrace."):
        if found.name.split(".")[1] not in ROOMS:       # to import shardtrace.as_jax has an effect
            continue
        package = importlib.import_module(found.name)
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


def test_every_cache_of_a_module_is_in_the_table() -> None:
    listed = {id(row.cache) for row in CACHES.values()}
    for module in list(modules()):
        places = [module, *[v for v in vars(module).values()
                            if isinstance(v, type) and v.__module__ == module.__name__]]
        listed.update(id(row.cache) for row in CACHES.values())
        for place in places:
            for name, value in vars(place).items():
                tables = weakref.WeakKeyDictionary, Bounded, ProgramCache
                is_cache = isinstance(value, tables) or (
                    isinstance(value, functools._lru_cache_wrapper)
                    and value.__wrapped__.__code__.co_argcount > 0
                    if hasattr(getattr(value, "__wrapped__", None), "__code__")
                    else isinstance(value, functools._lru_cache_wrapper))
                assert not is_cache or id(value) in listed, (
                    f"{place.__name__}.{name} is not in CACHES: write `cached` or `module_table`")


def test_every_row_says_what_it_holds_and_has_a_bound() -> None:
    list(modules())
    for name, row in CACHES.items():
        assert row.holds, f"{name} needs a docstring or `holds`"
        assert 0 < row.most <= 50_000
        info = getattr(row.cache, "cache_info", None)
        assert info is None or info().maxsize == row.most, name


@pytest.mark.parametrize("room", ROOMS)
def test_functions_write_to_no_other_containers_of_modules(room: str) -> None:
    for path in sorted((ROOT / room).rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        found = set(written(ast.parse(path.read_text())))
        module = "shardtrace." + place[:-3].replace("/", ".")
        rows = {id(row.cache) for row in CACHES.values()}
        for name in found - REGISTRIES.get(place, set()):
            value = getattr(sys.modules.get(module), name, None)
            if isinstance(value, (dict, list, set, weakref.WeakKeyDictionary)):
                assert id(value) in rows, f"{place}: {name} grows, and is not in CACHES"


def written(tree: ast.Module) -> Iterator[str]:
    """Names of a module that a function in it adds to."""
    names = {t.id for n in tree.body if isinstance(n, (ast.Assign, ast.AnnAssign))
             for t in (n.targets if isinstance(n, ast.Assign) else [n.target])
             if isinstance(t, ast.Name)}
    left: list[tuple[ast.AST, bool]] = [(tree, False)]
    while left and names:
        n, in_function = left.pop()
        in_function = in_function or isinstance(n, (ast.FunctionDef, ast.Lambda))
        left += [(child, in_function) for child in ast.iter_child_nodes(n)]
        targets: list[Any] = []
        if isinstance(n, ast.Assign):
            targets = [t.value for t in n.targets if isinstance(t, ast.Subscript)]
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) \
                and n.func.attr in WRITES:
            targets = [n.func.value]
        if in_function:
            yield from [t.id for t in targets if isinstance(t, ast.Name) and t.id in names]


def test_the_oldest_make_room() -> None:
    table: Bounded[int, int] = tables("test", "numbers", 16)()
    del CACHES["test"]
    for i in range(100):
        table[i] = -i
        assert len(table) <= 16 and table[i] == -i
    assert min(table) > 80
    for _ in range(5):
        table[99] = 0                       # what is there is written in its place
    assert len(table) > 10


def test_threads_share_a_table() -> None:
    table: Bounded[int, int] = tables("test", "numbers", 64)()
    del CACHES["test"]
    wrong: list[BaseException] = []

    def write(start: int) -> None:
        try:
            for i in range(start, start + 5_000):
                table[i] = i
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=write, args=(10_000 * i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and len(table) < 64 + 4


def test_all_are_emptied() -> None:
    st.jit(st.grad(lambda x: st.nn.softmax(x).sum()))(np.ones(5, np.float32))
    assert sum(len(row) for row in CACHES.values()) > 50
    st.clear_caches()
    assert not [name for name, row in CACHES.items() if len(row)]


CASES = """
import functools, gc, sys, tracemalloc
import numpy as np
import shardtrace as st
import shardtrace.numpy as jnp
P = st.sharding.PartitionSpec
x = np.ones(4, np.float32)
by_shape = st.jit(lambda x: jnp.tanh(x * 2).sum())
by_static = st.jit(lambda x, n: x * n, static_argnums=1)
tree = st.jit(lambda d: [v * 2 for v in d.values()])

def shapes(i): by_shape(np.ones(i % 1000 + 1, np.float32))
def statics(i): by_static(x, i)
def trees(i): tree({f"k{i}": x})
def eager(i): (jnp.ones((i % 1000 + 1,), jnp.float32) * 2).sum()
def functions(i): st.jit(lambda x: x * float(i))(x)
def derivatives(i): st.jit(st.grad(lambda x: (x * float(i)).sum()))(x)
def held(i):
    def f(x): return st.pure_callback(lambda a: f and a * i, st.ShapeDtypeStruct((4,), x.dtype), x)
    st.jit(f)(x)
def partials(i): st.jit(functools.partial(lambda k, x: x * k, i))(x)
def meshes(i):
    mesh = st.make_mesh((2, 4), (f"a{i}", "b"))
    y = st.device_put(np.ones((8, 8), np.float32), st.NamedSharding(mesh, P(f"a{i}", "b")))
    st.jit(lambda y: (y @ y).sum(0))(y)

run, count = globals()[sys.argv[1]], int(sys.argv[2])
for i in range(2 * count):
    run(i)
gc.collect()
tracemalloc.start()
def used():
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
before = used()
for i in range(2 * count, 3 * count):
    run(i)
middle = used()
for i in range(3 * count, 4 * count):
    run(i)
print((used() - middle) / count)
"""


@pytest.mark.parametrize("case", ["shapes", "statics", "eager", "functions", "held"])
def test_memory_reaches_a_plateau(case: str) -> None:
    assert growth(case, 60) < 2000


@pytest.mark.slow
@pytest.mark.parametrize("case", ["trees", "derivatives", "partials", "meshes"])
def test_memory_reaches_a_plateau_for_others(case: str) -> None:
    assert growth(case, 150) < 2000


@pytest.mark.slow
def test_memory_reaches_a_plateau_with_usual_bounds() -> None:
    assert growth("shapes", 1500, {}) < 3000


def growth(case: str, count: int, environ: Any = {"SHARDTRACE_CACHE_SIZE": "16"}) -> float:  # noqa: B006
    """Bytes that one more thing of a kind costs, after three times `count` of them."""
    done = subprocess.run([sys.executable, "-c", CASES, case, str(count)], check=True, text=True,
                          capture_output=True, env={**os.environ, **environ})
    return float(done.stdout)


def test_the_documentation_lists_the_tables_with_their_bounds() -> None:
    list(modules())
    text = (ROOT / "docs/caches.md").read_text()
    listed = dict(re.findall(r"^\| `([\w.]+)` \|.*\| ([\d,]+) \|$", text, re.M))
    tables = {name: f"{row.most:,}" for name, row in CACHES.items()
              if not hasattr(row.cache, "cache_info") and not isinstance(row.cache, Known)
              and not name.endswith(".jvp")}
    assert listed == tables
