"""Moves that end in convolutions, matrix products, normalization and pools, and blocks of them that rules know."""

from __future__ import annotations

from typing import Any

import numpy as np

from .builder import Builder, Rejected


def _window(b: Builder, x: str, *, pool: bool = False) -> dict[str, Any]:
    n = b.rank(x) - 2
    kernel = [int(b.choose([1, 1, 2, 3, 3])) for _ in range(n)]
    if b.chance(0.3):
        kernel = [kernel[0]] * n
    attrs: dict[str, Any] = {"kernel_shape": kernel}
    kind = b.rng.random()
    if kind < 0.45:
        attrs["pads"] = [int(b.choose([0, 0, 1, 1, 2])) for _ in range(2 * n)]
        if b.chance(0.6):
            attrs["pads"] = [(k - 1) // 2 for k in kernel] * 2
    elif kind < 0.6:
        attrs["auto_pad"] = b.choose(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
    if b.chance(0.25):
        attrs["strides"] = [int(b.choose([1, 2, 3])) for _ in range(n)]
    if b.chance(0.15) and (not pool or b.opset >= 10):
        attrs["dilations"] = [int(b.choose([1, 2])) for _ in range(n)]
    pads, dilations = attrs.get("pads", [0] * 2 * n), attrs.get("dilations", [1] * n)
    for i, k in enumerate(kernel):  # onnxruntime takes windows that are larger than all there is, and reads behind it
        if dilations[i] * (k - 1) + 1 > b.shape(x)[i + 2] + pads[i] + pads[i + n]:
            kernel[i] = 1
    return attrs


def conv_of(b: Builder, x: str, *, outs: int | None = None, group: int | None = None, **given: Any) -> str:
    """A convolution of a value with random weights."""
    channels = b.shape(x)[1]
    divisors = [g for g in range(1, channels + 1) if channels % g == 0]
    group = group or (1 if b.chance(0.6) else channels if b.chance(0.5) else b.choose(divisors))
    if group not in divisors:
        raise Rejected
    outs = (
        outs or group * b.choose([1, 1, 2, 3]) if group > 1 else outs or b.choose([1, 2, 3, 4, 8, 12, 16, 18, channels])
    )
    attrs = given or _window(b, x)
    weight = b.array([outs, channels // group, *attrs["kernel_shape"]])
    if group > 1 or b.chance(0.2):
        attrs["group"] = group
    inputs = [x, b.input(weight, keep=False) if b.chance(0.03) else b.constant(weight)]
    if b.chance(0.6):
        inputs.append(b.constant(b.array([outs])))
    if b.chance(0.2):
        del attrs["kernel_shape"]
    return b.add("Conv", *inputs, **attrs)


def conv(b: Builder) -> None:
    conv_of(b, b.image())


def conv_transpose(b: Builder) -> None:
    x = b.image()
    channels = b.shape(x)[1]
    group = b.choose([g for g in range(1, channels + 1) if channels % g == 0])
    attrs = _window(b, x)
    outs = b.choose([1, 2, 3])
    inputs = [x, b.constant(b.array([channels, outs, *attrs["kernel_shape"]]))]
    if b.chance(0.5):
        inputs.append(b.constant(b.array([outs * group])))
    b.add("ConvTranspose", *inputs, group=group, **attrs)


def gemm(b: Builder) -> None:
    x = b.pick(lambda a: a.ndim == 2)
    trans = int(b.chance(0.15)), int(b.chance(0.5))
    rows, inner = b.shape(x)[::-1] if trans[0] else b.shape(x)
    outs = b.choose([1, 2, 3, 8, inner, rows])
    inputs = [x, b.constant(b.array([outs, inner] if trans[1] else [inner, outs]))]
    if b.chance(0.75) or b.opset < 11:
        inputs.append(b.constant(b.array(b.choose([[outs], [outs], [1, outs], [rows, 1], [rows, outs], [1], []]))))
    attrs: dict[str, Any] = {k: float(b.choose([0.5, 2, -1, 0])) for k in ("alpha", "beta") if b.chance(0.25)}
    b.add("Gemm", *inputs, transA=trans[0], transB=trans[1], **attrs)


def matmul(b: Builder) -> None:
    x = b.pick(lambda a: a.ndim >= 1)
    shape = b.shape(x)
    kind = b.rng.random()
    outs = b.choose([1, 2, 3, 8, shape[-1]])
    if kind < 0.6:
        b.add("MatMul", x, b.constant(b.array([shape[-1], outs])))
    elif kind < 0.7:
        b.add("MatMul", x, b.constant(b.array([*shape[:-2], shape[-1], outs])))
    elif kind < 0.75:
        b.add("MatMul", x, b.constant(b.array([shape[-1]])))
    elif kind < 0.85 and len(shape) > 1:
        b.add("MatMul", b.constant(b.array([outs, shape[-2]])), x)
    else:
        y = b.pick(lambda a: a.ndim >= 1 and a.shape[-2 if a.ndim > 1 else 0] == shape[-1])
        b.add("MatMul", x, y)


def batchnorm_of(b: Builder, x: str) -> str:
    """A BatchNormalization with random parameters."""
    if b.rank(x) < 2:
        raise Rejected
    channels = b.shape(x)[1]
    kept, b.special = b.special, b.special and b.chance(0.2)
    params = [b.array([channels]) for _ in range(4)]
    b.special = kept
    params[3] = np.abs(params[3]) + (0 if b.special else np.array(0.05, params[3].dtype))
    attrs: dict[str, Any] = {"epsilon": float(b.choose([1e-5, 1e-3, 0.0]))} if b.chance(0.5) else {}
    return b.add("BatchNormalization", x, *(b.constant(p) for p in params), **attrs)


def batchnorm(b: Builder) -> None:
    batchnorm_of(b, b.pick(lambda a: a.ndim >= 2))


def pool_of(b: Builder, x: str) -> str:
    """A pool of any kind."""
    op = b.choose(["MaxPool", "MaxPool", "AveragePool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"])
    if op.startswith("Global"):
        return b.add(op, x)
    attrs = _window(b, x, pool=True)
    if op == "AveragePool":
        if b.opset < 19:
            attrs.pop("dilations", None)
        if b.chance(0.4):
            attrs["count_include_pad"] = int(b.chance(0.7))
    if b.chance(0.25) and b.opset >= 10:
        attrs["ceil_mode"] = 1
    if op == "MaxPool" and b.chance(0.08):
        return b.many(op, x, outputs=2, keep=True, **attrs)[0]
    return b.add(op, x, **attrs)


def pool(b: Builder) -> None:
    pool_of(b, b.image())


def layer_norm(b: Builder) -> None:
    x = b.pick(lambda a: a.ndim >= 1)
    axis = int(b.rng.integers(-b.rank(x), 0))
    inputs = [x, b.constant(b.array(b.shape(x)[axis:]))]
    if b.chance(0.7):
        inputs.append(b.constant(b.array(b.shape(x)[axis:])))
    b.add("LayerNormalization", *inputs, axis=axis)


def layer_norm_parts(b: Builder) -> None:
    x = b.pick(lambda a: a.ndim >= 1 and a.size > 0)
    axes = [-1] if b.chance(0.8) else [b.rank(x) - 1]
    mean = _reduced(b, "ReduceMean", x, axes)
    d = b("Sub", x, mean)
    square = b("Pow", d, b.constant(np.array(2, b.values[x].dtype))) if b.chance(0.6) else b("Mul", d, d)
    variance = _reduced(b, "ReduceMean", square, axes)
    deviation = b("Sqrt", b("Add", variance, b.constant(np.array(1e-3, b.values[x].dtype))))
    normal = b.add("Div", d, deviation)
    scaled = b.add("Mul", normal, b.constant(b.array(b.shape(x)[-1:])))
    b.add("Add", scaled, b.constant(b.array(b.shape(x)[-1:])))


def _reduced(b: Builder, op: str, x: str, axes: list[int], keepdims: int = 1) -> str:
    takes_input = b.opset >= (13 if op == "ReduceSum" else 18)
    if takes_input:
        return b(op, x, b.ints(axes), keepdims=keepdims)
    return b(op, x, axes=axes, keepdims=keepdims)


def reduce(b: Builder) -> None:
    x = b.pick(lambda a: a.ndim >= 1)
    axes = [2, 3] if b.rank(x) == 4 and b.chance(0.7) else [int(b.rng.integers(-b.rank(x), b.rank(x)))]
    if b.chance(0.2):
        axes = [a - b.rank(x) for a in axes if a >= 0] or axes
    op = b.choose(["ReduceMean", "ReduceMean", "ReduceMean", "ReduceSum", "ReduceMax"])
    b.pool.append(_reduced(b, op, x, axes, int(b.chance(0.7))))


def softmax(b: Builder) -> None:
    x = b.pick(lambda a: a.ndim >= 1)
    attrs = {"axis": int(b.rng.integers(-b.rank(x) if b.opset >= 11 else 0, b.rank(x)))} if b.chance(0.8) else {}
    b.add(b.choose(["Softmax", "Softmax", "LogSoftmax"]), x, **attrs)


def parallel(b: Builder) -> None:
    """Convolutions, scales and copies of one value that are added, as RepVGG is trained."""
    x = b.image()
    channels, n = b.shape(x)[1], b.rank(x) - 2
    stride = [b.choose([1, 1, 1, 2])] * n
    terms = []
    for _ in range(b.choose([1, 2, 2, 3])):
        k, d = [(1, 1), (1, 1), (3, 1), (3, 1), (3, 2)][int(b.rng.integers(5))]
        pads = [(k - 1) // 2 * d] * 2 * n
        if b.chance(0.1):
            pads[0] += 1
            pads[n] -= 1 if pads[n] else 0
        attrs = {"kernel_shape": [k] * n, "pads": pads, "strides": stride}
        if d > 1:
            attrs["dilations"] = [d] * n
        group = b.choose([1, 1, channels, *(g for g in (2, 3) if channels % g == 0)])
        y = conv_of(b, x, outs=channels, group=group, **attrs)
        terms.append(batchnorm_of(b, y) if b.chance(0.4) else y)
    if b.chance(0.5):
        terms.append(batchnorm_of(b, x))
    if b.chance(0.4):
        terms.append(x)
    terms = [terms[i] for i in b.rng.permutation(len(terms))]
    if b.chance(0.2):
        b.add("Sum", *terms)
        return
    total = terms[0]
    for t in terms[1:]:
        total = b.add("Add", *([total, t] if b.chance(0.5) else [t, total]))


def blocks(b: Builder) -> None:
    """Convolution, activation, depthwise convolution or pool, convolution, with channels that are no multiple of 4."""
    x = b.pick(lambda a: a.ndim == 4 and a.size > 0 and a.shape[1] <= 32)
    outs = b.choose([6, 8, 10, 16, 18, 18, 21])
    y = conv_of(b, x, outs=outs, group=1, kernel_shape=[1, 1])
    y = _between(b, y)
    if b.chance(0.6):
        k = b.choose([1, 3])
        y = conv_of(b, y, outs=outs, group=outs, kernel_shape=[k, k], pads=[k // 2] * 4)
        y = _between(b, y)
    elif b.chance(0.7):
        y = pool_of(b, y)
    if b.chance(0.8):
        conv_of(b, y, outs=b.choose([2, 8]), group=1, kernel_shape=[1, 1])


def _between(b: Builder, y: str) -> str:
    kind = b.rng.random()
    if kind < 0.3:
        slope = b.array([b.shape(y)[1], 1, 1])
        return b.add("PRelu", y, b.constant(slope[None] if b.chance(0.3) else slope))
    if kind < 0.4:
        return batchnorm_of(b, y)
    if kind < 0.55:
        shape = b.choose([[], [1], [b.shape(y)[1], 1, 1], [1, b.shape(y)[1], 1, 1]])
        return b.add(b.choose(["Mul", "Add", "Sub", "Div"]), y, b.constant(b.array(shape)))
    if kind < 0.9:
        return b.add(b.choose(["Relu", "LeakyRelu", "Sigmoid", "HardSigmoid", "Tanh"]), y)
    return y


def residual(b: Builder) -> None:
    x = b.image()
    n = b.rank(x) - 2
    y = conv_of(b, x, outs=b.shape(x)[1], group=1, kernel_shape=[3] * n, pads=[1] * 2 * n)
    if b.chance(0.4):
        y = batchnorm_of(b, y)
    other = x if b.chance(0.5) else b.pick(lambda a: a.ndim == n + 2)
    s = b.add("Add", *([y, other] if b.chance(0.5) else [other, y]))
    if b.chance(0.7):
        b.add("Relu", s)


def gate(b: Builder) -> None:
    """A squeeze-and-excite gate, with a shortcut or without one."""
    x = b.image()
    g = b("GlobalAveragePool", x)
    if b.chance(0.5):
        g = conv_of(b, g, outs=b.choose([1, b.shape(x)[1]]), group=1, kernel_shape=[1] * (b.rank(x) - 2))
    g = b.add(b.choose(["Sigmoid", "HardSigmoid", "Relu"]), g)
    m = b.add("Mul", *([x, g] if b.chance(0.5) else [g, x]))
    if b.chance(0.6):
        b.add("Add", *([x, m] if b.chance(0.5) else [m, x]))


def images(b: Builder) -> None:
    """Float images of few channels through convolutions in the blocked layout, with what is lowered for it behind."""
    found = [n for n in b.pool if b.values[n].ndim == 4 and b.values[n].size and b.values[n].dtype == np.float32]
    if not found:
        found = [b.input(np.asarray(b.rng.standard_normal([1, b.choose([1, 3, 8]), 6, 6])).astype(np.float32))]
    b.dtype = np.dtype(np.float32)
    outs = b.choose([8, 16, 16, 18, 20, 24])
    k = b.choose([1, 3])
    y = conv_of(b, found[-1], outs=outs, group=1, kernel_shape=[k, k], pads=[k // 2] * 4)
    if b.chance(0.5):
        y = b.add(b.choose(["Relu", "LeakyRelu", "Sigmoid", "HardSigmoid"]), y)
    kind = b.rng.random()
    if kind < 0.2:
        b.pool.append(_reduced(b, "ReduceMean", y, [2, 3] if b.chance(0.5) else [-1, -2], int(b.chance(0.8))))
        return
    if kind < 0.45:
        slope = b.array([outs, 1, 1])
        y = b.add("PRelu", y, b.constant(slope[None] if b.chance(0.3) else slope))
        if b.chance(0.5):
            pool_of(b, y)
        conv_of(b, y, outs=b.choose([4, 8]), group=1, kernel_shape=[1, 1])
        return
    if kind < 0.7:
        for _ in range(b.choose([1, 2])):
            c = b.constant(b.array(b.choose([[], [1], [outs, 1, 1], [1, outs, 1, 1]])))
            y = b.add(b.choose(["Mul", "Add", "Add", "Sub", "Div"]), y, c)
        for _ in range(b.choose([1, 2])):
            group = b.choose([1, outs])
            conv_of(b, y, outs=outs, group=group, kernel_shape=[3, 3], pads=[1] * 4)
        return
    if kind < 0.85 and min(b.shape(y)[2:]) > 1:
        y = conv_of(b, y, outs=outs, group=1, kernel_shape=[1, 1])
        b.add("AveragePool" if b.chance(0.7) else "MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
        return
    y = b.add(b.choose(["Relu", "Relu", "LeakyRelu", "Elu", "Sigmoid", "Tanh"]), y)
    b.add("MaxPool", y, **_window(b, y, pool=True))


def resized(b: Builder) -> None:
    """A 1x1 convolution of an image that is resized, alone or beside others, and perhaps a function behind it."""
    x = b.pick(lambda a: a.ndim >= 3 and a.size > 0 and a.shape[1] <= 32 and a.dtype != np.float64)
    y = _larger(b, x)
    if b.chance(0.4):
        others = [y, *(_larger(b, x) if b.chance(0.4) else b("Exp", y) for _ in range(b.choose([1, 1, 2])))]
        y = b("Concat", *(others[i] for i in b.rng.permutation(len(others))), axis=1)
    y = conv_of(b, y, outs=b.choose([1, 2, 4, 8, b.shape(x)[1]]), group=1, kernel_shape=[1] * (b.rank(x) - 2))
    if b.chance(0.5):
        b.add(b.choose(["Relu", "LeakyRelu", "Sigmoid", "Tanh"]), y)


def _larger(b: Builder, x: str) -> str:
    n, mode = b.rank(x) - 2, b.choose(["nearest", "linear"])
    scales = b.constant(np.array([1, 1, *(b.choose([1, 2, 2, 3, 1.5]) for _ in range(n))], np.float32), plain=True)
    if b.opset < 11:
        return b("Upsample" if b.opset < 10 else "Resize", x, scales, mode=mode)
    kinds = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    attrs = {"mode": b.choose([mode, mode, "cubic"]), "coordinate_transformation_mode": b.choose(kinds)}
    if b.chance(0.3):
        attrs["nearest_mode"] = b.choose(["floor", "ceil", "round_prefer_ceil"])
    roi = "" if b.opset >= 13 else b.constant(np.zeros(0, np.float32), plain=True)
    if b.chance(0.6):
        return b("Resize", x, roi, scales, **attrs)
    sizes = b.ints([*b.shape(x)[:2], *(d * b.choose([1, 2, 3]) + b.choose([0, 1]) for d in b.shape(x)[2:])])
    return b("Resize", x, roi, "" if b.opset >= 13 else roi, sizes, **attrs)


MOVES = {
    images: 4, conv: 6, conv_transpose: 2, gemm: 3, matmul: 4, batchnorm: 4, pool: 4, layer_norm: 1,
    layer_norm_parts: 1, reduce: 2, softmax: 1, parallel: 3, blocks: 3, residual: 2, gate: 2,
    resized: 3,
}  # fmt: skip
