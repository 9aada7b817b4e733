"""The one contraction of an einsum of one or two operands is what opt_einsum would give."""
import random

import opt_einsum
import pytest

from shardtrace.tracer.jnp.matrices.einsum import _OfShape, _only_contraction

SIZES = {"a": 2, "b": 3, "c": 4, "A": 5}


def drawn(rng):
    """Subscripts and shapes, most of them valid."""
    terms = ["".join(rng.choices("abcA", k=rng.randint(0, 3))) for _ in range(rng.randint(1, 2))]
    text = ",".join(terms)
    if rng.random() < 0.8:
        text += " -> " + "".join(rng.sample("abcAd", rng.randint(0, 3)))
    if rng.random() < 0.05:
        text += rng.choice("-.1,")
    shapes = tuple(tuple(1 if rng.random() < 0.15 else SIZES[n] + (rng.random() < 0.02) for n in t)
                   for t in terms)
    return text, shapes


@pytest.mark.parametrize("seed", range(5))
def test_one_or_two_operands_need_no_search(seed):
    rng, found = random.Random(seed), 0
    for _ in range(1000):
        text, shapes = drawn(rng)
        own = _only_contraction(text, shapes)
        if own is not None:
            _, (other,) = opt_einsum.contract_path(text, *map(_OfShape, shapes), einsum_call=True)
            assert own == other[:3], (text, shapes)
            found += 1
    assert found > 200
