"""Sharded types: text as JAX prints it, interning, normalisation, and what is refused."""
import copy
import pickle

import numpy as np
import pytest

from shardtrace.ir.meshes.manual_state import ManualState
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.ir.types import array_type, same_type

E, A, M = AxisType.Explicit, AxisType.Auto, AxisType.Manual
F32 = np.dtype(np.float32)


def mesh(**axes):
    return AbstractMesh(tuple(n for n, _ in axes.values()), tuple(axes),
                        tuple(k for _, k in axes.values()))


EXPLICIT = mesh(x=(4, E), y=(2, E))


def typ(shape, spec, m=EXPLICIT, dtype=F32, **kwargs):
    return array_type(shape, dtype, sharding=NamedSharding(m, spec), **kwargs)


@pytest.mark.parametrize("spec, text", [
    (P("x", "y"), "float32[8@x,2@y]"),
    (P("x"), "float32[8@x,2]"),
    (P(None, "y"), "float32[8,2@y]"),
    (P(("x", "y")), "float32[8@(x,y),2]"),
    (P(("y", "x")), "float32[8@(y,x),2]"),
    (P(("x",)), "float32[8@x,2]"),
    (P(), "float32[8,2]"),
    (P("x", unreduced={"y"}), "float32[8@x,2]{U:y}"),
    (P(unreduced={"y", "x"}), "float32[8,2]{U:(x,y)}"),
    (P(reduced={"x", "y"}), "float32[8,2]{R:(x,y)}"),
    (P(reduced={"y"}, unreduced={"x"}), "float32[8,2]{U:x, R:y}"),
])
def test_text_of_a_type_on_an_explicit_mesh(spec, text):
    assert str(typ((8, 2), spec)) == text


def test_short_text_and_mesh_info():
    t = typ((8, 2), P("x", "y"))
    assert t.str_short(True) == "f32[8@x,2@y]"
    assert t.str_short(True, True) == "f32[8@x,2@y]({Explicit: ('x', 'y')})"
    assert repr(t) == "ShapedArray(float32[8@x,2@y])"


def test_weak_types_are_marked_in_str_and_named_in_repr():
    t = array_type((), F32, weak_type=True)
    assert str(t) == "~float32[]"
    assert repr(t) == "ShapedArray(float32[], weak_type=True)"
    assert t.str_short(True) == "f32[]"


def test_auto_axes_are_no_part_of_a_type():
    m = mesh(x=(4, A), y=(2, E))
    t = typ((8, 2), P("x", "y"), m)
    assert str(t) == "float32[8,2@y]"
    assert t is typ((8, 2), P(None, "y"), m)
    assert typ((8, 2), P(("x", "y")), m).spec == P("y", None)
    assert t.str_short(True, True) == "f32[8,2@y]({Auto: ('x',), Explicit: ('y',)})"


def test_varying_axes_print_in_mesh_order():
    m = mesh(x=(4, M), y=(2, M))
    t = array_type((2, 1), F32, sharding=NamedSharding(m, P()), manual=ManualState({"y", "x"}))
    assert str(t) == "float32[2,1]{V:(x,y)}"


def test_equal_types_are_one_object_also_after_copy_and_pickle():
    t = typ((8, 2), P("x"))
    assert t is typ((8, 2), P("x", None))
    assert copy.copy(t) is t and copy.deepcopy(t) is t
    assert pickle.loads(pickle.dumps(t)) is t
    assert t.update(shape=(8, 2)) is t
    assert t.update(weak_type=True).strong() is t


def test_types_are_immutable():
    with pytest.raises(AttributeError, match="immutable"):
        typ((8, 2), P("x")).shape = (1,)


def test_an_axis_must_divide_its_dimension():
    with pytest.raises(ValueError, match=r"Sharding spec \('x',\) implies that array axis 0 is "
                       r"partitioned 4 times, but does not evenly divide the dimension size 6"):
        typ((6, 2), P("x"))


def test_a_spec_may_not_be_longer_than_the_rank():
    with pytest.raises(ValueError, match="only valid for values of rank at least 2"):
        typ((8,), P("x", "y"))


def test_local_shape_divides_by_the_axes_of_each_dimension():
    assert typ((8, 2), P("x", "y")).local_shape() == (2, 1)
    assert typ((16, 2), P(("x", "y"))).local_shape() == (2, 2)


def test_varying_and_unreduced_are_disjoint():
    with pytest.raises(ValueError, match="varying and unreduced cannot have common mesh axes"):
        ManualState({"x"}, {"x"})


def test_only_manual_axes_can_vary():
    with pytest.raises(ValueError, match="should be of type `Manual`"):
        array_type((2,), F32, sharding=NamedSharding(EXPLICIT, P()), manual=ManualState({"x"}))


def test_same_type_ignores_weak_types_and_specs_off_explicit_meshes():
    t = typ((8, 2), P("x"))
    assert same_type(t, t.update(weak_type=True).strong())
    assert not same_type(t, typ((8, 2), P("y")))
    auto = mesh(x=(4, A))
    other = mesh(z=(2, A))
    assert same_type(typ((8, 2), P(), auto), typ((8, 2), P(), other))
