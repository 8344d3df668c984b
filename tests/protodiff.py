"""The differences of two protobuf messages, without regard to order where order means nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

KEYS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("GraphProto", "initializer"): lambda t: t.name,
    ("GraphProto", "sparse_initializer"): lambda t: t.values.name,
    ("GraphProto", "value_info"): lambda t: t.name,
    ("GraphProto", "quantization_annotation"): lambda t: t.tensor_name,
    ("GraphProto", "metadata_props"): lambda t: t.key,
    ("ModelProto", "metadata_props"): lambda t: t.key,
    ("NodeProto", "metadata_props"): lambda t: t.key,
    ("NodeProto", "attribute"): lambda t: t.name,
    ("ModelProto", "opset_import"): lambda t: t.domain,
    ("ModelProto", "functions"): lambda t: (t.domain, t.name, t.overload),
    ("FunctionProto", "opset_import"): lambda t: t.domain,
    ("FunctionProto", "attribute_proto"): lambda t: t.name,
    ("FunctionProto", "value_info"): lambda t: t.name,
}


def diff(a: Any, b: Any) -> list[str]:
    """One line for each difference: `path: what`; equal messages give none. NaN equals NaN."""
    return list(_message(a, b, ""))


def _message(a: Any, b: Any, path: str) -> Iterator[str]:
    for field in a.DESCRIPTOR.fields:
        where = f"{path}.{field.name}" if path else field.name
        x, y = getattr(a, field.name), getattr(b, field.name)
        nested = field.type == FieldDescriptor.TYPE_MESSAGE
        if field.is_repeated:
            key = KEYS.get((a.DESCRIPTOR.name, field.name))
            yield from _keyed(x, y, key, where) if key else _listed(x, y, nested, where)
        elif nested and a.HasField(field.name) and b.HasField(field.name):
            yield from _message(x, y, where)
        elif a.HasField(field.name) != b.HasField(field.name):
            yield f"{where}: {'lost' if a.HasField(field.name) else 'added'}"
        elif not nested and not _equal(x, y):
            yield f"{where}: {x!r:.60} became {y!r:.60}"


def _keyed(xs: Any, ys: Any, key: Callable[[Any], Any], where: str) -> Iterator[str]:
    groups: dict[Any, tuple[list[Any], list[Any]]] = {}
    for side, items in enumerate((xs, ys)):
        for item in items:
            groups.setdefault(key(item), ([], []))[side].append(item)
    for name, (old, new) in groups.items():
        yield from _listed(old, new, True, f"{where}[{name}]")


def _listed(xs: Any, ys: Any, nested: bool, where: str) -> Iterator[str]:
    if len(xs) != len(ys):
        yield f"{where}: {len(xs)} became {len(ys)}"
    for i, (x, y) in enumerate(zip(xs, ys, strict=False)):
        if nested:
            yield from _message(x, y, f"{where}[{i}]")
        elif not _equal(x, y):
            yield f"{where}[{i}]: {x!r:.60} became {y!r:.60}"


def _equal(x: Any, y: Any) -> bool:
    return bool(x == y or (x != x and y != y))
