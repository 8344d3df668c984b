"""Writing: a file appears whole under its name, or not at all; what a killed run left beside it goes with the next."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from typing import BinaryIO

from onnxfuse.errors import OutputError

_PREFIX = ".onnxfuse-"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # Linux only: elsewhere nothing is swept


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends, and vanishes if it fails.

    A symlink is followed, an existing file's mode kept. Raises OutputError.
    """
    mode, target = check(path), Path(os.path.realpath(path))
    with naming(path), unnamed(target.parent) as (temporary, descriptor):
        if mode is not None:
            os.fchmod(descriptor, mode)
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            yield file
        os.fsync(descriptor)
        temporary.replace(target)
    sync_folder(target.parent)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError as an OutputError that names the output; the folder where the user knows no such file."""
    try:
        yield
    except OSError as error:
        known = next((p.parent for p in reversed((path, *path.parents)) if p.name.startswith(_PREFIX)), path)
        raise OutputError(f"{known}: cannot be written: {error.strerror}") from error


@contextmanager
def unnamed(folder: Path) -> Iterator[tuple[Path, int]]:
    """A new file in a folder, under a name of its own and open for writing; gone when the block ends unless renamed."""
    with _claimed(folder, _new_file) as made:
        yield made


@contextmanager
def scratch(folder: Path | None = None) -> Iterator[Path]:
    """A new folder in a folder (default: the system's for temporary files), gone when the block ends.

    So are files beside it whose names begin with its own. Raises OutputError.
    """
    parent = Path(gettempdir()) if folder is None else folder
    if folder is None and not is_utf8(parent):
        raise OutputError(
            f"{parent}: the name of the folder for temporary files is not UTF-8; set TMPDIR to another one"
        )
    with ExitStack() as stack:
        try:
            made, _ = stack.enter_context(_claimed(parent, _new_folder))
        except OSError as error:
            raise OutputError(f"{parent}: cannot be written: {error.strerror}") from error
        yield made


def check(path: Path) -> int | None:
    """The permissions of what is at an output already, None if nothing is. Raises OutputError where none can be."""
    try:
        target = Path(os.path.realpath(path))
        folder = target.parent.is_dir()
        try:
            status = target.stat()
        except FileNotFoundError:
            status = None
    except ValueError as error:  # a NUL character
        raise OutputError(f"{str(path)!r}: is not a usable path") from error
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from error
    if not folder:
        raise OutputError(f"{path}: its folder does not exist; create it first")
    if not os.access(target.parent, os.W_OK):
        raise OutputError(f"{path}: its folder is write-protected; choose another one")
    if status is None:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise OutputError(f"{path}: is a folder; give the path of the file to write")
    if not stat.S_ISREG(status.st_mode):
        raise OutputError(f"{path}: is not a regular file; give the path of the file to write")
    with suppress(OSError):  # there is no standard output
        if os.path.samestat(status, os.fstat(1)):
            raise OutputError(f"{path}: is the standard output, where the report goes; choose another one")
    if not os.access(target, os.W_OK):
        raise OutputError(f"{path}: is write-protected; remove it or choose another name")
    return stat.S_IMODE(status.st_mode)


# What a killed run left is swept by the next one in the same folder. Whoever is at work holds a lock on what it made,
# which ends with its process however that ends. A shared folder need not show the locks of other machines, so a name
# tells since when its machine runs: only what this very system made since it was started is looked at.


def sweep(folder: Path) -> None:
    """Removes what runs that were killed have left in a folder."""
    for path in folder.glob(f"{_PREFIX}{_boot()}-{'[0-9a-f]' * 8}") if _boot() else ():
        with suppress(OSError):  # its owner is at work, another sweep was quicker, or there are no locks here
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
            finally:
                os.close(descriptor)


@contextmanager
def _claimed(folder: Path, make: Callable[[Path], int | None]) -> Iterator[tuple[Path, int]]:
    """A new name in a folder and what `make` opens there, both gone afterwards; nobody else sweeps it until then."""
    sweep(folder)
    descriptor = None
    try:
        while descriptor is None:
            path = folder / f"{_PREFIX}{_boot() or 'made'}-{secrets.token_hex(4)}"
            descriptor = _locked(path, make)
        yield path, descriptor
    finally:
        try:
            _remove(path)
        except KeyboardInterrupt:  # may come here, too
            _remove(path)
            raise
        if descriptor is not None:
            os.close(descriptor)


def _locked(path: Path, make: Callable[[Path], int | None]) -> int | None:
    """What `make` opens, locked; None where a sweep came between. Without locks at all there are no sweeps either."""
    descriptor = make(path)
    if descriptor is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        swept = not os.path.samestat(os.fstat(descriptor), path.lstat())
    except (BlockingIOError, FileNotFoundError):
        swept = True
    except OSError:
        swept = False
    if not swept:
        return descriptor
    os.close(descriptor)
    return None


def _new_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _new_folder(path: Path) -> int | None:
    path.mkdir(0o700)
    with suppress(FileNotFoundError):  # a sweep came between
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return None


def _remove(path: Path) -> None:
    """Removes a file or folder, and before it the files beside it whose names begin with its own."""
    for beside in path.parent.glob(f"{path.name}-*"):
        beside.unlink(missing_ok=True)
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)  # another sweep may be at it
    else:
        path.unlink(missing_ok=True)


@cache
def _boot() -> str:
    """What this start of the system is called, "" where it does not say."""
    try:
        return _BOOT_ID.read_text()[:8]
    except OSError:
        return ""


def sync_folder(folder: Path) -> None:
    """Makes a rename in the folder durable, where the system lets a folder be synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems refuse; the rename is done all the same
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_utf8(path: Path | str) -> bool:
    """Whether a path can be given to a library that takes names in UTF-8 only."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True
