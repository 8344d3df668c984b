"""Shapes of Resize and Upsample."""

from __future__ import annotations

import numpy as np

from onnxfuse.facts.call import Call, Result, Unclear, normal_axis, rule
from onnxfuse.facts.expr import Dim, floor_div
from onnxfuse.facts.fraction import short_fraction
from onnxfuse.facts.value import Shape


def scaled(size: Dim, scale: float, c: Call, axis: int) -> Dim:
    """⌊size·scale⌋ in float32, as onnxruntime. Of a symbol exact where the scale stands for a short fraction; else a
    symbol of its own, as floats have no formula.
    """
    if isinstance(size, int):
        return int(np.float32(scale) * np.float32(size))
    ratio = short_fraction(scale, up=False)
    return c.fresh(0, axis) if ratio is None else floor_div(size * ratio.numerator, ratio.denominator)


def _by_scales(c: Call, x: Shape, scales: list[float], axes: list[int]) -> Result:
    out = list(x)
    if len(scales) != len(axes):
        raise Unclear
    for axis, scale in zip(axes, scales, strict=True):
        out[axis] = scaled(x[axis], scale, c, axis)
    return tuple(out)


def _floats(c: Call, i: int) -> list[float] | None:
    data = c.value(i).data
    if data is None or data.dtype == object:
        return None
    return [float(f) for f in data.reshape(-1)]


@rule("Upsample")
def _upsample(c: Call) -> Result:
    x = c.shape(0)
    scales = c.node.attrs.get("scales")
    if scales is None and "height_scale" in c.node.attrs:
        scales = (1.0, 1.0, c.node.attrs["height_scale"], c.node.attrs["width_scale"])
    values = list(scales) if isinstance(scales, tuple) else _floats(c, 1)
    if values is None:
        return c.fresh_shape(0, len(x))
    return _by_scales(c, x, values, list(range(len(x))))


def _keeping_ratio(policy: str, sizes: list[Dim], old: list[Dim]) -> list[int] | list[None]:
    """One scale for all axes, in float32, rounded half up (Resize-18); None with symbols."""
    ratios = [
        np.float32(s) / np.float32(d)
        for s, d in zip(sizes, old, strict=True)
        if isinstance(s, int) and isinstance(d, int)
    ]
    if len(ratios) < len(sizes):
        return [None] * len(sizes)
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [int(np.floor(scale * np.float32(d) + np.float32(0.5))) for d in old if isinstance(d, int)]


@rule("Resize")
def _resize(c: Call) -> Result:
    x = c.shape(0)
    axes = [normal_axis(a, len(x)) for a in c.attr_ints("axes") or range(len(x))]
    scales_at = 1 if c.version < 11 else 2
    if c.version >= 11 and c.has(3) and c.value(3).shape != (0,):
        if c.value(3).data is None:
            return tuple(c.fresh(0, a) if a in axes else d for a, d in enumerate(x))
        sizes = c.dims(3)
        if len(sizes) != len(axes):
            raise Unclear
        policy = c.text("keep_aspect_ratio_policy", "stretch")
        out = list(x)
        if policy == "stretch":
            for a, size in zip(axes, sizes, strict=True):
                out[a] = size
        else:
            for a, kept in zip(axes, _keeping_ratio(policy, sizes, [x[a] for a in axes]), strict=True):
                out[a] = c.fresh(0, a) if kept is None else kept
        return tuple(out)
    scales = _floats(c, scales_at)
    if scales is None:
        return tuple(c.fresh(0, a) if a in axes else d for a, d in enumerate(x))
    return _by_scales(c, x, scales, axes)
