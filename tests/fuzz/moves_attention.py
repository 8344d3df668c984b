"""Moves that end in attention in its parts, or nearly, in products between Transposes of rows, in rotary embeddings."""

from __future__ import annotations

import numpy as np

from .builder import Builder, Rejected
from .moves_elementwise import odd_shape


def _linear(b: Builder, x: str, width: int) -> str:
    """A product with constants, mostly with a bias."""
    y = b("MatMul", x, b.constant(b.array([b.shape(x)[-1], width], b.values[x].dtype)))
    if b.chance(0.3):
        return y
    bias = b.constant(b.array(b.choose([[width], [width], [width], [1], [1, width]]), b.values[x].dtype))
    return b("Add", *([y, bias] if b.chance(0.6) else [bias, y]))


def _parts(b: Builder, y: str, count: int) -> list[str]:
    """Equal parts of the last axis."""
    width, axis = b.shape(y)[-1] // count, b.choose([-1, b.rank(y) - 1])
    if b.opset >= 13:
        return b.many("Split", y, b.ints([width] * count), outputs=count, axis=axis)
    return b.many("Split", y, outputs=count, axis=axis, split=[width] * count)


def _queries_keys_values(b: Builder, x: str, heads: int, size: int) -> list[str]:
    """Three values [first, second, heads, size] of x [first, second, channels]."""
    first, second, _ = b.shape(x)
    apart = [b.choose([0, first]), second, heads, size]
    if b.chance(0.4):
        parts = [_linear(b, x, heads * size) for _ in range(3)]
    else:
        y = _linear(b, x, 3 * heads * size)
        if b.chance(0.5):
            parts = _parts(b, y, 3)
        else:
            axis = b.choose([2, 2, 3])
            five = b("Reshape", y, b.ints([*apart[:2], *([3, heads, size] if axis == 2 else [heads, 3, size])]))
            order = b.choose([[0, 1, 2], [0, 1, 2], [2, 1, 0]])
            return [b("Gather", five, b.constant(np.array(i, np.int64)), axis=axis) for i in order]
    return [b("Reshape", p, b.ints(apart)) for p in parts]


def _times(b: Builder, x: str) -> str:
    if b.chance(0.6):
        return x
    number = np.full(b.choose([[], [1]]), b.choose([0.5, 0.5, 0.5, 2, 1, -1, 0]), b.values[x].dtype)
    op = "Mul" if b.chance(0.7) or not number.any() else "Div"
    c = b.constant(number)
    return b(op, *([c, x] if op == "Mul" and b.chance(0.3) else [x, c]))


def attention(b: Builder) -> None:
    """Scaled dot-product attention over x [batch, tokens, channels], or [tokens, batch, channels]."""
    x = b.pick(lambda a: a.ndim == 3 and a.size > 0)
    heads, size = b.choose([1, 2, 3]), b.choose([1, 2, 2, 4])
    tokens = 0 if b.chance(0.3) else 1
    other = b("Relu", x) if b.chance(0.1) else x
    q, k, v = _queries_keys_values(b, x, heads, size)
    if other is not x:
        _, k, v = _queries_keys_values(b, other, heads, size)
    perm = [1 - tokens, 2, tokens, 3]
    qh, vh = b("Transpose", q, perm=perm), b("Transpose", v, perm=perm)
    if b.chance(0.5):
        kh = b("Transpose", k, perm=[perm[0], 2, 3, tokens])
    else:
        kh = b("Transpose", b("Transpose", k, perm=perm), perm=[0, 1, 3, 2])
    flat = b.chance(0.2)
    batch, steps = b.shape(qh)[0], b.shape(qh)[2]
    if flat:  # one axis of batch and heads
        qh, vh = (b("Reshape", t, b.ints([batch * heads, steps, size])) for t in (qh, vh))
        kh = b("Reshape", kh, b.ints([batch * heads, size, steps]))
    scores = _times(b, b("MatMul", _times(b, qh), _times(b, kh)))
    if b.chance(0.4):
        shape = b.shape(scores) if b.chance(0.5) else odd_shape(b, b.shape(scores))
        shape = [1 if i < len(shape) - 2 and b.chance(0.5) else d for i, d in enumerate(shape)]
        mask = b.array(shape, b.values[scores].dtype)
        low = b.choose([0, -np.inf, -1e4, np.finfo(mask.dtype).min])
        mask = np.where(b.rng.random(mask.shape) < 0.2, mask.dtype.type(low), mask)
        m = b.constant(mask) if b.chance(0.6) else b.input(mask)
        scores = b("Add", *([scores, m] if b.chance(0.6) else [m, scores]))
    rank = b.rank(scores)
    axis = b.choose([-1, rank - 1, rank - 1, 1 if b.chance(0.3) else -1])
    y = b("MatMul", b("Softmax", scores, axis=axis), _times(b, vh) if b.chance(0.1) else vh)
    if flat:
        y = b("Reshape", y, b.ints([batch, heads, steps, size]))
    first = b.choose([True, True, False]) if tokens else b.chance(0.2)
    y = b("Transpose", y, perm=[0, 2, 1, 3] if first else [2, 0, 1, 3])
    wanted = [batch, steps] if first else [steps, batch]
    b.add("Reshape", y, b.ints([-1, heads * size] if b.chance(0.3) else [*wanted, heads * size]))


def product_of_rows(b: Builder) -> None:
    """A product with constants between Transposes that move rows, mostly back."""
    x = b.pick(lambda a: a.ndim == 3 and a.size > 0)
    perm = [1, 0, 2] if b.chance(0.8) else [int(p) for p in b.rng.permutation(3)]
    y, width = b("Transpose", x, perm=perm), b.choose([1, 2, 4])
    if b.opset >= 11 and b.chance(0.5):
        shape = b.shape(y)
        rows = b("Reshape", y, b.ints([-1, shape[2]]))
        weight = b.array([shape[2], width], b.values[x].dtype)
        turned = b.chance(0.4)
        inputs = [rows, b.constant(weight.T.copy() if turned else weight)]
        if b.chance(0.7):
            inputs.append(
                b.constant(b.array(b.choose([[width], [1], [1, width], [b.shape(rows)[0], 1]]), weight.dtype))
            )
        g = b("Gemm", *inputs, transB=int(turned))
        y = b("Reshape", g, b.ints([*shape[:2], width]))
    else:
        y = _linear(b, y, width)
    if b.rank(y) != len(perm):
        raise Rejected
    b.add("Transpose", y, perm=[int(p) for p in np.argsort(perm)])


def rotary(b: Builder) -> None:
    """A rotary embedding in its parts over [batch, heads, steps, size], or what is nearly one."""
    x = b.pick(lambda a: a.ndim == 4 and a.size > 0 and a.shape[3] % 2 == 0)
    _, _, steps, size = b.shape(x)
    angles = np.asarray(b.rng.uniform(-3, 3, (*[1] * b.choose([0, 1, 2]), steps, size // 2)), b.values[x].dtype)
    f = b.constant(angles) if b.chance(0.4) else b.input(angles, keep=False)
    c = b("Concat", f, f if b.chance(0.85) else b("Neg", f), axis=-1 if b.opset >= 11 else angles.ndim - 1)
    first, second = _parts(b, x, 2)
    halves = [b("Neg", second), first] if b.chance(0.85) else [first, b("Neg", second)]
    turned = b("Concat", *halves, axis=3)
    pairs = [(x, b("Cos", c)), (turned, b("Sin", c))]
    left, right = (b("Mul", *(pair if b.chance(0.6) else pair[::-1])) for pair in pairs)
    b.add("Add", *([left, right] if b.chance(0.6) else [right, left]))


MOVES = {attention: 2, product_of_rows: 1, rotary: 1}
