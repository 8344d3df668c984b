"""Writing attributes: the type that a value calls for, and no change where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from numbers import Integral, Real
from typing import Any, SupportsInt, cast

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import AttributeProto as A
from onnx import numpy_helper

from onnxfuse import ir
from onnxfuse.bridge.read import FIELDS, stored, text

_MANY: dict[int, int] = {A.INT: A.INTS, A.FLOAT: A.FLOATS, A.STRING: A.STRINGS, A.GRAPH: A.GRAPHS}


def arrange(field: Any, wanted: list[Any]) -> None:
    """Makes a repeated message field hold `wanted`, in this order; all of them are in it, and none is copied."""
    order = {id(m): i for i, m in enumerate(wanted)}
    field.sort(key=lambda m: order.get(id(m), len(order)))
    del field[len(order) :]


def write_attributes(node: gs.Node) -> None:
    """Brings the attributes of a node's message up to date."""
    field = node.proto.attribute
    kept = [a for a in field if a.name in node.attrs]
    if len(kept) != len(field):
        arrange(field, kept)
    here = {a.name: a for a in kept}
    for name, value in node.attrs.items():
        a = here.get(name)
        if a is None:
            a = field.add(name=name, type=_schema_kinds(node.op, ir.domain(node.domain or "")).get(name, 0))
        elif _same(a, value):
            continue
        a.CopyFrom(_attribute(a, value))


def _same(a: A, value: Any) -> bool:
    """Whether an attribute still is what its view says."""
    if isinstance(value, A) or a.ref_attr_name:
        return value is a
    match a.type:
        case A.INT | A.FLOAT:
            return _equal(getattr(a, FIELDS[a.type]), value)
        case A.INTS | A.FLOATS:
            old = getattr(a, FIELDS[a.type])
            return isinstance(value, list | tuple) and len(old) == len(value) and all(map(_equal, old, value))
        case A.STRING:
            return bool(text(a.s) == value)
        case A.STRINGS:
            return bool([text(s) for s in a.strings] == value)
        case A.TENSOR:
            return isinstance(value, gs.Constant) and stored(value) is a.t
        case A.GRAPH:
            return isinstance(value, gs.Graph) and value.proto is a.g
        case A.GRAPHS:
            return isinstance(value, list) and [id(g) for g in a.graphs] == [id(g.proto) for g in value]
    return False


def _equal(a: Any, b: Any) -> bool:
    return bool(a == b or (a != a and b != b))  # NaN: written anew it would lose its payload


@cache
def _schema_kinds(op_type: str, domain: str) -> Mapping[str, int]:
    """Attribute name → type where the operator is known: it types an empty list, and the 1 of `alpha=1`."""
    if not onnx.defs.has(op_type, domain):
        return {}
    return {
        name: int(cast("SupportsInt", a.type)) for name, a in onnx.defs.get_schema(op_type, domain).attributes.items()
    }


def _kind(value: Any) -> int:
    """The attribute type that a Python value calls for; 0 for an empty list. Raises TypeError."""
    match value:
        case Integral():
            return int(A.INT)
        case Real():
            return int(A.FLOAT)
        case str() | bytes():
            return int(A.STRING)
        case np.ndarray() | gs.Constant():
            return int(A.TENSOR)
        case gs.Graph():
            return int(A.GRAPH)
        case list() | tuple():
            kinds = set(map(_kind, value))
            if not kinds:
                return 0
            if kinds == {A.INT, A.FLOAT}:
                return int(A.FLOATS)
            if len(kinds) == 1 and (one := kinds.pop()) in _MANY:
                return _MANY[one]
    raise TypeError(f"a node attribute cannot hold {value!r:.80}")


def _attribute(old: A, value: Any) -> A:
    """An attribute of the new value; `old` gives name, doc_string, and the type where the value leaves it open."""
    if isinstance(value, A):
        new = A()
        new.CopyFrom(value)
        new.name = old.name
        return new
    kind, known = _kind(value), old.type
    if kind == 0:
        kind = known if known in (A.INTS, A.FLOATS, A.STRINGS) else A.INTS
    elif (kind, known) in ((A.INT, A.FLOAT), (A.INTS, A.FLOATS)):
        kind = known
    new = A(name=old.name)
    new.type = kind  # type: ignore[assignment]
    if old.HasField("doc_string"):
        new.doc_string = old.doc_string
    match kind:
        case A.INT:
            new.i = int(value)
        case A.FLOAT:
            new.f = float(value)
        case A.STRING:
            new.s = _raw(value)
        case A.INTS:
            new.ints.extend(map(int, value))
        case A.FLOATS:
            new.floats.extend(map(float, value))
        case A.STRINGS:
            new.strings.extend(map(_raw, value))
        case A.TENSOR:
            constant = value if isinstance(value, gs.Constant) else gs.Constant("", value)
            new.t.CopyFrom(stored(constant) or numpy_helper.from_array(constant._values, constant.name))
        case A.GRAPH:
            new.g.CopyFrom(value.proto)
        case A.GRAPHS:
            new.graphs.extend(g.proto for g in value)
    return new


def _raw(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
