"""Arguments of the public functions: of the right kind, or a UsageError of one sentence that says what to give."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from numbers import Real
from operator import index
from pathlib import Path

from onnxfuse.errors import UsageError


def whole(name: str, value: object, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number, also one of numpy's."""
    try:
        found = index(value)  # type: ignore[arg-type]
    except TypeError:
        found = least - 1
    if isinstance(value, bool) or not least <= found <= most:
        raise _wrong(name, value, f"a whole number from {least} to {most}")
    return found


def number(name: str, value: object, *, zero: bool) -> float:
    """A number above 0, or from 0 up; not a NaN."""
    right = isinstance(value, Real) and not isinstance(value, bool)
    if not right or not (value >= 0 if zero else value > 0):  # type: ignore[operator]
        raise _wrong(name, value, "a number, 0 or more" if zero else "a number above 0")
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise _wrong(name, value, "True or False")
    return value


def path(name: str, value: object) -> Path:
    """The path of a file."""
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise _wrong(name, value, "the path of a file")
    return Path(text)


def sizes(name: str, value: object) -> dict[str, int]:
    """Sizes of free dimensions by name, {} for None; what they may be is checked where the dimensions are known."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise _wrong(name, value, "a mapping of names to sizes, such as {'batch': 8}")
    for key, size in value.items():
        if _is_integer(size) and index(size) == 0:  # only given inputs may be empty
            raise UsageError(f"dimension '{key}' is 0; give a whole number from 1 to 2147483647")
    return {key: index(size) if _is_integer(size) else size for key, size in value.items()}


def _is_integer(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def names(name: str, value: object) -> tuple[str, ...]:
    """A sequence of names, and not one text."""
    found = tuple(value) if isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping)) else None
    if found is None or not all(isinstance(one, str) for one in found):
        raise _wrong(name, value, "a sequence of names")
    return found


def kind(name: str, value: object, kinds: tuple[type, ...], wanted: str) -> None:
    """Raises UsageError for a value of another kind."""
    if not isinstance(value, kinds):
        raise _wrong(name, value, wanted)


def _wrong(name: str, value: object, wanted: str) -> UsageError:
    return UsageError(f"{name} is {value!r}; give {wanted}")
