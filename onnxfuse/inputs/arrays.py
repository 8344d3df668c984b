"""Arrays from .npz and .npy files that anyone may have made: sizes are checked before they are read, no pickles."""

from __future__ import annotations

import io
import math
import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from onnxfuse import feeds as fd
from onnxfuse.errors import OnnxfuseError, UsageError, one_line
from onnxfuse.inputs.check import fits, names_checked
from onnxfuse.interface import Interface, Port

_MOST_BYTES = 1 << 31  # of one array
_MOST_STRINGS = 1 << 24
_HEADER = 1 << 16  # bytes of a header of an array


@contextmanager
def reading(name: str) -> Iterator[None]:
    """What goes wrong in a file as a UsageError that names it."""
    try:
        yield
    except (OnnxfuseError, MemoryError):
        raise
    except OSError as error:
        raise UsageError(f"{name}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # zipfile, its decompressors and numpy raise whatever comes for damaged files
        raise UsageError(f"{name}: damaged, or not what its name says: {one_line(str(error))[:200]}") from error


def regular(path: Path, name: str) -> None:
    """Raises UsageError for what is no regular file: a pipe would be waited for. Raises OSError where nothing is."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise UsageError(f"{name}: is not a regular file")


def single(path: Path, name: str, interface: Interface) -> dict[str, np.ndarray]:
    """The array of an .npy file, for the only input."""
    ports = interface.required or interface.inputs
    if len(ports) != 1:
        names = ", ".join(port.name for port in ports) or "none"
        raise UsageError(f"{name}: holds one array, and the model has {len(ports)} inputs ({names}); give an .npz")
    regular(path, name)
    with path.open("rb") as file:
        return {ports[0].name: _read(file, os.fstat(file.fileno()).st_size, name, ports[0])}


def archive(path: Path, name: str, interface: Interface) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name."""
    regular(path, name)
    ports = {port.name: port for port in interface.inputs}
    with zipfile.ZipFile(path) as opened:
        members: dict[str, zipfile.ZipInfo] = {}
        for info in opened.infolist():
            key = info.filename.removesuffix(".npy")
            if key == info.filename or key in members:
                problem = "is there twice" if key in members else "is no array"
                raise UsageError(f"{name}: {info.filename!r} {problem}")
            members[key] = info
        names_checked(name, members, interface)
        found = {}
        for key, info in members.items():
            with opened.open(info) as file:
                found[key] = _read(file, info.file_size, name, ports[key])
    return found


def _read(file: IO[bytes], size: int, name: str, port: Port) -> np.ndarray:
    """The array of an open .npy file of so many bytes, for an input that it fits."""
    head = io.BytesIO(file.read(_HEADER))  # a header may say that it has gigabytes
    version = npy.read_magic(head)
    reader: Any = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = reader(head, max_header_size=_HEADER)
    if dtype.hasobject:
        raise UsageError(f"{name}: input '{port.name}' is pickled; no pickle is read, save it as text or numbers")
    fits(name, port, dtype, shape)
    count = math.prod(shape)
    length = count * dtype.itemsize
    most = _MOST_STRINGS if dtype.kind in "SU" else fd.LARGEST
    if count > most or length > _MOST_BYTES:
        raise UsageError(f"{name}: input '{port.name}' has {count:,} elements; at most {most:,} are read")
    if size - head.tell() != length:
        raise UsageError(f"{name}: input '{port.name}' is cut off or damaged: {size} bytes do not hold its elements")
    data = head.read()
    data += file.read(length - len(data)) if len(data) < length else b""
    if len(data) != length:
        raise UsageError(f"{name}: input '{port.name}' is cut off")
    array = np.frombuffer(data, dtype) if length else np.empty(count, dtype)
    return array.reshape(shape[::-1]).transpose() if fortran else array.reshape(shape)
