"""The text of a device file as checked fields: every key known, every rate a number above 0."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Mapping
from typing import Any

from onnxfuse.errors import UsageError

DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")  # with rates of their own
_RATES = ("bandwidth", "cache_bandwidth", "cache_bytes")
_OPTIONAL = ("caches", "efficiency")
_NEEDED = ("title", "matrix", "vector", *_RATES, "launch", "sources")
_SOURCED = ("matrix", "vector", *_RATES, "launch", *_OPTIONAL)


def fields(name: str, text: str) -> dict[str, Any]:
    """The fields of `Device` but its name, by their names. Raises UsageError, in one line that names the field."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"device '{name}': not a valid TOML file: {error}") from error
    try:
        return _fields(data)
    except _Wrong as error:
        raise UsageError(f"device '{name}': {error}") from error


class _Wrong(Exception):
    """What is wrong with which field."""


def _fields(data: Mapping[str, Any]) -> dict[str, Any]:
    _known("the file", data, (*_NEEDED, *_OPTIONAL))
    for field in _NEEDED:
        if field not in data:
            raise _Wrong(f"{field} is missing")
    found: dict[str, Any] = {"title": _text("title", data["title"])}
    for table in ("matrix", "vector"):
        found[table] = _rates(table, data[table])
        _known(f"[{table}]", data[table], DTYPES)
    if "fp32" not in found["vector"]:
        raise _Wrong("fp32 is missing in [vector]; other types run at its rate")
    found |= {field: _number(field, data[field]) for field in _RATES}
    found["launch"] = _number("launch", data["launch"], zero=True)
    found["sources"] = {f: _text(f"{f} in [sources]", said) for f, said in _table("sources", data["sources"]).items()}
    _known("[sources]", data["sources"], _SOURCED)
    found["efficiency"] = _rates("efficiency", data.get("efficiency", {}))
    found["caches"] = _caches(data.get("caches", []))
    return found


def _known(where: str, keys: Collection[str], known: Collection[str]) -> None:
    for key in keys:
        if key not in known:
            raise _Wrong(f"unknown key '{key}' in {where}; known: {', '.join(known)}")


def _table(name: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _Wrong(f"{name} is {_said(value)}; make it a table, [{name}]")
    return value


def _rates(name: str, value: object) -> dict[str, float]:
    return {key: _number(f"{key} in [{name}]", rate) for key, rate in _table(name, value).items()}


def _caches(value: object) -> tuple[tuple[float, float], ...]:
    if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise _Wrong(f"caches is {_said(value)}; give a list of [bytes, bytes/s]")
    return tuple((_number("a size in caches", size), _number("a rate in caches", rate)) for size, rate in value)


def _number(name: str, value: object, *, zero: bool = False) -> float:
    """A finite number above 0, or from 0 up."""
    least = "a number, 0 or more" if zero else "a number above 0"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Wrong(f"{name} is {_said(value)}; give {least}")
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        raise _Wrong(f"{name} is {_said(value)}; give {least}")
    return float(value)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _Wrong(f"{name} is {_said(value)}; give a text in quotes")
    return value


def _said(value: object) -> str:
    """A value in a few characters."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
