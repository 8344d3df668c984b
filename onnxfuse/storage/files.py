"""Writing: a file appears whole under its name, or not at all."""

from __future__ import annotations

import filecmp
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from onnxfuse.errors import OutputError
from onnxfuse.storage.source import File

TEMPORARY = ".onnxfuse-*.tmp"  # what a killed run may leave beside its output


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends, and vanishes if it fails.

    A symlink is followed, an existing file's mode kept. Raises OutputError.
    """
    try:
        target = Path(os.path.realpath(path))
        temporary = target.parent / TEMPORARY.replace("*", secrets.token_hex(4))
        mode = _mode(path, target)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            yield file
            file.flush()
            os.fsync(descriptor)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


def _mode(path: Path, target: Path) -> int | None:
    """The permissions of what is at the output already; None if nothing is."""
    try:
        status = target.stat()
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise OutputError(f"{path}: its folder does not exist; create it first") from None
        return None
    if stat.S_ISDIR(status.st_mode):
        raise OutputError(f"{path}: is a directory; give the path of the file to write")
    if not stat.S_ISREG(status.st_mode):
        raise OutputError(f"{path}: is not a regular file; give the path of the file to write")
    if not os.access(target, os.W_OK):
        raise OutputError(f"{path}: is write-protected; remove it or choose another name")
    return stat.S_IMODE(status.st_mode)


def sync_folder(folder: Path) -> None:
    """Makes a rename in the folder durable, where the system lets a folder be synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems refuse; the rename is done all the same
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def carry(data: Path, target: Path, folder: Path) -> bool:
    """Copies an external data file to `target` below `folder`; True if it was not there before.

    A copy and not a link: onnx refuses a data file of several names. A file of the same content that is there already
    stays. Raises OutputError rather than overwrite another one, or write outside the folder through a symlink.
    """
    try:
        if target.exists():
            if data.samefile(target) or filecmp.cmp(data, target, shallow=False):
                return False
            raise OutputError(f"{target}: another file of this name is there; choose another output folder")
        if target.is_symlink() or not Path(os.path.realpath(target)).is_relative_to(os.path.realpath(folder)):
            raise OutputError(f"{target}: leads out of the output folder through a symlink; choose another folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        source = File(data)
        with atomic(target) as file:
            source.copy(0, source.size, file)
    except OSError as error:
        raise OutputError(f"{target}: cannot be written: {error.strerror}") from error
    return True
