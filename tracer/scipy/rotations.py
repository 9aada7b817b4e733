"""Rotations in three dimensions, as in `jax.scipy.spatial.transform`.

They are unit quaternions (x, y, z, w). Euler angles come from these directly (Bernardes and
Viollet, "Quaternion to Euler angles conversion", 2022).
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import jnp, random
from ..jnp.indexing.searching import choose_where as where
from ..operands.dtype_promotion import promote_dtypes_inexact

_SMALL = 1e-3               # angle below which series are used


def _inexact(x: Any) -> Any:
    (x,) = promote_dtypes_inexact(jnp.asarray(x))
    return x


def _normalized(q: Any) -> Any:
    return q / jnp.linalg.norm(q, axis=-1, keepdims=True)


def _product(p: Any, q: Any) -> Any:
    """The product of quaternions: the rotation by q, then by p."""
    p, q = jnp.broadcast_arrays(p, q)
    vector = (p[..., 3:] * q[..., :3] + q[..., 3:] * p[..., :3]
              + jnp.cross(p[..., :3], q[..., :3]))
    scalar = p[..., 3:] * q[..., 3:] - jnp.sum(p[..., :3] * q[..., :3], -1, keepdims=True)
    return jnp.concatenate([vector, scalar], -1)


def _sine_ratio(angle: Any) -> Any:
    """sin(angle / 2) / angle."""
    small = angle < _SMALL
    safe = where(small, 1.0, angle)
    return where(small, 0.5 - angle * angle / 48, jnp.sin(safe / 2) / safe)


def _axes(seq: str) -> tuple[list[int], bool]:
    """The axes of a sequence such as "zyx", and whether they stay in place (small letters)."""
    if not 1 <= len(seq) <= 3:
        raise ValueError("Expected axis specification to be a non-empty string of upto 3 "
                         f"characters, got {seq}")
    if not (set(seq) <= set("xyz") or set(seq) <= set("XYZ")):
        raise ValueError("Expected axes from `seq` to be from ['x', 'y', 'z'] or ['X', 'Y', 'Z'], "
                         f"got {seq}")
    if any(a == b for a, b in zip(seq, seq[1:], strict=False)):
        raise ValueError(f"Expected consecutive axes to be different, got {seq!r}")
    return ["xyz".index(c) for c in seq.lower()], seq.islower()


class Rotation(NamedTuple):
    """One rotation, or one for each row of `quat`.

    >>> from shardtrace.scipy.spatial.transform import Rotation
    >>> Rotation.from_euler("z", 90.0, degrees=True).apply(jnp.array([1., 0., 0.])).round(3)
    Array([0., 1., 0.], dtype=float32)
    """

    quat: Any

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """All of several."""
        return cls(jnp.concatenate([jnp.atleast_2d(r.quat) for r in rotations]))

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """Rotations around the axes of `seq`, one after the other: fixed ones (small letters) or
        ones that turn along (capitals). angles: one for each axis, in the last dimension; of one
        axis also one angle, or a vector of them.
        """
        axes, fixed = _axes(seq)
        angles = _inexact(angles)
        if degrees:
            angles = jnp.deg2rad(angles)
        if len(axes) == 1 and angles.ndim < 2:
            angles = angles[..., None]
        if angles.shape[-1] != len(axes):
            raise ValueError(f"Expected angles to have {len(axes)} values in its last dimension, "
                             f"got shape {angles.shape}")
        found: Any = None
        for k, axis in enumerate(axes):
            half = angles[..., k] / 2
            parts = [jnp.zeros_like(half)] * 4
            parts[axis], parts[3] = jnp.sin(half), jnp.cos(half)
            turn = jnp.stack(parts, -1)
            found = turn if found is None else (
                _product(turn, found) if fixed else _product(found, turn))
        return cls(found)

    @classmethod
    def from_matrix(cls, matrix: Any) -> Rotation:
        """The rotation of an orthogonal matrix, or of each of a batch."""
        m = _inexact(matrix)
        d = [m[..., i, i] for i in range(3)]
        trace = d[0] + d[1] + d[2]
        choices = []
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            parts: list[Any] = [None] * 4
            parts[i] = 1 - trace + 2 * d[i]
            parts[j], parts[k] = m[..., j, i] + m[..., i, j], m[..., k, i] + m[..., i, k]
            parts[3] = m[..., k, j] - m[..., j, k]
            choices.append(jnp.stack(parts, -1))
        choices.append(jnp.stack([m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0],
                                  m[..., 1, 0] - m[..., 0, 1], 1 + trace], -1))
        choice = jnp.argmax(jnp.stack([*d, trace], -1), -1)
        every = jnp.stack(choices, -2)
        return cls(_normalized(jnp.take_along_axis(
            every, choice[..., None, None], -2)[..., 0, :]))

    @classmethod
    def from_mrp(cls, mrp: Any) -> Rotation:
        """The rotation of modified Rodrigues parameters: the axis times tan(angle / 4)."""
        p = _inexact(mrp)
        square = 1 + jnp.sum(p * p, -1, keepdims=True)
        return cls(jnp.concatenate([2 * p, 2 - square], -1) / square)

    @classmethod
    def from_quat(cls, quat: Any) -> Rotation:
        """The rotation of a quaternion (x, y, z, w), which is normalised."""
        return cls(_normalized(_inexact(quat)))

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """The rotation of a vector: around it, by its length."""
        v = _inexact(rotvec)
        if degrees:
            v = jnp.deg2rad(v)
        angle = jnp.linalg.norm(where((v == 0).all(-1, keepdims=True), 0, v), axis=-1,
                                keepdims=True)
        return cls(jnp.concatenate([_sine_ratio(angle) * v, jnp.cos(angle / 2)], -1))

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """No rotation, or `num` of them."""
        one = jnp.array([0, 0, 0, 1], dtype)
        return cls(one if num is None else jnp.broadcast_to(one, (num, 4)))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """Uniformly distributed rotations."""
        return cls(_normalized(random.normal(random_key, (4,) if num is None else (num, 4))))

    def __getitem__(self, indexer: Any) -> Rotation:
        if self.single:
            raise TypeError("Single rotation is not subscriptable.")
        return Rotation(self.quat[indexer])

    def __len__(self) -> int:
        if self.single:
            raise TypeError("Single rotation has no len().")
        return self.quat.shape[0]

    def __mul__(self, other: Any) -> Rotation:
        """The rotation by `other`, then by this one."""
        return Rotation(_product(self.quat, other.quat))

    @property
    def single(self) -> bool:
        """Whether this is one rotation."""
        return self.quat.ndim == 1

    def apply(self, vectors: Any, inverse: bool = False) -> Any:
        """The vectors, turned; by the inverse if that is asked for."""
        m = self.as_matrix()
        return jnp.einsum("...ji,...j->...i" if inverse else "...ij,...j->...i", m,
                          _inexact(vectors))

    def as_euler(self, seq: str, degrees: bool = False) -> Any:
        """Three angles that give this rotation by `from_euler`."""
        axes, fixed = _axes(seq)
        if len(axes) != 3:
            raise ValueError(f"Expected 3 axes, got {len(axes)}.")
        i, j, k = axes if fixed else axes[::-1]
        symmetric = i == k
        if symmetric:
            k = 3 - i - j
        sign = (i - j) * (j - k) * (k - i) // 2
        q = self.quat
        if symmetric:
            a, b, c, d = q[..., 3], q[..., i], q[..., j], q[..., k] * sign
        else:
            a, b = q[..., 3] - q[..., j], q[..., i] + q[..., k] * sign
            c, d = q[..., j] + q[..., 3], q[..., k] * sign - q[..., i]
        middle = 2 * jnp.arctan2(jnp.hypot(c, d), jnp.hypot(a, b))
        both, apart = jnp.arctan2(b, a), jnp.arctan2(d, c)
        none, half = jnp.abs(middle) < 1e-7, jnp.abs(middle - math.pi) < 1e-7
        first, third = both - apart, both + apart
        locked = where(none, 2 * both, 2 * apart * (-1 if fixed else 1))
        first, third = (first, third) if fixed else (third, first)
        stuck = none | half
        first, third = where(stuck, locked, first), where(stuck, 0.0, third)
        if not symmetric:
            first, third = (first, third * sign) if fixed else (first * sign, third)
            middle = middle - math.pi / 2
        angles = jnp.stack([first, middle, third], -1)
        angles = where(angles < -math.pi, angles + 2 * math.pi,
                       where(angles > math.pi, angles - 2 * math.pi, angles))
        return jnp.rad2deg(angles) if degrees else angles

    def as_matrix(self) -> Any:
        """The orthogonal matrix, or one for each rotation."""
        x, y, z, w = (self.quat[..., i] for i in range(4))
        rows = [[1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
                [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
                [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)]]
        return jnp.stack([jnp.stack(r, -1) for r in rows], -2)

    def as_mrp(self) -> Any:
        """Modified Rodrigues parameters: the axis times tan(angle / 4)."""
        sign = where(self.quat[..., 3:] < 0, -1.0, 1.0)
        return self.quat[..., :3] / (sign + self.quat[..., 3:])

    def as_rotvec(self, degrees: bool = False) -> Any:
        """The axis times the angle, which is between 0 and pi."""
        q = where(self.quat[..., 3:] < 0, -self.quat, self.quat)
        angle = 2 * jnp.arctan2(jnp.linalg.norm(q[..., :3], axis=-1, keepdims=True), q[..., 3:])
        found = q[..., :3] / _sine_ratio(angle)
        return jnp.rad2deg(found) if degrees else found

    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Any:
        """The quaternion, of two that are equal the one with w >= 0 if `canonical`."""
        q = self.quat
        if canonical:
            first = jnp.argmax(jnp.abs(q[..., ::-1]) > 0, -1)       # w, or what stands for it
            lead = jnp.take_along_axis(q[..., jnp.array([3, 2, 1, 0])], first[..., None], -1)
            q = where(lead < 0, -q, q)
        return jnp.roll(q, 1, -1) if scalar_first else q

    def inv(self) -> Rotation:
        """The rotation back."""
        return Rotation(self.quat * np.array([-1, -1, -1, 1], self.quat.dtype))

    def magnitude(self) -> Any:
        """The angle, between 0 and pi."""
        q = self.quat
        return 2 * jnp.arctan2(jnp.linalg.norm(q[..., :3], axis=-1), jnp.abs(q[..., 3]))

    def mean(self, weights: Any = None) -> Rotation:
        """The rotation that is nearest to all, weighted."""
        q = jnp.atleast_2d(self.quat)
        w = jnp.ones(q.shape[0], q.dtype) if weights is None else jnp.asarray(weights, q.dtype)
        if w.ndim != 1:
            raise ValueError(f"Expected `weights` to be 1 dimensional, got shape {w.shape}.")
        if w.shape[0] != q.shape[0]:
            raise ValueError("Expected `weights` to have number of values equal to number of "
                             f"rotations, got {w.shape[0]} values and {q.shape[0]} rotations.")
        _, vectors = jnp.linalg.eigh(jnp.einsum("n,ni,nj->ij", w, q, q))
        return Rotation(vectors[:, -1])


class Slerp(NamedTuple):
    """Spherical interpolation between rotations at ascending times; made by `Slerp.init`."""

    times: Any
    timedelta: Any
    rotations: Rotation
    rotvecs: Any

    @classmethod
    def init(cls, times: Any, rotations: Rotation) -> Slerp:
        """times: of shape (n,). rotations: n of them."""
        if rotations.single:
            raise ValueError("`rotations` must be a sequence of rotations.")
        times = _inexact(times)
        count = rotations.quat.shape[0]
        if times.ndim != 1:
            raise ValueError("Expected times to be specified in a 1 dimensional array, got "
                             f"{times.ndim} dimensions.")
        if times.shape[0] != count:
            raise ValueError(f"Expected number of rotations to be equal to number of timestamps "
                             f"given, got {count} rotations and {times.shape[0]} "
                             "timestamps.")
        starts, ends = Rotation(rotations.quat[:-1]), Rotation(rotations.quat[1:])
        return cls(times[:-1], jnp.diff(times), starts, (starts.inv() * ends).as_rotvec())

    def __call__(self, times: Any) -> Rotation:
        """The rotations at other times between these."""
        at = _inexact(times)
        if at.ndim > 1:
            raise ValueError("`times` must be at most 1-dimensional.")
        flat = jnp.atleast_1d(at)
        place = jnp.clip(jnp.searchsorted(self.times, flat, side="right") - 1, 0,
                         self.times.shape[0] - 1)
        part = (flat - self.times[place]) / self.timedelta[place]
        found = self.rotations[place] * Rotation.from_rotvec(self.rotvecs[place] * part[:, None])
        return found if at.ndim else found[0]
