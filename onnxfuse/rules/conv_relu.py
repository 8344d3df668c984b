"""Conv followed by an activation becomes one node: y = act(conv(x, w) + b).

The activation is applied to each element of the convolution's result, so doing it before the result is written is the
same function; the result no longer travels to memory and back (2 · 4 bytes an element in float32).

With a FusedConv kernel on the target: `com.microsoft.FusedConv` with any activation that the kernel takes. Where
functions count as kernels: `onnxfuse::ConvRelu` with its definition, for Relu. What NaN gives is up to the kernel, as
it is in the activation alone: cuDNN need not keep it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxfuse import ir
from onnxfuse.patterns import Match, NewNode, NotLegal, Scope, is_op
from onnxfuse.rules._activation import (
    ACTIVATIONS,
    activation_attributes,
    check_kernel,
    fused_kernel,
    is_plain_conv,
)
from onnxfuse.rules._definition import definition, references, spatial_attributes, suffix
from onnxfuse.targets import MICROSOFT, ONNXFUSE, Target

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

ROOTS = ("Conv",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,8,8] x, float[4,3,3,3] w, float[4] b) => (float[1,4,6,6] y) { t = Conv(x, w, b)  y = Relu(t) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
g (float[1,3,8,8] x, float[4,3,3,3] w, float[4] b) => (float[1,4,6,6] y)
{ y = com.microsoft.FusedConv <activation = "Relu"> (x, w, b) }
"""


def pairs(target: Target) -> frozenset[tuple[str, str]]:
    """Neighbours that this rule merges on a target."""
    kernel = fused_kernel(target)
    activations = kernel.activations if kernel else {"Relu"} if _has_functions(target) else ()
    return frozenset(("Conv", a) for a in activations)


def match(node: gs.Node, scope: Scope) -> Match | None:
    """Match or None; raises NotLegal with the reason of a near miss."""
    if not is_plain_conv(node):
        return None
    if not any(is_op(c, *ACTIVATIONS) for c in scope.editor.consumers(node.outputs[0])):
        return None
    activation = scope.sole_consumer(node)
    if activation is None or activation.inputs[0] is not node.outputs[0]:
        return None
    kernel = fused_kernel(scope.target)
    if kernel is not None:
        check_kernel(kernel, node, activation, scope)
        attrs = dict(node.attrs) | activation_attributes(activation, scope)
        new = NewNode("FusedConv", MICROSOFT, tuple(node.inputs), tuple(activation.outputs), attrs)
        return Match((node, activation), new)
    if activation.op != "Relu" or not _has_functions(scope.target):
        return None
    return _function_match(node, activation, scope)


def _has_functions(target: Target) -> bool:
    return target.functions_are_kernels and target.functions is not None


def _function_match(conv: gs.Node, relu: gs.Node, scope: Scope) -> Match:
    """`onnxfuse::ConvRelu`, one function a signature: an absent bias would stand as an empty input in its body."""
    inputs = tuple(t for t in conv.inputs if t.name)
    biased = len(inputs) == 3
    attrs = spatial_attributes(conv, _kernel_shape(conv, scope), scope.opset)
    name = ("ConvRelu" if biased else "ConvReluNoBias") + suffix(attrs)
    formal = "X, W, B" if biased else "X, W"
    text = f"T = Conv <{references('Conv', attrs, scope.opset)}> ({formal})  Y = Relu(T)"
    middle = conv.outputs[0].name
    body = (
        ir.Node("Conv", "", "", tuple(t.name for t in inputs), (middle,), attrs),
        ir.Node("Relu", "", "", (middle,), (relu.outputs[0].name,), {}),
    )
    new = NewNode(name, ONNXFUSE, inputs, tuple(relu.outputs), attrs)
    return Match((conv, relu), new, definition(name, attrs, formal, text, scope.opset), body)


def _kernel_shape(conv: gs.Node, scope: Scope) -> list[int]:
    weight = scope.value(conv.inputs[1]).shape
    shape = conv.attrs.get("kernel_shape") or (weight[2:] if weight is not None else ())
    if not shape or not all(isinstance(d, int) for d in shape):
        raise NotLegal("the kernel's size is not known")
    return list(shape)
