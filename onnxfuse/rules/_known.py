"""What rules about redundant nodes ask: contents known in full, equality of shapes, axes and perms of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from onnxfuse.facts import Dim, Value, provably_equal
from onnxfuse.patterns import Scope

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

FLOATING = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16})
MEASURED = ("ort-cpu", "ort-cuda", "portable")  # of rules whose result needs no more anywhere


def elements(value: Value) -> np.ndarray | None:
    """The contents as an array of their own dtype, where all of them are known numbers."""
    data = value.data
    if data is None or not value.dtype:
        return None
    if data.dtype == object and not all(isinstance(d, int) for d in data.reshape(-1).tolist()):
        return None
    from onnx import helper

    try:
        return np.asarray(data).astype(helper.tensor_dtype_to_np_dtype(value.dtype))
    except (KeyError, OverflowError):
        return None


def ints(tensor: gs.Tensor | None, scope: Scope) -> list[int] | None:
    """Elements of an integer value that are the same in every run; None where one is not known."""
    if tensor is None or not tensor.name:
        return None
    data = scope.value(tensor).data
    if data is None or data.dtype != object:
        return None
    found = data.reshape(-1).tolist()
    return [int(d) for d in found] if all(isinstance(d, int) for d in found) else None


def given(node: gs.Node, index: int) -> gs.Tensor | None:
    """An input of a node; None where it is absent."""
    return node.inputs[index] if index < len(node.inputs) and node.inputs[index].name else None


def listed(node: gs.Node, name: str, index: int, scope: Scope) -> list[int] | None:
    """Integers that are an attribute in old opsets and an input in new ones; None where absent or not known."""
    if name in node.attrs:
        return list(node.attrs[name])
    return ints(given(node, index), scope)


def same_dims(a: Sequence[Dim] | None, b: Sequence[Dim] | None) -> bool:
    """Whether two shapes are surely the same."""
    if a is None or b is None or len(a) != len(b):
        return False
    return all(
        x == y or (not (isinstance(x, int) and isinstance(y, int)) and provably_equal(x, y))
        for x, y in zip(a, b, strict=True)
    )


def perm_of(node: gs.Node, scope: Scope) -> list[int] | None:
    """The permutation of a Transpose, axes reversed where none is given; None where it is not one of the axes."""
    perm, shape = node.attrs.get("perm"), scope.value(node.inputs[0]).shape
    if perm:
        return list(perm) if shape is None or len(shape) == len(perm) else None
    return None if shape is None else list(range(len(shape)))[::-1]
