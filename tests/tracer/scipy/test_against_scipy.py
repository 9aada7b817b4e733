"""Signals, matrices, interpolation, samples and distributions give what scipy gives."""
from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.ndimage
import scipy.signal
import scipy.special
import scipy.stats

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.scipy import linalg, special, stats
from shardtrace.scipy.interpolate import RegularGridInterpolator
from shardtrace.scipy.ndimage import map_coordinates

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def same(name: str, *args: Any, rtol: float = 2e-4, atol: float = 2e-5, jit: bool = True,
         **options: Any) -> None:
    """A function gives what scipy's of that name gives, also under jit."""
    module, function = name.rsplit(".", 1)
    ours = getattr(importlib.import_module(f"shardtrace.scipy.{module}"), function)
    wanted = getattr(importlib.import_module(f"scipy.{module}"), function)(
        *[np.asarray(a, np.float64) if isinstance(a, np.ndarray) and a.dtype == np.float32 else a
          for a in args], **options)
    arrays = [i for i, a in enumerate(args) if isinstance(a, np.ndarray)]

    def call(*values: Any) -> Any:
        given = list(args)
        for i, v in zip(arrays, values, strict=True):
            given[i] = v
        return ours(*given, **options)

    for f in (call, st.jit(call)) if jit and arrays else (call,):
        found = f(*[jnp.asarray(args[i]) for i in arrays])
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        found = found if isinstance(found, tuple) else (found,)
        for a, b in zip(found, wanted, strict=True):
            assert np.shape(a) == np.shape(b)
            np.testing.assert_allclose(np.asarray(a), b, rtol, atol * max(1, np.abs(b).max()
                                                                         if np.size(b) else 1))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("name", ["convolve", "correlate", "fftconvolve"])
def test_convolutions_equal_those_of_scipy(name, mode):
    for a, b in (((7,), (3,)), ((3,), (7,)), ((5, 6), (2, 3)), ((3, 4, 5), (2, 1, 3))):
        same(f"signal.{name}", floats(*a), floats(*b), mode=mode)
    x = (floats(6) + 1j * floats(6)).astype(np.complex64)
    if name != "fftconvolve":
        same(f"signal.{name}", x, x[:3], mode=mode)
        same(f"signal.{name}", floats(7), floats(3), mode=mode, method="fft")
    else:
        same("signal.fftconvolve", floats(3, 7), floats(1, 4), mode=mode, axes=1)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolutions_of_matrices(mode):
    same("signal.convolve2d", floats(5, 6), floats(2, 3), mode=mode)
    same("signal.correlate2d", floats(5, 6), floats(3, 2), mode=mode)


def test_detrending_equals_that_of_scipy():
    x = floats(3, 20) + np.arange(20, dtype=np.float32)
    same("signal.detrend", x)
    same("signal.detrend", x, axis=0, type="constant")
    same("signal.detrend", x.T, axis=0, bp=[5, 12])


@pytest.mark.filterwarnings("ignore:nperseg:UserWarning")
@pytest.mark.parametrize("options", [
    {}, {"nperseg": 16}, {"nperseg": 16, "noverlap": 12, "nfft": 32}, {"window": "boxcar",
                                                                       "nperseg": 20},
    {"return_onesided": False, "nperseg": 16}, {"detrend": "linear", "nperseg": 16}])
def test_spectra_equal_those_of_scipy(options):
    x, y = floats(2, 100), floats(2, 100)
    same("signal.stft", x, **{"nperseg": 32, **options})
    same("signal.welch", x, 10.0, **options)
    same("signal.csd", x, y, **options)
    same("signal.csd", x.T, y.T, axis=0, scaling="spectrum", average="median", **options)


@pytest.mark.parametrize("boundary", ["zeros", "constant", "even", "odd", None])
def test_short_transforms_and_back(boundary):
    x = floats(3, 90)
    same("signal.stft", x, boundary=boundary, nperseg=16, axis=-1)
    same("signal.stft", x.T, boundary=boundary, nperseg=16, axis=0)
    _, _, z = scipy.signal.stft(x, nperseg=16)
    same("signal.istft", z.astype(np.complex64), nperseg=16)
    _, _, z = scipy.signal.stft(x, nperseg=16, return_onesided=False, noverlap=12)
    same("signal.istft", z.astype(np.complex64), nperseg=16, noverlap=12, input_onesided=False,
         rtol=1e-3, atol=1e-4)


def test_matrices_from_vectors():
    for c in (floats(4), floats(2, 3)):
        same("linalg.circulant", c)
        same("linalg.companion", c)
        same("linalg.fiedler", c)
    for n in range(2, 8):
        same("linalg.fiedler_companion", floats(n))
    same("linalg.hankel", floats(4))
    same("linalg.hankel", floats(4), floats(3))
    same("linalg.leslie", floats(4), floats(3))
    for mode in ("full", "same", "valid"):
        same("linalg.convolution_matrix", floats(3), 5, mode=mode)
        same("linalg.convolution_matrix", floats(5), 3, mode=mode)


@pytest.mark.parametrize("n", [1, 2, 4, 8])
def test_matrices_of_a_size(n):
    for name in ("dft", "helmert", "hilbert", "hadamard", "pascal", "invpascal", "invhilbert"):
        if name != "helmert" or n > 1:
            same(f"linalg.{name}", n)
    same("linalg.dft", n, "sqrtn")
    same("linalg.helmert", n, full=True)
    for kind in ("lower", "upper"):
        same("linalg.pascal", n, kind=kind)
        same("linalg.invpascal", n, kind=kind)


def test_functions_of_matrices():
    a = floats(5, 5) + 4 * np.eye(5, dtype=np.float32)
    same("linalg.sqrtm", a @ a.T, atol=1e-4)
    root = st.jit(linalg.sqrtm)(a)
    np.testing.assert_allclose(root @ root, a, atol=2e-4)
    found = linalg.funm(a, jnp.exp)
    np.testing.assert_allclose(found, scipy.linalg.expm(np.asarray(a, np.float64)), rtol=2e-3,
                               atol=2e-1)
    for m, n in ((5, 3), (4, 4), (3, 5)):
        for side in ("left", "right"):
            given = floats(m, n)
            u, p = linalg.polar(
                given, side, method="svd")
            wu, wp = scipy.linalg.polar(given.astype(np.float64), side)
            np.testing.assert_allclose(u, wu, atol=1e-4)
            np.testing.assert_allclose(p, wp, atol=1e-4)
    same("linalg.expm_frechet", a / 4, floats(5, 5), atol=1e-4)
    for method in ("schur", "eigen"):
        x = linalg.solve_sylvester(
            a, floats(3, 3), np.ones((5, 3), np.float32), method=method)
        assert x.shape == (5, 3)
    b, c = floats(3, 3), floats(5, 3)
    x = st.jit(linalg.solve_sylvester)(a, b, c)
    np.testing.assert_allclose(a @ x + x @ b, c, atol=1e-3)
    same("linalg.hessenberg", a, atol=1e-4)
    h, q = linalg.hessenberg(a, calc_q=True)
    np.testing.assert_allclose(q @ h @ q.T, a, atol=1e-4)
    stack = floats(2, 3, 4, 4)
    h, q = linalg.hessenberg(stack, calc_q=True)
    np.testing.assert_allclose(q @ h @ jnp.swapaxes(q, -1, -2), stack, atol=1e-4)
    assert linalg.hessenberg(stack[:, :0]).shape == (2, 0, 4, 4)
    same("linalg.eigh_tridiagonal", floats(6), floats(5), eigvals_only=True)
    same("linalg.eigh_tridiagonal", floats(6), floats(5), eigvals_only=True, select="i",
         select_range=(1, 3))
    t, z = scipy.linalg.schur(np.asarray(a, np.float64))
    tc, zc = st.jit(linalg.rsf2csf)(t, z)
    np.testing.assert_allclose(zc @ tc @ jnp.conj(zc.T), a, atol=1e-3)
    np.testing.assert_allclose(np.tril(np.asarray(tc), -1), 0, atol=1e-4)
    for mode, c in (("right", floats(2, 5)), ("left", floats(5, 2)), ("left", floats(5))):
        same("linalg.qr_multiply", a, c, mode=mode, atol=1e-4)


@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_interpolation_on_grids(method):
    grid = (np.array([0, 1, 3.0]), np.array([-1, 0, 0.5, 2.0]))
    values = RNG.standard_normal((3, 4, 2))
    points = RNG.uniform(-1.5, 3.5, (20, 2))
    for fill in (np.nan, 7.0, None):
        wanted = scipy.interpolate.RegularGridInterpolator(
            grid, values, method=method, bounds_error=False, fill_value=fill)(points)
        found = RegularGridInterpolator(
            grid, values, method=method, fill_value=fill)
        np.testing.assert_allclose(st.jit(found)(points), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["constant", "nearest", "wrap", "mirror", "reflect"])
@pytest.mark.parametrize("order", [0, 1])
def test_coordinates_of_images(order, mode):
    x = floats(4, 5)
    places = [RNG.uniform(-6, 10, 30).astype(np.float32) for _ in range(2)]
    name = {"constant": "grid-constant", "wrap": "grid-wrap"}.get(mode, mode)
    wanted = scipy.ndimage.map_coordinates(x.astype(np.float64), places, order=order, mode=name,
                                           cval=3.0)
    found = st.jit(lambda x, c: map_coordinates(
        x, c, order, mode, cval=3.0))(x, places)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_statistics_of_samples_equal_those_of_scipy():
    x = RNG.integers(0, 4, (6, 5))
    for axis in (0, 1, None):
        same("stats.mode", x, axis=axis)
        same("stats.mode", x, axis=axis, keepdims=True)
        for method in ("average", "min", "max", "dense", "ordinal"):
            same("stats.rankdata", x, method, axis=axis)
        same("stats.sem", floats(4, 5), axis=axis)
    same("cluster.vq.vq", floats(7, 3), floats(4, 3))
    same("integrate.trapezoid", floats(7, 3), axis=0)


K, X = np.arange(-1, 7), np.linspace(-2.5, 4, 14).astype(np.float32)


@pytest.mark.parametrize(("name", "values", "shape"), [
    ("geom", K, (0.3,)), ("nbinom", K, (3, 0.4)), ("betabinom", K, (5, 1.5, 2.5)),
    ("gumbel_l", X, (0.5, 2.0)), ("gumbel_r", X, (0.5, 2.0)), ("pareto", X, (1.5, 0.5, 1.2)),
    ("gennorm", X, (1.7,)), ("vonmises", X, (1.7,)), ("wrapcauchy", np.abs(X), (0.4,)),
    ("truncnorm", X, (-1.0, 1.5, 0.2, 1.3)), ("truncnorm", X, (2.0, 3.0, 0.0, 1.0))])
def test_densities_and_quantiles_equal_those_of_scipy(name, values, shape):
    ours = getattr(stats, name)
    theirs = getattr(scipy.stats, name)
    tested = 0
    for f in "pdf logpdf cdf logcdf sf logsf ppf pmf logpmf".split():
        if hasattr(ours, f):
            given = np.linspace(0.1, 0.9, 5) if f == "ppf" else values
            with np.errstate(all="ignore"):
                wanted = getattr(theirs, f)(given, *shape)
            np.testing.assert_allclose(st.jit(getattr(ours, f))(given, *shape), wanted, rtol=5e-4,
                                       atol=1e-6, err_msg=f)
            tested += 1
    assert tested > 1


def test_multinomial_probabilities_equal_those_of_scipy():
    p = np.array([0.2, 0.5, 0.3])
    for x, n in (([1, 2, 1], 4), ([0, 0, 4], 4), ([1, 1, 1], 4)):
        np.testing.assert_allclose(
            stats.multinomial.pmf(np.array(x), n, p),
            scipy.stats.multinomial.pmf(x, n, p), rtol=1e-4)


WIDE = np.concatenate([np.linspace(-6, 6, 41), [1e-4, -1e-4, 0, 25, 60, 1e3, 1e6, np.inf, np.nan]])


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("name", ["erfcx", "dawsn", "fresnel", "sici", "spence"])
def test_special_functions_equal_those_of_scipy(name, x64):
    with st.enable_x64(x64), np.errstate(all="ignore"):
        x = WIDE.astype(np.float64 if x64 else np.float32)
        if name == "fresnel":
            x = x[np.abs(x) < 100]
        if name == "spence":
            x = x[~np.isinf(x)]
        wanted = getattr(scipy.special, name)(x.astype(np.float64))
        if name == "sici":                  # of a negative number that of its size
            wanted = wanted[0], scipy.special.sici(np.abs(x.astype(np.float64)))[1]
        found = st.jit(getattr(special, name))(x)
        pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else ((found, wanted),)
        for a, b in pairs:
            b = np.where(np.abs(b) > np.finfo(x.dtype).max, np.sign(b) * np.inf, b)
            tolerance = 1e-9 if x64 else 3e-5
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance / 10)


def test_special_functions_of_two():
    h, a = np.meshgrid(np.linspace(-3, 3, 7), np.linspace(-4, 4, 9))
    same("special.owens_t", h, a, atol=1e-6)
    n, x = np.meshgrid(np.arange(6), np.array([0.01, 0.5, 1.0, 1.5, 4.0, 30.0]))
    np.testing.assert_allclose(special.expn(n, x), scipy.special.expn(n, x), rtol=1e-4)
    z = (RNG.standard_normal(20) * 2 + 2j * RNG.standard_normal(20)).astype(np.complex64)
    np.testing.assert_allclose(special.wofz(z), scipy.special.wofz(z), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(special.bernoulli(8), scipy.special.bernoulli(8), rtol=1e-6)
    x = np.array([0.0, 0.3, 2.0, 9.5], np.float32)
    wanted = scipy.special.jv(np.arange(4)[:, None], x)
    np.testing.assert_allclose(special.bessel_jn(x, v=3), wanted, rtol=1e-4, atol=1e-6)


def test_derivatives_of_special_functions():
    for name in ("erfcx", "dawsn", "spence"):
        f = getattr(special, name)
        for x in (0.3, 0.8, 1.7, 4.0):
            with st.enable_x64(True):
                slope = (f(x + 1e-5) - f(x - 1e-5)) / 2e-5
                np.testing.assert_allclose(st.grad(f)(x), slope, rtol=1e-5)
