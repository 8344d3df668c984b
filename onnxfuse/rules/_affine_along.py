"""Affine operations carried along the graph: past what only moves, averages or takes the largest of elements."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxfuse.facts import Shape
from onnxfuse.patterns import NotLegal, Scope
from onnxfuse.rules._affine import Affine
from onnxfuse.rules._window import unpadded

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

MOVERS = (
    "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "AveragePool", "GlobalAveragePool", "MaxPool",
    "GlobalMaxPool", "Relu", "LeakyRelu", "PRelu", "Abs",
)  # fmt: skip


def moved(node: gs.Node, affine: Affine, scope: Scope, *, up: bool) -> Affine:
    """The same operation on the other side of a node that only moves or averages elements. Raises NotLegal.

    up: from the node's output to its first input; otherwise from its first input to its output.
    """
    x, y = scope.value(node.inputs[0]), scope.value(node.outputs[0])
    here, there = (y, x) if up else (x, y)
    match node.op:
        case "Transpose":
            if affine.axis is None:
                return affine
            if x.shape is None:
                raise NotLegal("the rank is unknown")
            perm = list(node.attrs.get("perm") or range(len(x.shape))[::-1])
            return affine.at(perm[affine.axis] if up else perm.index(affine.axis))
        case "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze":
            axis = None if affine.axis is None else _carried(affine.axis, here.shape, there.shape)
            if affine.axis is not None and axis is None:
                raise NotLegal(f"{node.op} does not keep the channels together")
            return affine.at(axis)
        case "AveragePool" if not unpadded(node) and affine.shifts and node.attrs.get("count_include_pad", 0):
            raise NotLegal("padding is counted in the average")
        case "AveragePool" if node.attrs.get("ceil_mode", 0) and affine.shifts:
            raise NotLegal("ceil_mode may count what lies outside")
        case "AveragePool" | "GlobalAveragePool":
            _check_channels(affine)
            return affine
        case "MaxPool" | "GlobalMaxPool" if not any(t.name for t in node.outputs[1:]):
            _check_channels(affine)
            if not unpadded(node) and (node.attrs.get("ceil_mode", 0) or set(node.attrs.get("dilations", ())) > {1}):
                raise NotLegal("a window may lie wholly in the padding")
            if np.all(affine.scale > 0):
                return affine
        case "Relu" | "LeakyRelu" | "PRelu" | "Abs" if not affine.shifts and np.all(affine.scale > 0):
            return affine
    raise NotLegal(f"{node.op} stands between")


def _check_channels(affine: Affine) -> None:
    if affine.axis not in (None, 0, 1):
        raise NotLegal("the constants go along an axis that is pooled")


def _carried(axis: int, before: Shape | None, after: Shape | None) -> int | None:
    """Where the elements along one axis stand when a value is reshaped; None where that is not known to be one axis."""
    if before is None or after is None or not isinstance(before[axis], int) or before[axis] == 0:
        return None
    for i, size in enumerate(after):
        if size == before[axis] and (
            _product(before[:axis]) == _product(after[:i]) and _product(before[axis + 1 :]) == _product(after[i + 1 :])
        ):
            return i
    return None


def _product(dims: Sequence[Any]) -> Any:
    return prod(dims, start=1)
