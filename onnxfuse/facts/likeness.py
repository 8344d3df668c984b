"""What nodes and values have in common: a large model has few kinds of them, each of which is worked out once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from onnxfuse.facts.contents import FLOATS
from onnxfuse.facts.value import Value
from onnxfuse.ir import Attribute, Node


def likeness(node: Node, inputs: Sequence[Value]) -> Hashable:
    """What a shape function or a cost formula sees of a node: equal for nodes that mean the same.

    inputs: facts of the inputs, compared as objects, so that equal ones should be one object (see `Interned`).
    None for a node with a tensor or a body among its attributes: these are not compared.
    """
    names, outputs, attrs = node.inputs, node.outputs, node.attrs
    pattern: Hashable = len(outputs)
    if "" in names or "" in outputs or len(set(names)) < len(names):
        pattern = (tuple([name != "" for name in outputs]), *[names.index(name) if name else -1 for name in names])
    if not attrs:
        return node.op_type, node.domain, pattern, None, *inputs
    typed = tuple([(name, *_typed(value)) for name, value in attrs.items()])
    try:
        hash(typed)
    except TypeError:
        return None
    return node.op_type, node.domain, pattern, typed, *inputs


def _typed(value: Attribute) -> tuple[object, ...]:
    """An attribute with its type: 1 and 1.0 are equal, but not the same to an operator."""
    return value, type(value), type(value[0]) if isinstance(value, tuple) and value else None


class Interned:
    """Makes equal facts one object, so that comparing objects compares facts."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Value] = {}

    def __call__(self, value: Value) -> Value:
        """The first value with these facts that was given; the value itself where they are not compared."""
        data = value.data
        contents: Hashable = None
        if value.items is not None or (data is not None and data.dtype == object and value.dtype in FLOATS):
            return value  # the latter may hold 1 as an int or as a float
        if data is not None:
            contents = tuple(data.reshape(-1).tolist()) if data.dtype == object else data.tobytes()
        return self._known.setdefault((value.dtype, value.shape, value.constant, contents), value)
