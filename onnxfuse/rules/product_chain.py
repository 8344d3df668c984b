"""Two products by constant matrices become one: (x·A + a)·B + b = x·(A·B) + (a·B + b).

MatMul, MatMul and Add, and Gemm, in any mixture, where nobody else reads the value between: linear layers without an
activation between. It is made where it multiplies no more and takes less time as the roofline sees it, so that pairs
of low rank, x·(d×r)·(r×d), stay two. The new matrix is computed in double precision and rounded once.

Conditions: constant float32 or float64 matrices, and biases of one constant a column, below 1000 between the two. NaN
and infinities in x give what they gave, but for sums of opposite infinities; an overflow of the value between may
vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._affine import check_near, dtype_of, rounded, summed

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 2
ROOTS = ("MatMul", "Gemm")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3,2] x) => (float[N,3,1] y)
<float[2,2] w = {1, 2, 3, 4}, float[2] b = {5, 6}, float[2,1] v = {7, 8}>
{ m = MatMul(x, w)  a = Add(m, b)  y = MatMul(a, v) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3,2] x) => (float[N,3,1] y) <float[2,1] w = {23, 53}, float[1] b = {83}>
{ m = MatMul(x, w)  y = Add(m, b) }
"""
_OPTIONAL_BIAS = 11  # opset from which Gemm may have none


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """y = x·weight + bias in double precision; 0 where there is no bias."""

    x: gs.Tensor
    weight: np.ndarray
    bias: np.ndarray
    node: gs.Node


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    first = _before(node.inputs[0], scope)
    then = None if first is None else _layer(node, scope)
    if first is None or then is None:
        return None
    macs = first.weight.shape[0] * then.weight.shape[1]
    if macs > first.weight.size + then.weight.size:
        raise NotLegal("one product would multiply more")
    check_near(first.bias)
    out, total = node.outputs[0], summed(first.bias @ then.weight, then.bias)
    behind = scope.editor.only_use(out) if is_op(node, "MatMul") and total.any() else None
    if behind is not None and (more := _bias(behind, out, total.size, scope)) is not None:
        out, total = behind.outputs[0], summed(total, more)
    dtype = dtype_of(node.inputs[1], scope)
    weight, bias = rounded(first.weight @ then.weight, dtype), rounded(total, dtype)
    build = Build(scope, first.node)
    if "Gemm" in (first.node.op, node.op):
        given = bias.any() or scope.opset < _OPTIONAL_BIAS
        build("Gemm", first.x, build.constant(weight), build.constant(bias) if given else None, out=out)
    elif bias.any():
        build("Add", build("MatMul", first.x, build.constant(weight)), build.constant(bias), out=out)
    else:
        build("MatMul", first.x, build.constant(weight), out=out)
    return build.rewrite()


def _before(tensor: gs.Tensor, scope: Scope) -> _Layer | None:
    """The layer whose value this is, where one node alone reads that, and every value inside."""
    maker = scope.editor.producer(tensor)
    if maker is None or scope.editor.only_use(tensor) is None:
        return None
    if not is_op(maker, "Add"):
        return _layer(maker, scope)
    for product in maker.inputs:
        node = scope.editor.producer(product)
        layer = _layer(node, scope) if is_op(node, "MatMul") and node is not None else None
        if layer is None or scope.editor.only_use(product) is None:
            continue
        bias = _bias(maker, product, layer.bias.size, scope)
        return None if bias is None else _Layer(layer.x, layer.weight, bias, layer.node)
    return None


def _bias(add: gs.Node, product: gs.Tensor, size: int, scope: Scope) -> np.ndarray | None:
    """What an Add adds to the columns of a product; None where it is no such node."""
    if not is_op(add, "Add") or len(add.inputs) != 2:
        return None
    bias = add.inputs[1 if add.inputs[0] is product else 0]
    found, shape, more = _columns(bias, size, scope), scope.value(product).shape, scope.value(bias).shape
    return found if shape is not None and more is not None and len(more) <= len(shape) else None


def _layer(node: gs.Node, scope: Scope) -> _Layer | None:
    """What a MatMul or Gemm does as a linear layer; None where it is none with constants. Raises NotLegal."""
    if not is_op(node, "MatMul", "Gemm") or scope.value(node.inputs[0]).constant:
        return None
    weight = scope.constant(node.inputs[1])
    shape = scope.value(node.inputs[0]).shape
    if weight is None or weight.ndim != 2 or shape is None or len(shape) < 2:
        return None
    dtype_of(node.inputs[1], scope)
    weight = weight.astype(np.float64)
    if node.op == "MatMul":
        return _Layer(node.inputs[0], weight, np.zeros(weight.shape[1]), node)
    if node.attrs.get("transA", 0):
        return None
    weight = (weight.T if node.attrs.get("transB", 0) else weight) * node.attrs.get("alpha", 1.0)
    has_bias = len(node.inputs) > 2 and bool(node.inputs[2].name)
    bias = _columns(node.inputs[2], weight.shape[1], scope) if has_bias else np.zeros(weight.shape[1])
    if bias is None:
        raise NotLegal("a bias is not one constant a column")
    return _Layer(node.inputs[0], weight, bias * node.attrs.get("beta", 1.0), node)


def _columns(tensor: gs.Tensor, size: int, scope: Scope) -> np.ndarray | None:
    """A constant that is added to every row, as one number a column; None for any other value."""
    array = scope.constant(tensor)
    if array is None or array.dtype.kind != "f" or any(d != 1 for d in array.shape[:-1]):
        return None
    if array.shape[-1:] not in ((), (1,), (size,)):
        return None
    return np.broadcast_to(array.reshape(-1).astype(np.float64), size)
