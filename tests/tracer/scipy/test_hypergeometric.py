"""1F1, 2F1 and the complex gamma function beside scipy; their derivatives beside differences."""
import numpy as np
import pytest
import scipy.special as scipy_special
import scipy.stats

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.scipy import special
from shardtrace.scipy.stats import poisson
from shardtrace.sharding import PartitionSpec as P
from shardtrace.test_util import check_grads

SINGLE, DOUBLE = (np.float32, 2e-4), (np.float64, 1e-9)


def _drawn(seed: int, dtype: type, *ranges: tuple[float, float]) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(low, high, 300).astype(dtype) for low, high in ranges]


def _beside_scipy(name: str, args: list[np.ndarray], rtol: float) -> None:
    with st.enable_x64(args[0].dtype.itemsize == 8):
        found = getattr(special, name)(*args)
        assert found.dtype == args[0].dtype
    wanted = getattr(scipy_special, name)(*[x.astype(np.float64) for x in args])
    inside = np.abs(wanted) < np.finfo(args[0].dtype).max / 2
    np.testing.assert_allclose(np.asarray(found)[inside], wanted[inside], rtol=rtol, atol=rtol)


@pytest.mark.parametrize(("dtype", "rtol"), [SINGLE, DOUBLE], ids=["f32", "f64"])
def test_hyp1f1_equals_that_of_scipy(dtype, rtol) -> None:
    for seed, ranges in enumerate([((0.5, 30),) * 3, ((-3, 3), (0.1, 3), (-9, 60)),
                                   ((0.1, 3), (3, 5), (-300, -90)),
                                   ((0.1, 3), (3, 5), (100, 300))]):
        _beside_scipy("hyp1f1", _drawn(seed, dtype, *ranges), rtol)
    a, b, x = _drawn(9, dtype, (-9, 0), (0.5, 3), (-120, 3))
    _beside_scipy("hyp1f1", [np.round(a), b, x], rtol)
    special_cases = special.hyp1f1(
        dtype([0, 2, 3, 1]), dtype([0, 0, 3, np.nan]), dtype([5, 1, 2, 1]))
    np.testing.assert_allclose(special_cases, [1, np.inf, np.exp(2), np.nan], rtol=1e-6)


@pytest.mark.parametrize(("dtype", "rtol"), [SINGLE, DOUBLE], ids=["f32", "f64"])
def test_hyp2f1_equals_that_of_scipy(dtype, rtol) -> None:
    for seed, ranges in enumerate([((0.1, 0.9),) * 4, ((-2, 3), (-2, 3), (0.5, 5), (-5, 1)),
                                   ((0, 3), (0, 3), (0.1, 5), (0.9, 0.999))]):
        _beside_scipy("hyp2f1", _drawn(seed, dtype, *ranges), rtol)
    a, b, c, x = _drawn(7, dtype, (0, 5), (0, 5), (1, 9), (0.5, 1))
    _beside_scipy("hyp2f1", [np.round(a), np.round(b), np.round(c), x], rtol)   # whole c - a - b
    _beside_scipy("hyp2f1", [-np.round(a), b, c, 3 * x], 10 * rtol)             # polynomials
    a, b, c, x = dtype([[0, 1, 1, 1, 1, 5, 5, .45, .45, 2, .32, 4, 4, 1, np.nan],
                        [1, 0, 1, 1, 1, 1, 1, .7, .7, 1, .76, 2, 3, 1, 1],
                        [1, 1, 0, 1, -1, 3, 3, .45, .45, 5, .11, 7, 7, 2, 2],
                        [1, 1, 1, 0, 1, .5, 1, .35, 1.5, 1, .95, .95, .95, np.nan, .5]])
    _beside_scipy("hyp2f1", [a, b, c, x], rtol)


def test_hypergeometric_functions_have_derivatives_and_half_precision() -> None:
    with st.enable_x64(True):
        a, b = np.array([1.5, 2, 5, 0.5]), np.array([0.3, 1, 4, 2])
        x = np.array([-5, 0.4, 20, 150.0])
        check_grads(st.jit(special.hyp1f1), (a, b, x), order=2, rtol=1e-3)
        args = (np.array([1.5, 0.2, 0.5]), np.array([0.3, 1, 4]), np.array([5, 0.4, 2]),
                np.array([-3, 0.4, 0.95]))
        check_grads(st.jit(special.hyp2f1), args, order=1, rtol=1e-3)
        slopes = st.jit(st.grad(lambda *v: special.hyp2f1(*v).sum(), (0, 1, 2, 3)))
        check_grads(slopes, args, order=1, modes=("fwd",), rtol=1e-3)   # all second derivatives
    grads = st.grad(lambda *v: special.hyp1f1(*v).sum(), (0, 1, 2))(
        *map(np.float32, ([3, 30], [1, 2], [29, 5])))
    assert all(np.isfinite(g).all() for g in grads)
    half = np.float16([0.5, 2])
    for found, wanted in [(special.hyp1f1(half, half * 2, half),
                           scipy_special.hyp1f1(half, half * 2, half)),
                          (special.dawsn(half), scipy_special.dawsn(half)),
                          (special.sici(half)[0], scipy_special.sici(half)[0])]:
        assert found.dtype == np.float16
        np.testing.assert_allclose(found, wanted, rtol=2e-3)


def test_hypergeometric_functions_are_partitioned() -> None:
    mesh = st.make_mesh((8,), ("x",))
    x = np.linspace(0.1, 0.9, 16, dtype=np.float32)
    for f in (special.hyp1f1, special.hyp2f1):
        others = [x] * (2 if f is special.hyp1f1 else 3)
        out = st.jit(f)(*others, st.device_put(x, st.NamedSharding(mesh, P("x"))))
        assert out.sharding.spec == P("x")
        np.testing.assert_allclose(out, f(*others, x), rtol=1e-6)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.complex64, 2e-5), (np.complex128, 1e-12)],
                         ids=["c64", "c128"])
def test_gamma_and_erfcx_of_complex_numbers(dtype, rtol) -> None:
    real, imag = _drawn(3, np.float64, (-6, 6), (-6, 6))
    z = (real + 1j * imag).astype(dtype)
    z[:4] = [-0.5, complex(-1.5, -0.0), -2.5 + 1e-12j, complex(2.5, -0.0)]
    with st.enable_x64(dtype is np.complex128):
        for name in ("gamma", "loggamma", "erfcx"):
            found = getattr(special, name)(z)
            wanted = getattr(scipy_special, name)(np.asarray(z, np.complex128))
            assert found.dtype == dtype
            np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol)
        poles = special.gamma(dtype([0, -1, -5, np.nan]))
        assert np.isnan(poles.real).all() and np.isnan(poles.imag).all()
    with st.enable_x64(True):
        z = np.array([1.5 + 1j, -2 - 0.5j, -0.3 + 4j])
        check_grads(special.loggamma, (z,), order=2, rtol=1e-3)


def test_numbers_of_python() -> None:
    for name in ("gamma", "loggamma", "erfcx"):
        found = getattr(special, name)(-0.5 + 2j)
        np.testing.assert_allclose(found, getattr(scipy_special, name)(-0.5 + 2j), rtol=1e-5)
    np.testing.assert_allclose(special.hyp1f1(1, 2.0, 1), np.e - 1, rtol=1e-6)
    np.testing.assert_allclose(special.hyp2f1(1, 1, 2, 0.5), 2 * np.log(2), rtol=1e-6)


def test_real_loggamma_has_no_value_left_of_zero() -> None:
    found = special.loggamma(np.float32([-0.5, 0, 3, np.inf]))
    np.testing.assert_allclose(found, [np.nan, np.nan, np.log(2), np.inf], rtol=1e-6)


def test_ways_to_choose_nothing() -> None:
    for repetition in (False, True):
        n, k = np.float32([0, 0, 3, 5]), np.float32([0, 2, 0, 2])
        wanted = [scipy_special.comb(*v, repetition=repetition) for v in zip(n, k, strict=True)]
        np.testing.assert_allclose(special.comb(n, k, repetition=repetition), wanted, rtol=1e-5)
    assert np.isfinite(st.grad(lambda n: special.comb(n, 3.0))(2.0))


def test_poisson_entropy_and_probabilities_equal_those_of_scipy() -> None:
    mu = np.float32([0, 1e-3, 0.5, 9, 80, 99, 101, 300])
    np.testing.assert_allclose(poisson.entropy(mu), scipy.stats.poisson.entropy(mu.astype(float)),
                               rtol=1e-4)
    assert poisson.entropy(2.0, jnp.arange(3)).shape == (3,)
    k = np.float32([1.5, 2, -1, 0])
    np.testing.assert_allclose(poisson.pmf(k, 2.0), scipy.stats.poisson.pmf(k, 2.0), rtol=1e-5)


def test_derivatives_of_zeta() -> None:
    with st.enable_x64(True):
        args = np.array([1.5, 2, 5, 1.01, 30]), np.array([0.3, 1, 4, 20, 2])
        check_grads(special.zeta, args, order=3, rtol=1e-3)
