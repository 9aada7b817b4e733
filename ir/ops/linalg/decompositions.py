"""Matrix decompositions over stacks of matrices: cholesky, eigh, svd, lu, qr, triangular_solve, ...

Leading dimensions are batch dimensions and pass through; the matrix dimensions must be whole. The
evaluators are LAPACK's, through numpy (which stacks) and scipy. Names and params are JAX's.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...diagnostics.diagnostic import fail
from ...diagnostics.errors import ShardingTypeError
from ...dtypes import issubdtype
from ...facts import of_matrices
from ...kernels.matrices.blas_threads import by_lapack
from ...kernels.matrices.linalg import (
    apply_pivots,
    by_numpy,
    cholesky,
    eig,
    finite_only,
    geqrf,
    householder_product,
    lu,
    qr,
    schur,
    svd,
)
from ...op import Evaluator, Op, Sample, defop, only
from ...types import ArrayType, Entries, Shape, short_list
from ..elementwise.complex_parts import complex_dtype
from ..elementwise.declaration import INEXACT, check_accepted, check_same_dtypes
from ..rules import reject, rule_text
from .decomposition_derivatives import (
    cholesky_jvp,
    eig_jvp,
    eigh_jvp,
    lu_jvp,
    qr_jvp,
    svd_jvp,
)

Params = dict[str, Any]
Matrix = tuple[int, ...]
INT32 = np.dtype(np.int32)


# -- what all of them share ------------------------------------------------------------------------

def _rule_for(ranks: tuple[int, ...]) -> Callable[..., str]:
    """The factor rule of a decomposition: leading dimensions pass through, the last ones are whole.
    ranks: of the matrices among the operands.
    """
    def rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], **params: Any) -> str:
        batch = [f"b{d}" for d in range(len(operands[0]) - ranks[0])]
        kinds: list[str] = []

        def private(shape: Shape, letter: str) -> list[str]:
            own = [f"{letter}{d}" for d in range(len(shape) - len(batch))]
            kinds.extend(f"{name}!:replicate" for name in own)
            return batch + own

        left = [private(shape, "mnop"[i]) for i, shape in enumerate(operands)]
        right = [private(shape, "rstu"[i]) for i, shape in enumerate(results)]
        return rule_text(left, right, kinds)
    return rule


def batch_entries(name: str, types: Sequence[ArrayType], ranks: Sequence[int]) -> Entries:
    """The common axes of the batch dimensions; the matrix dimensions must have none."""
    specs = []
    for i, (t, rank) in enumerate(zip(types, ranks, strict=True)):
        if any(t.entries[t.ndim - rank:]):
            fail(ShardingTypeError, f"Input {i} to {name} must be unsharded on non-batch "
                 f"dimensions, but got {t.spec}.", code="sharded-matrix",
                 label=f"operand {i} is {t.str_short(True)}",
                 help="gather the matrix dimensions first, or split a batch dimension instead")
        specs.append(t.entries[:t.ndim - rank])
    if any(s != specs[0] for s in specs):
        listed = [t.spec.partitions[:t.ndim - r] for t, r in zip(types, ranks, strict=True)]
        fail(ShardingTypeError, f"All inputs to {name} must have the same batch sharding, but got "
             f"{listed}.", code="sharding-conflict", label=f"operands are {short_list(types)}",
             help="bring all operands to one batch spec with `reshard`")
    return specs[0]


def _explicit_for(ranks: tuple[int, ...]) -> Callable[..., list[Entries]]:
    def explicit(op: Op, types: Sequence[ArrayType], shapes: Sequence[Shape],
                 params: Params) -> list[Entries]:
        batch = batch_entries(op.name, types, ranks)
        return [batch + ((),) * (len(s) - len(batch)) for s in shapes]
    return explicit


def _real(dtype: np.dtype) -> np.dtype:
    return np.real(np.zeros((), dtype)).dtype if issubdtype(dtype, np.complexfloating) else dtype


def define(name: str, doc: str, ranks: tuple[int, ...], results: Callable[..., list[tuple]],
           *, evaluate: Callable[..., Any], many: bool = True, kinds: Sequence[Any] = (INEXACT,),
           narrowed: Any = None, **fields: Any) -> Op:
    """Declare an op on stacks.

    ranks: of one problem's operands. results: (their shapes, first dtype, params) -> (shape, dtype)
    of each result of one problem. many: whether the op gives a list. kinds: dtypes per operand.
    narrowed: as that of `Evaluator`.
    """
    def infer(*types: ArrayType, **params: Any) -> Any:
        for i, t in enumerate(types):
            check_accepted(name, t, kinds[min(i, len(kinds) - 1)])
            if t.ndim < ranks[i]:
                reject(TypeError, types, f"{name} requires input {i} to have rank {ranks[i]} or "
                       f"more, got shape {t.shape}.",
                       help="add dimensions with `jnp.expand_dims`: a vector is a matrix of one "
                            "column")
        if len(kinds) == 1:
            check_same_dtypes(name, types)
        batches = [t.shape[:t.ndim - r] for t, r in zip(types, ranks, strict=True)]
        if any(b != batches[0] for b in batches):
            reject(TypeError, types, f"{name} requires the leading dimensions of its inputs to be "
                   f"equal, got {', '.join(map(str, batches))}.",
                   help="`jnp.broadcast_to` gives the operands the same leading dimensions")
        cores = [t.shape[t.ndim - r:] for t, r in zip(types, ranks, strict=True)]
        out = [(batches[0] + tuple(shape), dtype)
               for shape, dtype in results(types, *cores, types[0].dtype, **params)]
        return out if many else out[0]

    return defop(
        name, doc=doc,
        infer=infer, multiple_results=many, rule=_rule_for(ranks), explicit=_explicit_for(ranks),
        evaluate=Evaluator(by_lapack(evaluate), narrowed=narrowed), **fields)


def _square(types: Sequence[ArrayType], shape: Shape, message: str) -> None:
    if shape[0] != shape[1]:
        reject(ValueError, types, f"{message}{shape}",
               help="slice the square part out of it; `svd` and `qr` take any matrix")


def _matrix(m: int, n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(m, n)).astype(np.float32)


def _positive(n: int, seed: int = 0) -> np.ndarray:
    a = _matrix(n, n, seed)
    return a @ a.T + n * np.eye(n, dtype=np.float32)


# -- the ops ---------------------------------------------------------------------------------------

def _cholesky_results(types: Any, a: Shape, dtype: np.dtype, **params: Any) -> list[tuple]:
    _square(types, a, "The input to cholesky must be a square matrix. Got shape ")
    return [(a, dtype)]


cholesky_p = define(
    "cholesky",
    "The lower triangular L with A = L L^H, from the lower triangle of A; NaN where A "
    "is not positive definite.",
    (2,), _cholesky_results,
    many=False,
    jvp=cholesky_jvp,
    evaluate=cholesky, cost=of_matrices(lambda m, n: n ** 3 / 3),
    jax=lambda e, x: f"jnp.tril(linalg.cholesky_p.bind({x[0]}))",
    samples=lambda: [Sample((_positive(3),), grad=False)])


def _eigh_results(types: Any, a: Shape, dtype: np.dtype, *, subset_by_index: Any,
                  **params: Any) -> list[tuple]:
    _square(types, a, "Argument to symmetric eigendecomposition must have shape [..., n, n], got "
            "shape ")
    d = a[0] if subset_by_index is None else subset_by_index[1] - subset_by_index[0]
    return [((a[0], d), dtype), ((d,), _real(dtype))]


@finite_only
def _eigh(lead: int, a: np.ndarray, *, lower: bool, sort_eigenvalues: bool, subset_by_index: Any,
          algorithm: Any, only_values: bool = False) -> list[Any]:
    half, kept = "L" if lower else "U", slice(*subset_by_index or (None,))
    if only_values:
        return [None, by_numpy(functools.partial(np.linalg.eigvalsh, UPLO=half), a)[..., kept]]
    w, v = by_numpy(functools.partial(np.linalg.eigh, UPLO=half), a)
    return [v[..., kept], w[..., kept]]


eigh_p = define(
    "eigh", "Eigenvectors and ascending eigenvalues of Hermitian matrices.", (2,), _eigh_results,
    jvp=eigh_jvp,
    evaluate=_eigh, narrowed=only(1, "only_values"),
    cost=of_matrices(lambda m, n: 9 * n ** 3),
    jax="linalg.eigh_p.bind",
    samples=lambda: [Sample((_positive(3, 1),), {
        "lower": True, "sort_eigenvalues": True, "subset_by_index": None, "algorithm": None},
        grad=False)])


def _svd_results(types: Any, a: Shape, dtype: np.dtype, *, full_matrices: bool, compute_uv: bool,
                 subset_by_index: Any, algorithm: Any) -> list[tuple]:
    m, n = a
    k = min(a)
    if subset_by_index is not None:
        if full_matrices and tuple(subset_by_index) != (0, k):
            reject(ValueError, types, "full_matrices and subset_by_index cannot both be set",
                   help="slice the columns out of the full result")
        k = min(k, subset_by_index[1] - subset_by_index[0])
    out = [((k,), _real(dtype))]
    if compute_uv:
        out += [((m, m if full_matrices else k), dtype), ((n if full_matrices else k, n), dtype)]
    return out


svd_p = define(
    "svd", "Descending singular values, left vectors and adjoint right vectors.", (2,),
    _svd_results,
    jvp=svd_jvp,
    evaluate=svd, narrowed=only(0, "only_values"),
    cost=of_matrices(lambda m, n: 12 * m * n * n),
    jax="linalg.svd_p.bind",
    samples=lambda: [
        Sample((_matrix(4, 3),), {"full_matrices": False, "compute_uv": False,
                                  "subset_by_index": None, "algorithm": None}),
        Sample((_matrix(4, 3),), {"full_matrices": False, "compute_uv": True,
                                  "subset_by_index": None, "algorithm": None}),
        Sample((_matrix(3, 4),), {"full_matrices": True, "compute_uv": True,
                                  "subset_by_index": None, "algorithm": None}, grad=False),
    ])


lu_p = define(
    "lu", "L and U in one array, the row exchanges, and the permutation they make.", (2,),
    lambda types, a, dtype: [(a, dtype), ((min(a),), INT32), ((a[0],), INT32)],
    jvp=lu_jvp,
    evaluate=lu, narrowed=lambda read: {} if 2 in read else {"only_factors": True},
    cost=of_matrices(lambda m, n: 2 * m * n * n / 3),
    jax="linalg.lu_p.bind",
    samples=lambda: [Sample((_matrix(3, 3, 2),)), Sample((_matrix(4, 3, 3),)),
                     Sample((_matrix(2, 4, 3),))])


def _permutation(types: Any, p: Shape, dtype: np.dtype, *, permutation_size: int) -> list[tuple]:
    if permutation_size < p[0]:
        reject(ValueError, types, f"Output permutation size {permutation_size} has to exceed the "
               f"trailing dimension of the pivots. Got pivots size {p[0]}",
               help="give permutation_size=the number of rows of the matrix")
    return [((permutation_size,), INT32)]


lu_pivots_to_permutation_p = define(
    "lu_pivots_to_permutation", "The permutation of rows that a list of row exchanges makes.", (1,),
    _permutation, kinds=((np.int32,),), many=False,
    jvp="zero",
    evaluate=lambda lead, p, *, permutation_size: apply_pivots(p, permutation_size),
    arithmetic=False,
    jax="linalg.lu_pivots_to_permutation_p.bind",
    samples=lambda: [Sample((np.asarray([2, 2, 3], np.int32),), {"permutation_size": 4})])


def _qr_results(types: Any, a: Shape, dtype: np.dtype, *, pivoting: bool, full_matrices: bool,
                use_magma: Any) -> list[tuple]:
    m, n = a
    k = m if full_matrices else min(m, n)
    return [((m, k), dtype), ((k, n), dtype)] + ([((n,), INT32)] if pivoting else [])


qr_p = define(
    "qr", "Q with orthonormal columns and the upper triangular R, with A = Q R.", (2,), _qr_results,
    jvp=qr_jvp,
    evaluate=qr, narrowed=only(1, "only_triangles"),
    cost=of_matrices(lambda m, n: 4 * m * n * n),
    jax="linalg.qr_p.bind",
    samples=lambda: [Sample((_matrix(4, 3, 4),), {"pivoting": False, "full_matrices": False,
                                                  "use_magma": None}),
                     Sample((_matrix(2, 4, 4),), {"pivoting": False, "full_matrices": False,
                                                  "use_magma": None}),
                     Sample((_matrix(3, 4, 5),), {"pivoting": True, "full_matrices": True,
                                                  "use_magma": None}, grad=False)])


geqrf_p = define(
    "geqrf", "R in the upper triangle, Householder vectors below, and their scales.", (2,),
    lambda types, a, dtype: [(a, dtype), ((min(a),), dtype)],
    evaluate=lambda lead, a: geqrf(a), cost=of_matrices(lambda m, n: 2 * m * n * n),
    jax="packed_qr",
    samples=lambda: [Sample((_matrix(4, 3, 6),))])


def _householder_results(types: Any, a: Shape, taus: Shape, dtype: np.dtype) -> list[tuple]:
    if a[0] < a[1]:
        reject(ValueError, types, "The first argument to householder_product must have at least as "
               f"many rows as columns, got shape {a}",
               help="pass what `lax.linalg.geqrf` returns for a matrix with no more columns than"
                    " rows")
    if taus[0] > min(a):
        reject(ValueError, types, "The second argument to householder_product must not have more "
               "rows than the minimum of the first argument's rows and columns.",
               help="pass what `lax.linalg.geqrf` returns: one number for each reflector")
    return [(a, dtype)]


householder_product_p = define(
    "householder_product", "The first columns of the product of Householder reflections.", (2, 1),
    _householder_results,
    many=False,
    evaluate=lambda lead, a, taus: householder_product(a, taus),
    cost=of_matrices(lambda m, n: 2 * m * n * n),
    jax="linalg.householder_product_p.bind",
    samples=lambda: [Sample((_matrix(4, 3, 7), np.asarray([0.5, 0.2, 0.1], np.float32)))])


def _eig_results(types: Any, a: Shape, dtype: np.dtype, *, compute_left_eigenvectors: bool,
                 compute_right_eigenvectors: bool, **params: Any) -> list[tuple]:
    _square(types, a, "Argument to nonsymmetric eigendecomposition must have shape [..., n, n], "
            "got shape ")
    wanted = int(compute_left_eigenvectors) + int(compute_right_eigenvectors)
    return [((a[0],), complex_dtype(dtype))] + [(a, complex_dtype(dtype))] * wanted


eig_p = define(
    "eig", "Eigenvalues, left and right eigenvectors of general matrices.", (2,), _eig_results,
    jvp=eig_jvp,
    evaluate=eig, cost=of_matrices(lambda m, n: 25 * n ** 3),
    jax="linalg.eig",
    samples=lambda: [Sample((_matrix(3, 3, 8),), {
        "compute_left_eigenvectors": False, "compute_right_eigenvectors": True,
        "enable_eigvec_derivs": False, "implementation": None}, grad=False)])


def _schur_results(types: Any, a: Shape, dtype: np.dtype, *, compute_schur_vectors: bool,
                   **params: Any) -> list[tuple]:
    _square(types, a, "Argument to Schur decomposition must have shape [..., n, n], got shape ")
    return [(a, dtype)] * (2 if compute_schur_vectors else 1)


schur_p = define(
    "schur", "T and Z with A = Z T Z^H, T (quasi-)triangular.", (2,), _schur_results,
    evaluate=schur, cost=of_matrices(lambda m, n: 25 * n ** 3),
    jax="linalg.schur_p.bind",
    samples=lambda: [Sample((_matrix(3, 3, 9),), {
        "compute_schur_vectors": True, "sort_eig_vals": False, "select_callable": None},
        grad=False)])
