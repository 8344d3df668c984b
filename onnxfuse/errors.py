"""Every error of the package, one sentence each.

`OnnxfuseError` means bad input or bad usage: its text is one line that says what is wrong, where, and what to do, and
the command line ends with exit code 2. `Finding` means that the work was done and the answer is no (exit code 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

NO_THREAD = "no more threads may be started; allow more processes, as with ulimit -u"
_LONGEST = 1000  # characters of a message


def one_line(text: str) -> str:
    """A text for a terminal. Names in a model may hold anything: line breaks become blanks, what would steer a terminal
    becomes "?", and of a very long text the middle goes.
    """
    line = "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))
    half = _LONGEST // 2
    return line if len(line) <= _LONGEST else f"{line[:half]} … {line[-half:]}"


class OnnxfuseError(Exception):
    """Base of all errors that a caller may want to catch; `str(error)` is one line for a person."""

    def __init__(self, text: str):
        super().__init__(one_line(text))


class ModelError(OnnxfuseError):
    """The file is not a model that can be worked on: missing, truncated, invalid, or it reaches outside its folder."""


class UsageError(OnnxfuseError, ValueError):
    """An option or argument does not fit: an unknown rule, target, device or dimension, or one given twice."""


class MissingDependency(OnnxfuseError):
    """An optional package (onnxruntime, a plotting library) or a device that the command needs is not there."""


class OutOfMemory(OnnxfuseError, MemoryError):
    """There is not enough memory, or no thread, for the model or what it computes; nothing was written."""


class OutputError(OnnxfuseError):
    """The result could not be written; what was at the output path before is still there."""


class Finding(OnnxfuseError):
    """The work was done and the result is a no: the verification failed and nothing was written."""


@contextmanager
def memory_named() -> Iterator[None]:
    """Around work on a model, or as a decorator of a function: a MemoryError out of it is an OutOfMemory."""
    try:
        yield
    except OutOfMemory:
        raise
    except MemoryError as error:
        raise OutOfMemory("not enough memory for this model") from error
    except RuntimeError as error:
        if "can't start new thread" not in str(error):  # Python has no class for it
            raise
        raise OutOfMemory(NO_THREAD) from error
