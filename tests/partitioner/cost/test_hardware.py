"""The figures of devices: each with its source and date, and those that are published agree."""
import datetime

import numpy as np
import pytest

from shardtrace.partitioner.cost.hardware import hardware, hardware_names

WANTED = ("v4", "v5e", "v5p", "v6e", "7x", "a100", "h100", "h200", "b200", "cpu")


def test_the_devices_that_are_promised_are_there():
    assert set(WANTED) <= set(hardware_names())


@pytest.mark.parametrize("name", hardware_names())
def test_every_number_has_a_source_and_a_date(name):
    device = hardware(name)
    for figure in ("slice", "memory", "hbm", "link", "link_latency", "network", "network_latency",
                   *(f"peak.{k}" for k in device.peak)):
        source = device.sources[figure]
        assert source.title
        date = source.date if len(source.date) > 4 else f"{source.date}-01-01"
        assert datetime.date.fromisoformat(date)


@pytest.mark.parametrize(("alias", "name"), [
    ("TPU v5p", "v5p"), ("v5p", "v5p"), ("tpu-7x", "7x"), ("Ironwood", "7x"), ("H100", "h100")])
def test_names_are_forgiving(alias, name):
    assert hardware(alias).key == name


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="v5p.*h100"):
        hardware("abacus")


@pytest.mark.parametrize(("name", "tokens"), [
    # bf16 products are bound by computation from this many tokens on: "How to Scale Your Model"
    # gives 240 for v5e and about 298 (295 by the data sheet) for H100
    ("v5e", 240), ("h100", 295), ("v5p", 166)])
def test_the_critical_batch_of_a_product_is_the_published_one(name, tokens):
    device = hardware(name)
    assert device.peak_of("bfloat16") / device.hbm == pytest.approx(tokens, rel=0.02)


def test_rates_of_other_dtypes():
    v5p, h100, cpu = hardware("v5p"), hardware("h100"), hardware("cpu")
    assert v5p.peak_of(np.float32) == v5p.peak_of("bfloat16")       # default precision
    assert h100.peak_of(np.float32) < h100.peak_of("float16")       # TF32
    assert cpu.peak_of(np.float64) == cpu.peak_of(np.float32) / 2
