"""Where the bytes of a serialized model lie: a file held open, or memory; and where those of new weights go.

An open descriptor keeps its file alive, so that the input may be replaced or deleted while its weights are in use.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import tempfile
import weakref
from pathlib import Path
from typing import BinaryIO, Protocol

from onnxfuse.errors import ModelError
from onnxfuse.storage.external import Range

_WINDOW = 1 << 16  # bytes read at a time while hopping over headers
_CHUNK = 1 << 20  # bytes copied at a time where the kernel cannot copy by itself
_NO_KERNEL_COPY = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}


class Source(Protocol):
    """Random access to `size` bytes that do not change."""

    size: int

    def window(self, at: int) -> tuple[bytes, int]:
        """(buffer, its offset): at least the next 20 bytes from `at`, or all up to the end."""

    def read(self, offset: int, length: int) -> bytes:
        """A copy of the range."""

    def view(self, offset: int, length: int) -> memoryview:
        """The range without a copy, read-only."""

    def copy(self, offset: int, length: int, out: BinaryIO) -> None:
        """Appends the range to an open file."""


class Memory:
    """A model serialized in memory."""

    def __init__(self, data: bytes):
        self.size = len(data)
        self._data = data

    def window(self, at: int) -> tuple[bytes, int]:  # noqa: ARG002 - the window is everything
        """See `Source`."""
        return self._data, 0

    def read(self, offset: int, length: int) -> bytes:
        """See `Source`."""
        return self._data[offset : offset + length]

    def view(self, offset: int, length: int) -> memoryview:
        """See `Source`."""
        return memoryview(self._data)[offset : offset + length]

    def copy(self, offset: int, length: int, out: BinaryIO) -> None:
        """See `Source`."""
        out.write(self.view(offset, length))


class File:
    """A regular file, open until the object dies. Raises ModelError where there is none or it cannot be read."""

    def __init__(self, path: Path):
        self._path = path
        try:
            mode = path.stat().st_mode  # looked at first: opening a pipe would wait for its writer
            if stat.S_ISDIR(mode):
                raise ModelError(f"{path}: is a directory; give the path of an .onnx file")
            if not stat.S_ISREG(mode):
                raise ModelError(f"{path}: is not a regular file; save the model to a file first")
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:  # a NUL character in the path
            raise ModelError(f"{str(path)!r}: is not a usable path: {error}") from error
        weakref.finalize(self, os.close, self._fd)
        self._stamp = self._now()
        self.size = self._stamp[0]
        self._buffer, self._base = b"", 0

    def _now(self) -> tuple[int, int]:
        status = os.fstat(self._fd)
        return status.st_size, status.st_mtime_ns

    def _unchanged(self) -> None:
        if self._now() != self._stamp:
            raise ModelError(f"{self._path}: was overwritten while in use; load it again")

    def window(self, at: int) -> tuple[bytes, int]:
        """See `Source`."""
        limit = self._base + len(self._buffer)
        if at < self._base or (at + 20 > limit and limit < self.size) or at > limit:
            self._buffer, self._base = os.pread(self._fd, _WINDOW, at), at
        return self._buffer, self._base

    def read(self, offset: int, length: int) -> bytes:
        """See `Source`."""
        self._unchanged()
        parts: list[bytes] = []
        while length and (part := os.pread(self._fd, length, offset)):  # one call gives 2 GiB at most
            parts.append(part)
            offset, length = offset + len(part), length - len(part)
        if length:
            raise ModelError(f"{self._path}: ended early; load it again")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def view(self, offset: int, length: int) -> memoryview:
        """See `Source`; the pages are read when touched and given back with the view."""
        self._unchanged()
        if not length:
            return memoryview(b"")
        ahead = offset % mmap.ALLOCATIONGRANULARITY
        try:
            mapped = mmap.mmap(self._fd, ahead + length, offset=offset - ahead, access=mmap.ACCESS_READ)
        except OSError as error:
            raise MemoryError from error  # there is nothing else that a range of an open file lacks
        return memoryview(mapped)[ahead:]

    def copy(self, offset: int, length: int, out: BinaryIO) -> None:
        """See `Source`; the kernel copies where it can, so that the bytes never enter this process."""
        self._unchanged()
        if length > _CHUNK:
            out.flush()
        while length > _CHUNK:
            try:
                done = os.copy_file_range(self._fd, out.fileno(), length, offset_src=offset)
            except (OSError, AttributeError) as error:
                if isinstance(error, OSError) and error.errno not in _NO_KERNEL_COPY:
                    raise
                break
            if not done:
                break
            offset, length = offset + done, length - done
        while length:
            part = self.read(offset, min(length, _CHUNK))
            out.write(part)
            offset, length = offset + len(part), length - len(part)


class Scratch(File):
    """A file without a name that grows by `add`, and goes with the object. Raises OSError where there can be none."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            self._path, self._fd = Path(tempfile.gettempdir()), os.dup(file.fileno())
        weakref.finalize(self, os.close, self._fd)
        self.size = 0

    def _unchanged(self) -> None:
        """What was written stays as it is."""

    def add(self, data: memoryview) -> Range:
        """Writes bytes behind the others; says where. Raises OSError."""
        where = Range(self.size, data.nbytes)
        rest = data.cast("B")
        while rest:  # one call takes 2 GiB at most
            done = os.pwrite(self._fd, rest, self.size)
            self.size += done
            rest = rest[done:]
        return where


class Grown:
    """A model's source, and what was added since: new weights, behind all offsets of the source, in a `Scratch`.

    size, window: of the source alone.
    """

    def __init__(self, base: Source) -> None:
        self.base, self.size = base, base.size
        self._scratch: Scratch | None = None

    def add(self, data: memoryview) -> Range:
        """Keeps a copy of these bytes; says where. Raises OSError where no file takes them."""
        if self._scratch is None:
            self._scratch = Scratch()
        where = self._scratch.add(data)
        return Range(self.size + where.offset, where.length)

    def window(self, at: int) -> tuple[bytes, int]:
        """See `Source`."""
        return self.base.window(at)

    def read(self, offset: int, length: int) -> bytes:
        """See `Source`."""
        holder, at = self._holder(offset)
        return holder.read(at, length)

    def view(self, offset: int, length: int) -> memoryview:
        """See `Source`."""
        holder, at = self._holder(offset)
        return holder.view(at, length)

    def copy(self, offset: int, length: int, out: BinaryIO) -> None:
        """See `Source`."""
        holder, at = self._holder(offset)
        holder.copy(at, length, out)

    def _holder(self, offset: int) -> tuple[Source, int]:
        if self._scratch is None or offset < self.size:
            return self.base, offset
        return self._scratch, offset - self.size
