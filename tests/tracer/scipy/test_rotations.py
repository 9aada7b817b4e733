"""Rotations are those of scipy."""
from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation as Reference
from scipy.spatial.transform import Slerp as ReferenceSlerp

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.scipy.spatial.transform import Rotation, Slerp

RNG = np.random.default_rng(0)
QUATERNIONS = RNG.standard_normal((6, 4))
OURS, THEIRS = Rotation.from_quat(QUATERNIONS), Reference.from_quat(QUATERNIONS)
VECTORS = RNG.standard_normal((6, 3))


def same(ours, theirs, **options):
    np.testing.assert_allclose(ours, theirs, **{"rtol": 1e-4, "atol": 2e-5, **options})


def same_rotation(ours, theirs):
    same(ours.as_matrix(), theirs.as_matrix())


@pytest.mark.parametrize("seq", ["zyx", "xyz", "ZYX", "XYZ", "zxz", "YXY", "xzx"])
def test_angles_of_euler(seq):
    same(OURS.as_euler(seq), THEIRS.as_euler(seq), atol=1e-4)
    same(OURS.as_euler(seq, degrees=True), THEIRS.as_euler(seq, degrees=True), atol=1e-2)
    angles = RNG.uniform(-3, 3, (5, 3))
    same_rotation(Rotation.from_euler(seq, angles), Reference.from_euler(seq, angles))
    same_rotation(Rotation.from_euler(seq, angles[0]), Reference.from_euler(seq, angles[0]))


def test_one_and_two_angles():
    same_rotation(Rotation.from_euler("x", 0.3), Reference.from_euler("x", 0.3))
    same_rotation(Rotation.from_euler("y", [0.3, 1.0]), Reference.from_euler("y", [[0.3], [1.0]]))
    same_rotation(Rotation.from_euler("zx", [[90, 45], [10, 20]], degrees=True),
                  Reference.from_euler("zx", [[90, 45], [10, 20]], degrees=True))
    with pytest.raises(ValueError, match="Expected axes from `seq`"):
        Rotation.from_euler("xq", 0.3)


def test_rotations_convert_between_forms_as_in_scipy():
    same_rotation(Rotation.from_matrix(THEIRS.as_matrix()), THEIRS)
    same_rotation(Rotation.from_rotvec(VECTORS), Reference.from_rotvec(VECTORS))
    same_rotation(Rotation.from_mrp(VECTORS / 3), Reference.from_mrp(VECTORS / 3))
    same(OURS.as_rotvec(), THEIRS.as_rotvec())
    same(OURS.as_mrp(), THEIRS.as_mrp())
    same(OURS.as_quat(), THEIRS.as_quat())
    same(OURS.as_quat(canonical=True), THEIRS.as_quat(canonical=True))
    same(OURS.magnitude(), THEIRS.magnitude())
    same(Rotation.from_rotvec(jnp.zeros(3)).as_rotvec(), np.zeros(3))
    assert np.isfinite(st.jacfwd(lambda v: Rotation.from_rotvec(v).as_matrix())(1e-3 * VECTORS[0])
                       ).all()


def test_rotations_compose_and_apply_as_in_scipy():
    same_rotation(OURS * OURS[::-1], THEIRS * THEIRS[::-1])
    same_rotation(OURS.inv(), THEIRS.inv())
    same(st.jit(lambda q, v: Rotation(q).apply(v))(OURS.quat, VECTORS), THEIRS.apply(VECTORS))
    same(OURS.apply(VECTORS, inverse=True), THEIRS.apply(VECTORS, inverse=True))
    same_rotation(OURS.mean(), THEIRS.mean())
    same_rotation(Rotation.concatenate([OURS, OURS[0]]), Reference.concatenate([THEIRS, THEIRS[0]]))
    assert len(OURS) == 6 and Rotation.identity(3).quat.shape == (3, 4)
    same(jnp.linalg.norm(Rotation.random(st.random.key(0), 5).quat, axis=-1), np.ones(5))


def test_slerp_interpolates_as_in_scipy():
    times = np.array([0, 1, 2.5, 3, 4, 6.0])
    at = np.array([0.3, 1.0, 2.0, 5.5])
    same_rotation(Slerp.init(times, OURS)(at), ReferenceSlerp(times, THEIRS)(at))
