"""Relu before MaxPool becomes `onnxfuse::ReluMaxPool`, whose body is MaxPool, then Relu on the smaller tensor.

Relu is non-decreasing, so relu(max(a, b)) = max(relu(a), relu(b)): it commutes with the maximum over a window. The
one exception is a window that lies wholly in padding: its maximum is -inf (or the lowest number), which Relu would turn
into 0. The Indices output is refused as well, since equal maxima appear where Relu makes zeros. NaN gives what Relu and
MaxPool make of it in the other order, the same in onnxruntime on the CPU; a 0 may have another sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import TensorProto

from onnxfuse import ir
from onnxfuse.patterns import Match, NewNode, NotLegal, Scope, is_op
from onnxfuse.rules._definition import definition, references, suffix
from onnxfuse.rules._pool import covered_maxima
from onnxfuse.targets import ONNXFUSE, Target

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

ROOTS = ("MaxPool",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,8,8] x) => (float[1,3,4,4] y) { t = Relu(x)  y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (t) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17, "onnxfuse" : 1]>
g (float[1,3,8,8] x) => (float[1,3,4,4] y)
{ y = onnxfuse.ReluMaxPool <ceil_mode = 0, dilations = [1, 1], kernel_shape = [2, 2], pads = [0, 0, 0, 0],
                            strides = [2, 2]> (x) }
<domain: "onnxfuse", opset_import: ["" : 17]>
ReluMaxPool <ceil_mode, dilations, kernel_shape, pads, strides> (X) => (Y)
{ P = MaxPool <ceil_mode: int = @ceil_mode, dilations: ints = @dilations,
               kernel_shape: ints = @kernel_shape, pads: ints = @pads, strides: ints = @strides> (X)
  Y = Relu(P) }
"""


def pairs(target: Target) -> frozenset[tuple[str, str]]:
    """Neighbours that this rule merges on a target."""
    return frozenset({("Relu", "MaxPool")} if target.functions else ())


def match(node: gs.Node, scope: Scope) -> Match | None:
    """Match or None; raises NotLegal with the reason of a near miss."""
    relu = scope.editor.producer(node.inputs[0]) if is_op(node, "MaxPool") and node.inputs else None
    if relu is None or not is_op(relu, "Relu") or scope.target.functions is None:
        return None
    scope.sole_consumer(relu)
    if scope.value(relu.inputs[0]).dtype == TensorProto.DOUBLE:
        raise NotLegal("onnxruntime does not load a Relu in double that a Clip comes to stand behind")
    if scope.editor.owner(relu) is not scope.editor.owner(node):
        raise NotLegal("the Relu stands in an outer graph")
    attrs = covered_maxima(node, scope, "Relu")
    name = "ReluMaxPool" + suffix(attrs)
    text = f"P = MaxPool <{references('MaxPool', attrs, scope.opset)}> (X)  Y = Relu(P)"
    function = definition(name, attrs, "X", text, scope.opset)
    source, result = relu.inputs[0], node.outputs[0]
    pooled = f"{result.name}/pooled"
    body = (
        ir.Node("MaxPool", "", "", (source.name,), (pooled,), attrs),
        ir.Node("Relu", "", "", (pooled,), (result.name,), {}),
    )
    new = NewNode(name, ONNXFUSE, (source,), (result,), attrs)
    return Match((relu, node), new, function, body, {pooled: result.name})
