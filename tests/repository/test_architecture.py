"""The direction of imports, read from the sources with `ast`.

    ir  <-  tracer, partitioner, runtime  <-  driver  <-  api, cli, __init__.py
    ir  <-  arrays  <-  runtime  <-  engines  <-  driver;  partitioner  <-  report  <-  driver
    driver  <-  interop
    driver  <-  studio  <-  cli, __init__.py

A folder imports itself and what lies below it; tracer, partitioner and runtime do not know each
other. Inside a folder there is no cycle, and no import hides in a function: what is heavy is
loaded through `ir/support/lazy.py`.
"""
from __future__ import annotations

import ast
import functools
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import networkx

from ..paths import ROOT

BELOW = {
    "ir": {"ir"},
    "tracer": {"ir", "tracer"},
    "partitioner": {"ir", "partitioner"},
    "arrays": {"ir", "arrays"},
    "runtime": {"ir", "arrays", "runtime"},
    "report": {"ir", "partitioner", "report"},
    "engines": {"ir", "arrays", "runtime", "engines"},
    "driver": {"ir", "tracer", "partitioner", "report", "arrays", "runtime", "engines", "driver"},
    "interop": {"ir", "tracer", "partitioner", "report", "arrays", "engines", "driver", "interop"},
    "planning": {"ir", "tracer", "partitioner", "report", "driver", "planning"},
    "studio": {"ir", "partitioner", "report", "driver", "studio"},
    "as_jax": {"ir", "tracer", "driver", "api", "as_jax"},
    "api": {"ir", "tracer", "partitioner", "report", "arrays", "engines", "driver", "api"},
    "cli": {"ir", "tracer", "partitioner", "report", "arrays", "runtime", "engines", "driver",
            "interop", "planning", "studio", "api", "cli"},
    "__main__": {"cli"},
    "__init__": {"ir", "tracer", "partitioner", "report", "arrays", "runtime", "engines", "driver",
                 "planning", "studio", "api", "cli", "__init__"},
}
HEAVY = ("jax", "lark", "llvmlite", "mpi4py", "networkx", "opt_einsum", "rich", "safetensors",
         "scipy")
SELDOM = (
    "hashlib", "html", "json", "logging", "zipfile", "shardtrace.ir.ops.dialect",
    "shardtrace.ir.shardings.hlo_sharding", "shardtrace.ir.ops.linalg.decompositions",
    "shardtrace.ir.ops.random.primitives",
    "shardtrace.ir.text.print", "shardtrace.runtime.callbacks",
    "shardtrace.runtime.per_device.executor", "shardtrace.tracer.advice.advice",
    "shardtrace.tracer.jnp.fft", "shardtrace.tracer.jnp.linalg")
LOADERS = ("__import__", "import_module", "lazy_import")
IMPORTS = ast.Import, ast.ImportFrom
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda
LAZY_LOADERS = {"ir/support/lazy.py", "__init__.py", "cli/__init__.py", "as_jax/standing_in.py",
                "studio/pytest_plugin.py"}


def _sources() -> list[pathlib.Path]:
    folders = [name for name in BELOW if (ROOT / name).is_dir()]
    inside = [path for name in folders for path in (ROOT / name).rglob("*.py")]
    return sorted([*(path for path in ROOT.glob("*.py") if path.name != "setup.py"), *inside])


SOURCES = _sources()
MODULES = {
    path: tuple(part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__")
    for path in SOURCES
}
BY_NAME = {name: path for path, name in MODULES.items()}


def _tree(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _level(path: pathlib.Path) -> str:
    """The floor that a file stands on: its folder, or its own name at the root."""
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert first in BELOW, f"{path} stands on no floor"
    return first


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def _loads(node: ast.AST) -> bool:
    """Is it an import, or a call that may load a module?"""
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(
            node.func, "id", "")
        return called in LOADERS
    return isinstance(node, IMPORTS)


def _nodes(path: pathlib.Path, typing: bool = False) -> list[tuple[ast.AST, bool]]:
    """What loads modules, each with whether it runs in a function. typing: what stands under
    `if TYPE_CHECKING`; else all but that.
    """
    return _loading_nodes(path)[typing]


@functools.cache
def _loading_nodes(path: pathlib.Path) -> dict[bool, list[tuple[ast.AST, bool]]]:
    found: dict[bool, list[tuple[ast.AST, bool]]] = {False: [], True: []}
    source = path.read_text()
    calls = any(name in source for name in LOADERS)         # else no expression loads anything
    left: list[tuple[ast.AST, bool, bool]] = [(_tree(path), False, False)]
    while left:
        node, in_function, in_typing = left.pop()
        if _loads(node):
            found[in_typing].append((node, in_function))
        inside = in_function or isinstance(node, FUNCTIONS)
        left += [(child, inside, in_typing or _is_type_checking(child))
                 for child in ast.iter_child_nodes(node)
                 if calls or not isinstance(child, ast.expr)]
    return found


def _public_module(parts: tuple[str, ...]) -> tuple[str, ...]:
    """`shardtrace.numpy` lives in api/numpy; everything else where its name says."""
    if parts and parts not in BY_NAME and ("api", *parts) in BY_NAME:
        return ("api", *parts)
    return parts


def _targets(path: pathlib.Path, node: ast.AST) -> Iterator[tuple[str, ...]]:
    """The modules of ours that an import statement names, as paths from the root."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            first, *rest = alias.name.split(".")
            if first == "shardtrace":
                yield _public_module(tuple(rest))
    elif isinstance(node, ast.ImportFrom):
        name = tuple(node.module.split(".")) if node.module else ()
        if node.level:
            package = MODULES[path] if path.name == "__init__.py" else MODULES[path][:-1]
            up = node.level - 1
            assert up <= len(package), f"{path}: relative import beyond the root"
            base = (*package[: len(package) - up], *name)
        elif name[:1] == ("shardtrace",):
            base = _public_module(name[1:])
        else:
            return
        for alias in node.names:
            deeper = _public_module((*base, alias.name))
            yield deeper if deeper in BY_NAME else base


@functools.cache
def _imports(path: pathlib.Path) -> list[tuple[tuple[str, ...], int]]:
    return _imported(path, typing=False)


def _imported(path: pathlib.Path, typing: bool) -> list[tuple[tuple[str, ...], int]]:
    return [(target, node.lineno) for node, _ in _nodes(path, typing)
            if isinstance(node, ast.Import | ast.ImportFrom) for target in _targets(path, node)]


def test_imports_point_down() -> None:
    for path in SOURCES:
        allowed = BELOW[_level(path)]
        for target, line in _imports(path):
            floor = _level(ROOT.joinpath(*target)) if target else "__init__"
            assert floor in allowed, f"{path}:{line} imports {'.'.join(target) or 'shardtrace'}"


@functools.cache
def _lazy_imports(path: pathlib.Path) -> list[tuple[tuple[str, ...], int]]:
    """The modules of ours that a file loads through `lazy_import`."""
    found = []
    for node, _ in _nodes(path):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                and node.func.id == "lazy_import"):
            continue
        name = ast.literal_eval(node.args[0])
        if not name.startswith("."):
            assert not name.startswith("shardtrace"), f"{path}:{node.lineno}"
            continue
        up = len(name) - len(name.lstrip("."))
        up -= path.name == "__init__.py"           # a package is what its `.` means
        target = (*MODULES[path][:len(MODULES[path]) - up], *name.lstrip(".").split("."))
        assert target in BY_NAME, f"{path}:{node.lineno} loads {'.'.join(target)}"
        found.append((target, node.lineno))
    return found


@functools.cache
def _typing_imports(path: pathlib.Path) -> list[tuple[tuple[str, ...], int]]:
    """The modules of ours that a file imports for the type checker alone."""
    return _imported(path, typing=True)


def test_what_loads_late_lies_below_too() -> None:
    for path in SOURCES:
        allowed = BELOW[_level(path)]
        for target, line in _lazy_imports(path):
            assert _level(BY_NAME[target]) in allowed, f"{path}:{line}"


def _cycles(imports: Callable[[pathlib.Path], list[tuple[tuple[str, ...], int]]],
            sources: list[pathlib.Path]) -> list[list[str]]:
    graph = networkx.DiGraph()
    for path in sources:
        for target, _ in imports(path):
            # `from . import x` in a package's own __init__ names the package itself.
            if target != MODULES[path]:
                graph.add_edge(".".join(MODULES[path]), ".".join(target))
    return [sorted(part) for part in networkx.strongly_connected_components(graph) if len(part) > 1]


def test_no_import_cycles() -> None:
    assert _cycles(_imports, SOURCES) == []


def test_no_cycles_through_imports_that_come_late_or_never() -> None:
    """What a module loads lazily, or names in annotations alone, does not lead back to it."""
    assert _cycles(lambda path: _imports(path) + _lazy_imports(path) + _typing_imports(path),
                   SOURCES) == []


# Families of numpy's functions, not layers: each is written with functions of the others.
FAMILIES = {"tracer.jnp"}


def test_rooms_are_built_on_each_other() -> None:
    """The folders and files in a folder import each other in one direction only, late and for the
    type checker too: each can be read alone."""
    rooms: dict[str, networkx.DiGraph] = {}
    for path in SOURCES:
        importer = MODULES[path]
        for target, _ in _imports(path) + _lazy_imports(path) + _typing_imports(path):
            shared = 0
            while shared < min(len(importer), len(target)) and importer[shared] == target[shared]:
                shared += 1
            if shared < min(len(importer), len(target)):
                rooms.setdefault(".".join(importer[:shared]), networkx.DiGraph()).add_edge(
                    importer[shared], target[shared])
    assert len(rooms) > 60
    circles = {name: sorted(part) for name, graph in rooms.items()
               for part in networkx.strongly_connected_components(graph) if len(part) > 1}
    assert set(circles) == FAMILIES, circles


def test_no_import_inside_a_function() -> None:
    loaders = ("__import__", "importlib.import_module", "import_module")
    for path in SOURCES:
        if str(path.relative_to(ROOT)) in LAZY_LOADERS:
            continue
        for node, in_function in _nodes(path):
            if in_function:
                assert not isinstance(node, ast.Import | ast.ImportFrom), f"{path}:{node.lineno}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                assert ast.unparse(node.func) not in loaders, (
                    f"{path}:{node.lineno} loads a module; ir/support/lazy.py does that")


def test_mpi4py_is_imported_by_its_engine_alone() -> None:
    for path in SOURCES:
        for node, _ in _nodes(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [a.value for a in node.args if isinstance(a, ast.Constant)] if isinstance(
                node, ast.Call) else []
            if any(str(name).split(".")[0] == "mpi4py" for name in names):
                assert MODULES[path][:2] == ("engines", "mpi"), path


def test_imports_across_folders_are_relative() -> None:
    for path in SOURCES:
        if _level(path) == "api":
            continue
        for node, _ in _nodes(path):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names = [node.module]
            assert "shardtrace" not in [name.split(".")[0] for name in names], (
                f"{path}:{node.lineno}")


def test_api_only_imports_and_names() -> None:
    """Public modules re-export: no function, class or computation of their own."""
    allowed = ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr
    for path in SOURCES:
        if _level(path) != "api":
            continue
        for node in _tree(path).body:
            lazy = isinstance(node, ast.FunctionDef) and node.name in ("__getattr__", "__dir__")
            assert isinstance(node, allowed) or lazy or _is_type_checking(node), (
                f"{path}:{node.lineno}")


def _run(program: str, *flags: str) -> str:
    done = subprocess.run([sys.executable, *flags, "-c", program], capture_output=True, text=True,
                          cwd=ROOT / "tests", timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_ir_works_alone() -> None:
    """Every module of ir imports in a package that has no other folder and no __init__."""
    names = [f"shardtrace.{'.'.join(name)}" for name in BY_NAME if name[:1] == ("ir",)]
    loaded = _run(
        "import importlib, sys, types\n"
        "package = types.ModuleType('shardtrace')\n"
        f"package.__path__ = [{str(ROOT)!r}]\n"
        "sys.modules['shardtrace'] = package\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print(*sorted({m.split('.')[1] for m in sys.modules if m.startswith('shardtrace.')}))"
    )
    assert loaded == "ir"


def test_ops_are_found_by_name_also_where_assertions_are_off() -> None:
    assert _run("from shardtrace.ir.op import OPS\nprint(OPS['schur'])", "-O") == "schur"


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = _run(
        "import sys, shardtrace, shardtrace.numpy, shardtrace.lax\n"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert loaded == ""


def test_importing_numpy_names_loads_nothing_seldom_needed() -> None:
    """Neither does a first result."""
    loaded = _run(
        "import sys, numpy\n"
        "before = set(sys.modules)\n"
        "import shardtrace.numpy\n"
        "shardtrace.jit(lambda x: x + 1)(1.0)\n"
        f"print(*[name for name in {SELDOM!r} if name in sys.modules and name not in before])"
    )
    assert loaded == ""


def test_importing_numpy_names_compiles_no_dataclass() -> None:
    """Each would compile the source of six methods."""
    made = _run(
        "import dataclasses\n"
        "made, make = [], dataclasses._process_class\n"
        "def made_of(cls, *args):\n"
        "    made.append(cls)\n"
        "    return make(cls, *args)\n"
        "dataclasses._process_class = made_of\n"
        "import shardtrace.numpy\n"
        "print(*[c for c in made if c.__module__.startswith('shardtrace')])"
    )
    assert made == ""
