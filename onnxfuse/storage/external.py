"""External data: files beside a model that hold tensor bytes, named by `external_data` of a tensor.

Format: https://github.com/onnx/onnx/blob/main/docs/ExternalData.md
A location is a path relative to the model's folder and must stay in it: a model is input that nobody has vouched for.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from onnxfuse.errors import ModelError


@dataclass(frozen=True, slots=True)
class Range:
    """`length` bytes from `offset`."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Reference:
    """What a tensor says of its external bytes; length None means: up to the end of the file."""

    tensor: str
    location: str
    offset: int
    length: int | None


def reference(tensor: onnx.TensorProto) -> Reference:
    """The external reference of a tensor. Raises ModelError where it says none, or no numbers."""
    said = {e.key: e.value for e in tensor.external_data}
    location = said.get("location", "")
    who = f"tensor '{tensor.name}': "
    if len(said) < len(tensor.external_data):
        raise ModelError(f"{who}its external data says something twice")
    for key in ("offset", "length"):
        if not (said.get(key, "0").isascii() and said.get(key, "0").isdigit()):  # int() takes more, as "1_0"
            raise ModelError(f"{who}{key} of its external data '{location}' must be a whole number, 0 or more")
    length = int(said["length"]) if "length" in said else None
    return Reference(tensor.name, location, int(said.get("offset", 0)), length)


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder that a model's external files are in.

    base: the folder of the path the model was opened by; locations are relative to it.
    roots: real folders that a file may be in: that of `base` and, where the path is a symlink (a download cache keeps
        model and data under other names in one folder), that of the file it leads to.
    """

    base: Path
    roots: tuple[Path, ...]
    _known: dict[str, tuple[Path, int]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, model: Path) -> Folder:
        """The folder of a model file."""
        return cls(model.parent, (_real(model.parent), _real(model).parent))

    def locate(self, wanted: Reference, size: int | None) -> tuple[Path, Range]:
        """The real file and the range of a tensor of `size` bytes (None = unknown). Raises ModelError."""
        who = f"tensor '{wanted.tensor}': external data '{wanted.location}'"
        if wanted.location not in self._known:
            self._known[wanted.location] = self._resolve(wanted.location, who)
        real, length = self._known[wanted.location]
        have = length - wanted.offset if wanted.length is None else wanted.length
        if have < 0 or wanted.offset + have > length:
            raise ModelError(f"{who} is too short: it has {length} bytes, {wanted.offset + max(have, 0)} are needed")
        if size is not None and have < size:
            raise ModelError(f"{who} is too short: its shape and type need {size} bytes, {have} are there")
        return real, Range(wanted.offset, have)

    def _resolve(self, location: str, who: str) -> tuple[Path, int]:
        if not location or "\0" in location:
            raise ModelError(f"{who} is not the name of a file")
        if Path(location).is_absolute() or "\\" in location or ".." in Path(location).parts:
            raise ModelError(f"{who} must be a relative path inside the model's folder")
        real = _real(self.base / location)
        if not any(real.is_relative_to(root) for root in self.roots):
            raise ModelError(f"{who} leads out of the model's folder, to {real}")
        try:
            status = real.stat()
        except OSError as error:
            raise ModelError(f"{who} cannot be read in {self.base}: {error.strerror}") from error
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{who} is not a regular file")
        return real, status.st_size


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # `Path.resolve` raises on a loop of symlinks
