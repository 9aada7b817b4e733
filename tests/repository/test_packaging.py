"""What setup.py finds is what the tree holds, and nothing at the root shadows a library."""
from __future__ import annotations

import ast
import importlib
import importlib.metadata
import json
import pathlib
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator

import pytest

from ..copies import Run, copies
from ..paths import ROOT
from ..rows import rows

NOT_PACKAGED = {"tests", "examples", "benchmarks", "docs", "build", "dist"}


def _packages() -> dict[str, pathlib.Path]:
    """Every package that the tree holds, by its public name: those of api/ lose that folder."""
    found = {}
    for path in ROOT.rglob("__init__.py"):
        parts = path.relative_to(ROOT).parts[:-1]
        if parts == ("api",) or (parts and (parts[0].startswith(".") or parts[0] in NOT_PACKAGED)):
            continue
        found[".".join(("shardtrace", *parts[parts[:1] == ("api",):]))] = path.parent
    return dict(sorted(found.items()))


PACKAGES = _packages()


def test_setup_finds_every_package_of_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("setuptools")                   # brings the `distutils` that it uses
    core = importlib.import_module("distutils.core")
    monkeypatch.chdir(ROOT)
    distribution = core.run_setup("setup.py", stop_after="init")
    assert sorted(distribution.packages) == list(PACKAGES)


# To import them is to stand in for jax, in the whole process.
BY_NAME = [package for package in PACKAGES if package.startswith("shardtrace.as_jax")]
HERE = [package for package in PACKAGES if package not in BY_NAME]


@rows("package", HERE)
def test_listed_package_imports(package: str) -> None:
    assert importlib.import_module(package).__doc__, f"{package} says what it is for"


def test_what_stands_in_for_jax_imports() -> None:
    done = subprocess.run([sys.executable, "-c", f"""
import importlib, pkgutil
for package in {BY_NAME!r}:
    holder = importlib.import_module(package)
    names = [package, *(f"{{package}}.{{m.name}}" for m in pkgutil.iter_modules(holder.__path__)
                        if m.name != "__main__")]
    for name in names:
        module = importlib.import_module(name)
        assert module.__doc__, name
        assert all(hasattr(module, x) for x in getattr(module, "__all__", ())), name
"""], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_nothing_at_the_root_shadows_a_library() -> None:
    """Started in the root, Python finds our folders first: none may be called like a library."""
    libraries = {*sys.stdlib_module_names, "numpy", "scipy", "jax", "lark", "rich", "networkx"}
    names = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert names & libraries == set()


@pytest.fixture(scope="module")
def with_numpy() -> Iterator[Run]:
    """A fresh Python for each text, but for numpy."""
    with copies("import numpy, numpy.random") as run:
        yield run


@pytest.mark.parametrize(
    "statement",
    [
        "import shardtrace.numpy as jnp; jnp.arange",
        "import shardtrace.numpy.linalg",
        "from shardtrace import lax, nn, random; lax.psum, nn.sigmoid, random.key",
        "from shardtrace import numpy as jnp; jnp.sin",
        "from shardtrace.sharding import AxisType, Mesh, NamedSharding, PartitionSpec",
        "from shardtrace.sharding import auto_axes, explicit_axes, reshard, use_mesh",
        "from shardtrace.experimental.shard_map import shard_map",
        "from shardtrace.experimental import mesh_utils; mesh_utils.create_device_mesh",
        "from shardtrace.tree_util import tree_map, register_pytree_node_class",
        "import shardtrace as st; st.tree.map, st.tree_util.tree_map, st.debug.show_types",
        "import shardtrace as st; st.device_count(), st.local_device_count(), st.devices()",
        "import shardtrace as st; st.P, st.jit, st.typeof, st.make_mesh, st.set_mesh, st.shard_map",
        "import shardtrace as st; st.numpy.sin, st.lax.sin, st.nn.relu, st.random.key",
        "import shardtrace as st; st.sharding.NamedSharding, st.NamedSharding, st.Array",
        "import shardtrace as st; st.errors.TracerBoolConversionError, st.typing.ArrayLike",
        "import shardtrace.nn.initializers, shardtrace.scipy.special, shardtrace.dtypes",
    ],
)
def test_imports_of_a_notebook_work(statement: str, with_numpy: Run) -> None:
    status, _, complaints = with_numpy(statement)
    assert status == 0, complaints


def test_dir_lists_what_exists() -> None:
    import shardtrace

    missing = [name for name in dir(shardtrace) if not hasattr(shardtrace, name)]
    assert missing == []


def test_public_names_are_in_all_and_exist() -> None:
    for package in HERE:
        module = importlib.import_module(package)
        missing = [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)]
        assert missing == [], package


def test_type_checkers_are_told_what_runs() -> None:
    """Each import for them gives the object that the table gives, and not a module of its name."""
    import shardtrace

    told = [node for node in ast.walk(ast.parse((ROOT / "__init__.py").read_text()))
            if isinstance(node, ast.ImportFrom) and node.module and node.level]
    assert len(told) > 20
    for node in told:
        module = importlib.import_module(f".{node.module}", "shardtrace")
        for alias in node.names:
            owner, attribute = shardtrace._NAMES[alias.name]
            runs = getattr(importlib.import_module(owner, "shardtrace"), attribute)
            assert getattr(module, alias.name) is runs, alias.name


@pytest.mark.parametrize("package", ["jnp", "lax"])
def test_names_of_modules_that_load_late_are_all_of_theirs(package: str) -> None:
    names = importlib.import_module(f"shardtrace.tracer.{package}").LAZY
    for module, listed in names.items():
        if module.startswith("."):
            loaded = importlib.import_module(module, f"shardtrace.tracer.{package}")
            assert sorted(listed) == sorted(loaded.__all__), module


@pytest.mark.slow
def test_wheel_holds_the_package_and_nothing_else(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("build")
    source = tmp_path / "source"
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.split("\n")
    if len(files) < 2:
        pytest.skip("not a git checkout")
    for name in filter(None, files):
        if (ROOT / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(tmp_path)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    modules = {name for name in names if name.endswith(".py")}
    wanted = {
        f"{package.replace('.', '/')}/{path.name}"
        for package in PACKAGES
        for path in PACKAGES[package].glob("*.py")
        if path != ROOT / "setup.py"
    }
    assert modules == wanted
    assert "shardtrace/py.typed" in names and "shardtrace/pyproject.toml" not in names
    assert {f"shardtrace/{p.relative_to(ROOT)}" for p in ROOT.glob("ir/**/*.lark")} <= set(names)


def test_notebook_has_the_cells_of_the_script() -> None:
    script = (ROOT / "examples" / "sharding_tour.py").read_text()
    notebook = json.loads((ROOT / "examples" / "sharding_tour.ipynb").read_text())
    blocks = [block.split("\n", 1) for block in script.split("# %%")[1:]]
    assert len(blocks) == len(notebook["cells"])
    for (header, body), cell in zip(blocks, notebook["cells"], strict=True):
        source = "".join(cell["source"])
        if "[markdown]" in header:
            assert cell["cell_type"] == "markdown"
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.strip().split("\n")]
            assert source == "\n".join(lines)
        else:
            assert cell["cell_type"] == "code"
            assert source == body.strip("\n")


def test_notebook_is_valid() -> None:
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.read(ROOT / "examples" / "sharding_tour.ipynb", as_version=4))


def test_the_version_is_that_of_the_distribution() -> None:
    import shardtrace

    assert shardtrace.__version__ == importlib.metadata.version("shardtrace")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert shardtrace.__version__ == declared
