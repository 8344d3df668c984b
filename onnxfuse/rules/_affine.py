"""Affine operations y = scale·x + shift with constants: read, composed, written as nodes.

Constants are carried in double precision and rounded once, where they become weights. Only float32 and float64 are
folded: in float16 the rounding of a weight is as large as what the result is worth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from onnxfuse.patterns import Build, NotLegal, Scope, check_size, is_op
from onnxfuse.rules._elementwise import FAR
from onnxfuse.rules._window import scale_and_shift

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

AFFINE = ("Mul", "Add", "Sub", "Div", "Neg", "BatchNormalization")
DTYPES: dict[int, np.dtype[Any]] = {
    TensorProto.FLOAT: np.dtype(np.float32),
    TensorProto.DOUBLE: np.dtype(np.float64),
}
LONGEST = 6  # nodes that one rewrite looks through
_COMPOSITE = 3  # steps from the last product of a GELU or normalization to what gives it away
_LARGE, _CANCELS = 1e4, 1e-3  # sums of such that come out so much smaller: adding and subtracting 1.5·2²³ rounds
_LEAST = {np.dtype(np.float32): 1e-30, np.dtype(np.float64): 1e-290}  # weights around here lose digits to underflow


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """y = scale·x + shift; both are float64 of shape () or [size along `axis`], () where the axis is None."""

    scale: np.ndarray
    shift: np.ndarray
    axis: int | None = None

    @property
    def scales(self) -> bool:
        """Whether it multiplies by anything but 1."""
        return bool(np.any(self.scale != 1))

    @property
    def shifts(self) -> bool:
        """Whether it adds anything but 0."""
        return bool(np.any(self.shift != 0))

    def at(self, axis: int | None) -> Affine:
        """The same along another axis."""
        return Affine(self.scale, self.shift, None if self.axis is None else axis)

    def along(self, axis: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Scale and shift as vectors over an axis. Raises NotLegal where they go along another one."""
        if self.axis not in (None, axis):
            raise NotLegal("the constants do not go along the channels")
        if any(a.ndim and a.size != size for a in (self.scale, self.shift)):
            raise NotLegal("the constants are not as many as the channels")
        check_size(size)
        return np.broadcast_to(self.scale, size), np.broadcast_to(self.shift, size)


def read(node: gs.Node | None, scope: Scope) -> tuple[gs.Tensor, Affine] | None:
    """The value and the affine operation with constants that a node does on it; None for any other node."""
    if node is None or not is_op(node, *AFFINE) or not node.inputs:
        return None
    if node.op == "BatchNormalization":
        return _batchnorm(node, scope)
    if node.op == "Neg":
        return (node.inputs[0], _number(-1.0, 0.0)) if _is_folded(node.inputs[0], scope) else None
    if len(node.inputs) != 2 or node.inputs[0] is node.inputs[1]:
        return None
    for index in (1, 0):
        x = node.inputs[1 - index]
        found = None if scope.value(x).constant else _along(node.inputs[index], x, scope)
        if found is None or (node.op == "Div" and index == 0):
            continue
        c, axis = found
        if node.op == "Div" and not np.all(c):
            return None
        one, zero = np.ones(()), np.zeros(())
        match node.op:
            case "Mul":
                return x, Affine(c, zero, axis)
            case "Div":
                return x, Affine(1 / c, zero, axis)
            case "Add":
                return x, Affine(one, c, axis)
            case _:
                return x, Affine(one, -c, axis) if index == 1 else Affine(-one, c, axis)
    return None


def _number(scale: float, shift: float) -> Affine:
    return Affine(np.array(scale), np.array(shift))


def _is_folded(x: gs.Tensor, scope: Scope) -> bool:
    return scope.value(x).dtype in DTYPES


def _along(c: gs.Tensor, x: gs.Tensor, scope: Scope) -> tuple[np.ndarray, int | None] | None:
    """Elements of a constant that is broadcast over a value along one axis, and that axis; None for any other."""
    value, shape = scope.value(c), scope.value(x).shape
    if value.shape is None or not _is_folded(x, scope) or not _is_folded(c, scope):
        return None
    if value.shape != () and (shape is None or len(value.shape) > len(shape)):
        return None  # the result may have more axes than x
    wide = [i for i, d in enumerate(value.shape) if d != 1]
    axis = None
    if wide:
        if shape is None or len(wide) > 1:
            return None
        axis = wide[0] + len(shape) - len(value.shape)
        if shape[axis] != value.shape[wide[0]]:
            return None  # x itself is broadcast, or may be
    array = scope.constant(c)
    if array is None or not array.size or not np.isfinite(array).all():
        return None
    array = array.astype(np.float64)
    return (array.reshape(-1), axis) if wide else (array.reshape(()), None)


def _batchnorm(node: gs.Node, scope: Scope) -> tuple[gs.Tensor, Affine] | None:
    if node.attrs.get("training_mode", 0) or any(t.name for t in node.outputs[1:]):
        raise NotLegal("BatchNormalization is in training mode")
    if not node.attrs.get("spatial", 1) or len(node.inputs) < 5 or not _is_folded(node.inputs[0], scope):
        return None
    given = [scope.constant(t) for t in node.inputs[1:5]]
    if any(a is None for a in given):
        raise NotLegal("a parameter of BatchNormalization is not constant")
    factor, offset = scale_and_shift(node, [a for a in given if a is not None])
    return node.inputs[0], Affine(factor, offset, 1)


def compose(first: Affine, then: Affine) -> Affine:
    """`then` of `first`: (x·a + b)·c + d = x·(a·c) + (b·c + d). Raises NotLegal."""
    if None not in (first.axis, then.axis) and first.axis != then.axis:
        raise NotLegal("the constants go along different axes")
    with np.errstate(all="ignore"):
        scale, scaled = first.scale * then.scale, first.shift * then.scale
    if np.any(np.abs(then.scale) != 1):
        check_near(first.shift, scaled)
    axis = first.axis if first.axis is not None else then.axis
    return Affine(scale, summed(scaled, then.shift), axis)


def check_near(*shifts: np.ndarray | float) -> None:
    """Raises NotLegal where a shift is too large to be taken behind a scale or a product."""
    if any(np.any(np.abs(shift) > FAR) for shift in shifts):
        raise NotLegal("what is near so large a constant would lose its digits")


def summed(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Two shifts as one. Raises NotLegal where large ones cancel."""
    with np.errstate(all="ignore"):
        total: np.ndarray = np.asarray(a + b)
        largest = np.maximum(np.abs(a), np.abs(b))
        if np.any((largest > _LARGE) & (np.abs(total) < _CANCELS * largest)):
            raise NotLegal("adding and subtracting large constants rounds, and may be meant to")
    return total


def chain(node: gs.Node, scope: Scope) -> tuple[gs.Tensor, Affine, list[gs.Node]] | None:
    """What affine nodes behind one another do together: the value they start from, the operation, the nodes.

    None too for what belongs to a normalization or a GELU that the runtime may execute as one kernel.
    """
    found = read(node, scope)
    if found is None:
        return None
    (x, affine), nodes = found, [node]
    while len(nodes) < LONGEST and scope.editor.only_use(x) is not None:
        maker = scope.editor.producer(x)
        try:
            found = read(maker, scope)
            if found is None or maker is None:
                break
            affine = compose(found[1], affine)
        except NotLegal:
            break
        x = found[0]
        nodes.append(maker)
    return None if ends_composite(x, scope) else (x, affine, nodes)


def ends_composite(x: gs.Tensor, scope: Scope) -> bool:
    """Whether a value is the product or quotient that GELU, layer or RMS normalization end with but for constants."""
    product = scope.editor.producer(x)
    if not is_op(product, "Mul", "Div"):
        return False
    edge = [product]
    for _ in range(_COMPOSITE):
        edge = [m for n in edge if n is not None for t in n.inputs if (m := scope.editor.producer(t)) is not None]
        if any(is_op(n, "Erf", "Tanh", "Sqrt", "Reciprocal", "Pow") for n in edge):
            return True
    return False


def rounded(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """New constants in their dtype. Raises NotLegal where they overflow, or are so small that digits are lost."""
    with np.errstate(all="ignore"):
        result: np.ndarray = array.astype(dtype)
        largest = float(max(np.max(array, initial=0), -np.min(array, initial=0)))  # without a copy of the array
        finite = math.isfinite(np.max(result, initial=0)) and math.isfinite(np.min(result, initial=0))
    if not finite:
        raise NotLegal("the constants would not be finite")
    if 0 < largest < _LEAST[dtype]:
        raise NotLegal("the constants would be too small for their dtype")
    return result


def dtype_of(x: gs.Tensor, scope: Scope) -> np.dtype[Any]:
    """The dtype of a value that may be folded. Raises NotLegal."""
    dtype = scope.value(x).dtype
    if dtype not in DTYPES:
        raise NotLegal("only float32 and float64 are folded")
    return DTYPES[dtype]


def spread(array: np.ndarray, affine: Affine, x: gs.Tensor, scope: Scope) -> np.ndarray:
    """A scale or shift as a constant of x's dtype that is broadcast along the right axis. Raises NotLegal."""
    array = rounded(array, dtype_of(x, scope))
    if not array.ndim:
        return array
    shape = scope.value(x).shape
    if shape is None or affine.axis is None:
        raise NotLegal("the rank is unknown")
    return array.reshape(-1, *[1] * (len(shape) - 1 - affine.axis))


def write(build: Build, x: gs.Tensor, affine: Affine, scope: Scope, out: gs.Tensor | None = None) -> gs.Tensor:
    """Mul and Add, as far as they are needed, on x, a value that is there already; at least one of them is."""
    if affine.scales:
        scale = build.constant(spread(affine.scale, affine, x, scope))
        shift = build.constant(spread(affine.shift, affine, x, scope)) if affine.shifts else None
        scaled = build("Mul", x, scale, out=out if shift is None else None)
        return scaled if shift is None else build("Add", scaled, shift, out=out)
    return build("Add", x, build.constant(spread(affine.shift, affine, x, scope)), out=out)
