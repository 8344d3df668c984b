"""Measuring this machine: all rates are taken, and what is written is a device file.

How fast the machine is nobody knows here; the figures themselves are only checked to be there.
"""

from __future__ import annotations

import logging
import tomllib

import pytest

from onnxfuse import devices, measure, roofline, workloads
from onnxfuse.cost import Cost
from onnxfuse.devices import Device


@pytest.fixture
def quick(monkeypatch):
    """Few runs, small tensors, two kinds of work."""
    for name in ("_SECONDS", "_PEAK_SECONDS"):
        monkeypatch.setattr(measure, name, 0.0)
    monkeypatch.setattr(measure, "_SWEEP", (12 << 10, 12 << 12, 12 << 14))
    monkeypatch.setattr(workloads, "KINDS", ("Relu", "DepthwiseConv"))


def test_this_machine_as_a_device(quick, tmp_path, caplog):
    with caplog.at_level(logging.DEBUG, logger="onnxfuse"):
        device = measure.measure()
    assert {"measuring matrix products", "measuring memory and caches", "measuring Relu"} <= set(caplog.messages)
    assert {"fp64", "fp32", "int8"} <= device.matrix.keys() and device.vector.keys() == {"fp64", "fp32"}
    assert device.efficiency.keys() == {"Relu", "DepthwiseConv"}
    rates = [*device.matrix.values(), *device.efficiency.values(), device.bandwidth, device.cache_bandwidth]
    assert all(rate > 0 for rate in (*rates, device.launch))
    assert device.cache_bytes in measure._SWEEP

    path = tmp_path / "mine.toml"
    path.write_text(measure.toml(device), "utf-8")
    assert roofline.seconds(Cost(0, 1 << 18, 0, 1 << 20, 1 << 20), devices.find(path), work="Relu") > device.launch


def test_a_device_file_says_what_was_measured(tmp_path):
    device = Device(
        "d", 'A "CPU" \\ µ', {"fp32": 1.714e11, "int8": 1.2e12}, {"fp32": 1.714e11}, 1.1e10, 2.746e10, 5.03e7, 2.07e-7,
        {"matrix": "why\nso", "launch": "because"}, {"Softmax": 0.41235, "Clip": 1.0},
        ((7.864e5, 9.78e10), (5.03e7, 2.746e10)),
    )  # fmt: skip
    path = tmp_path / "d.toml"
    path.write_text(measure.toml(device), "utf-8")
    read = devices.find(path)
    assert (read.title, dict(read.sources)) == (device.title, dict(device.sources))
    assert dict(read.matrix) == {"fp32": 1.71e11, "int8": 1.2e12} and dict(read.vector) == {"fp32": 1.71e11}
    assert dict(read.efficiency) == {"Softmax": 0.412, "Clip": 1.0}
    assert (read.bandwidth, read.cache_bandwidth, read.launch) == (1.1e10, 2.75e10, 2.07e-7)
    assert (read.cache_bytes, read.caches) == (5.03e7, ((7.86e5, 9.78e10), (5.03e7, 2.75e10)))
    assert tomllib.loads(path.read_text("utf-8"))["sources"].keys() == {"matrix", "launch"}
