"""Normalizations read backwards: means, variances and roots in the spellings of the exporters.

(x − m)/sqrt(v + ε) with m = mean(x) and v = mean((x − m)²) over the same axes: a mean is ReduceMean, or ReduceSum and a
division; a square Pow or Mul; the root Sqrt or Pow, divided by or behind Reciprocal; a difference Sub, or Add of Neg.
TensorFlow writes x·i + (b − m·i) with i = w/sqrt(v + ε).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from onnx import TensorProto

from onnxfuse.patterns import Build, NotLegal, Scope, check_size, is_op
from onnxfuse.rules._elementwise import same, scalar
from onnxfuse.rules._known import listed

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

_AXES_AS_INPUT = 18  # of ReduceMean
_MOST_PARTS = 24
Axes = tuple[int, ...]
Given: TypeAlias = "gs.Tensor | np.ndarray | None"
Fit: TypeAlias = "Callable[[gs.Tensor], Given]"


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """`out` = scale·(x − m)/sqrt(v + epsilon) + shift over `axes`, counted from 0; without m for a root mean square."""

    x: gs.Tensor
    axes: Axes
    epsilon: float
    out: gs.Tensor
    scale: Given = None
    shift: Given = None


def layer(node: gs.Node, scope: Scope) -> Norm | None:
    """The node as a normalization by mean and variance; TensorFlow's spelling has its scale and shift in it."""
    found = divided(node, scope)
    if found is None:
        return _sum_of_products(node, scope)
    difference, variance = _centred(found[0], scope), _variance(found[1], scope)
    if difference is None or variance is None or difference[0] is not variance[0] or difference[1] != variance[1]:
        return None
    return Norm(*variance, node.outputs[0])


def with_constants(norm: Norm, fit: Fit, scope: Scope, *, shifts: bool = True) -> Norm | None:
    """The normalization with its scale and shift as `fit` gives them: those of its own, which must fit, or the product
    and the sum behind it as far as they do. Raises NotLegal where a value between the nodes is seen from outside.
    """
    _check_closed(norm, scope)
    if norm.scale is not None or norm.shift is not None:
        scale, shift = (None if t is None else fit(t) for t in (norm.scale, norm.shift))
        if (scale is None) != (norm.scale is None) or (shift is None) != (norm.shift is None):
            return None
        return replace(norm, scale=scale, shift=shift)
    for op_type in ("Mul", "Add")[: 1 + shifts]:
        reader = scope.editor.only_use(norm.out)
        if reader is None or not is_op(reader, op_type) or norm.out.name in scope.pinned:
            continue
        given = fit(reader.inputs[1] if reader.inputs[0] is norm.out else reader.inputs[0])
        if given is not None:
            scale, shift = (given, None) if op_type == "Mul" else (norm.scale, given)
            norm = replace(norm, out=reader.outputs[0], scale=scale, shift=shift)
    return norm


def trailing(x: gs.Tensor, axes: Axes, scope: Scope) -> tuple[int, ...] | None:
    """The sizes of the normalized axes where those are the last ones, of known sizes and not empty."""
    shape = scope.value(x).shape or ()
    sizes = shape[len(shape) - len(axes) :]
    if axes != tuple(range(len(shape) - len(axes), len(shape))) or not all(isinstance(d, int) and d for d in sizes):
        return None
    known = tuple(d for d in sizes if isinstance(d, int))
    check_size(*known)
    return known


def of_shape(sizes: Sequence[int], scope: Scope) -> Fit:
    """Takes a value of this shape, and a constant of this shape behind axes of size 1."""

    def fit(tensor: gs.Tensor) -> gs.Tensor | np.ndarray | None:
        shape = scope.value(tensor).shape
        if shape is None or shape[len(shape) - len(sizes) :] != tuple(sizes):
            return None
        if len(shape) == len(sizes):
            return tensor
        data = scope.constant(tensor) if all(d == 1 for d in shape[: len(shape) - len(sizes)]) else None
        return None if data is None else data.reshape(sizes)

    return fit


def check_float(x: gs.Tensor, scope: Scope) -> None:
    """Raises NotLegal where x is a constant, or not float32: others are rounded otherwise in the parts."""
    if scope.value(x).dtype != TensorProto.FLOAT:
        raise NotLegal("normalizations are recovered in float32 only")
    if scope.value(x).constant:  # then a scale would not be told from what is scaled
        raise NotLegal("what is normalized is a constant")


def is_spelled(norm: Norm, ops: Sequence[str], scope: Scope) -> bool:
    """Whether these operators, each once, make a normalization without its scale and shift, all in one dtype."""
    nodes = _parts(norm, scope)
    alike = all(scope.value(n.inputs[1]).dtype == TensorProto.FLOAT for n in nodes if is_op(n, "Pow"))
    return alike and sorted(node.op for node in nodes) == sorted(ops)


def ends_norm(tensor: gs.Tensor, scope: Scope) -> bool:
    """Whether the value is n/sqrt(t), or that behind a constant scale."""
    node = scope.editor.producer(tensor)
    if node is not None and is_op(node, "Mul") and any(scope.value(t).constant for t in node.inputs):
        node = next((n for t in node.inputs if (n := scope.editor.producer(t)) is not None), None)
    return node is not None and divided(node, scope) is not None


def is_constant(given: Given, scope: Scope) -> bool:
    """Whether a scale or shift is the same in every run, as one that is absent is."""
    return given is None or isinstance(given, np.ndarray) or scope.value(given).constant


def stored(build: Build, given: Given, default: np.ndarray) -> gs.Tensor:
    """A scale or shift as a tensor, a constant of the default where it is absent."""
    if given is None:
        given = default
    return build.constant(given) if isinstance(given, np.ndarray) else given


def mean_over(build: Build, x: gs.Tensor, axes: list[int], scope: Scope) -> gs.Tensor:
    """ReduceMean in the form of the opset."""
    if scope.opset < _AXES_AS_INPUT:
        return build("ReduceMean", x, axes=axes, keepdims=1)
    return build("ReduceMean", x, build.constant(np.array(axes, np.int64)), keepdims=1)


def reduced(node: gs.Node | None, op_type: str, scope: Scope) -> tuple[gs.Tensor, Axes] | None:
    """(x, axes) where the node reduces x over known axes, which stay with size 1."""
    if node is None or not is_op(node, op_type) or not node.attrs.get("keepdims", 1):
        return None
    x = node.inputs[0]
    shape, axes = scope.value(x).shape, listed(node, "axes", 1, scope)
    if not shape or not axes:
        return None
    return x, tuple(sorted(a % len(shape) for a in axes))


def divided(node: gs.Node, scope: Scope) -> tuple[gs.Tensor, gs.Tensor] | None:
    """(n, t) where the node makes n/sqrt(t)."""
    if is_op(node, "Div"):
        radicand = _root(node.inputs[1], scope)
        return None if radicand is None else (node.inputs[0], radicand)
    for n, factor in (node.inputs, node.inputs[::-1]) if is_op(node, "Mul") else ():
        radicand = _inverse_root(factor, scope)
        if radicand is not None:
            return n, radicand
    return None


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


def shifted(tensor: gs.Tensor, scope: Scope) -> tuple[gs.Tensor, float] | None:
    """(v, ε) where the value is v + ε, ε > 0."""
    node = _made(tensor, "Add", scope)
    if node is None:
        return None
    for v, number in (node.inputs, node.inputs[::-1]):
        epsilon = scalar(number, v, scope)
        if epsilon is not None:
            return (v, epsilon) if epsilon > 0 else None
    return None


def exponent(node: gs.Node, scope: Scope) -> float | None:
    """The one number, floating or not, that a Pow takes everything to; it may not widen the base."""
    base, power = (scope.value(t).shape for t in node.inputs)
    if power is None or any(d != 1 for d in power) or len(power) > len(base or ()):
        return None
    data = scope.constant(node.inputs[1])
    return None if data is None or data.dtype.kind not in "fi" else float(data.item())


def _parts(norm: Norm, scope: Scope) -> list[gs.Node]:
    """The nodes that make `out` of x, the scale and shift, and constants."""
    ends, todo = [t for t in (norm.x, norm.scale, norm.shift) if t is not None], [norm.out]
    found: dict[int, gs.Node] = {}
    while todo and len(found) < _MOST_PARTS:
        tensor = todo.pop()
        node = scope.editor.producer(tensor)
        if node is None or id(node) in found or scope.value(tensor).constant or any(t is tensor for t in ends):
            continue
        found[id(node)] = node
        todo += node.inputs
    return list(found.values())


def _check_closed(norm: Norm, scope: Scope) -> None:
    nodes = _parts(norm, scope)
    ids = {id(n) for n in nodes}
    for t in (t for n in nodes for t in n.outputs if t.name and t is not norm.out):
        if scope.editor.is_output(t) or t.name in scope.pinned:
            raise NotLegal(f"the value '{t.name}' between the nodes is seen from outside")
        if any(id(n) not in ids for n in scope.editor.consumers(t)):
            raise NotLegal(f"the value '{t.name}' between the nodes has other readers")


def _made(tensor: gs.Tensor, op_type: str, scope: Scope) -> gs.Node | None:
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


def _mean(tensor: gs.Tensor, scope: Scope) -> tuple[gs.Tensor, Axes] | None:
    found = _averaged(tensor, scope)
    return found[1:] if found is not None and found[0].op != "ReduceSumSquare" else None


def _centred(tensor: gs.Tensor, scope: Scope) -> tuple[gs.Tensor, Axes] | None:
    """(x, axes) where the value is x − mean(x)."""
    node = scope.editor.producer(tensor)
    pairs: list[tuple[gs.Tensor, gs.Tensor]] = []
    if node is not None and is_op(node, "Sub"):
        pairs = [(node.inputs[0], node.inputs[1])]
    elif node is not None and is_op(node, "Add") and len(node.inputs) == 2:
        for x, other in (node.inputs, node.inputs[::-1]):
            negated = _made(other, "Neg", scope)
            pairs += [(x, negated.inputs[0])] if negated is not None else []
    for x, subtracted in pairs:
        mean = _mean(subtracted, scope)
        if mean is not None and mean[0] is x:
            return mean
    return None


def _variance(radicand: gs.Tensor, scope: Scope) -> tuple[gs.Tensor, Axes, float] | None:
    """(x, axes, ε) where the value is the variance of x, plus ε."""
    inside = shifted(radicand, scope)
    square = mean_square(inside[0], scope) if inside is not None else None
    difference = _centred(square[0], scope) if square is not None else None
    if inside is None or square is None or difference is None or difference[1] != square[1]:
        return None
    return *difference, inside[1]


def _root(tensor: gs.Tensor, scope: Scope) -> gs.Tensor | None:
    """t where the value is sqrt(t)."""
    node = scope.editor.producer(tensor)
    if node is None or not is_op(node, "Sqrt", "Pow"):
        return None
    return node.inputs[0] if node.op == "Sqrt" or exponent(node, scope) == 0.5 else None


def _inverse_root(tensor: gs.Tensor, scope: Scope) -> gs.Tensor | None:
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


def _sum_of_products(node: gs.Node, scope: Scope) -> Norm | None:
    """x·i + (b − m·i), or x·i − m·i, with i = w/sqrt(v + ε) or without w."""
    if is_op(node, "Sub"):
        return _factored(node, node.inputs[0], node.inputs[1], None, scope)
    if not is_op(node, "Add"):
        return None
    for product, rest in (node.inputs, node.inputs[::-1]):
        difference = _made(rest, "Sub", scope)
        if difference is not None:
            found = _factored(node, product, difference.inputs[1], difference.inputs[0], scope)
            if found is not None:
                return found
    return None


def _factored(node: gs.Node, first: gs.Tensor, then: gs.Tensor, shift: gs.Tensor | None, scope: Scope) -> Norm | None:
    """The node as first − then + shift, where first = x·i and then = m·i."""
    left, right = _made(first, "Mul", scope), _made(then, "Mul", scope)
    if left is None or right is None:
        return None
    for x, factor in (left.inputs, left.inputs[::-1]):
        for m, again in (right.inputs, right.inputs[::-1]):
            mean = _mean(m, scope) if again is factor else None
            if mean is None or mean[0] is not x:
                continue
            for scale, radicand in _scaled_roots(factor, scope):
                variance = _variance(radicand, scope)
                if variance is not None and variance[0] is x and variance[1] == mean[1]:
                    return Norm(*variance, node.outputs[0], scale, shift)
    return None


def _scaled_roots(factor: gs.Tensor, scope: Scope) -> list[tuple[gs.Tensor | None, gs.Tensor]]:
    """(w, t) where the value is w/sqrt(t)."""
    radicand = _inverse_root(factor, scope)
    if radicand is not None:
        return [(None, radicand)]
    node = _made(factor, "Mul", scope)
    if node is None:
        return []
    pairs = ((w, _inverse_root(root, scope)) for w, root in (node.inputs, node.inputs[::-1]))
    return [(w, t) for w, t in pairs if t is not None]
