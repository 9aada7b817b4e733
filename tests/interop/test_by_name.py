"""Programs written for jax, run by that name: each prints what it prints with JAX.

tests/record/by_name.py records that; what the programs need beside JAX is read from their imports.
"""
from __future__ import annotations

import ast
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from ..copies import Run, copies
from ..paths import GOLDEN, TESTS

PROGRAMS = sorted((TESTS / "interop" / "by_name").glob("*.py"))
RECORDED = json.loads((GOLDEN / "by_name.json").read_text())
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def run(*arguments: str, cwd: pathlib.Path | None = None, **environment: str
        ) -> subprocess.CompletedProcess[str]:
    """A fresh Python, since the name is taken for a whole process."""
    return subprocess.run([sys.executable, "-W", "ignore", *arguments], capture_output=True,
                          text=True, cwd=cwd, env={**os.environ, **environment})


@pytest.fixture(scope="module")
def by_name() -> Iterator[Run]:
    """Exit status, output and complaints of a text that begins with `import shardtrace.as_jax`."""
    with copies("import shardtrace.as_jax") as run:
        yield run


@pytest.fixture
def printed(by_name: Run) -> Callable[[str], str]:
    """What a text prints that begins with `import shardtrace.as_jax`."""
    def of(program: str) -> str:
        status, out, complaints = by_name(program)
        assert status == 0, complaints
        return out.strip()
    return of


def needed(path: pathlib.Path) -> set[str]:
    """The packages that a program imports besides jax."""
    nodes = [node for node in ast.walk(ast.parse(path.read_text()))
             if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {name for node in nodes for name in (
        [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module])}
    return {name.partition(".")[0] for name in names} - {"jax"}


@pytest.mark.parametrize("path", PROGRAMS, ids=[path.stem for path in PROGRAMS])
def test_programs_print_what_they_print_with_jax(path: pathlib.Path) -> None:
    for package in needed(path):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}")
    done = run("-m", "shardtrace.as_jax", str(path))
    assert done.returncode == 0, done.stderr
    lines, expected = done.stdout.splitlines(), RECORDED[path.stem]
    assert [NUMBER.sub("#", line) for line in lines] == [NUMBER.sub("#", e) for e in expected]
    for line, wanted in zip(lines, expected, strict=True):
        assert [float(x) for x in NUMBER.findall(line)] == pytest.approx(
            [float(x) for x in NUMBER.findall(wanted)], rel=1e-4, abs=1e-5), line


@pytest.mark.parametrize("statement", [
    "import jax.numpy as jnp; jnp.sin",
    "import jax; jax.numpy.linalg.norm, jax.scipy.special.erf, jax.nn.initializers.zeros",
    "from jax import lax, random, vmap; lax.psum, random.key",
    "from jax.numpy import *; arange, float32",
    "import jax.scipy.stats.norm as norm; norm.logpdf",
    "from jax.scipy.stats import norm; norm.logpdf",
    "from jax.experimental.shard_map import shard_map",
    "from jax.experimental import mesh_utils, multihost_utils",
    "from jax.sharding import Mesh, NamedSharding, PartitionSpec",
    "from jax.tree_util import tree_map, register_pytree_node_class",
    "from jax.extend.core.primitives import jit_p, add_p; jit_p, add_p",
    "import jax; assert jax.__version__ == '0.10.2' and jax.version.__version_info__ >= (0, 10)",
    "from jax._src import api; from jax._src.lax import lax; api.grad, lax.mul",
    "from jax._src.util import safe_map, safe_zip, split_list; "
    "assert safe_map(max, [1, 4], [2, 3]) == [2, 4]; assert split_list([1, 2], [1]) == [[1], [2]]",
    "import jax.numpy, jax, sys; assert jax.numpy is sys.modules['jax.numpy']",
    "import jax; jax.config.update("
    "'jax_enable_x64', True); assert jax.numpy.ones(2).itemsize == 8",
    "import jax, shardtrace; assert jax.jit is shardtrace.jit and jax.Array is shardtrace.Array",
    "import jax; assert 'jit' in dir(jax) and 'interop' not in dir(jax) and jax.__all__",
    "import jax; jax.config.update('jax_compilation_cache_dir', '/nowhere'); "
    "jax.config.update('jax_logging_level', 'DEBUG'); "
    "assert jax.config.jax_compilation_cache_dir == '/nowhere'",
    "import jax\n"
    "with jax.profiler.StepTraceAnnotation('train', step_num=1):\n"
    "    f = jax.profiler.annotate_function(jax.jit(lambda x: x + 1), name='f')\n"
    "assert f(1) == 2",
    "import jax; from jax.experimental.compute_on import compute_on, compute_on2\n"
    "with compute_on('device_host'):\n"
    "    f = compute_on2(lambda x: 2 * x, compute_type='tpu_sparsecore',\n"
    "                    out_memory_spaces=jax.memory.Space.Device)\n"
    "    assert jax.jit(jax.grad(lambda x: f(x) ** 2))(3.0) == 24.0",
    "import jax.numpy as jnp; jnp.__array_namespace_info__().default_dtypes()",
    "import jax; jax.vmap(lambda x: jax.lax.dce_sink(x))(jax.numpy.arange(3))",
    "from jax._src import traceback_util; traceback_util.UnfilteredStackTrace",
    "import jax.monitoring as m; m.register_event_listener(lambda e, b: e); "
    "m.record_event('/a', b=1)",
])
def test_import_statements_of_jax_give_shardtrace(
        statement: str, printed: Callable[[str], str]) -> None:
    printed(statement)


@pytest.mark.parametrize(("statement", "error", "name"), [
    ("import jax.export", "ModuleNotFoundError", "'jax.export'"),
    ("from jax import export", "ImportError", "'export'"),
    ("import jax; jax.export", "AttributeError", "'export'"),
    ("import jax.numpy as jnp; jnp.no_such", "AttributeError", "'no_such'"),
    ("from jax._src.array import ArrayImpl", "ModuleNotFoundError", "'jax._src.array'"),
    ("import jax; jax._src", "AttributeError", "'_src'"),
    ("import jax; jax.lax.pvary", "AttributeError", "use `jax.lax.pcast(..., to='varying')"),
    ("import jax; jax.device_put_sharded", "AttributeError", "use jax.device_put instead"),
    ("import jax.interop", "ModuleNotFoundError", "'jax.interop'"),
    ("import jax; jax.profiler.start_trace('/nowhere')", "NotImplementedError", "to profile"),
    ("import jax; jax.ffi", "AttributeError", "'ffi'"),
    ("import jax; jax.driver", "AttributeError", "'driver'"),
    ("from jax.experimental.compute_on import compute_on\n"
     "with compute_on('elsewhere'): pass", "ValueError", "elsewhere"),
    ("import jax.interpreters.mlir as m; m.register_lowering(None, None, 'toaster')",
     "NotImplementedError", "unknown platform toaster"),
    ("import jax; jax.ir", "AttributeError", "'ir'"),
    ("from jax.extend.core import Primitive; Primitive('mine').bind(1.0)", "NotImplementedError",
     "`mine`"),
    ("import jax, shardtrace as st; st.interop.from_jax(jax.jit(lambda x: x), 1.0)",
     "ModuleNotFoundError", "needs JAX"),
])
def test_what_is_missing_is_named(statement: str, error: str, name: str, by_name: Run) -> None:
    status, _, complaints = by_name(statement)
    assert status == 1
    assert re.search(rf"^{error}: .*{re.escape(name)}", complaints, re.MULTILINE), complaints


def test_real_jax_is_not_replaced(tmp_path: pathlib.Path) -> None:
    """Whatever was imported as jax before: a program that shares arrays with it would fail late."""
    (tmp_path / "jax.py").write_text("")
    done = run("-c", "import jax, shardtrace.as_jax", cwd=tmp_path)
    assert done.returncode == 1
    assert "ImportError: jax is loaded already, from " in done.stderr
    assert "import shardtrace.as_jax before anything that imports jax" in done.stderr


def test_nothing_stands_in_by_accident() -> None:
    done = run("-c", "import sys, shardtrace.numpy, shardtrace.interop, shardtrace.cli\n"
               "print([n for n in sys.modules if n.split('.')[0] == 'jax' or 'as_jax' in n],\n"
               "      shardtrace.config.read('default_axis_types'))")
    assert done.stdout.strip() == "[] auto", done.stderr


def test_axes_are_explicit_as_in_jax(printed: Callable[[str], str]) -> None:
    assert printed("import jax\nmesh = jax.make_mesh((8,), ('x',))\n"
                   "print(mesh.axis_types[0].name, jax.typeof(jax.device_put(jax.numpy.ones(8), "
                   "jax.NamedSharding(mesh, jax.P('x')))))") == "Explicit float32[8@x]"


def test_arguments_and_modules_are_passed_on(tmp_path: pathlib.Path) -> None:
    (tmp_path / "beside.py").write_text("import jax\nNAME = jax.__name__\n")
    (tmp_path / "program.py").write_text(
        "import sys, beside\nif __name__ == '__main__':\n    print(sys.argv[1:], beside.NAME)\n"
        "    sys.exit(3)\n")
    done = run("-m", "shardtrace.as_jax", str(tmp_path / "program.py"), "--steps", "3")
    assert (done.stdout.strip(), done.returncode) == ("['--steps', '3'] jax", 3)
    done = run("-m", "shardtrace.as_jax", "-m", "program", "-v", cwd=tmp_path)
    assert (done.stdout.strip(), done.returncode) == ("['-v'] jax", 3)


def test_errors_speak_of_the_users_line_and_names(tmp_path: pathlib.Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import jax.numpy as jnp\nx = jnp.ones((2, 3))\nprint(x @ x)\n")
    done = run("-m", "shardtrace.as_jax", str(program))
    assert "program.py:3" in done.stderr and "shardtrace.numpy" not in done.stderr


def test_pickles_of_values_and_functions(printed: Callable[[str], str]) -> None:
    assert printed(
        "import pickle, jax, jax.numpy as jnp\n"
        "x, s, *fs = pickle.loads(pickle.dumps((jnp.arange(3), jax.P('x'), jnp.sin, jnp.add,\n"
        "                                        jnp.cov, jax.vmap, jax.jit, jax.device_put)))\n"
        "print(x, s, fs == [jnp.sin, jnp.add, jnp.cov, jax.vmap, jax.jit, jax.device_put])"
    ) == "[0 1 2] P('x',) True"


def test_known_results_among_unknown_ones(printed: Callable[[str], str]) -> None:
    """What flax's scan asks for: which results of a function depend on what is not known."""
    assert printed("""
import jax, jax.numpy as jnp
from jax.extend import linear_util as lu
from jax.interpreters import partial_eval as pe

def f(x, y):
    return x + 1, y * 2, jnp.ones(2) * 3

avals = [pe.PartialVal.unknown(jax.core.ShapedArray((2,), jnp.float32)),
         pe.PartialVal.known(jnp.arange(2.0))]
@jax.jit
def g():
    _, results, _ = pe.trace_to_jaxpr_nounits(lu.wrap_init(f), avals)
    assert [r.is_known() for r in results] == [False, True, True]
    return results[1][1] + results[2][1]
print(g())""") == "[3. 5.]"


def test_gradients_held_against_differences(printed: Callable[[str], str]) -> None:
    printed("""
import jax, jax.numpy as jnp, pytest
from jax.test_util import check_grads
check_grads(lambda x, y: jnp.sin(x) * y, (jnp.arange(3.0), jnp.ones(3)), order=2)
@jax.custom_jvp
def wrong(x):
    return x * x
wrong.defjvp(lambda primals, tangents: (wrong(*primals), tangents[0]))
with pytest.raises(AssertionError):
    check_grads(wrong, (3.0,), order=1)""")


def test_values_that_a_derivative_moves(printed: Callable[[str], str]) -> None:
    """What equinox asks to tell results with a tangent from others."""
    assert printed("""
import jax, jax.numpy as jnp
from jax.extend.core import find_top_trace
from jax.interpreters import ad

def f(x, y):
    main = find_top_trace((x, y)).main
    moved = x * y
    values = (moved, jnp.sin(moved), jnp.ones(2) * 3, y, 4.0)
    print([isinstance(v, ad.JVPTracer) for v in values], moved._trace.main is main)
    return moved
jax.jvp(lambda x: f(x, 2.0), (1.0,), (1.0,))
jax.jit(lambda x, y: jax.jvp(lambda x: f(x, y), (x,), (x,)))(1.0, 2.0)
print(isinstance(jnp.ones(2), ad.JVPTracer))
""") == ("[True, True, False, False, False] True\n[True, True, False, False, False] True\nFalse")


def test_primitives_of_a_library(printed: Callable[[str], str]) -> None:
    """By their own rules where they are differentiated or mapped, also within jit and loops."""
    assert printed("""
import jax, jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

times_p = Primitive("times")
times_p.def_impl(lambda x, *, k: k * x)
times_p.def_abstract_eval(lambda x, *, k: x)
mlir.register_lowering(times_p, mlir.lower_fun(times_p.impl, multiple_results=False))
ad.primitive_jvps[times_p] = lambda xs, ts, *, k: (
    times_p.bind(*xs, k=k), times_p.bind(*ts, k=k + 100))
batching.primitive_batchers[times_p] = lambda xs, dims, *, k: (
    times_p.bind(*xs, k=k) + 1000, dims[0])
f = lambda x: times_p.bind(x, k=3.0)
x = jnp.arange(2.0)
print(f(1.0), jax.jit(f)(1.0), jax.grad(f)(1.0), jax.vmap(f)(x), jax.vmap(jax.jit(f))(x),
      jax.vmap(jax.grad(f))(x), jax.lax.scan(lambda c, x: (c + f(x), None), 0.0, x)[0])

pair_p = Primitive("pair")
pair_p.multiple_results = True
pair_p.def_impl(lambda x: [x, x.sum()])
print(jax.jit(pair_p.bind)(x))
try:
    jax.grad(lambda x: pair_p.bind(x)[1])(x)
except NotImplementedError as error:
    print(str(error).splitlines()[0])
""") == ("3.0 3.0 103.0 [1000. 1003.] [1000. 1003.] [103. 103.] 3.0\n"
         "[Array([0., 1.], dtype=float32), Array(1., dtype=float32)]\n"
         "Differentiation rule for 'pair' not implemented")


def test_what_can_be_an_array(printed: Callable[[str], str]) -> None:
    assert printed("""
import numpy as np
from jax.extend.core import valid_jaxtype
print([valid_jaxtype(x) for x in (1, 2.0, np.ones(2), np.bool_(True), np.zeros(2, np.longlong))])
print([valid_jaxtype(x) for x in (None, "a", np.str_("a"), np.array("a"), np.ones(2, object),
                                  np.zeros(2, [("i", int)]), np.datetime64(1, "s"), [1])])
""") == f"{[True] * 5}\n{[False] * 8}"
