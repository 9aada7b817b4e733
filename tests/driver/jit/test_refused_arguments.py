"""What jit and the functions of numpy take as an array, and what they refuse, beside JAX."""
from __future__ import annotations

import enum
from types import ModuleType

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from tests.real_jax import real_jax

MASKED = np.ma.array([1, 2, 3], mask=[True, False, True])


class Number(enum.IntEnum):
    three = 3


class Converts:
    """Converts to an array, and is none."""

    def __jax_array__(self):
        return jnp.arange(4)


def several(a, /, b, c, *args, **kwargs):
    """Takes arguments by position alone, by name, and both."""


CASES = {
    "masked": lambda m: m.jit(lambda x: x)(MASKED),
    "masked operand": lambda m: m.numpy.sin(MASKED),
    "masked array": lambda m: m.numpy.asarray(MASKED),
    "objects": lambda m: m.jit(lambda x: x)(np.array([1], object)),
    "text of numpy": lambda m: m.jit(lambda x: x)(np.str_("a")),
    "date, differentiated": lambda m: m.grad(lambda x: x)(np.datetime64(1, "s")),
    "objects, differentiated": lambda m: m.grad(lambda x: x)(np.array([1], object)),
    "enum": lambda m: m.jit(lambda x: Number.three)(1),
    "enum array": lambda m: m.numpy.asarray(Number.three),
    "static by position": lambda m: m.jit(several, static_argnames="a"),
    "static rest": lambda m: m.jit(several, static_argnames="args"),
    "donated by position": lambda m: m.jit(several, donate_argnames="a"),
    "static and donated": lambda m: m.jit(lambda x: x, static_argnames="x", donate_argnames="x"),
    "static and donated number": lambda m: m.jit(lambda x: x, static_argnums=0, donate_argnums=0),
    "static method": lambda m: m.jit(staticmethod(lambda x: x)),
    "result": lambda m: m.eval_shape(lambda x: (2.0, several), 1),
    "prefix": lambda m: m.device_put({"a": jnp_of(m), "b": jnp_of(m)},
                                     {"a": [None], "b": (None,)}),
    "map_with_path": lambda m: m.tree_util.tree_map_with_path(
        lambda path, x, y: y, {"a": [1]}, {"a": None}),
    "vmap": lambda m: m.vmap(lambda x: x, out_axes=None, axis_name="i")(np.ones(3)),
    "float0": lambda m: m.numpy.add(np.zeros(3, m.dtypes.float0), m.numpy.ones(3)),
    "float0 of numpy": lambda m: np.zeros(3, m.dtypes.float0) * m.numpy.ones(3),
    "trees": lambda m: m.jvp(lambda x: x, (np.float32(2),), [np.float32(2)]),
}


def jnp_of(m: ModuleType):
    return m.numpy.ones(3)


def outcome(case, m: ModuleType):
    try:
        found = case(m)
    except (TypeError, ValueError) as error:
        first = str(error).splitlines()[0].replace("st.", "jax.").partition("<function")[0]
        first = first.replace("design, because", "design because")
        return type(error).__mro__[-4:], first.partition("Mismatch details")[0].rstrip(". ")
    return str(found.aval), np.asarray(found).tolist()


@pytest.mark.parametrize("name", CASES)
def test_what_is_an_argument_and_what_is_said_of_others_is_jax_s(name):
    jax = real_jax()
    ours, theirs = outcome(CASES[name], st), outcome(CASES[name], jax)
    if name in ("objects", "result"):         # whose messages name the function in other words
        assert ours[0] == theirs[0] and ours[1][:20] == theirs[1][:20]
        return
    assert ours == theirs


def test_all_places_where_a_prefix_does_not_fit_are_named():
    with pytest.raises(ValueError, match=r"(?s)Mismatch details \(2 found\).*\['a'\].*\['b'\]"):
        CASES["prefix"](st)


def test_a_result_that_is_no_array_is_named_by_its_path():
    with pytest.raises(TypeError, match=r"at output component \['a'\]\[1\], which is not a valid"):
        st.jit(lambda x: {"a": [x, "text"]})(1)


def test_what_only_converts_to_an_array_is_no_argument_of_jit_but_an_operand():
    with pytest.raises(ValueError, match=r"Triggering __jax_array__\(\)"):
        st.jit(lambda x: x)(Converts())
    assert jnp.add(Converts(), 1).tolist() == [1, 2, 3, 4]


def test_ranges_are_computed_under_strict_promotion_whatever_the_width():
    with st.numpy_dtype_promotion("strict"), st.enable_x64(True):
        for function in (jnp.linspace, jnp.logspace, jnp.geomspace):
            assert function(1, 3, dtype=np.float32).dtype == np.float32


@pytest.mark.parametrize("static", [{"static_argnums": 1}, {"static_argnames": "y"}], ids=str)
def test_static_arguments_that_cannot_be_compared(static):
    class Odd:
        def __hash__(self):
            return 1

        def __eq__(self, other):
            raise NotImplementedError("bad")

    f = st.jit(lambda x, y: x + 3, **static)
    call = (lambda: f(1, Odd())) if "static_argnums" in static else (lambda: f(1, y=Odd()))
    assert call() == 4
    for attempt in (call, call, lambda: f.lower(1, y=Odd()) if static.get("static_argnames")
                    else f.lower(1, Odd())):
        with pytest.raises(ValueError, match="static arguments should be comparable using __eq__"
                           ) as said:
            attempt()
        assert "NotImplementedError: bad" in str(said.value)
