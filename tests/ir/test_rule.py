"""Factor rules: how they are written, what they mean, and every way of writing one wrong."""
import pytest

from shardtrace.ir.rules.parse import RuleError
from shardtrace.ir.rules.rule import SUMMED, Pattern, make_rule


def test_a_matrix_product_has_three_factors():
    rule = make_rule("i k, k j -> i j | k:sum", [(4, 8), (8, 2)], [(4, 2)])
    assert [(f.name, f.size, f.kind) for f in rule.factors] == [
        ("i", 4, "pass"), ("k", 8, "reduce"), ("j", 2, "pass")]
    assert rule.operands == (((0,), (1,)), ((1,), (2,)))
    assert rule.results == (((0,), (2,)),)


def test_carriers_of_a_factor_are_tensors_operands_first():
    rule = make_rule("i k, k j -> i j | k:sum", [(4, 8), (8, 2)], [(4, 2)])
    assert rule.carriers(1) == ((0, 1, 0), (1, 0, 0))
    assert rule.carriers(0) == ((0, 0, 0), (2, 0, 0))


def test_a_compound_dimension_needs_sizes():
    rule = make_rule("(i j) k -> i j k", [(8, 3)], [(2, 4, 3)])
    assert [f.size for f in rule.factors] == [2, 4, 3]
    with pytest.raises(RuleError, match="size of factor 'i' is not known"):
        make_rule("(i j) -> (j i)", [(8,)], [(8,)])
    rule = make_rule("(i j) -> (j i)", [(8,)], [(8,)], {"i": 2, "j": 4})
    assert rule.operands == (((0, 1),),)


def test_ellipsis_repeats_elementwise_and_scalars_carry_nothing():
    rule = make_rule("... -> ...", [(4, 2), (), (4, 2)], [(4, 2)])
    assert rule.operands == (((0,), (1,)), (), ((0,), (1,)))


def test_a_dimension_of_size_one_that_is_broadcast_carries_no_factor():
    rule = make_rule("... -> ...", [(4, 1), (1, 8)], [(4, 8)])
    assert rule.operands == (((0,), ()), ((), (1,)))


def test_a_pattern_is_a_rule_without_sizes():
    product = Pattern([["i", "k"], ["k", "j"]], [["i", "j"]], {"k": SUMMED})
    rule = product.rule(((4, 8), (8, 2)), ((4, 2),))
    assert rule == make_rule("i k, k j -> i j | k:sum", [(4, 8), (8, 2)], [(4, 2)])
    assert str(rule) == "i k, k j -> i j | k:sum"
    other = product.rule(((2, 3), (3, 2)), ((2, 2),))
    assert other.pattern is rule.pattern and [f.size for f in other.factors] == [2, 3, 2]
    broadcast = product.rule(((4, 1), (8, 2)), ((4, 2),))
    assert broadcast.operands == (((0,), ()), ((1,), (2,)))
    assert broadcast.pattern is not product
    reshape = Pattern([[("i", "j"), "k"]], [["i", ("j", "k")]])
    assert reshape.rule(((8, 3),), ((2, 12),), {"i": 2, "j": 4, "k": 3}) == make_rule(
        "(i j) k -> i (j k)", [(8, 3)], [(2, 12)], {"i": 2, "j": 4, "k": 3})
    with pytest.raises(RuleError, match="size of factor 'j' is not known"):
        reshape.rule(((8, 3),), ((2, 12),))
    with pytest.raises(RuleError, match="does not fit shapes"):
        product.rule(((4, 8), (8,)), ((4, 2),))


def test_kinds_and_blocking():
    rule = make_rule("b k -> b k | k!:ordered", [(2, 3)], [(2, 3)])
    factor = rule.factors[1]
    assert (factor.kind, factor.blocked, factor.splittable) == ("ordered", True, False)
    rule = make_rule("b k -> b k | k:scan(sum)", [(2, 3)], [(2, 3)])
    assert (rule.factors[1].kind, rule.factors[1].operator) == ("scan", "sum")
    rule = make_rule("k -> k | k:halo(-1,4,1)", [(5,)], [(5,)])
    assert (rule.factors[0].offset, rule.factors[0].reach, rule.factors[0].stride) == (-1, 4, 1)
    assert str(rule) == "k -> k | k:halo(-1,4,1)"
    shapes = [(2, 3), (4, 3, 5), (2, 5)], [(2, 4)]
    rule = make_rule("n i, f i j, n j -> n f | i:sum, j:sum", *shapes)
    assert rule == make_rule("n i, f i j, n j -> n f | i:sum j:sum", *shapes)
    assert str(rule) == "n i, f i j, n j -> n f | i:sum j:sum"


@pytest.mark.parametrize("text", [
    "i k, k j -> i j | k:sum", "(i j) k -> i j k", "b k -> b | k:max", "b k -> b k | k!:replicate",
    "i 1 -> i", "k -> k | k:scan(sum)",
])
def test_text_of_a_rule_is_what_was_written(text):
    shapes = {"i k, k j -> i j | k:sum": ([(4, 8), (8, 2)], [(4, 2)]),
              "(i j) k -> i j k": ([(8, 3)], [(2, 4, 3)]),
              "b k -> b | k:max": ([(2, 3)], [(2,)]),
              "b k -> b k | k!:replicate": ([(2, 3)], [(2, 3)]),
              "i 1 -> i": ([(4, 1)], [(4,)]),
              "k -> k | k:scan(sum)": ([(5,)], [(5,)])}[text]
    assert str(make_rule(text, *shapes)) == text


@pytest.mark.parametrize("text, shapes, message", [
    ("i j", ([(1, 1)], [()]), "has no `->`"),
    ("i -> i | i:nonsense", ([(2,)], [(2,)]), "unknown kind 'nonsense'"),
    ("(i -> i", ([(2,)], [(2,)]), r"unmatched `\(`"),
    ("i) -> i", ([(2,)], [(2,)]), r"unmatched `\)`"),
    ("((i) j) -> i j", ([(2,)], [(2, 1)]), "nested"),
    ("i j -> i j", ([(2,)], [(2, 3)]), "2 dimensions for shape"),
    ("i, i -> i", ([(2,)], [(2,)]), "2 operands and 1 results"),
    ("i & -> i", ([(2,)], [(2,)]), "cannot read"),
])
def test_wrong_rules_are_refused(text, shapes, message):
    with pytest.raises(RuleError, match=message):
        make_rule(text, *shapes)
