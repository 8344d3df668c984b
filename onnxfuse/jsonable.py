"""Results as plain data: the attribute names of the result objects are the names in JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

_AS_IS = frozenset({type(None), str, bool, int})


def text(data: Mapping[str, Any]) -> Iterator[str]:
    """Plain data as lines of one JSON object: a line a name, and in a list of objects a line an object.

    json's own indenting encoder is written in Python and takes seconds for a large model.
    """
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
    for i, (name, value) in enumerate(data.items()):
        start = f"{',' if i else '{'}\n {encode(name)}: "
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{start}[\n  " + ",\n  ".join(map(encode, value)) + "\n ]"
        else:
            yield start + encode(value)
    yield "\n}" if data else "{}"


def plain(value: Any) -> Any:
    """Dataclasses, mappings and sequences as dicts and lists; an expression as its text, NaN and inf as null.

    Private fields are left out.
    """
    kind: Any = type(value)
    if kind in _AS_IS or isinstance(value, str | bool | int):
        return value
    if isinstance(value, bytes):  # a name that is not UTF-8
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [v if type(v) in _AS_IS else plain(v) for v in value]
    if is_dataclass(value) and not hasattr(value, "__add__"):  # expressions are dataclasses that can be added
        named = ((name, getattr(value, name)) for name in _names(kind))
        return {name: v if type(v) in _AS_IS else plain(v) for name, v in named}
    return str(value)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if not f.name.startswith("_"))
