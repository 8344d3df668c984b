"""Device files: complete, sourced, dense rather than sparse, and consistent with the published hardware."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from onnxfuse import devices
from onnxfuse.devices import Device
from onnxfuse.errors import UsageError
from onnxfuse.roofline import find_device, ridge

FOLDER = Path(devices.__file__).parent
NUMBERS = ("bandwidth", "cache_bandwidth", "cache_bytes", "launch")
NAMES = ["a100_80gb", "avx2_core", "h100_sxm", "h200", "l4", "rtx_4090", "t4"]

# Published structure of the chips, from which their peaks follow: SMs, boost clock of the tensor cores in GHz, dense
# FP16 FMAs (with FP32 accumulation) an SM and clock, boost clock of the FP32 lanes, FP32 lanes an SM.
# NVIDIA whitepapers: H100 V1.04 table 2 and p. 39 (1,830 MHz is the tensor clock), A100 V1.0 table 4 and p. 25, Ada
# V2.02 appendix A, Turing appendix B; L4: 7,424 lanes at 2,040 MHz (TechPowerUp GPU database).
CHIPS = {
    "h200": (132, 1.83, 2048, 1.98, 128),
    "h100_sxm": (132, 1.83, 2048, 1.98, 128),
    "a100_80gb": (108, 1.41, 1024, 1.41, 64),
    "l4": (58, 2.04, 512, 2.04, 128),
    "rtx_4090": (128, 2.52, 256, 2.52, 128),
    "t4": (40, 1.59, 512, 1.59, 64),
}

# Bus width in bits and transfers in Gbit/s a pin (TechPowerUp GPU database).
MEMORY = {
    "h100_sxm": (5120, 5.23),
    "a100_80gb": (5120, 3.186),
    "l4": (192, 12.5),
    "rtx_4090": (384, 21.0),
    "t4": (256, 10.0),
}


@pytest.fixture(params=NAMES)
def device(request: pytest.FixtureRequest) -> Device:
    return devices.find(str(request.param))


def test_the_devices_of_the_package() -> None:
    assert devices.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_file_has_all_numbers_and_a_source_for_each(name: str) -> None:
    data = tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))
    more = data.keys() & {"efficiency", "caches"}
    assert data.keys() == {"title", "matrix", "vector", "sources", *NUMBERS, *more}
    assert data["sources"].keys() == {"matrix", "vector", *NUMBERS, *more}
    assert all(len(source) > 20 for source in data["sources"].values())
    assert all(isinstance(data[n], float) and data[n] > 0 for n in NUMBERS)
    assert all(isinstance(x, float) and x > 0 for table in ("matrix", "vector") for x in data[table].values())
    assert all(0 < share <= 1 for share in data.get("efficiency", {}).values())
    for size, rate in data.get("caches", []):
        assert size <= data["cache_bytes"] and data["bandwidth"] < rate


@pytest.mark.parametrize("name", CHIPS)
def test_gpu_peaks_follow_from_the_published_chip(name: str) -> None:
    sms, tensor_ghz, fmas, ghz, lanes = CHIPS[name]
    device = devices.find(name)
    assert device.matrix["fp16"] == pytest.approx(sms * tensor_ghz * 1e9 * fmas * 2, rel=0.02)
    assert device.vector["fp32"] == pytest.approx(sms * ghz * 1e9 * lanes * 2, rel=0.02)


@pytest.mark.parametrize("name", MEMORY)
def test_gpu_bandwidth_follows_from_the_memory_bus(name: str) -> None:
    bits, gbit = MEMORY[name]
    assert devices.find(name).bandwidth == pytest.approx(bits / 8 * gbit * 1e9, rel=0.02)


def test_a_core_with_avx2_does_32_flops_a_cycle() -> None:
    core = devices.find("avx2_core")
    assert core.vector["fp32"] == core.matrix["fp32"] == 2 * 8 * 2 * 3e9
    assert core.vector["fp64"] == core.vector["fp32"] / 2


def test_narrower_types_are_never_slower(device: Device) -> None:
    for table in (device.matrix, device.vector):
        ladder = [table[d] for d in ("fp64", "fp32", "tf32", "bf16", "fp8", "int8") if d in table]
        assert ladder == sorted(ladder)
        assert table.get("fp16", 0) >= table.get("bf16", 0)
    assert all(rate >= device.vector.get(dtype, 0) for dtype, rate in device.matrix.items())


def test_tensor_peaks_are_dense(device: Device) -> None:
    """Structured sparsity doubles a figure; between types the dense steps are 2 (fp16 from tf32, int8 from fp16)."""
    matrix = device.matrix
    if "tf32" in matrix:
        assert matrix["fp16"] == pytest.approx(2 * matrix["tf32"], rel=0.01)
        assert matrix["bf16"] == matrix["fp16"]
    if "fp8" in matrix:
        assert matrix["fp8"] == pytest.approx(2 * matrix["fp16"], rel=0.01)


def test_memory_caches_and_launch_are_of_the_right_size(device: Device) -> None:
    assert 1.2 < device.cache_bandwidth / device.bandwidth < 10
    assert 1e6 < device.cache_bytes < 1e9
    assert 1e-7 < device.launch < 2e-5


def test_the_ridge_point_is_sane(device: Device) -> None:
    """FLOP/byte: a few on a CPU core, tens to hundreds on a GPU's matrix units, about 10 to 100 on its plain lanes."""
    low, high = (3, 10) if device.name == "avx2_core" else (20, 500)
    assert low < ridge(device, "fp32") < high
    assert low < ridge(device, "fp16") < high
    assert 3 < ridge(device, "fp32", matrix=False) < 110


def test_peak_falls_back_to_the_fp32_rate() -> None:
    t4 = devices.find("t4")
    assert t4.peak("bf16", matrix=True) == t4.vector["fp32"]
    assert t4.peak("fp16", matrix=True) == 65e12
    assert t4.peak("fp64", matrix=True) == t4.vector["fp64"]


def test_only_a_processor_core_finds_activations_in_its_cache(device: Device) -> None:
    """A GPU's are taken to move to and from memory, at full efficiency."""
    assert bool(device.caches) is bool(device.efficiency) is (device.name == "avx2_core")


def test_find_takes_a_device_and_a_file(tmp_path: Path) -> None:
    h200 = devices.find("h200")
    assert devices.find(h200) is h200
    copy = tmp_path / "mine.toml"
    copy.write_text((FOLDER / "h200.toml").read_text("utf-8"), "utf-8")
    mine = devices.find(copy)
    assert mine.name == "mine"
    assert mine.matrix == h200.matrix


GOOD = """title = "mine"
bandwidth = 1e10
cache_bandwidth = 2e10
cache_bytes = 5e7
launch = 0
caches = [[1e6, 9e10], [5e7, 2e10]]
[matrix]
fp32 = 1_000_000_000_000
[vector]
fp32 = 1e12
[efficiency]
Conv = 0.5
DepthwiseConv = 1
[sources]
launch = "none"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text, "utf-8")
    return path


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    mine = find_device(written(tmp_path, GOOD))
    assert (mine.name, mine.title, mine.launch, mine.bandwidth) == ("mine", "mine", 0.0, 1e10)
    assert mine.caches == ((1e6, 9e10), (5e7, 2e10)) and mine.efficiency == {"Conv": 0.5, "DepthwiseConv": 1.0}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("bandwidth = 1e10", "bandwidth = 0", "bandwidth is 0; give a number above 0"),
        ("bandwidth = 1e10", 'bandwidth = "fast"', "bandwidth is 'fast'; give a number above 0"),
        ("bandwidth = 1e10", "bandwidth = true", "bandwidth is True; give a number above 0"),
        ("bandwidth = 1e10\n", "", "bandwidth is missing"),
        ("launch = 0", "launch = -1", "launch is -1; give a number, 0 or more"),
        ("launch = 0", "launch = nan", "launch is nan; give a number, 0 or more"),
        ("cache_bytes = 5e7", "cache_bytes = inf", "cache_bytes is inf; give a number above 0"),
        ("[1e6, 9e10]", "[1e6, 0]", "a rate in caches is 0; give a number above 0"),
        ("[1e6, 9e10]", "[1e6]", "caches is [[1000000.0], [50000000.0, 20000000000.…; give a list of [bytes, bytes/s]"),
        ("[vector]\nfp32 = 1e12", "[vector]\nfp32 = 0", "fp32 in [vector] is 0; give a number above 0"),
        ("[vector]\nfp32 = 1e12", '[vector]\nfp32 = "x"', "fp32 in [vector] is 'x'; give a number above 0"),
        ("[vector]\nfp32 = 1e12", "[vector]", "fp32 is missing in [vector]"),
        ("[vector]\nfp32", "[vector]\nfp33", "unknown key 'fp33' in [vector]; known: fp64, fp32,"),
        ("Conv = 0.5", "Conv = 0", "Conv in [efficiency] is 0; give a number above 0"),
        ("Conv = 0.5", "Konv = 0.5", "unknown operator 'Konv' in [efficiency]; did you mean 'Conv'?"),
        ("launch = 0", "launch = 0\nlunch = 1", "unknown key 'lunch' in the file; known: title, matrix,"),
        ('title = "mine"', "title = 5", "title is 5; give a text in quotes"),
        ('launch = "none"', "launch = 5", "launch in [sources] is 5; give a text in quotes"),
        ('launch = "none"', 'lunch = "none"', "unknown key 'lunch' in [sources]"),
        ("[matrix]\nfp32 = 1_000_000_000_000", "", "matrix is missing"),
        ("title", "title =", "not a valid TOML file"),
    ],
)
def test_a_broken_file_is_named_in_one_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        find_device(written(tmp_path, GOOD.replace(old, new, 1)))
    assert "\n" not in str(caught.value) and "device 'mine': " in str(caught.value)


def test_a_table_is_a_table_and_a_text_is_a_text(tmp_path: Path) -> None:
    head, _, _ = GOOD.partition("[efficiency]")
    with pytest.raises(UsageError, match=re.escape("efficiency is 2.0; make it a table, [efficiency]")):
        devices.find(written(tmp_path, f"efficiency = 2.0\n{head}[sources]\n"))
    path = tmp_path / "mine.toml"
    path.write_bytes(b"title = '\xff'")
    with pytest.raises(UsageError, match="not a text in UTF-8"):
        devices.find(path)


def test_an_unknown_device_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown device 'h300'; known: a100_80gb, .*h200"):
        devices.find("h300")
    with pytest.raises(UsageError, match="No such file"):
        devices.find(tmp_path / "none.toml")
