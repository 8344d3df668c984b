"""Layer normalization recovered from its parts, in the spellings that runtimes do not know.

(x − m)/sqrt(mean((x − m)²) + ε)·w + b with m = mean(x) over the last axes = LayerNormalization(x, w, b), however the
means, the square and the root are written, with or without w and b, and as TensorFlow writes it: x·i + (b − m·i) with
i = w/sqrt(v + ε). Before opset 17, which brought the operator, the parts are written as onnxruntime knows them:
ReduceMean, Sub, Pow, ReduceMean, Add, Sqrt, Div, Mul, Add, with ones and zeros where w or b is absent.

onnxruntime knows no form without w or without b, no square written as Mul, no Reciprocal, and not TensorFlow's.
Measured (1.32, CPU, one thread, processor time, medians of paired ratios, [8,64,64]): TensorFlow's spelling 2.7x,
without w and b 1.7x, without b 1.2x. The operator is as exact as the parts, also far from 0 (a mean of 1e6, a deviation
of 1). NaN stays NaN, and an infinity makes NaN of its row as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope
from onnxfuse.rules._norm import (
    Norm,
    is_constant,
    is_spelled,
    last_sizes,
    layer,
    mean_over,
    of_shape,
    over_root,
    stored,
    with_constants,
)

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 1
MEASURED = ("ort-cpu",)
ROOTS = ("Div", "Mul", "Add", "Sub")
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3,4] x) => (float[2,3,4] y) <float e = {0.001}, float[4] w = {1, 2, 3, 4}, float[4] b = {1, -1, 1, -1}>
{ m = ReduceMean <axes = [-1]> (x)  d = Sub(x, m)  s = Mul(d, d)  v = ReduceMean <axes = [-1]> (s)  a = Add(v, e)
  r = Sqrt(a)  i = Reciprocal(r)  f = Mul(i, w)  p = Mul(x, f)  q = Mul(m, f)  t = Sub(b, q)  y = Add(p, t) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2,3,4] x) => (float[2,3,4] y) <float[4] w = {1, 2, 3, 4}, float[4] b = {1, -1, 1, -1}>
{ y = LayerNormalization <axis = -1, epsilon = 0.001> (x, w, b) }
"""
_KNOWN = ("ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div")  # with Mul and Add behind them


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    core = layer(node, scope)
    if core is None:
        return None
    sizes = last_sizes(core, scope)
    norm = with_constants(core, of_shape(sizes, scope), scope)
    if norm is None:
        raise NotLegal("the scale or shift does not go along the normalized axes")
    build = Build(scope, node)
    if scope.supports("LayerNormalization"):
        shift = None if norm.shift is None else stored(build, norm.shift, np.zeros(sizes, np.float32))
        inputs = [norm.x, stored(build, norm.scale, np.ones(sizes, np.float32)), *([] if shift is None else [shift])]
        build("LayerNormalization", *inputs, out=norm.out, axis=-len(sizes), epsilon=norm.epsilon)
        return build.rewrite()
    if not (is_constant(norm.scale, scope) and is_constant(norm.shift, scope)):
        return None  # unknown to runtimes
    known = core.scale is None and core.shift is None and is_spelled(core, _KNOWN, scope)
    if known and norm.scale is not None and norm.shift is not None:
        return None
    return _spelled(norm, sizes, build, scope)


def _spelled(norm: Norm, sizes: tuple[int, ...], build: Build, scope: Scope) -> Rewrite:
    ones, zeros = np.ones(sizes, np.float32), np.zeros(sizes, np.float32)
    centred = build("Sub", norm.x, mean_over(build, norm.x, norm, scope))
    scaled = build("Mul", over_root(build, centred, norm, scope), stored(build, norm.scale, ones))
    build("Add", scaled, stored(build, norm.shift, zeros), out=norm.out)
    return build.rewrite()
