"""Conv, residual Add and Relu become one node: y = relu(conv(x, w) + b + z).

Addition commutes and Relu is applied to each element, so the sum may be formed where the convolution's result is
written; z must have exactly the result's shape (the kernel does not broadcast, onnxruntime issues 12321 and 14561), in
every binding of the model's free dims. Pads must be symmetric: for others the CUDA kernel makes a larger result and
cuts it after z was added. What NaN gives is up to the kernel, as it is in Relu: cuDNN need not keep it.

Only with a FusedConv kernel on the target.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxfuse.patterns import Match, NewNode, NotLegal, Scope, is_op
from onnxfuse.rules._activation import check_kernel, fused_kernel, is_plain_conv
from onnxfuse.targets import MICROSOFT, Target

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

ROOTS = ("Conv",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,8,8] x, float[4,3,3,3] w, float[4] b, float[1,4,6,6] r) => (float[1,4,6,6] y)
{ t = Conv(x, w, b)  s = Add(t, r)  y = Relu(s) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[1,3,8,8] x, float[4,3,3,3] w, float[4] b, float[1,4,6,6] r) => (float[1,4,6,6] y)
{ y = com.microsoft.FusedConv <activation = "Relu"> (x, w, b, r) }
"""


def pairs(target: Target) -> frozenset[tuple[str, str]]:
    """Neighbours that this rule merges on a target."""
    return frozenset({("Conv", "Add"), ("Conv", "Sum"), ("Add", "Relu")} if fused_kernel(target) else ())


def match(node: gs.Node, scope: Scope) -> Match | None:
    """Match or None; raises NotLegal with the reason of a near miss."""
    kernel = fused_kernel(scope.target)
    if kernel is None or not is_plain_conv(node):
        return None
    add = next(
        (c for c in scope.editor.consumers(node.outputs[0]) if is_op(c, "Add", "Sum") and len(c.inputs) == 2), None
    )
    if add is None or not any(is_op(c, "Relu") for c in scope.editor.consumers(add.outputs[0])):
        return None
    scope.sole_consumer(node)
    relu = scope.sole_consumer(add)
    assert relu is not None
    check_kernel(kernel, node, relu, scope)
    pads = list(node.attrs.get("pads", ()))
    if pads[: len(pads) // 2] != pads[len(pads) // 2 :] or str(node.attrs.get("auto_pad", "")).startswith("SAME"):
        raise NotLegal("the convolution's pads are not surely symmetric")
    residual = add.inputs[1] if add.inputs[0] is node.outputs[0] else add.inputs[0]
    result, other = scope.value(node.outputs[0]).shape, scope.value(residual).shape
    if result is None or other is None:
        raise NotLegal(f"the shape of the residual '{residual.name}' or of the convolution is unknown")
    if result != other:
        raise NotLegal(f"the residual '{residual.name}' {_text(other)} is not surely of the shape {_text(result)}")
    from onnx_graphsurgeon import Variable

    inputs = [*node.inputs, *[Variable.empty()] * (3 - len(node.inputs)), residual]
    attrs = dict(node.attrs) | {"activation": "Relu"}
    return Match((node, add, relu), NewNode("FusedConv", MICROSOFT, tuple(inputs), tuple(relu.outputs), attrs))


def _text(shape: tuple[object, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"
