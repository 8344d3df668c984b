"""Relu before MaxPool becomes `onnxfuse::ReluMaxPool`, whose body is MaxPool, then Relu on the smaller tensor.

Relu is non-decreasing, so relu(max(a, b)) = max(relu(a), relu(b)): it commutes with the maximum over a window. The
one exception is a window that lies wholly in padding: its maximum is -inf (or the lowest number), which Relu would turn
into 0. The Indices output is refused as well, since equal maxima appear where Relu makes zeros. NaN gives what Relu and
MaxPool make of it in the other order, the same in onnxruntime on the CPU; a 0 may have another sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxfuse import ir
from onnxfuse.facts import Dim
from onnxfuse.patterns import Match, NewNode, NotLegal, Scope, is_op
from onnxfuse.rules._definition import definition, references, spatial_attributes, suffix
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


def pairs(target: Target) -> frozenset[tuple[str, str]]:  # noqa: ARG001 - on every target
    """Neighbours that this rule merges on a target."""
    return frozenset({("Relu", "MaxPool")})


def match(node: gs.Node, scope: Scope) -> Match | None:
    """Match or None; raises NotLegal with the reason of a near miss."""
    relu = scope.editor.producer(node.inputs[0]) if is_op(node, "MaxPool") and node.inputs else None
    if relu is None or not is_op(relu, "Relu"):
        return None
    scope.sole_consumer(relu)
    if scope.editor.owner(relu) is not scope.editor.owner(node):
        raise NotLegal("the Relu stands in an outer graph")
    if len(node.outputs) > 1 and node.outputs[1].name:
        raise NotLegal("MaxPool also gives Indices, which Relu changes where maxima are equal")
    kernel = node.attrs.get("kernel_shape")
    if not kernel:
        raise NotLegal("MaxPool has no kernel_shape")
    attrs = spatial_attributes(node, list(kernel), scope.opset)
    if min(*attrs["kernel_shape"], *attrs["strides"], *attrs.get("dilations", [1])) < 1:
        raise NotLegal("MaxPool has a kernel, stride or dilation below 1")
    shape = scope.value(node.inputs[0]).shape
    sizes = shape[2:] if shape is not None and len(shape) == len(kernel) + 2 else (None,) * len(kernel)
    for axis, size in enumerate(sizes):
        if not _covered(axis, size, attrs):
            raise NotLegal(
                "a pooling window may lie wholly in padding, where MaxPool gives the lowest number and not 0"
            )
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


def _covered(axis: int, size: Dim | None, attrs: dict[str, Any]) -> bool:
    """Whether every window along a spatial axis surely holds at least one element of the input.

    size: the input's length where known. A window starts at i·stride - pad and has taps `dilation` apart.
    """
    kernel = attrs["kernel_shape"]
    k, stride, rank = kernel[axis], attrs["strides"][axis], len(kernel)
    dilation = attrs["dilations"][axis] if "dilations" in attrs else 1
    extent = (k - 1) * dilation + 1
    if "auto_pad" in attrs:
        # SAME: the output has ceil(size / stride) windows, so both pads are below the extent. With a dilation or a
        # stride beyond the kernel runtimes disagree about the pads.
        return bool(dilation == 1 and stride <= k)
    before, after = attrs["pads"][axis], attrs["pads"][axis + rank]
    slack = stride - 1 if attrs.get("ceil_mode", 0) else 0
    if not isinstance(size, int):
        # With adjacent taps a window misses the input only if it ends before it or starts behind it.
        return bool(dilation == 1 and before < extent and after + slack < extent)
    last = size + after + slack - extent  # the furthest start, counted from the input's first element
    starts = range(-before, max(last, -before) + 1, stride)
    return all(any(0 <= s + j * dilation < size for j in range(k)) for s in starts)
