"""Arithmetic read backwards: means, variances, roots and quotients of them, in the spellings of the exporters.

A mean is ReduceMean, or ReduceSum and a division; a square Pow or Mul; the root Sqrt or Pow, divided by or behind
Reciprocal; a difference Sub, or Add of Neg.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from onnxfuse.patterns import Scope, is_op
from onnxfuse.rules._elementwise import same, scalar
from onnxfuse.rules._known import listed

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

Axes = tuple[int, ...]


def reduced(node: gs.Node | None, op_type: str, scope: Scope) -> tuple[gs.Tensor, Axes] | None:
    """(x, axes) where the node reduces x over known axes, which stay with size 1."""
    if node is None or not is_op(node, op_type) or not node.attrs.get("keepdims", 1):
        return None
    x = node.inputs[0]
    shape, axes = scope.value(x).shape, listed(node, "axes", 1, scope)
    if not shape or not axes:
        return None
    return x, tuple(sorted(a % len(shape) for a in axes))


def mean_of(tensor: gs.Tensor, scope: Scope) -> tuple[gs.Tensor, Axes] | None:
    """(x, axes) where the value is mean(x)."""
    found = _averaged(tensor, scope)
    return found[1:] if found is not None and found[0].op != "ReduceSumSquare" else None


def mean_square(tensor: gs.Tensor, scope: Scope) -> tuple[gs.Tensor, Axes] | None:
    """(x, axes) where the value is mean(x²)."""
    found = _averaged(tensor, scope)
    if found is None:
        return None
    node, inside, axes = found
    if node.op == "ReduceSumSquare":
        return inside, axes
    square = scope.editor.producer(inside)
    if square is None or len(square.inputs) != 2:
        return None
    if is_op(square, "Mul") and square.inputs[0] is square.inputs[1]:
        return square.inputs[0], axes
    return (square.inputs[0], axes) if is_op(square, "Pow") and exponent(square, scope) == 2 else None


def centred(tensor: gs.Tensor, scope: Scope) -> tuple[gs.Tensor, Axes] | None:
    """(x, axes) where the value is x − mean(x)."""
    node = scope.editor.producer(tensor)
    pairs: list[tuple[gs.Tensor, gs.Tensor]] = []
    if node is not None and is_op(node, "Sub"):
        pairs = [(node.inputs[0], node.inputs[1])]
    elif node is not None and is_op(node, "Add") and len(node.inputs) == 2:
        for x, other in (node.inputs, node.inputs[::-1]):
            negated = made(other, "Neg", scope)
            pairs += [(x, negated.inputs[0])] if negated is not None else []
    for x, subtracted in pairs:
        mean = mean_of(subtracted, scope)
        if mean is not None and mean[0] is x:
            return mean
    return None


def variance_of(radicand: gs.Tensor, scope: Scope) -> tuple[gs.Tensor, Axes, float] | None:
    """(x, axes, ε) where the value is the variance of x, plus ε."""
    inside = shifted(radicand, scope)
    square = mean_square(inside[0], scope) if inside is not None else None
    difference = centred(square[0], scope) if square is not None else None
    if inside is None or square is None or difference is None or difference[1] != square[1]:
        return None
    return *difference, inside[1]


def shifted(tensor: gs.Tensor, scope: Scope) -> tuple[gs.Tensor, float] | None:
    """(v, ε) where the value is v + ε, ε > 0."""
    node = made(tensor, "Add", scope)
    if node is None:
        return None
    for v, number in (node.inputs, node.inputs[::-1]):
        epsilon = scalar(number, v, scope)
        if epsilon is not None:
            return (v, epsilon) if epsilon > 0 else None
    return None


def divided(node: gs.Node, scope: Scope) -> tuple[gs.Tensor, gs.Tensor] | None:
    """(n, t) where the node makes n/sqrt(t)."""
    if is_op(node, "Div"):
        radicand = _root(node.inputs[1], scope)
        return None if radicand is None else (node.inputs[0], radicand)
    for n, factor in (node.inputs, node.inputs[::-1]) if is_op(node, "Mul") else ():
        radicand = inverse_root(factor, scope)
        if radicand is not None:
            return n, radicand
    return None


def inverse_root(tensor: gs.Tensor, scope: Scope) -> gs.Tensor | None:
    """t where the value is 1/sqrt(t)."""
    node = scope.editor.producer(tensor)
    if node is None:
        return None
    if is_op(node, "Reciprocal"):
        return _root(node.inputs[0], scope)
    if is_op(node, "Div"):
        return _root(node.inputs[1], scope) if scalar(node.inputs[0], node.inputs[1], scope) == 1 else None
    if is_op(node, "Pow"):
        return node.inputs[0] if exponent(node, scope) == -0.5 else None
    inverse = scope.editor.producer(node.inputs[0]) if is_op(node, "Sqrt") else None
    return inverse.inputs[0] if inverse is not None and is_op(inverse, "Reciprocal") else None


def exponent(node: gs.Node, scope: Scope) -> float | None:
    """The one number, floating or not, that a Pow takes everything to; it may not widen the base."""
    base, power = (scope.value(t).shape for t in node.inputs)
    if power is None or any(d != 1 for d in power) or len(power) > len(base or ()):
        return None
    data = scope.constant(node.inputs[1])
    return None if data is None or data.dtype.kind not in "fi" else float(data.item())


def made(tensor: gs.Tensor, op_type: str, scope: Scope) -> gs.Node | None:
    """The node that makes a value, if it is such an operator."""
    node = scope.editor.producer(tensor)
    return node if node is not None and is_op(node, op_type) else None


def _averaged(tensor: gs.Tensor, scope: Scope) -> tuple[gs.Node, gs.Tensor, Axes] | None:
    """(the reduction, its input, axes) where the value is a mean over axes."""
    node = scope.editor.producer(tensor)
    found = reduced(node, "ReduceMean", scope)
    if node is not None and found is not None:
        return node, *found
    if node is None or not is_op(node, "Mul", "Div") or len(node.inputs) != 2:
        return None
    for total, number in (node.inputs, node.inputs[::-1])[: 2 if node.op == "Mul" else 1]:
        inner, factor = scope.editor.producer(total), scalar(number, total, scope)
        for op_type in ("ReduceSum", "ReduceSumSquare"):
            found = reduced(inner, op_type, scope)
            if inner is None or found is None or not factor:
                continue
            sizes = [(scope.value(found[0]).shape or ())[a] for a in found[1]]
            count = math.prod(d for d in sizes if isinstance(d, int))
            if all(isinstance(d, int) for d in sizes) and same(count, factor if node.op == "Div" else 1 / factor):
                return inner, *found
    return None


def _root(tensor: gs.Tensor, scope: Scope) -> gs.Tensor | None:
    """t where the value is sqrt(t)."""
    node = scope.editor.producer(tensor)
    if node is None or not is_op(node, "Sqrt", "Pow"):
        return None
    return node.inputs[0] if node.op == "Sqrt" or exponent(node, scope) == 0.5 else None
