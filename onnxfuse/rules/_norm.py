"""Normalizations read backwards, with their scales and shifts, and written.

(x − m)/sqrt(v + ε) with m = mean(x) and v = mean((x − m)²) over the same axes, which `_moments` reads; or as TensorFlow
writes it, x·i + (b − m·i) with i = w/sqrt(v + ε).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from onnx import TensorProto

from onnxfuse.patterns import Build, NotLegal, Scope, check_size, is_op
from onnxfuse.rules._moments import Axes, centred, divided, inverse_root, made, mean_of, variance_of

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

_AXES_AS_INPUT = 18  # of ReduceMean
_MOST_PARTS = 24
_LEAST_EPSILON = 0.99e-5
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
    difference, variance = centred(found[0], scope), variance_of(found[1], scope)
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


def last_sizes(norm: Norm, scope: Scope) -> tuple[int, ...]:
    """The sizes of the normalized axes. Raises NotLegal unless those are the last ones, not empty, and float32 is
    normalized.
    """
    check_float(norm.x, scope)
    shape = scope.value(norm.x).shape or ()
    first = len(shape) - len(norm.axes)
    sizes = tuple(d for d in shape[first:] if isinstance(d, int) and d)
    if norm.axes != tuple(range(first, len(shape))) or len(sizes) != len(norm.axes):
        raise NotLegal("what is normalized are not the last axes, or they are of unknown size")
    check_size(*sizes)
    return sizes


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


def check_epsilon(epsilon: float) -> None:
    """Raises NotLegal where ε is so small that InstanceNormalization loses the digits of nearly constant numbers."""
    if epsilon < _LEAST_EPSILON:
        raise NotLegal(f"an epsilon of {epsilon:g} is too small for InstanceNormalization")


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


def mean_over(build: Build, tensor: gs.Tensor, norm: Norm, scope: Scope) -> gs.Tensor:
    """ReduceMean over the normalized axes, in the form of the opset; the tensor is of x's shape."""
    axes = [axis - len(scope.value(norm.x).shape or ()) for axis in norm.axes]
    if scope.opset < _AXES_AS_INPUT:
        return build("ReduceMean", tensor, axes=axes, keepdims=1)
    return build("ReduceMean", tensor, build.constant(np.array(axes, np.int64)), keepdims=1)


def over_root(build: Build, tensor: gs.Tensor, norm: Norm, scope: Scope) -> gs.Tensor:
    """tensor/sqrt(mean(tensor²) + ε), written as onnxruntime knows it.

    Raises NotLegal behind a Cast, which onnxruntime takes along as one from float16, whatever it is from.
    """
    if is_op(scope.editor.producer(norm.x), "Cast"):
        raise NotLegal("onnxruntime would take the Cast in front for a part of it")
    mean = mean_over(build, build("Pow", tensor, build.constant(np.float32(2))), norm, scope)
    root = build("Sqrt", build("Add", mean, build.constant(np.float32(norm.epsilon))))
    return build("Div", tensor, root)


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


def _sum_of_products(node: gs.Node, scope: Scope) -> Norm | None:
    """x·i + (b − m·i), or x·i − m·i, with i = w/sqrt(v + ε) or without w."""
    if is_op(node, "Sub"):
        return _factored(node, node.inputs[0], node.inputs[1], None, scope)
    if not is_op(node, "Add"):
        return None
    for product, rest in (node.inputs, node.inputs[::-1]):
        difference = made(rest, "Sub", scope)
        if difference is not None:
            found = _factored(node, product, difference.inputs[1], difference.inputs[0], scope)
            if found is not None:
                return found
    return None


def _factored(node: gs.Node, first: gs.Tensor, then: gs.Tensor, shift: gs.Tensor | None, scope: Scope) -> Norm | None:
    """The node as first − then + shift, where first = x·i and then = m·i."""
    left, right = made(first, "Mul", scope), made(then, "Mul", scope)
    if left is None or right is None:
        return None
    for x, factor in (left.inputs, left.inputs[::-1]):
        for m, again in (right.inputs, right.inputs[::-1]):
            mean = mean_of(m, scope) if again is factor else None
            if mean is None or mean[0] is not x:
                continue
            for scale, radicand in _scaled_roots(factor, scope):
                variance = variance_of(radicand, scope)
                if variance is not None and variance[0] is x and variance[1] == mean[1]:
                    return Norm(*variance, node.outputs[0], scale, shift)
    return None


def _scaled_roots(factor: gs.Tensor, scope: Scope) -> list[tuple[gs.Tensor | None, gs.Tensor]]:
    """(w, t) where the value is w/sqrt(t)."""
    radicand = inverse_root(factor, scope)
    if radicand is not None:
        return [(None, radicand)]
    node = made(factor, "Mul", scope)
    if node is None:
        return []
    pairs = ((w, inverse_root(root, scope)) for w, root in (node.inputs, node.inputs[::-1]))
    return [(w, t) for w, t in pairs if t is not None]
