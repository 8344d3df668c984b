"""Shapes of operators with a sliding window: convolutions, poolings, resampling, as onnxruntime computes them."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto as T

from onnxfuse.facts.call import Call, Result, Unclear, like, rule
from onnxfuse.facts.expr import Dim, ceil_div, dmin, floor_div
from onnxfuse.facts.value import Shape


def _list(c: Call, name: str, n: int, default: int) -> list[int]:
    given = c.attr_ints(name)
    if given is None:
        return [default] * n
    if len(given) != n:
        raise Unclear
    return list(given)


def window(c: Call, sizes: Shape, kernel: list[Dim], ceil_mode: bool = False, exact_same: bool = True) -> list[Dim]:
    """Spatial output dims: ⌊(in + pads − dilation·(k − 1) − 1)/stride⌋ + 1 (ONNX Conv, MaxPool).

    With `auto_pad` SAME_*: ⌈in/stride⌉; with VALID: no pads. In ceil mode the last window must begin inside the
    input or its leading pad. A free size is taken to hold the window. `exact_same` False: the poolings of onnxruntime,
    whose SAME padding forgets the dilation.
    """
    n = len(sizes)
    if len(kernel) != n:
        raise Unclear
    strides, dilations = _list(c, "strides", n, 1), _list(c, "dilations", n, 1)
    pads = _list(c, "pads", 2 * n, 0)
    auto = c.text("auto_pad", "NOTSET") or "NOTSET"
    if min(strides, default=1) < 1:
        raise Unclear
    out: list[Dim] = []
    for i, (size, k, stride, dilation) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        head: Dim = 0
        total: Dim = 0
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            if exact_same or dilation == 1:
                out.append(ceil_div(size, stride))
                continue
            total = (ceil_div(size, stride) - 1) * stride + k - size
            head = floor_div(total + (auto == "SAME_LOWER"), 2)
        elif auto == "NOTSET":
            head, total = pads[i], pads[i] + pads[i + n]
        elif auto != "VALID":
            raise Unclear
        room = size + total - dilation * (k - 1) - 1
        if isinstance(room, int) and room < 0 and room % stride:  # onnxruntime rounds toward zero
            raise Unclear
        if not ceil_mode:
            out.append(floor_div(room, stride) + 1)
            continue
        steps = ceil_div(room, stride)  # the last window begins at steps·stride, which must be < size + head
        if isinstance(steps, int) and isinstance(size, int) and isinstance(head, int):
            out.append(steps if steps * stride >= size + head else steps + 1)
        else:  # min(⌈room/stride⌉, ⌈(size + head)/stride⌉ − 1) + 1
            last = ceil_div(size + head, stride) - 1
            out.append(dmin(steps, last) + 1)
    if any(isinstance(d, int) and d < 0 for d in out):
        raise Unclear
    return out


def _kernel(c: Call, weight: int) -> list[Dim]:
    given = c.attr_ints("kernel_shape")
    return list(given) if given else list(c.shape(weight)[2:])


def _channels(c: Call, weight: int) -> Dim:
    shape = c.value(weight).shape
    if shape is not None and len(shape) > 0:
        return shape[0]
    return c.fresh(0, 1)


def _convolution(c: Call, weight: int) -> Result:
    x = c.shape(0)
    if len(x) < 3:
        raise Unclear
    w = c.value(weight).shape
    if w is not None and len(w) != len(x):
        raise Unclear
    return (x[0], _channels(c, weight), *window(c, x[2:], _kernel(c, weight)))


@rule("Conv com.microsoft:FusedConv DeformConv")
def _conv(c: Call) -> Result:
    return _convolution(c, 1)


@rule("ConvInteger com.microsoft:ConvInteger", T.INT32)
def _conv_integer(c: Call) -> Result:
    return _convolution(c, 1)


@rule("QLinearConv com.microsoft:QLinearConv", like(7))
def _qlinear_conv(c: Call) -> Result:
    if c.attr("channels_last", 0):
        x = c.shape(0)
        return (x[0], *window(c, x[1:-1], _kernel(c, 3)), _channels(c, 3))
    return _convolution(c, 3)


@rule("ConvTranspose")
def _conv_transpose(c: Call) -> Result:
    x = c.shape(0)
    n = len(x) - 2
    w = c.value(1).shape
    if n < 1 or (w is not None and len(w) != len(x)):
        raise Unclear
    channels: Dim = c.fresh(0, 1) if w is None else w[1] * c.attr("group", 1)
    given = c.attr_ints("output_shape")
    if given:
        return (x[0], channels, *given[-n:])
    kernel = _kernel(c, 1)
    strides, dilations = _list(c, "strides", n, 1), _list(c, "dilations", n, 1)
    extra, pads = _list(c, "output_padding", n, 0), _list(c, "pads", 2 * n, 0)
    auto = c.text("auto_pad", "NOTSET") or "NOTSET"
    if len(kernel) != n:
        raise Unclear
    out: list[Dim] = []
    for i, size in enumerate(x[2:]):
        removed = pads[i] + pads[i + n] if auto == "NOTSET" else 0
        full = strides[i] * (size - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1 - removed
        # SAME: cut to in·stride, never padded up to it, as onnxruntime does.
        out.append(dmin(full, size * strides[i]) if auto.startswith("SAME") else full)
    return (x[0], channels, *out)


def _pooled(c: Call) -> Shape:
    x = c.shape(0)
    kernel = c.attr_ints("kernel_shape")
    if kernel is None or len(x) < 3:
        raise Unclear
    return (*x[:2], *window(c, x[2:], list(kernel), bool(c.attr("ceil_mode", 0)), exact_same=False))


@rule("MaxPool", like(0), T.INT64)
def _max_pool(c: Call) -> Result:
    return [_pooled(c)] * 2


@rule("AveragePool LpPool")
def _pool(c: Call) -> Result:
    return _pooled(c)


@rule("GlobalAveragePool GlobalMaxPool GlobalLpPool")
def _global_pool(c: Call) -> Result:
    x = c.shape(0)
    return (*x[:2], *(1 for _ in x[2:]))


@rule("MaxUnpool")
def _max_unpool(c: Call) -> Result:
    if c.has(2):
        return tuple(c.dims(2))
    x, kernel = c.shape(0), c.attr_ints("kernel_shape")
    n = len(x) - 2
    if kernel is None or len(kernel) != n:
        raise Unclear
    strides, pads = _list(c, "strides", n, 1), _list(c, "pads", 2 * n, 0)
    return (*x[:2], *((d - 1) * strides[i] + kernel[i] - pads[i] - pads[i + n] for i, d in enumerate(x[2:])))


@rule("MaxRoiPool")
def _max_roi_pool(c: Call) -> Result:
    pooled = c.attr_ints("pooled_shape")
    if pooled is None:
        raise Unclear
    return (c.shape(1)[0], c.shape(0)[1], *pooled)


@rule("RoiAlign")
def _roi_align(c: Call) -> Result:
    return (c.shape(1)[0], c.shape(0)[1], c.attr("output_height", 1), c.attr("output_width", 1))


@rule("GridSample com.microsoft:GridSample")
def _grid_sample(c: Call) -> Result:
    return (*c.shape(0)[:2], *c.shape(1)[1:-1])


@rule("AffineGrid")
def _affine_grid(c: Call) -> Result:
    n, _, *spatial = c.dims(1)
    return (n, *spatial, len(spatial))


@rule("Col2Im")
def _col2im(c: Call) -> Result:
    x, image, block = c.shape(0), c.dims(1), c.ints(2)
    if len(x) != 3:
        raise Unclear
    return (x[0], floor_div(x[1], int(np.prod(block))), *image)
