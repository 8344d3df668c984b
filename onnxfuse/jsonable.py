"""Results as plain data: the attribute names of the result objects are the names in JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def plain(value: Any) -> Any:
    """Dataclasses, mappings and sequences as dicts and lists; an expression as its text, NaN and inf as null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, bytes):  # a name that is not UTF-8
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    if is_dataclass(value) and not hasattr(value, "__add__"):  # expressions are dataclasses that can be added
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    return str(value)
