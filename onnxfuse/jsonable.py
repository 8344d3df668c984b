"""Results as plain data: the attribute names of the result objects are the names in JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
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
    return value if kind in _AS_IS else _converter(kind)(value)


@cache
def _converter(kind: type) -> Callable[[Any], Any]:
    """What makes plain data of values of a type."""
    if issubclass(kind, str | bool | int):
        return lambda value: value
    if issubclass(kind, bytes):  # a name that is not UTF-8
        return lambda value: value.decode("utf-8", "backslashreplace")
    if issubclass(kind, float):
        return lambda value: value if math.isfinite(value) else None
    if issubclass(kind, Mapping):
        return lambda value: {str(k): plain(v) for k, v in value.items()}
    if issubclass(kind, list | tuple | set | frozenset):
        return lambda value: [v if type(v) in _AS_IS else plain(v) for v in value]
    if not is_dataclass(kind) or hasattr(kind, "__add__"):  # expressions are dataclasses that can be added
        return str
    names = [f.name for f in fields(kind) if not f.name.startswith("_")]
    return lambda value: {n: v if type(v := getattr(value, n)) in _AS_IS else plain(v) for n in names}
