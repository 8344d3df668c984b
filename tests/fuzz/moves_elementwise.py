"""Moves that end in elementwise operators: constants on either side, activations, and activations in their parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from .builder import Builder, Rejected

_UNARY = (
    "Relu", "Relu", "Sigmoid", "Tanh", "Erf", "Softplus", "Softsign", "Abs", "Neg", "Neg", "Elu", "Selu", "HardSigmoid",
    "HardSwish", "Mish", "Gelu", "LeakyRelu", "LeakyRelu", "Exp", "Sqrt", "Log", "Reciprocal", "Celu",
)  # fmt: skip


def odd_shape(b: Builder, shape: tuple[int, ...]) -> list[int]:
    """The shape of a constant for a value of some shape: a number, along one axis, along the last one, whole …"""
    rank = len(shape)
    kind = b.rng.random()
    if kind < 0.2 or not rank:
        return b.choose([[], [], [1], [1] * rank, [1] * (rank + 1)])
    if kind < 0.5 and rank > 1:
        return b.choose([[shape[1], *[1] * (rank - 2)], [1, shape[1], *[1] * (rank - 2)]])
    axis = int(b.rng.integers(rank))
    if kind < 0.7:
        along = [1] * rank
        along[axis] = shape[axis]
        return along
    if kind < 0.8:
        return [shape[-1]]
    if kind < 0.88:
        return list(shape[axis:])
    if kind < 0.94:
        return [d if b.chance(0.5) else 1 for d in shape]
    return [b.choose([1, 2, 8]), *shape] if b.chance(0.3) else list(shape)


def constant_like(b: Builder, x: str, shape: list[int]) -> str:
    """A constant of a value's dtype."""
    return b.constant(b.array(shape, b.values[x].dtype))


def affine_of(b: Builder, x: str) -> str:
    """A sum, product … with a constant."""
    op = b.choose(["Mul", "Mul", "Add", "Add", "Sub", "Div"])
    c = constant_like(b, x, odd_shape(b, b.shape(x)))
    if op == "Div" and b.values[x].dtype.kind in "iu" and not np.all(b.values[c]):
        raise Rejected
    swap = b.chance(0.4) and not (op == "Div" and not (np.abs(b.values[x]) > 1e-3).all())
    return b.add(op, *([c, x] if swap else [x, c]))


def affine(b: Builder) -> None:
    affine_of(b, b.pick())


def affines(b: Builder) -> None:
    """Some of them behind one another along one axis."""
    x = b.pick(lambda a: a.ndim >= 1)
    axis = 1 if b.rank(x) > 1 and b.chance(0.7) else int(b.rng.integers(b.rank(x)))
    along = [b.shape(x)[axis], *[1] * (b.rank(x) - axis - 1)]
    for _ in range(b.choose([2, 3, 4])):
        op = b.choose(["Mul", "Add", "Sub", "Div", "Neg"])
        if op == "Neg":
            x = b.add(op, x)
            continue
        c = constant_like(b, x, b.choose([[], [1], along]))
        swap = b.chance(0.4) and op != "Div"
        x = b.add(op, *([c, x] if swap else [x, c]))


def unary_of(b: Builder, x: str) -> str:
    """An elementwise operator of one value."""
    op = b.choose(_UNARY)
    a = b.values[x]
    if op == "Exp" and np.max(a, initial=0) > 20:
        op = "Tanh"
    if op in ("Sqrt", "Log", "Reciprocal") and not (b.special or np.min(a, initial=1) > 1e-2):
        op = "Relu"
    attrs: dict[str, Any] = {}
    if op == "LeakyRelu" and b.chance(0.7):
        attrs["alpha"] = float(b.choose([0.1, 0.25, 0.0, 1.5, -0.5, 1.0]))
    if op == "HardSigmoid" and b.chance(0.6):
        attrs = {"alpha": 1 / 6, "beta": 0.5}
    return b.add(op, x, **attrs)


def unary(b: Builder) -> None:
    unary_of(b, b.pick())


def clip_of(b: Builder, x: str, low: float | None, high: float | None) -> str:
    """A Clip with these bounds in the form of the opset."""
    if b.opset < 11:
        return b.add("Clip", x, **{k: float(v) for k, v in (("min", low), ("max", high)) if v is not None})
    dtype = b.values[x].dtype
    bounds = ["" if v is None else b.constant(np.array(v, dtype)) for v in (low, high)]
    return b.add("Clip", x, *(bounds if bounds[1] else bounds[:1] if bounds[0] else []))


def limit_of(b: Builder, x: str) -> str:
    """One of the ways to limit a value."""
    low, high = b.choose([(0, 6), (0, 1), (None, 1), (0, None), (-1, 1), (-3, -1), (1, 2), (None, None), (2, -1)])
    kind = b.rng.random()
    number = b.choose([0, 0, 6, 1, -1])
    if kind < 0.4:
        return clip_of(b, x, low, high)
    if kind < 0.6:
        return b.add("Relu", x)
    c = b.constant(np.full(b.choose([[], [1], [1] * b.rank(x)]), number, b.values[x].dtype))
    return b.add(b.choose(["Min", "Max"]), *([c, x] if b.chance(0.4) else [x, c]))


def limits(b: Builder) -> None:
    x = b.pick()
    for _ in range(b.choose([1, 2, 2, 3])):
        x = limit_of(b, x)


def _scalar(b: Builder, x: str, number: float) -> str:
    return b.constant(np.full(b.choose([[], [], [1], [1] * b.rank(x)]), number, b.values[x].dtype))


def _times(b: Builder, x: str, number: float) -> str:
    """number·x as a product or a quotient."""
    if b.chance(0.5):
        return b.add("Div", x, _scalar(b, x, 1 / number))
    c = _scalar(b, x, number)
    return b.add("Mul", *([x, c] if b.chance(0.5) else [c, x]))


def _plus(b: Builder, x: str, number: float) -> str:
    c = _scalar(b, x, number)
    return b.add("Add", *([x, c] if b.chance(0.5) else [c, x]))


def _limited(b: Builder, x: str, high: float) -> str:
    kind = b.rng.random()
    if kind < 0.5:
        return clip_of(b, x, 0, high)
    if kind < 0.75:
        r = b("Relu", x) if b.chance(0.5) else b("Max", x, _scalar(b, x, 0))
        return b.add("Min", r, _scalar(b, x, high))
    return b.add("Max", b("Min", x, _scalar(b, x, high)), _scalar(b, x, 0))


def hard_parts(b: Builder) -> None:
    """HardSigmoid and HardSwish in their parts, and what is nearly one."""
    x = b.pick(lambda a: True)
    shift, high = (3, 6) if b.chance(0.8) else (b.choose([3, 2.5]), b.choose([6, 5]))
    if b.chance(0.2):
        gate = _limited(b, _plus(b, _times(b, x, 1 / 6 if b.chance(0.7) else 0.2), 0.5), 1)
        factor = 1.0
    elif b.chance(0.15):
        gate, factor = b("HardSigmoid", x, alpha=1 / 6, beta=0.5), 1.0
    else:
        gate, factor = _limited(b, _plus(b, x, shift), high), 1 / high
    if b.chance(0.3):
        _times(b, gate, factor) if factor != 1 else None
        return
    kind = b.rng.random()
    if kind < 0.3 and factor != 1:
        gate, factor = _times(b, gate, factor), 1.0
    y = b.add("Mul", *([x, gate] if b.chance(0.5) else [gate, x]))
    if factor != 1:
        _times(b, y, factor)


def leaky_parts(b: Builder) -> None:
    x = b.pick()
    scaled = _times(b, x, b.choose([0.1, 0.5, 1.0, 2.0, -0.5]))
    b.add(b.choose(["Max", "Max", "Min"]), *([x, scaled] if b.chance(0.5) else [scaled, x]))


def mish_parts(b: Builder) -> None:
    x = b.pick(lambda a: np.max(a, initial=0) < 30)
    soft = b("Softplus", x) if b.chance(0.6) else b("Log", b("Add", b("Exp", x), _scalar(b, x, 1)))
    t = b("Tanh", soft)
    b.add("Mul", *([x, t] if b.chance(0.5) else [t, x]))


def gelu_parts(b: Builder) -> None:
    x = b.pick()
    e = b("Erf", b("Div", x, _scalar(b, x, 2**0.5)))
    m = b.add("Mul", x, _plus(b, e, 1))
    _times(b, m, 0.5)


def swish(b: Builder) -> None:
    x = b.pick()
    s = b(b.choose(["Sigmoid", "Tanh", "HardSigmoid"]), x)
    b.add("Mul", *([x, s] if b.chance(0.5) else [s, x]))


def prelu(b: Builder) -> None:
    x = b.pick()
    slope = b.array(odd_shape(b, b.shape(x)), b.values[x].dtype)
    if np.broadcast_shapes(slope.shape, b.shape(x)) != b.shape(x):
        raise Rejected  # onnxruntime broadcasts both ways, which the standard does not say
    b.add("PRelu", x, b.constant(slope if b.chance(0.6) else np.full_like(slope, b.choose([0.25, 0, -0.5, 1]))))


def neutral(b: Builder) -> None:
    """x·1, x + 0, x¹ …"""
    x = b.pick_any(lambda a: a.dtype.kind in "fi")
    op, number = b.choose([("Mul", 1), ("Div", 1), ("Add", 0), ("Sub", 0), ("Pow", 1), ("Add", -0.0), ("Sub", -0.0)])
    if op == "Pow" and b.opset < 12 and b.values[x].dtype.kind == "i":
        raise Rejected
    c = b.constant(np.full(odd_shape(b, b.shape(x)), number, b.values[x].dtype))
    y = b.add(op, *([c, x] if b.chance(0.4) and op != "Div" else [x, c]))
    if b.chance(0.2) and b.special:
        b.add("Reciprocal", y)


def power(b: Builder) -> None:
    x = b.pick()
    b.add("Pow", x, _scalar(b, x, b.choose([1, 2, 2, 3, 0])))


def sigmoid_ratio(b: Builder) -> None:
    """Who looks at how small a Sigmoid in parts is: shares, logarithms, the largest."""
    x = b.pick(lambda a: a.size > 0 and a.ndim >= 1 and np.max(np.abs(a)) < 80)
    y = b("Reciprocal", _plus(b, b("Exp", b("Neg", x)), 1))
    kind = b.rng.random()
    if kind < 0.3:
        b.add("Div", y, b("ReduceMax" if b.chance(0.5) else "ReduceL2", y))
    elif kind < 0.6:
        b.add("Log", clip_of(b, y, 1e-12, 1) if b.chance(0.5) else _plus(b, y, 1e-12))
    elif kind < 0.8:
        b.add("Mul", _plus(b, y, b.choose([0, -0.5])), x)
    else:
        b.add("Reciprocal", b.add(b.choose(["Relu", "Tanh", "Sqrt"]), y))


def whole(b: Builder) -> None:
    """Rounding to whole numbers by a large constant, mostly with a scale before and behind."""
    x = b.pick(lambda a: a.dtype == np.float32)
    scale, magic = b.choose([1, 4, 10]), 1.5 * 2.0**23
    y = _times(b, x, scale) if scale > 1 else x
    y = b.add("Sub", _plus(b, y, magic), _scalar(b, x, magic))
    if scale > 1:
        _times(b, y, 1 / scale)


def combine(b: Builder) -> None:
    """Two values of the pool, or one with itself."""
    x = b.pick()
    shape, dtype = b.shape(x), b.values[x].dtype

    def fits(a: np.ndarray) -> bool:
        try:
            return a.dtype == dtype and np.broadcast_shapes(shape, a.shape) is not None
        except ValueError:
            return False

    op = b.choose(["Add", "Add", "Mul", "Mul", "Sub", "Max", "Min", "Sum", "Mean"])
    inputs = [x, *(b.pick(fits) for _ in range(1 if op in ("Add", "Mul", "Sub") else b.choose([0, 1, 1, 2])))]
    b.add(op, *(inputs[i] for i in b.rng.permutation(len(inputs))))


def integers(b: Builder) -> None:
    """Arithmetic of integers, which is left alone but for what changes nothing."""
    if not any(b.values[n].dtype.kind == "i" for n in b.pool):
        b.input(b.rng.integers(-5, 6, b.choose([[], [3], [2, 4], [1, 3, 2]])).astype(b.choose([np.int32, np.int64])))
    x = b.pick_any(lambda a: a.dtype.kind == "i")
    for _ in range(b.choose([1, 2])):
        x = b.add("Neg", x) if b.chance(0.2) else affine_of(b, x)
    if b.chance(0.5):
        b.add("Cast", x, to=1)


MOVES = {
    affine: 10, affines: 4, unary: 8, limits: 4, hard_parts: 5, leaky_parts: 2, mish_parts: 2, gelu_parts: 1, swish: 2,
    prelu: 2, neutral: 3, power: 1, combine: 6, integers: 1, sigmoid_ratio: 1, whole: 1,
}  # fmt: skip
