"""Moves that end in blocks of linear layers: products with biases, chains without activations, known branches."""

from __future__ import annotations

import numpy as np
from onnx import helper

from .builder import Builder, Rejected
from .moves_linear import conv_of


def _tokens(b: Builder) -> str:
    """Floats of at least three axes, the first of which may be free."""
    found = [n for n in b.pool if b.values[n].ndim >= 3 and b.values[n].size and b.values[n].dtype == np.float32]
    if found and b.chance(0.6):
        return str(b.choose(found))
    shape = [b.choose([2, 5, 7]), *b.choose([[3], [2, 3], [1]]), b.choose([4, 8])]
    if not b.symbols and shape[0] not in shape[1:] and b.chance(0.8):
        b.symbols[shape[0]] = "N"
    return b.input(np.asarray(b.rng.standard_normal(shape)).astype(np.float32))


def _layer(b: Builder, x: str, outs: int) -> str:
    """A product with a constant, mostly with a bias."""
    y = b("MatMul", x, b.constant(b.array([b.shape(x)[-1], outs], np.float32)))
    if b.chance(0.15):
        return y
    shape = b.choose([[outs], [outs], [outs], [1], [], [1, outs], [1, 1, outs], [b.shape(y)[-2], 1]])
    bias = b.constant(b.array(shape, np.float32))
    return b("Add", *([y, bias] if b.chance(0.6) else [bias, y]))


def _activated(b: Builder, x: str) -> str:
    kind = b.rng.random()

    def number(value: float) -> str:
        return b.constant(np.array(value, np.float32) if b.chance(0.8) else np.array([value], np.float32))

    if kind < 0.35:  # GELU with erf, in the orders that are seen
        e = b("Erf", b("Div", x, number(2**0.5)) if b.chance(0.6) else b("Mul", x, number(0.5**0.5)))
        gate = b("Add", e, number(1))
        if b.chance(0.5):
            return b("Mul", b("Mul", x, gate), number(0.5))
        return b("Mul", b("Mul", x, number(0.5)), gate) if b.chance(0.5) else b("Mul", x, b("Mul", gate, number(0.5)))
    if kind < 0.45:
        return b("Mul", x, b("Sigmoid", x))
    if kind < 0.9:
        return b(b.choose(["Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "Elu", "Softplus", "Gelu"]), x)
    return x


def mlp(b: Builder) -> None:
    """Products and activations behind one another, with a view in front, behind, or a shortcut."""
    x = y = _tokens(b)
    if b.chance(0.2):
        y = b("Reshape", y, b.ints([-1, b.shape(y)[-2], b.shape(y)[-1]]))
    for _ in range(b.choose([1, 2, 2, 3])):
        y = _activated(b, _layer(b, y, b.choose([4, 8, b.shape(x)[-1]])))
        if b.chance(0.05):
            b.pool.append(y)
    y = _layer(b, y, b.shape(x)[-1])
    b.pool.append(y)
    if b.chance(0.3):
        b.add("Reshape", y, b.ints([-1, *b.choose([[b.shape(y)[-1]], [2, b.shape(y)[-1] // 2]])]))
    elif b.chance(0.6) and b.shape(x) == b.shape(y):
        b.add("Add", y, x)
    else:
        b.add("Relu", y)


def flattened(b: Builder) -> None:
    """Axes moved, made one, and multiplied, as the networks of TensorFlow end."""
    x = b.pick(lambda a: a.ndim >= 3 and a.size > 0 and a.dtype in (np.float32, np.float64, np.float16))
    rest = [int(i) for i in b.rng.permutation(np.arange(1, b.rank(x)))]
    y = b("Transpose", x, perm=[0, *rest] if b.chance(0.9) else [*rest, 0])
    if b.chance(0.1):
        b.pool.append(y)
    count = int(np.prod(b.shape(y)[1:]))
    y = (
        b("Flatten", y)
        if b.chance(0.5)
        else b("Reshape", y, b.ints(b.choose([[0, -1], [-1, count], [b.shape(y)[0], -1]])))
    )
    outs, dtype = b.choose([1, 4]), b.values[x].dtype
    trans = int(b.chance(0.4))
    weight = b.constant(b.array([outs, count] if trans else [count, outs], dtype))
    if trans or b.chance(0.5):
        b.add("Gemm", y, weight, b.constant(b.array([outs], dtype)), transB=trans)
    else:
        b.add("MatMul", y, weight)


def picked_rows(b: Builder) -> None:
    """A product of the rows of what was reshaped, seen in another shape again, of which a part is taken."""
    shape = b.choose([[2, 3, 8], [1, 6, 4], [2, 2, 3, 4]])
    x = b.input(np.asarray(b.rng.standard_normal(shape)).astype(np.float32))
    if b.chance(0.5):
        x = b("Relu", x)
    total = int(np.prod(shape))
    width, outs = b.choose([shape[-1], shape[-1], 2 * shape[-1], shape[-1] // 2]), b.choose([2, 4])
    rows = b("Gemm", b("Reshape", x, b.ints([-1, width])), b.constant(b.array([width, outs], np.float32)))
    made = total // width * outs
    lead = [*shape[:-1], made // (total // shape[-1])] if made % (total // shape[-1]) == 0 else [made // outs, 1, outs]
    y = b("Reshape", rows, b.ints([int(d) for d in lead]))
    b.add("Gather", y, b.constant(np.array(0, np.int64)), axis=b.choose([0, 1, len(lead) - 1]))


def products(b: Builder) -> None:
    """Linear layers with nothing between."""
    y = b.pick(lambda a: a.ndim >= 2)
    for _ in range(b.choose([2, 2, 3])):
        outs = b.choose([1, 4, 8, b.shape(y)[-1]])
        weight = b.array([b.shape(y)[-1], outs], b.values[y].dtype)
        if b.rank(y) == 2 and b.chance(0.5):
            trans = int(b.chance(0.4))
            bias = [b.constant(b.array(b.choose([[outs], [1, outs], [1], []]), b.values[y].dtype))]
            attrs = {k: float(b.choose([0.5, 2, -1])) for k in ("alpha", "beta") if b.chance(0.2)}
            given = bias if b.chance(0.7) or b.opset < 11 else []
            y = b("Gemm", y, b.constant(weight.T.copy() if trans else weight), *given, transB=trans, **attrs)
            continue
        y = b("MatMul", y, b.constant(weight))
        if b.chance(0.6):
            y = b("Add", y, b.constant(b.array(b.choose([[outs], [1], [1, outs]]), b.values[y].dtype)))
    b.pool.append(y)


def convs(b: Builder) -> None:
    """Convolutions with nothing between, mostly 1x1 ones."""
    y = b.image()
    n = b.rank(y) - 2
    for _ in range(b.choose([2, 2, 3])):
        kernel = [1] * n if b.chance(0.6) else [b.choose([1, 2, 3]) for _ in range(n)]
        pads = [k // 2 for k in kernel] * 2 if b.chance(0.5) else [0] * 2 * n
        if any(
            k > size + pads[i] + pads[i + n] for i, (k, size) in enumerate(zip(kernel, b.shape(y)[2:], strict=True))
        ):
            raise Rejected
        attrs = {"strides": [b.choose([1, 2])] * n} if b.chance(0.15) else {}
        y = conv_of(b, y, outs=b.choose([None, 4, 8, b.shape(y)[1]]), kernel_shape=kernel, pads=pads, **attrs)


def heads(b: Builder) -> None:
    """Convolutions of one value, with what stands behind the heads of detectors."""
    x = b.image()
    n = b.rank(x) - 2
    kernel = [1] * n if b.chance(0.5) else [3] * n
    attrs = {"kernel_shape": kernel, "pads": [k // 2 for k in kernel] * 2}
    made = [conv_of(b, x, outs=b.choose([1, 2, 4, 9]), group=1, **attrs) for _ in range(b.choose([2, 2, 3]))]
    for y in made:
        kind = b.rng.random()
        if kind < 0.4:
            b.add("Transpose", y, perm=[0, *range(2, n + 2), 1])
        elif kind < 0.7:
            b.add(b.choose(["Exp", "Neg", "Sigmoid", "Relu"]), y)
        elif kind < 0.9:
            b.add("Softmax", y, axis=1)


def known_branch(b: Builder) -> None:
    """An If whose condition is a constant, with one value captured, and a constant of the same name in both."""
    if b.ir_version < 4:
        raise Rejected  # there an initializer is an input, which a branch may not have
    x = b.pick(lambda a: a.dtype.kind == "f")
    dtype = helper.np_dtype_to_tensor_dtype(b.values[x].dtype)
    weight = b.array([], b.values[x].dtype)
    names = [b.fresh("w"), b.fresh("r"), b.fresh("v")]
    bodies = {}
    for name, op in (("then_branch", "Mul"), ("else_branch", "Add")):
        nodes = [
            helper.make_node(op, [x, names[0]], [names[1]]),
            helper.make_node(b.choose(["Relu", "Neg", "Sigmoid"]), [names[1]], [names[2]]),
        ]
        stored = helper.make_tensor(names[0], dtype, [], weight.reshape(-1).tolist())
        info = helper.make_tensor_value_info(names[2], dtype, None)
        bodies[name] = helper.make_graph(nodes, name, [], [info], [stored])
    flag = b.constant(np.array(b.chance(0.5)))
    b.many("If", flag, captured=[x], keep=True, **bodies)


MOVES = {mlp: 4, flattened: 1, picked_rows: 1, products: 2, convs: 3, heads: 1, known_branch: 1}
