"""Devices: what a machine can do at best. One TOML file a device, every number with its public source.

A device file has `title`, the tables `[matrix]` and `[vector]` and scalar rates, and where they are known the table
`[efficiency]` and the list `caches`; see `Device` for the units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path

from onnxfuse.devices import file
from onnxfuse.errors import UsageError


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """Peak rates of a device; compared, and usable as a key, by identity.

    matrix, vector: dense peak in FLOP/s by dtype name ("fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp64"), with the
        matrix units (tensor cores, where there are any) and with the plain vector units.
    bandwidth, cache_bandwidth: bytes/s from main memory and from the last-level cache; cache_bytes: its size.
    launch: seconds that every executed kernel costs beside its work.
    sources: where each number comes from, by its name in the file.
    efficiency: roofline time / measured time of a kernel alone, by kind of work (see `roofline.work`); 1 where unnamed.
    caches: of the activations that a kernel moves, how many bytes are in a cache, and bytes/s at which they move there,
        nearest cache first; what is left comes from and goes to memory.
    """

    name: str
    title: str
    matrix: Mapping[str, float]
    vector: Mapping[str, float]
    bandwidth: float
    cache_bandwidth: float
    cache_bytes: float
    launch: float
    sources: Mapping[str, str]
    efficiency: Mapping[str, float] = field(default_factory=dict)
    caches: tuple[tuple[float, float], ...] = ()

    def peak(self, dtype: str, matrix: bool) -> float:
        """FLOP/s for a dtype; a dtype without units of its own runs at the fp32 rate."""
        table = self.matrix if matrix else self.vector
        return table.get(dtype) or self.vector.get(dtype) or self.vector["fp32"]


def names() -> list[str]:
    """Names of the devices that come with the package, sorted."""
    return sorted(f.name[:-5] for f in resources.files(__package__).iterdir() if f.name.endswith(".toml"))


@cache
def _packaged(name: str) -> Device:
    return _parse(name, (resources.files(__package__) / f"{name}.toml").read_text("utf-8"))


_LARGEST = 2**16  # bytes of a device file


def find(name: str | Path | Device) -> Device:
    """The device of that name, or the one described by that TOML file. Raises UsageError."""
    if isinstance(name, Device):
        return name
    text = str(name)
    if text in names():
        return _packaged(text)
    if text.endswith(".toml"):
        try:
            path = Path(text)
            if path.exists() and (not path.is_file() or path.stat().st_size > _LARGEST):
                raise UsageError(f"device file {text}: no file of some lines of text")
            return _parse(path.stem, path.read_text("utf-8"))
        except OSError as error:
            raise UsageError(f"device file {text}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"device file {text}: not a text in UTF-8") from error
        except UsageError:
            raise
        except ValueError as error:  # a NUL character, or what no name of a file can hold
            raise UsageError(f"device file {text!r}: is not a usable path") from error
    raise UsageError(f"unknown device '{text}'; known: {', '.join(names())}, or the path of a .toml file")


def _parse(name: str, text: str) -> Device:
    return Device(name, **file.fields(name, text))
