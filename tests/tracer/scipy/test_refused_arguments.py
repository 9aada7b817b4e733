"""Arguments that functions of scipy refuse, in JAX's words."""
from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np
import pytest

import shardtrace as st
from shardtrace.scipy.fft import dctn
from tests.real_jax import real_jax

from ...rows import rows

ONES, SQUARE = np.ones(3, np.float32), np.eye(3, dtype=np.float32)
WIDE = np.ones((2, 3), np.float32)
COMPLEX = np.ones(3, np.complex64)
_THREE = np.ones((3, 4), np.float32)


def rotations(m: ModuleType):
    return m.scipy.spatial.transform.Rotation.from_quat(_THREE)


def slerp(m: ModuleType, times):
    return m.scipy.spatial.transform.Slerp.init(times, rotations(m))


REAL = ["gammasgn", "dawsn", "entr", "expi", "exp1", "sici"]
CASES = {
    **{name: lambda m, name=name: getattr(m.scipy.special, name)(COMPLEX) for name in REAL},
    **{name: lambda m, name=name: getattr(m.scipy.special, name)(COMPLEX, COMPLEX)
       for name in ("beta", "kl_div", "rel_entr")},
    "polygamma": lambda m: m.scipy.special.polygamma(ONES, ONES),
    "series_order": lambda m: m.scipy.special.log_ndtr(ONES, series_order=31),
    "eigh": lambda m: m.scipy.linalg.eigh(SQUARE, b=SQUARE),
    "qr_multiply": lambda m: m.scipy.linalg.qr_multiply(SQUARE, np.eye(2), mode="left"),
    "qr_multiply, right": lambda m: m.scipy.linalg.qr_multiply(SQUARE, np.eye(2)),
    "expm": lambda m: m.scipy.linalg.expm(WIDE),
    "expm_frechet": lambda m: m.scipy.linalg.expm_frechet(SQUARE, WIDE),
    "hessenberg": lambda m: m.scipy.linalg.hessenberg(WIDE),
    "hankel": lambda m: m.scipy.linalg.hankel(ONES, np.float32(1)),
    "fiedler_companion": lambda m: m.scipy.linalg.fiedler_companion(ONES[:0]),
    "convolution_matrix": lambda m: m.scipy.linalg.convolution_matrix(ONES, 3, mode="all"),
    "leslie": lambda m: m.scipy.linalg.leslie(ONES, ONES),
    "hadamard": lambda m: m.scipy.linalg.hadamard(-1),
    "helmert": lambda m: m.scipy.linalg.helmert(0),
    "pascal": lambda m: m.scipy.linalg.pascal(3, kind="bad"),
    "invpascal": lambda m: m.scipy.linalg.invpascal(3, kind="bad"),
    "lu_solve": lambda m: m.scipy.linalg.lu_solve((SQUARE, np.arange(3, dtype=np.int32)), ONES, 5),
    "eigh_tridiagonal": lambda m: m.scipy.linalg.eigh_tridiagonal(ONES, np.ones(2, np.float16)),
    "multi_dot": lambda m: m.numpy.linalg.multi_dot([SQUARE, np.eye(2, dtype=np.float32)]),
    "matrix_power": lambda m: m.numpy.linalg.matrix_power(SQUARE, 1.5),
    "fftconvolve": lambda m: m.scipy.signal.fftconvolve(ONES, SQUARE),
    "fftconvolve, axes": lambda m: m.scipy.signal.fftconvolve(WIDE, SQUARE, axes=1),
    "convolve": lambda m: m.scipy.signal.convolve(ONES, SQUARE),
    "convolve, sizes": lambda m: m.scipy.signal.convolve(WIDE, np.ones((3, 2)), mode="same"),
    "csd": lambda m: m.scipy.signal.csd(np.ones((2, 20)), np.ones((3, 20))),
    "welch": lambda m: m.scipy.signal.welch(np.ones(20), window=np.ones(30)),
    "seq": lambda m: m.scipy.spatial.transform.Rotation.from_euler("xyzx", ONES),
    "weights": lambda m: rotations(m).mean(weights=ONES[:2]),
    "times": lambda m: slerp(m, SQUARE),
    "times between": lambda m: slerp(m, np.arange(3.0))(SQUARE),
    "multinomial": lambda m: m.scipy.stats.multinomial.logpmf(ONES, np.float32(3), ONES),
    "mode": lambda m: m.scipy.stats.mode(ONES, nan_policy="omit"),
    "interpolation": lambda m: m.scipy.interpolate.RegularGridInterpolator(
        (np.arange(3.0),), ONES)(np.ones((2, 2))),
}


@rows("name", CASES)
def test_is_refused_in_the_words_of_jax(name):
    refused = []
    for m in (st, real_jax()):
        for part in ("special", "linalg", "signal", "spatial.transform", "stats", "interpolate"):
            importlib.import_module(f"{m.__name__}.scipy.{part}")
        with pytest.raises((TypeError, ValueError, NotImplementedError)) as e:
            CASES[name](m)
        refused.append((type(e.value), str(e.value).split("\n")[0]))
    assert refused[0] == refused[1]


def test_the_axes_of_transforms_exist():
    with pytest.raises(ValueError, match="axis 1 is out of bounds"):
        dctn(ONES, axes=(0, 1))
