"""What docstrings say of the sharding in each mode is so, of every function that says it.

The functions are found by the paragraph in their docstrings; each is run over Explicit axes and
inside `shard_map`, and partitioned over Auto axes.
"""
from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn, random
from shardtrace.errors import ShardingTypeError
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P
from shardtrace.tracer import sharding_notes

from ..rows import rows

NAMES = {"jnp": jnp, "jnp.linalg": jnp.linalg, "nn": nn, "lax": lax, "random": random}
MESH = st.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
EXPLICIT = st.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
INTEGERS = ("bitwise", "left_shift", "right_shift", "invert", "shift_", "clz", "population",
            "gcd", "lcm")


def that_say(note: Any) -> list[str]:
    """The public functions whose docstrings have this paragraph, as `jnp.add`."""
    found = {}
    for module, holder in NAMES.items():
        for name in dir(holder):
            f = getattr(holder, name, None)
            if callable(f) and note.text.strip() in (f.__doc__ or ""):
                found.setdefault(id(f), f"{module}.{name}")
    return sorted(found.values())


def function(name: str) -> Any:
    module, _, name = name.rpartition(".")
    return getattr(NAMES[module], name)


def sample(name: str, spec: P | None = None) -> Any:
    dtype: Any = np.int32 if any(word in name for word in INTEGERS) else np.float32
    dtype = np.complex64 if name in ("lax.real", "lax.imag") else dtype
    x = (np.arange(1, 33).reshape(8, 4) / (1 if dtype == np.int32 else 64)).astype(dtype)
    return x if spec is None else st.device_put(x, st.NamedSharding(EXPLICIT, spec))


def entries(x: Any) -> tuple[Any, ...]:
    return tuple(st.typeof(x).sharding.spec)


def varying(f: Any, *args: Any) -> frozenset[str]:
    """Over which axes f of the devices' blocks varies; dimension 0 is split over x, 1 over y."""
    seen = []

    def body(*blocks: Any) -> Any:
        out = f(*blocks)
        seen.append(st.typeof(out).vma)
        return 0.0

    st.eval_shape(st.shard_map(body, mesh=MESH, in_specs=P("x", "y"), out_specs=P()), *args)
    return seen[0]


def operands(name: str) -> int:
    """How many operands are needed."""
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
               for p in inspect.signature(function(name)).parameters.values())


# These take something else beside arrays, or put operands together otherwise.
SPECIAL = {"jnp.outer", "jnp.astype", "lax.convert_element_type", "jnp.clip"}
ELEMENTWISE = [n for n in that_say(sharding_notes.elementwise) if n not in SPECIAL]


def test_the_functions_are_found() -> None:
    assert len(ELEMENTWISE) > 150
    assert {"jnp.sum", "jnp.mean", "jnp.all"} <= set(that_say(sharding_notes.reduction))
    assert {"jnp.sort", "jnp.cumsum", "lax.top_k"} <= set(that_say(sharding_notes.ordered))


@rows("name", ELEMENTWISE)
def test_elementwise_functions_keep_how_operands_are_split(name: str) -> None:
    f, n = function(name), operands(name)
    with st.set_mesh(EXPLICIT):
        if n == 1:
            assert entries(f(sample(name, P("x", "y")))) == ("x", "y")
        else:
            assert n == 2
            assert entries(f(sample(name, P("x", "y")), sample(name, P("x", "y")))) == ("x", "y")
            assert entries(f(sample(name, P("x", None)), sample(name, P()))) == ("x", None)
            with pytest.raises(ShardingTypeError):
                f(sample(name, P("x", None)), sample(name, P("y", None)))
    assert varying(f, *[sample(name)] * n) == {"x", "y"}


@pytest.mark.parametrize("name", that_say(sharding_notes.equal))
def test_where_operands_must_be_split_alike_others_are_refused(name: str) -> None:
    f, condition = function(name), name in ("jnp.where", "lax.select")

    def called(spec: P, other: P) -> Any:
        x, y = sample(name, spec), sample(name, other)
        return f(x > 0, x, y) if condition else f(x, y)

    with st.set_mesh(EXPLICIT):
        assert entries(called(P("x", "y"), P("x", "y"))) == ("x", "y")
        with pytest.raises(ShardingTypeError):
            called(P("x", None), P("y", None))
    assert varying(lambda x: f(x > 0, x, x) if condition else f(x, x), sample(name)) == {"x", "y"}


# What else the reductions of lax are called with.
REDUCED: dict[str, dict[str, Any]] = {
    **{f"lax.reduce_{op}": {"axes": (0,)} for op in ("sum", "prod", "max", "min")},
    **{f"lax.{op}": {"axis": 0, "index_dtype": np.int32} for op in ("argmax", "argmin")}}


@rows("name", [n for n in that_say(sharding_notes.reduction)
               if n not in ("jnp.allclose", "jnp.array_equal")])
def test_reductions_drop_the_axes_of_reduced_dimensions(name: str) -> None:
    split = sample(name, P("x", "y"))
    f = functools.partial(function(name), **REDUCED.get(name, {"axis": 0}))
    with st.set_mesh(EXPLICIT):
        assert entries(f(split)) == ("y",)
    assert varying(f, sample(name)) == {"x", "y"}
    auto = st.ShapeDtypeStruct((8, 4), split.dtype, sharding=st.NamedSharding(MESH, P("x", None)))
    assert st.explain(lambda x: f(x))(auto).collectives


SORTED = {"jnp.unique": {"size": 3}, "jnp.nonzero": {"size": 3}, "jnp.quantile": {"q": 0.5},
          "jnp.nanquantile": {"q": 0.5}, "jnp.percentile": {"q": 50.0},
          "jnp.nanpercentile": {"q": 50.0}, "lax.top_k": {"k": 2}, "jnp.partition": {"kth": 1},
          "jnp.argpartition": {"kth": 1}}


@rows("name", that_say(sharding_notes.ordered))
def test_what_works_along_a_dimension_wants_it_whole(name: str) -> None:
    f, more = function(name), SORTED.get(name, {})
    parameters = inspect.signature(f).parameters
    axis = next((p for p in ("axis", "dimension") if p in parameters), None)

    def along(x: Any, d: int) -> Any:
        out = f(x, **more, **({axis: d} if axis else {}))
        return out[0] if isinstance(out, (tuple, list)) else out

    with st.set_mesh(EXPLICIT):
        with pytest.raises(ShardingTypeError):
            along(sample(name, P("x", None)), 0)
        if axis and name != "jnp.unique":
            assert "x" in entries(along(sample(name, P("x", None)), 1))


@rows("name", that_say(sharding_notes.drawn))
def test_draws_are_whole_unless_out_sharding_says_otherwise(name: str) -> None:
    f, more = function(name), {}
    for p in list(inspect.signature(f).parameters.values())[1:]:
        if p.name == "shape":
            more["shape"] = (8, 4)
        elif p.name == "logits":
            more["logits"] = np.zeros((8, 4, 3), np.float32)
        elif p.default is p.empty and p.name != "shape":
            more[p.name] = {"lower": -1.0, "upper": 1.0, "minval": 0, "maxval": 9}[p.name]
    with st.set_mesh(EXPLICIT):
        whole = f(random.key(0), **more)
        split = f(random.key(0), **more, out_sharding=P("x", "y"))
        assert (entries(whole), entries(split)) == ((None, None), ("x", "y"))
    assert np.array_equal(np.asarray(whole), np.asarray(split))
    assert varying(lambda x: f(random.key(0), **more), sample(name)) == set()
    assert varying(lambda x: f(random.fold_in(random.key(0), lax.axis_index("x")), **more),
                   sample(name)) == {"x"}


@pytest.mark.parametrize("name", that_say(sharding_notes.collective))
def test_collectives_need_a_manual_axis(name: str) -> None:
    f, x = function(name), np.ones((8, 4), np.float32)
    more = {"lax.all_to_all": (0, 0), "lax.ppermute": ([(0, 1)],)}.get(name, ())
    named = {"to": "varying"} if name == "lax.pcast" else {}
    given = () if name in ("lax.axis_index", "lax.axis_size") else (x,)
    for mesh in (MESH, EXPLICIT):
        with st.set_mesh(mesh), pytest.raises((NameError, ValueError)):
            st.jit(lambda: f(*given, "x", *more, **named))()
