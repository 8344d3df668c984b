"""GELU recovered from its parts, exact and with tanh.

x·(1 + erf(x/√2))/2 = gelu(x) and x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2 = gelu(x, tanh), wherever the factors stand
and however the polynomial is written, = Gelu from opset 20 on. Before it, the exact one is written as onnxruntime knows
it, with Div by √2 and the half as a factor of the product: Div, Erf, Add, Mul, Mul; the other one becomes FastGelu of
com.microsoft on targets that have a kernel for it. The constants are those up to their own rounding.

onnxruntime makes one node of the exact one only where x is divided by √2, and knows the other one on GPUs alone.
Measured (1.32, CPU, one thread, processor time, medians of paired ratios, [1,197,3072]): with a factor 1/√2 2.2x; with
tanh, as Gelu 3.0x, with Pow 3.5x, as FastGelu 3.1x. The one with tanh stays in parts where something divides by it. NaN
and infinities give what they gave.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._elementwise import FAR, multiples, same, scalar, single_affine
from onnxfuse.rules._moments import exponent
from onnxfuse.rules._smallness import SMALLNESS, tells_smallness
from onnxfuse.targets import MICROSOFT

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 1
MEASURED = ("ort-cpu",)
ROOTS = ("Mul", "Div")
BEFORE = """
<ir_version: 9, opset_import: ["" : 20]>
g (float[2,3] x) => (float[2,3] y)
<float three = {3}, float c = {0.044715}, float r = {0.7978846}, float one = {1}, float half = {0.5}>
{ p = Pow(x, three)  q = Mul(p, c)  i = Add(x, q)  z = Mul(i, r)  t = Tanh(z)  a = Add(t, one)  h = Mul(x, half)
  y = Mul(h, a) }
"""
AFTER = """
<ir_version: 9, opset_import: ["" : 20]>
g (float[2,3] x) => (float[2,3] y) { y = Gelu <approximate = "tanh"> (x) }
"""
_INSIDE = {
    "Erf": (0.0, math.sqrt(0.5)),
    "Tanh": (0.0, math.sqrt(2 / math.pi), 0.0, 0.044715 * math.sqrt(2 / math.pi)),
}
_DEEPEST, _HIGHEST = 6, 3
Polynomial = tuple[float, ...]  # coefficients from x⁰ on, the last one not 0


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    found = _argument(node, scope)
    if found is None:
        return None
    x, curve, known = found
    if scope.value(x).dtype != TensorProto.FLOAT:
        raise NotLegal("GELU is recovered in float32 only")
    for tensor in (curve.outputs[0], curve.inputs[0]):
        if scope.editor.only_use(tensor) is None or tensor.name in scope.pinned:
            raise NotLegal(f"the value '{tensor.name}' between the nodes is needed elsewhere")
    build, out = Build(scope, node), node.outputs[0]
    if curve.op == "Tanh" and tells_smallness(out, scope):
        raise NotLegal(SMALLNESS)
    if scope.supports("Gelu"):
        build("Gelu", x, out=out, **({"approximate": "tanh"} if curve.op == "Tanh" else {}))
        return build.rewrite()
    if curve.op == "Tanh":
        kernel = scope.target.kernels.get((MICROSOFT, "FastGelu"))
        if kernel is None or TensorProto.FLOAT not in kernel.dtypes:
            return None
        if not scope.value(x).shape:
            raise NotLegal("FastGelu takes no scalar, and this may be one")
        build("FastGelu", x, out=out, domain=MICROSOFT)
        return build.rewrite()
    if known:
        return None
    inside = build("Div", x, build.constant(np.float32(math.sqrt(2))))
    gate = build("Add", build("Erf", inside), build.constant(np.float32(1)))
    build("Mul", build("Mul", x, gate), build.constant(np.float32(0.5)), out=out)
    return build.rewrite()


def _argument(node: gs.Node, scope: Scope) -> tuple[gs.Tensor, gs.Node, bool] | None:
    """(x, the Erf or Tanh node, whether it is written as the runtime knows it) where the node makes gelu(x)."""
    for outer, product in multiples(node.outputs[0], scope):
        mul = scope.editor.producer(product)
        if mul is None or not is_op(mul, "Mul") or len(mul.inputs) != 2:
            continue
        for left, gate in (mul.inputs, mul.inputs[::-1]):
            inner, slope, shift = single_affine(gate, scope)
            curve = scope.editor.producer(inner)
            if curve is None or not is_op(curve, *_INSIDE) or not slope or not same(slope, shift):
                continue
            for factor, x in multiples(left, scope):
                if same(outer * factor * slope, 0.5) and _is_inside(curve, x, scope):
                    divided = scope.editor.producer(curve.inputs[0])
                    return x, curve, slope == 1 and is_op(divided, "Div") and is_op(node, "Mul")
    return None


def _is_inside(curve: gs.Node, x: gs.Tensor, scope: Scope) -> bool:
    """Whether the curve is taken of what GELU takes it of."""
    wanted, found = _INSIDE[curve.op], _polynomial(curve.inputs[0], x, scope)
    return found is not None and len(found) == len(wanted) and all(map(_equal, found, wanted))


def _equal(a: float, b: float) -> bool:
    return a == b if not b else same(a, b)


def _polynomial(tensor: gs.Tensor, x: gs.Tensor, scope: Scope, depth: int = _DEEPEST) -> Polynomial | None:
    """The value as a polynomial of x, of degree 3 at most."""
    if tensor is x:
        return 0.0, 1.0
    number = scalar(tensor, x, scope)
    if number is not None:
        return (number,)
    node = scope.editor.producer(tensor)
    if node is None or not depth or not is_op(node, "Add", "Sub", "Mul", "Div", "Pow") or len(node.inputs) != 2:
        return None
    left = _polynomial(node.inputs[0], x, scope, depth - 1)
    if node.op == "Pow":
        power = exponent(node, scope)
        if left is None or power not in (2, 3):
            return None
        return _product(left, left) if power == 2 else _product(_product(left, left), left)
    right = _polynomial(node.inputs[1], x, scope, depth - 1)
    if left is None or right is None:
        return None
    match node.op:
        case "Mul":
            return _product(left, right)
        case "Div":
            return tuple(c / right[0] for c in left) if len(right) == 1 and right[0] else None
        case _:
            sign = 1 if node.op == "Add" else -1
            size = max(len(left), len(right))
            padded = [(*p, *[0.0] * (size - len(p))) for p in (left, right)]
            if any(abs(c) > FAR for p in padded for c in p):
                return None  # sums of such round
            return tuple(a + sign * b for a, b in zip(*padded, strict=True))


def _product(a: Polynomial | None, b: Polynomial) -> Polynomial | None:
    if a is None or len(a) + len(b) - 2 > _HIGHEST:
        return None
    found = [0.0] * (len(a) + len(b) - 1)
    for i, p in enumerate(a):
        for k, q in enumerate(b):
            found[i + k] += p * q
    return tuple(found)
