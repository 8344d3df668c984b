"""MaxPool as a function of the values in its windows: maxima that commute with every non-decreasing function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxfuse.facts import Dim
from onnxfuse.patterns import NotLegal, Scope
from onnxfuse.rules._definition import spatial_attributes

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs


def covered_maxima(node: gs.Node, scope: Scope, before: str) -> dict[str, Any]:
    """The attributes of a MaxPool that gives nothing but maxima, each over some elements of its input.

    before: the operator in front of it, for the reason. Raises NotLegal.
    """
    if len(node.outputs) > 1 and node.outputs[1].name:
        raise NotLegal(f"MaxPool also gives Indices, which {before} changes where maxima are equal")
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
            raise NotLegal("a pooling window may lie wholly in padding, where MaxPool gives the lowest number")
    return attrs


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
