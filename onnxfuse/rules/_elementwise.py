"""Elementwise expressions read backwards: scalar factors, a·x + b, limits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from onnxfuse.patterns import Scope, is_op

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

_WIDEST: dict[int, float] = {
    TensorProto.FLOAT: float(np.finfo(np.float32).max),
    TensorProto.FLOAT16: float(np.finfo(np.float16).max),
    TensorProto.DOUBLE: float(np.finfo(np.float64).max),
}
FAR = 1e3  # x − t is exact where x is near t, and x·s − t·s is rounded as t·s is: 6e-5 here in float32
_DEEPEST = 4  # nodes of a chain that is followed
_ROUNDING = 2.0**-22  # relative: a float32 constant such as 1/6 is rounded once, an operation on it once more


def same(a: float, b: float) -> bool:
    """Whether two numbers are one up to the rounding of float32 constants."""
    return math.isclose(a, b, rel_tol=_ROUNDING)


def scalar(tensor: gs.Tensor, like: gs.Tensor, scope: Scope) -> float | None:
    """The one number that a tensor holds, if an operation of it and `like` has the shape of `like`."""
    value = scope.value(tensor)
    if value.shape is None or any(d != 1 for d in value.shape):
        return None
    shape = scope.value(like).shape
    if value.shape and (shape is None or len(shape) < len(value.shape)):
        return None
    data = scope.constant(tensor)
    if data is None or data.dtype.kind != "f" or not math.isfinite(data.item()):
        return None
    return float(data.item())


def multiples(tensor: gs.Tensor, scope: Scope) -> Iterator[tuple[float, gs.Tensor]]:
    """(k, t) with `tensor` = k·t: itself, and what it is a constant multiple of, step by step."""
    factor = 1.0
    for _ in range(_DEEPEST):
        yield factor, tensor
        step = _step(tensor, scope)
        if step is None or step[2]:
            return
        factor, tensor = factor * step[1], step[0]


def affine(tensor: gs.Tensor, x: gs.Tensor, scope: Scope) -> tuple[float, float] | None:
    """(a, b) with `tensor` = a·x + b; None where it is nothing of the kind."""
    a, b = 1.0, 0.0
    for _ in range(_DEEPEST):
        if tensor is x:
            return a, b
        step = _step(tensor, scope)
        if step is None or not _is_near(step, a):
            return None
        tensor, a, b = step[0], a * step[1], a * step[2] + b
    return None


def single_affine(tensor: gs.Tensor, scope: Scope) -> tuple[gs.Tensor, float, float]:
    """(x, a, b) with `tensor` = a·x + b, through all values that have one reader."""
    a, b = 1.0, 0.0
    for _ in range(_DEEPEST):
        step = _step(tensor, scope) if scope.editor.use_count(tensor) == 1 else None
        if step is None or scope.editor.is_output(tensor) or not _is_near(step, a):
            break
        tensor, a, b = step[0], a * step[1], a * step[2] + b
    return tensor, a, b


def _is_near(step: tuple[gs.Tensor, float, float], scale: float) -> bool:
    """Whether the shift of a step may be taken behind what scales it."""
    return max(abs(step[2]), abs(step[2] * scale)) <= FAR


def _step(tensor: gs.Tensor, scope: Scope) -> tuple[gs.Tensor, float, float] | None:
    """(t, a, b) with `tensor` = a·t + b, where one node makes it so of t."""
    node = scope.editor.producer(tensor)
    if node is None or not is_op(node, "Add", "Sub", "Mul", "Div") or len(node.inputs) != 2:
        return None
    left, right = node.inputs
    number = scalar(right, left, scope)
    if number is not None:
        match node.op:
            case "Add":
                return left, 1.0, number
            case "Sub":
                return left, 1.0, -number
            case "Mul":
                return left, number, 0.0
            case _:
                return (left, 1.0 / number, 0.0) if number else None
    number = scalar(left, right, scope)
    if number is None or node.op == "Div":
        return None
    return right, {"Add": 1.0, "Sub": -1.0}.get(node.op, number), 0.0 if node.op == "Mul" else number


def limits(tensor: gs.Tensor, scope: Scope) -> tuple[gs.Tensor, float, float] | None:
    """(t, low, high) with `tensor` = min(max(t, low), high), through all Clip, Relu, Min and Max nodes; None otherwise.

    A limit of limits is again one: clip(clip(t, a, b), c, d) = clip(t, clip(a, c, d), clip(b, c, d) ).
    """
    low, high, found = -math.inf, math.inf, False
    for _ in range(_DEEPEST):
        node = scope.editor.producer(tensor)
        step = _limit(node, scope) if node is not None else None
        if step is None:
            break
        tensor, inner_low, inner_high = step
        low, high, found = min(max(inner_low, low), high), min(max(inner_high, low), high), True
    return (tensor, low, high) if found else None


def _limit(node: gs.Node, scope: Scope) -> tuple[gs.Tensor, float, float] | None:
    if is_op(node, "Relu"):
        return node.inputs[0], 0.0, math.inf
    if is_op(node, "Clip"):
        low, high = (_clip_bound(node, i, scope) for i in (0, 1))
        return None if low is None or high is None or low > high else (node.inputs[0], low, high)
    if is_op(node, "Min", "Max") and len(node.inputs) == 2:
        for t, other in (node.inputs, node.inputs[::-1]):
            number = scalar(other, t, scope)
            if number is not None:
                return (t, -math.inf, number) if node.op == "Min" else (t, number, math.inf)
    return None


def _clip_bound(node: gs.Node, side: int, scope: Scope) -> float | None:
    """A bound of Clip: of its attribute before opset 11, else of its input. Without one it is the widest finite number.

    So infinities do not pass a Clip, as they pass Relu, Min and Max.
    """
    dtype = scope.value(node.inputs[0]).dtype
    if scope.opset < 11:  # whatever the dtype, the default is that of a float32, which is no bound for a float16
        widest = math.inf if dtype == TensorProto.FLOAT16 else _WIDEST[TensorProto.FLOAT]
        return float(node.attrs.get(("min", "max")[side], (-1, 1)[side] * widest))
    default = (-1, 1)[side] * _WIDEST.get(dtype, math.inf)
    if len(node.inputs) <= side + 1 or not node.inputs[side + 1].name:
        return default
    data = scope.constant(node.inputs[side + 1])
    if data is None or data.size != 1 or data.dtype.kind != "f" or math.isnan(data.item()):
        return None
    return float(data.item())
