"""PartitionSpec: interning, printing, errors, entries and sub-axes."""

import copy
import gc
import pickle
import threading

import pytest

from shardtrace.ir import spec as spec_module
from shardtrace.ir.spec import (
    UNCONSTRAINED,
    P,
    PartitionSpec,
    axes_overlap,
    axis_factor,
    axis_size,
    format_sub_axis,
    parse_axis,
    spec_from_entries,
)

from ..rows import rows

# (expression over P, its repr)
REPRS = [
    ("P()", "P()"),
    ("P('x')", "P('x',)"),
    ("P('x', None)", "P('x', None)"),
    ("P(None, (), 'x', [])", "P(None, None, 'x', None)"),
    ("P(('x',), ('x', 'y'))", "P('x', ('x', 'y'))"),
    ("P(['x', 'y'])", "P(('x', 'y'),)"),
    ("P(3)", "P(3,)"),
    ("P(('x', None))", "P(('x', None),)"),
    ("P(P.UNCONSTRAINED, 'x')", "P(UNCONSTRAINED, 'x')"),
    ("P('x', unreduced={'y'})", "P('x', unreduced={'y'})"),
    ("P(unreduced={'y'}, reduced={'x'})", "P(unreduced={'y'}, reduced={'x'})"),
    ("P(None, 'x', reduced=frozenset({'y'}))", "P(None, 'x', reduced={'y'})"),
    ("P('x') + P('y', unreduced={'z'})", "P('x', 'y', unreduced={'z'})"),
    ("P('x') + ('y', None)", "P('x', 'y', None)"),
    ("('y',) + P('x')", "P('y', 'x')"),
    ("P('x', unreduced={'y'}).update(partitions=(None,))", "P(None, unreduced={'y'})"),
    ("P('x', unreduced={'y'}).update(unreduced=frozenset())", "P('x',)"),
    ("P('x').update()", "P('x',)"),
    ("P('x', unreduced={'y'}).to_ct_spec()", "P('x', reduced={'y'})"),
    ("P('x', 'y')[0:1]", "('x',)"),
    ("P('x', 'y')[-1]", "'y'"),
    ("P(('x', 'y')).index(['x', 'y'])", "0"),
    ("P('x', 'y', 'x').count('x')", "2"),
    ("list(P('x', None))", "['x', None]"),
    ("len(P('x', None))", "2"),
    ("bool(P())", "False"),
    ("'x' in P('x', None)", "True"),
]

# (expression over P, class, a piece of the message)
ERRORS = [
    ("P((('x', 'y'),))", ValueError, "A tuple inside PartitionSpec cannot contain a nested tuple. "
     "Got partition: (('x', 'y'),) and the nested tuple: ('x', 'y')"),
    ("P([['x']])", ValueError, "Got partition: [['x']] and the nested tuple: ['x']"),
    ("P('x', unreduced={'x'})", ValueError, "partitions cannot overlap with unreduced axes passed "
     "to PartitionSpec. Got partitions: ('x',) and unreduced axes: frozenset({'x'})"),
    ("P(('y', 'x'), reduced={'x'})", ValueError, "partitions cannot overlap with reduced axes "
     "passed to PartitionSpec. Got partitions: (('y', 'x'),) and reduced axes: frozenset({'x'})"),
    ("P(unreduced={'x'}, reduced={'x'})", ValueError, "`unreduced` and `reduced` argument to "
     "PartitionSpec cannot overlap. Got unreduced: frozenset({'x'}) and reduced: "
     "frozenset({'x'})"),
    ("P(unreduced={None})", ValueError, "unreduced cannot contain None. All elements in unreduced "
     "should refer to the mesh axes."),
    ("P(reduced={None})", ValueError, "reduced cannot contain None. All elements in reduced "
     "should refer to the mesh axes."),
    ("P(unreduced='x')", TypeError,
     "unreduced argument of PartitionSpec should of type `frozenset` or `set`. Got type x"),
    ("P(reduced=('x',))", TypeError,
     "reduced argument of PartitionSpec should of type `frozenset` or `set`. Got type ('x',)"),
    ("P('x', unreduced={'y'})[0]", ValueError, "Using pspec[...] is dangerous when PartitionSpec "
     "has non-empty unreduced/reduced set. Please use spec.partitions[...]"),
    ("list(P('x', reduced={'y'}))", ValueError, "Using *pspec is dangerous when PartitionSpec has "
     "non-empty unreduced/reduced set. Please use *spec.partitions"),
    ("P('x', unreduced={'y'}) + ('z',)", TypeError, "other ('z',) cannot be of instance `tuple` "
     "when self P('x', unreduced={'y'}) has unreduced in `__add__` of PartitionSpec."),
    ("('z',) + P('x', reduced={'y'})", TypeError, "other ('z',) cannot be of instance `tuple` "
     "when self P('x', reduced={'y'}) has reduced in `__radd__` of PartitionSpec."),
    ("type('Q', (P,), {})", TypeError, "Subclassing `jax.P` is prohibited."),
    ("setattr(P('x'), 'reduced', 1)", AttributeError, "cannot assign to field 'reduced'"),
    ("delattr(P('x'), 'reduced')", AttributeError, "cannot delete field 'reduced'"),
    ("P('x').index('z')", ValueError, "not in tuple"),
]


@rows("expression, printed", REPRS)
def test_specs_print_as_jax_prints_them(expression, printed):
    assert repr(eval(expression, {"P": P})) == printed


@rows("expression, error, message", ERRORS)
def test_mistakes_are_reported_in_jax_s_words(expression, error, message):
    with pytest.raises(error) as caught:
        eval(expression, {"P": P})
    assert message in str(caught.value)


@rows("expression", [e for e, _ in REPRS] + [e for e, _, _ in ERRORS])
def test_jax_says_the_same(expression):
    jax = pytest.importorskip("jax")

    def outcome(P):
        try:
            return repr(eval(expression, {"P": P}))
        except Exception as error:
            # what stands below the message (ir/diagnostics/diagnostic.py) is ours alone
            return type(error).__name__, str(error).partition("\n --> ")[0]

    assert outcome(P) == outcome(jax.P)


def test_sets_print_sorted():
    assert repr(P(unreduced=set("zyx"), reduced={"b", "a"})) == (
        "P(unreduced={'x', 'y', 'z'}, reduced={'a', 'b'})")


def test_equality_is_structural_and_identity():
    assert P("x") is P("x") and P(("x",)) is P("x") and P(()) is P(None)
    assert P("x") != P("x", None)
    assert P(None) != P()
    assert P("x") != ("x",) and ("x",) != P("x")
    assert P("x") != P("x", unreduced={"y"})
    assert hash(P("x")) == hash(P("x"))
    assert PartitionSpec is P


@pytest.mark.parametrize("s", [
    P(), P("x", None), P(("x", "y"), UNCONSTRAINED), P("x", unreduced={"y"}, reduced={"z"}),
], ids=repr)
def test_copies_and_pickles_are_the_same_object(s):
    assert copy.copy(s) is s
    assert copy.deepcopy([s])[0] is s
    assert pickle.loads(pickle.dumps(s)) is s


@pytest.mark.usefixtures("only_own_objects")
def test_unused_specs_are_forgotten():
    gc.collect()
    before = len(spec_module._TABLE)
    kept = [P(f"axis_{i}") for i in range(100)]
    assert len(spec_module._TABLE) == before + 100
    del kept
    gc.collect()
    assert len(spec_module._TABLE) == before


def test_threads_that_race_get_one_object():
    for trial in range(20):
        found = []
        barrier = threading.Barrier(4)

        def make(found=found, barrier=barrier, trial=trial):
            barrier.wait()
            found.append([P(f"race{trial}", i) for i in range(50)])

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(a is b for other in found for a, b in zip(found[0], other, strict=True))


def test_unconstrained_is_one_object():
    assert P.UNCONSTRAINED is UNCONSTRAINED
    assert type(UNCONSTRAINED)() is UNCONSTRAINED
    assert copy.deepcopy(UNCONSTRAINED) is UNCONSTRAINED
    assert pickle.loads(pickle.dumps(UNCONSTRAINED)) is UNCONSTRAINED


@pytest.mark.parametrize(("s", "entries"), [
    (P(), ()),
    (P("x", None), (("x",), ())),
    (P(("x", "y"), UNCONSTRAINED), (("x", "y"), UNCONSTRAINED)),
])
def test_entries_are_tuples_of_names(s, entries):
    assert s.entries == entries
    assert spec_from_entries(entries) is s


def test_spec_from_entries_takes_the_sets():
    s = spec_from_entries(((), ("x",)), frozenset({"y"}), frozenset({"z"}))
    assert s is P(None, "x", unreduced={"y"}, reduced={"z"})
    with pytest.raises(ValueError, match="cannot overlap"):
        spec_from_entries((("x",),), frozenset({"x"}))


def test_padding_keeps_the_sets_and_cuts_only_none():
    s = P("x", unreduced={"y"})
    assert s.padded(3) is P("x", None, None, unreduced={"y"})
    assert s.padded(3) is s.padded(3)
    assert s.padded(1) is s
    assert P("x", None, None).padded(1) is P("x")
    with pytest.raises(ValueError, match=r"rank at least 1, but was applied to a value of rank 0"
                                         r"\. For scalars the PartitionSpec should be P\(\)"):
        s.padded(0)


def test_axes_are_listed_in_order_of_dimensions():
    assert P("z", None, ("y", "x"), UNCONSTRAINED).axes() == ("z", "y", "x")
    assert P(None, unreduced={"x"}).axes() == ()


# --------------------------------------------------------------------------- sub-axes


@pytest.mark.parametrize(("name", "parts"), [
    ("X", ("X", 1, None)), ("X:(1)4", ("X", 1, 4)), ("X:(16)2", ("X", 16, 2)),
    ("a b:(2)3", ("a b", 2, 3)), ("X:(1)4:(2)2", ("X:(1)4", 2, 2)), ("X1", ("X1", 1, None)),
    ("X:()4", ("X:()4", 1, None)), (3, (3, 1, None)), (None, (None, 1, None)),
])
def test_axis_names_are_parsed(name, parts):
    assert parse_axis(name) == parts
    if parts[2] is not None:
        assert format_sub_axis(*parts) == name


MESH = {"X": 8, "Y": 3, "Z:(1)2": 2}


@pytest.mark.parametrize(("name", "size", "factor"), [
    ("X", 8, ("X", 1, 8, 1)), ("X:(1)4", 4, ("X", 1, 4, 2)), ("X:(4)2", 2, ("X", 4, 2, 1)),
    ("X:(2)2", 2, ("X", 2, 2, 2)), ("Z:(1)2", 2, ("Z:(1)2", 1, 2, 1)),
])
def test_sizes_of_axes_and_sub_axes(name, size, factor):
    assert axis_size(name, MESH) == size
    assert axis_factor(name, MESH) == factor


def test_an_axis_that_the_mesh_lacks_is_an_error():
    for name in ("W", "W:(1)2", "Z"):
        with pytest.raises(KeyError):
            axis_size(name, MESH)
    for name in ("Y:(1)2", "X:(4)4", "X:(0)2", "X:(3)1"):
        with pytest.raises(ValueError, match=r"Sub-axis .* does not divide mesh axis"):
            axis_size(name, MESH)


@pytest.mark.parametrize(("a", "b", "overlap"), [
    ("X", "X", True), ("X", "Y", False), ("X", "X:(1)2", True), ("X:(1)2", "X:(2)4", False),
    ("X:(1)4", "X:(2)4", True), ("X:(1)2", "Y:(1)2", False), ("X:(2)2", "X:(4)2", False),
    ("X:(1)4:(1)2", "X", True), ("X:(1)4:(1)2", "X:(4)2", False), (1, "X", False),
])
def test_sub_axes_overlap_where_they_share_digits(a, b, overlap):
    assert axes_overlap(a, b) is overlap
    assert axes_overlap(b, a) is overlap
