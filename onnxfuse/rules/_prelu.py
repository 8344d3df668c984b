"""PRelu as two depthwise convolutions: prelu(x) = x + (1-s)·relu(-x), with a slope s for each channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Scope
from onnxfuse.rules._smallness import tells_smallness

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

_LEAST_SLOPE = 1e-2  # below it 1-s keeps fewer than five digits of s


def slopes_of(node: gs.Node, channels: int, scope: Scope) -> np.ndarray:
    """The slope of each channel. Raises NotLegal where it is not constant, not finite, or loses digits that count."""
    slope = scope.constant(node.inputs[1])
    if slope is None or slope.dtype != np.float32 or not np.isfinite(slope).all():
        raise NotLegal("the slopes are not constant")
    if np.any((slope != 0) & (np.abs(slope) < _LEAST_SLOPE)) and tells_smallness(node.outputs[0], scope, outputs=True):
        raise NotLegal("slopes around 0 lose digits, and how small the value is shows behind it")
    if slope.shape not in ((channels, 1, 1), (1, channels, 1, 1)):
        raise NotLegal(f"slopes of the shape {list(slope.shape)} are not one a channel")
    return slope.reshape(-1)


def as_depthwise(build: Build, x: gs.Tensor, slopes: np.ndarray, out: gs.Tensor | None = None) -> gs.Tensor:
    """x + (1-s)·relu(-x), whose products are 1x1 convolutions of one channel each."""
    attrs: dict[str, Any] = {"kernel_shape": [1, 1], "group": slopes.size}
    shape = (slopes.size, 1, 1, 1)
    minus = build("Conv", x, build.constant(np.full(shape, -1, np.float32)), **attrs)
    rest = (1 - slopes.astype(np.float64)).astype(np.float32).reshape(shape)
    return build("Add", x, build("Conv", build("Relu", minus), build.constant(rest), **attrs), out=out)
