"""Devices and their public figures, from `hardware.toml`.

Each number keeps the source and the date it came with, so that a report can say where it is from.
`hardware("v5p")` looks a device up by name.
"""
from __future__ import annotations

import functools
import pathlib
import tomllib
from typing import Any

import numpy as np

from ...ir.support.named_tuple import NamedTuple

DEFAULT_HARDWARE = "v5p"
FILE = pathlib.Path(__file__).with_name("hardware.toml")


class Source(NamedTuple):
    """Where a figure is from. date: when it became public, as in ISO 8601, at least the year."""
    title: str
    url: str
    date: str


class Hardware(NamedTuple):
    """One kind of device and how devices of it are connected.

    kind: "torus" (devices are wired to their neighbours in `dims` directions) or "switch" (any
      device of a node reaches any other at full rate). wrap: a torus dimension is a ring where its
      size is a multiple of this; wrap_only: where it is this size exactly. longest: most devices in
      one dimension.
    slice: most devices that the fast links connect. peak: FLOP/s by "bf16", "f32", "f64", "fp8",
      "int8". memory: bytes. hbm: bytes/s of memory. link: bytes/s one way, per link of a torus, per
      device of a switch. network: bytes/s one way per device between slices or nodes.
    link_latency, network_latency: seconds a hop; start_latency: before the first.
    kernel: seconds that starting a kernel takes; 0 where it is not known.
    """
    key: str
    name: str
    kind: str
    slice: int
    peak: dict[str, float]
    memory: float
    hbm: float
    link: float
    link_latency: float
    network: float
    network_latency: float
    start_latency: float = 0.0
    kernel: float = 0.0
    dims: int = 0
    longest: int = 1
    wrap: int = 0
    wrap_only: int = 0
    sources: dict[str, Source] = {}

    def __hash__(self) -> int:
        return hash(self.key)

    @property
    def keeps_rows(self) -> bool:
        """Do its kernels keep rows at hand that they reduce (kernels.py)?"""
        return self.kind == "switch"

    def peak_of(self, dtype: Any) -> float:
        """FLOP/s of a matrix product of this dtype.

        A product of float32 runs at the rate of bfloat16 on a TPU (its default precision) and of
        TF32 on a GPU; float64 at half of the rate of float32 where no figure is public.
        """
        name = dtype if isinstance(dtype, str) else getattr(dtype, "name", "") or (
            np.dtype(dtype).name)
        peak = self.peak
        base = peak["bf16"]
        if name.startswith("float8") or name.startswith("float4"):
            return peak.get("fp8", base)
        if name in ("int8", "uint8", "int4", "uint4"):
            return peak.get("int8", base)
        if name in ("bfloat16", "float16"):
            return base
        single = peak.get("f32", base)
        if name in ("float64", "complex128"):
            return peak.get("f64", single / 2)
        return single

    def wraps(self, size: int) -> bool:
        """Is a torus dimension of this size a ring?"""
        if self.wrap_only:
            return size == self.wrap_only
        return size >= 4 and bool(self.wrap) and size % self.wrap == 0

    def replace(self, **figures: Any) -> Hardware:
        """The device with other figures, for a measured or planned machine."""
        return self._replace(**figures)


@functools.cache
def _devices() -> dict[str, Hardware]:
    """All devices of `hardware.toml` by key. In the file an entry is a number, or a number and the
    key of its source.
    """
    table = tomllib.loads(FILE.read_text())
    known = {key: Source(**entry) for key, entry in table["sources"].items()}
    found = {}
    for key, entry in table["devices"].items():
        fields: dict[str, Any] = {}
        sources: dict[str, Source] = {}
        for name, value in entry.items():
            if name == "peak":
                fields["peak"] = {k: float(v["value"]) for k, v in value.items()}
                sources |= {f"peak.{k}": known[v["source"]] for k, v in value.items()}
            elif isinstance(value, dict):
                fields[name] = value["value"]
                sources[name] = known[value["source"]]
            else:
                fields[name] = value
        found[key] = Hardware(key=key, sources=sources, **fields)
    return found


def hardware(name: str | Hardware) -> Hardware:
    """The device called `name`: "v4", "v5e", "v5p", "v6e", "7x", "a100", ..., "cpu".

    Raises ValueError for a name that is not known.

    >>> hardware("v5p").peak_of("bfloat16")
    459000000000000.0
    """
    if isinstance(name, Hardware):
        return name
    key = str(name).lower().replace(" ", "").replace("-", "").removeprefix("tpu")
    key = {"v7": "7x", "v7x": "7x", "ironwood": "7x", "trillium": "v6e", "v5lite": "v5e"}.get(
        key, key)
    found = _devices().get(key)
    if found is None:
        raise ValueError(f"no figures for hardware {name!r}; there are {', '.join(_devices())}")
    return found


def hardware_names() -> tuple[str, ...]:
    """The names that `hardware` knows."""
    return tuple(_devices())
