"""The least that must move, counted for every device and by the closed form."""
import itertools

import pytest

from shardtrace.report import bounds
from shardtrace.sharding import AbstractMesh

MESH = AbstractMesh((2, 4, 3), ("a", "b", "c"))
LAYOUTS = [(), ("a",), ("b",), ("c",), ("a", "b"), ("b", "a"), ("a", "c"), ("c", "b", "a")]


def counted(shape, source, target, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(bounds, "_even", lambda *_: False)
        return bounds.missing(MESH, shape, source, target)


def pairs():
    both = [(x, y) for x, y in itertools.product(LAYOUTS, LAYOUTS) if not set(x) & set(y)]
    return itertools.product(both, both)


def test_the_closed_form_counts_what_devices_lack(monkeypatch):
    shape = (24, 48)
    checked = 0
    for source, target in pairs():
        assert bounds.missing(MESH, shape, source, target) == counted(
            shape, source, target, monkeypatch), (source, target)
        checked += 1
    assert checked > 200


@pytest.mark.parametrize("devices", [8, 65536])
def test_it_does_not_depend_on_the_number_of_devices(devices):
    mesh = AbstractMesh((devices,), ("x",))
    shape = (devices * 2, devices)
    assert bounds.missing(mesh, shape, (("x",), ()), ((), ("x",))) == shape[0] - 2
    assert bounds.missing(mesh, shape, (("x",), ()), ((), ())) == shape[0] * shape[1] - 2 * devices
