"""External data files that come along with a model into another folder."""

from __future__ import annotations

import errno
import filecmp
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from onnxfuse.errors import OutputError
from onnxfuse.storage import files
from onnxfuse.storage.source import File

_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}  # file systems without hard links


@contextmanager
def carried(data: Path, target: Path, folder: Path) -> Iterator[None]:
    """An external data file copied to `target` below `folder` when the block ends, and not if it fails.

    A copy and not a link: onnx refuses a data file of several names. A file of the same content that is there already
    stays, and none that is there is ever replaced or removed: another writer's model may be using it since a moment.
    Raises OutputError rather than overwrite another one, or write outside the folder through a symlink.
    """
    with ExitStack() as stack:
        with files.naming(target):
            there = target.exists()
            if there:
                _same(data, target)
            else:
                temporary = stack.enter_context(_copied(data, target, folder))
        yield
        if not there:
            with files.naming(target):
                place(temporary, target)


@contextmanager
def _copied(data: Path, target: Path, folder: Path) -> Iterator[Path]:
    """A copy under a name of its own beside the target, gone when the block ends."""
    if target.is_symlink() or not Path(os.path.realpath(target)).is_relative_to(os.path.realpath(folder)):
        raise OutputError(f"{target}: leads out of the output folder through a symlink; choose another folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    source = File(data)
    with files.unnamed(target.parent) as (temporary, descriptor):
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            source.copy(0, source.size, file)
        os.fsync(descriptor)
        yield temporary


def place(temporary: Path, target: Path) -> None:
    """Gives a data file its name; another writer's file stays. Raises OutputError where that is not the same."""
    try:
        os.link(temporary, target)  # fails where there is a file, as a rename does not
    except FileExistsError:
        _same(temporary, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if target.exists():
            _same(temporary, target)
        else:
            temporary.rename(target)
    else:
        temporary.unlink()
    files.sync_folder(target.parent)


def _same(data: Path, target: Path) -> None:
    """Raises OutputError where the file at the target is not the data file, or one of the same content."""
    if not data.samefile(target) and not filecmp.cmp(data, target, shallow=False):
        raise OutputError(f"{target}: another file of this name is there; choose another output folder")
