"""Moves that end in normalizations, Softmax, GELU and Sigmoid in their parts, and in what is nearly one of them."""

from __future__ import annotations

import math

import numpy as np

from .builder import Builder, Rejected

_AXES_AS_INPUT = {"ReduceMean": 18, "ReduceMax": 18, "ReduceSum": 13}
_MODERATE = 30  # beyond it exponentials and cubes leave float16, and hide the rest


def _swapped(b: Builder, op: str, left: str, right: str) -> str:
    return b(op, *((right, left) if b.chance(0.4) else (left, right)))


def _number(b: Builder, x: str, number: float) -> str:
    return b.constant(np.full(b.choose([[], [], [1], [1] * b.rank(x)]), number, b.values[x].dtype))


def _reduce(b: Builder, op: str, x: str, axes: list[int]) -> str:
    axes = [a - b.rank(x) for a in axes] if b.chance(0.5) and b.opset >= 11 else axes
    keep = {"keepdims": 0} if b.chance(0.03) else {}
    if b.opset < _AXES_AS_INPUT[op]:
        return b(op, x, axes=axes, **keep)
    return b(op, x, b.ints(axes), **keep)


def _mean(b: Builder, x: str, axes: list[int]) -> str:
    if b.chance(0.75):
        return _reduce(b, "ReduceMean", x, axes)
    count = math.prod(b.shape(x)[a] for a in axes)
    total = _reduce(b, "ReduceSum", x, axes)
    if b.chance(0.5):
        return b("Div", total, _number(b, total, count))
    return _swapped(b, "Mul", total, _number(b, total, 1 / count))


def _square(b: Builder, x: str) -> str:
    return b("Mul", x, x) if b.chance(0.5) else b("Pow", x, _number(b, x, 2 if b.chance(0.95) else 4))


def _over_root(b: Builder, x: str, radicand: str) -> str:
    """x/sqrt(radicand) in one of its spellings."""
    kind = b.rng.random()
    if kind < 0.15:
        return _swapped(b, "Mul", x, b("Pow", radicand, _number(b, radicand, -0.5)))
    root = b("Sqrt", radicand)
    if kind < 0.5:
        return b("Div", x, root)
    return _swapped(b, "Mul", x, b("Reciprocal", root) if kind < 0.85 else b("Div", _number(b, root, 1), root))


def _some_axes(b: Builder, x: str) -> list[int]:
    """Trailing axes more often than others."""
    rank = b.rank(x)
    if b.chance(0.15):
        return [int(b.rng.integers(rank))]
    return list(range(int(b.rng.integers(max(rank - 3, 0), rank)), rank))


def _scaled(b: Builder, x: str, axes: list[int]) -> str:
    """A scale and a shift along the axes, along the channels, or none."""
    for op, p in (("Mul", 0.8), ("Add", 0.7)):
        shape = list(b.shape(x)[axes[0] :])
        if b.rank(x) > 2 and b.chance(0.4):
            shape = [b.shape(x)[1], *[1] * (b.rank(x) - 2)]
        if b.chance(p):
            x = _swapped(b, op, x, b.constant(b.array(shape, b.values[x].dtype)))
    return x


def _variance(b: Builder, x: str, axes: list[int]) -> tuple[str, str, str]:
    """(mean, x − mean, variance + ε)."""
    m = _mean(b, x, axes)
    d = _swapped(b, "Add", x, b("Neg", m)) if b.chance(0.1) else b("Sub", x, m)
    v = _mean(b, _square(b, d), axes if b.chance(0.95) else [0])
    return m, d, _swapped(b, "Add", v, _number(b, v, b.choose([1e-3, 0.1])))


def _rows(b: Builder) -> str:
    return b.pick(lambda a: a.ndim >= 1 and a.size > 0 and np.max(np.abs(a), initial=0) < _MODERATE)


def layer_norm_parts(b: Builder) -> None:
    """Layer and instance normalization."""
    x = _rows(b)
    axes = _some_axes(b, x)
    m, d, a = _variance(b, x, axes)
    if b.chance(0.7):
        y = _scaled(b, _over_root(b, d, a), axes)
    else:
        i = b("Reciprocal", b("Sqrt", a))
        if b.chance(0.7):
            i = _swapped(b, "Mul", i, b.constant(b.array(b.shape(x)[axes[0] :], b.values[x].dtype)))
        p, o = _swapped(b, "Mul", x, i), _swapped(b, "Mul", m, i)
        if b.chance(0.3):
            y = b("Sub", p, o)
        else:
            shift = b.constant(b.array(b.shape(x)[axes[0] :], b.values[x].dtype))
            y = _swapped(b, "Add", p, b("Sub", shift, o))
    b.pool += [y, *(n for n in (m, d, a) if b.chance(0.05))]


def residual_norm(b: Builder) -> None:
    """A sum of two values of [batch, tokens, channels], and a layer normalization of it, as encoders have them."""
    shape = b.choose([[2, 8, 64], [1, 16, 32], [3, 9, 64]])
    x = b.input(np.asarray(b.rng.standard_normal(shape)).astype(np.float32))
    y = _swapped(b, "Add", x, b(b.choose(["Tanh", "Relu", "Sigmoid"]), x))
    if b.chance(0.3):
        y = _swapped(b, "Add", y, b.constant(b.array(shape[-1:], np.float32)))
    if b.chance(0.2):
        b.pool.append(y)
    if b.opset >= 17 and b.chance(0.8):
        weights = [b.constant(b.array(shape[-1:], np.float32)) for _ in range(b.choose([1, 2]))]
        b.add("LayerNormalization", y, *weights, axis=b.choose([-1, -1, 2]))
    else:
        mean = _reduce(b, "ReduceMean", y, [2])
        centred = b("Sub", y, mean)
        shifted = b("Add", _reduce(b, "ReduceMean", _square(b, centred), [2]), _number(b, y, 1e-3))
        b.pool.append(_scaled(b, b("Div", centred, b("Sqrt", shifted)), [2]))


def rms_norm_parts(b: Builder) -> None:
    x = _rows(b)
    axes = _some_axes(b, x)
    v = _mean(b, _square(b, x), axes)
    a = _swapped(b, "Add", v, _number(b, v, b.choose([1e-3, 0.1])))
    y = _over_root(b, x, a)
    if b.chance(0.8):
        y = _swapped(b, "Mul", y, b.constant(b.array(b.shape(x)[axes[0] :], b.values[x].dtype)))
    b.pool += [y, *(n for n in (v, a) if b.chance(0.05))]


def group_norm(b: Builder) -> None:
    if b.opset < 21:  # deprecated
        raise Rejected
    x = b.image()
    channels = b.shape(x)[1]
    groups = b.choose([g for g in range(1, channels + 1) if channels % g == 0])
    constants = (b.constant(b.array([channels], b.values[x].dtype)) for _ in range(2))
    b.add("GroupNormalization", x, *constants, num_groups=groups, epsilon=b.choose([1e-3, 0.1]))


def softmax_parts(b: Builder) -> None:
    x = _rows(b)
    axis = b.rank(x) - 1 if b.chance(0.6) else int(b.rng.integers(b.rank(x)))
    m = _reduce(b, "ReduceMax", x, [axis])
    e = b("Exp", b("Sub", x, m) if b.chance(0.9) else x)
    t = _reduce(b, "ReduceSum", e, [axis])
    y = b("Div", e, t) if b.chance(0.7) else _swapped(b, "Mul", e, b("Reciprocal", t))
    b.pool += [y, *(n for n in (m, e, t) if b.chance(0.05))]


def gelu_forms(b: Builder) -> None:
    x = b.pick(lambda a: np.max(np.abs(a), initial=0) < _MODERATE)
    if b.chance(0.5):
        root = math.sqrt(2) if b.chance(0.9) else 1.5
        z = b("Div", x, _number(b, x, root)) if b.chance(0.4) else _swapped(b, "Mul", x, _number(b, x, 1 / root))
        gate = b("Erf", z)
    else:
        cube = b("Pow", x, _number(b, x, 3)) if b.chance(0.5) else b("Mul", b("Mul", x, x), x)
        inside = _swapped(b, "Add", x, _swapped(b, "Mul", cube, _number(b, x, 0.044715)))
        gate = b("Tanh", _swapped(b, "Mul", inside, _number(b, x, math.sqrt(2 / math.pi))))
    gate = _swapped(b, "Add", gate, _number(b, x, 1))
    half = _number(b, x, 0.5)
    where = b.rng.random()
    if where < 0.4:
        y = _swapped(b, "Mul", _swapped(b, "Mul", x, gate), half)
    else:
        left, right = (_swapped(b, "Mul", x, half), gate) if where < 0.7 else (x, _swapped(b, "Mul", gate, half))
        y = _swapped(b, "Mul", left, right)
    b.pool.append(y)


def sigmoid_parts(b: Builder) -> None:
    x = b.pick(lambda a: np.max(np.abs(a), initial=0) < 10)
    a = _swapped(b, "Add", b("Exp", b("Neg", x)), _number(b, x, 1))
    kind = b.rng.random()
    if kind < 0.3:
        b.add("Reciprocal", a)
    else:
        b.add("Div", x if kind < 0.7 else _number(b, x, 1), a)


MOVES = {
    layer_norm_parts: 4, residual_norm: 1, rms_norm_parts: 2, group_norm: 1, softmax_parts: 2, gelu_forms: 2,
    sigmoid_parts: 1,
}  # fmt: skip
