"""Moves that rearrange elements: transposes, views, parts, concatenations, shape arithmetic, and bodies of If."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .builder import Builder, Rejected
from .moves_elementwise import affine_of, unary_of

_TYPES = {np.dtype(np.float32): 1, np.dtype(np.float16): 10, np.dtype(np.float64): 11}


def _any(b: Builder, least: int = 0) -> str:
    return b.pick_any(lambda a: a.ndim >= least and a.dtype.kind in "fi")


def transpose(b: Builder) -> None:
    """Transposes, with elementwise work between one and its opposite."""
    x = b.pick(lambda a: a.ndim >= 1)
    perm = [int(p) for p in b.rng.permutation(b.rank(x))]
    if b.chance(0.5) and b.rank(x) == 4:
        perm = b.choose([[0, 2, 3, 1], [0, 3, 1, 2], [0, 1, 3, 2]])
    attrs = {} if perm == sorted(perm)[::-1] and b.chance(0.5) else {"perm": perm}
    y = b.add("Transpose", x, **attrs)
    if b.chance(0.4):
        return
    for _ in range(b.choose([0, 0, 1, 2])):
        y = affine_of(b, y) if b.chance(0.5) else unary_of(b, y)
    if b.rank(y) != len(perm):
        return
    if b.chance(0.2):
        z = b.pick(lambda a: a.shape == b.shape(x) and a.dtype == b.values[y].dtype)
        y = b.add("Add", y, b("Transpose", z, perm=perm))
    back = [int(p) for p in np.argsort(perm)] if b.chance(0.8) else [int(p) for p in b.rng.permutation(len(perm))]
    b.add("Transpose", y, perm=back)


def _split_dim(b: Builder, n: int) -> list[int]:
    return list(b.choose([(k, n // k) for k in range(1, n + 1) if n % k == 0])) if n else [n, 1]


def reshaped(b: Builder, x: str) -> list[int]:
    """Another shape of as many elements."""
    shape = list(b.shape(x))
    for _ in range(b.choose([1, 1, 2])):
        kind = b.rng.random()
        if kind < 0.4 and len(shape) > 1:
            i = int(b.rng.integers(len(shape) - 1))
            shape[i : i + 2] = [shape[i] * shape[i + 1]]
        elif kind < 0.7 and shape and len(shape) < 5:
            i = int(b.rng.integers(len(shape)))
            shape[i : i + 1] = _split_dim(b, shape[i])
        elif len(shape) < 5:
            shape.insert(int(b.rng.integers(len(shape) + 1)), 1)
    return shape


def reshape(b: Builder) -> None:
    x = _any(b)
    shape, wanted = b.shape(x), reshaped(b, x)
    target = list(wanted)
    if b.chance(0.5):
        target = [0 if i < len(shape) and d == shape[i] and b.chance(0.7) else d for i, d in enumerate(target)]
    if target and b.chance(0.5):
        target[int(b.rng.integers(len(target)))] = -1
    if b.chance(0.3):
        b.add("Reshape", x, _computed_target(b, x, target))
        return
    attrs = {"allowzero": 1} if b.opset >= 14 and b.chance(0.06) else {}
    b.add("Reshape", x, b.ints(target), **attrs)


def _size(b: Builder, x: str, axis: int) -> str:
    """One dimension of a value as a list of one."""
    if b.opset >= 15 and b.chance(0.4):
        return b("Shape", x, start=axis, end=axis + 1)
    shape = b("Shape", x)
    kind = b.rng.random()
    if kind < 0.4:
        return b("Gather", shape, b.ints([axis]))
    if kind < 0.7:
        one = b("Gather", shape, b.constant(np.array(axis, np.int64), plain=True))
        return b("Unsqueeze", one, b.ints([0])) if b.opset >= 13 else b("Unsqueeze", one, axes=[0])
    if b.opset >= 10:
        return b("Slice", shape, b.ints([axis]), b.ints([axis + 1]), b.ints([0]))
    return b("Slice", shape, starts=[axis], ends=[axis + 1], axes=[0])


def _computed_target(b: Builder, x: str, target: list[int]) -> str:
    """The target of a Reshape or Expand by shape arithmetic."""
    shape = b.shape(x)
    parts = []
    for i, d in enumerate(target):
        if d in shape and b.chance(0.7) and d > 1:
            parts.append(_size(b, x, shape.index(d)))
        elif i < len(shape) and d == 0 and b.chance(0.7):
            parts.append(_size(b, x, i))
        elif d > 1 and b.chance(0.2) and d in [a * c for a in shape for c in shape]:
            a, c = next((i, j) for i in range(len(shape)) for j in range(len(shape)) if shape[i] * shape[j] == d)
            parts.append(b("Mul", _size(b, x, a), _size(b, x, c)))
        else:
            parts.append(b.ints([d]))
    if not parts:
        raise Rejected
    return b("Concat", *parts, axis=0)


def view(b: Builder) -> None:
    """Flatten, Squeeze or Unsqueeze."""
    x = _any(b)
    kind = b.rng.random()
    rank = b.rank(x)
    if kind < 0.3:
        b.add("Flatten", x, axis=int(b.rng.integers(0, rank + 1)))
        return
    if kind < 0.65:
        ones = [i for i, d in enumerate(b.shape(x)) if d == 1]
        if not ones:
            raise Rejected
        axes = [b.choose(ones)] if b.chance(0.7) else ones
        if b.chance(0.1):
            b.add("Squeeze", x)
            return
        op = "Squeeze"
    else:
        axes, op = [int(b.rng.integers(0, rank + 1))], "Unsqueeze"
    if b.opset >= 13:
        b.add(op, x, b.ints(axes))
    else:
        b.add(op, x, axes=axes)


def widen(b: Builder) -> None:
    """Expand, Tile or Pad, often by nothing."""
    x = b.pick(lambda a: a.ndim >= 1)
    shape, rank = b.shape(x), b.rank(x)
    kind = b.rng.random()
    if kind < 0.4:
        target = [d if d > 1 or b.chance(0.5) else b.choose([1, 2, 3]) for d in shape]
        target = [1 if b.chance(0.4) else d for d in target]
        target = [b.choose([1, 2]), *target] if b.chance(0.2) else target
        b.add("Expand", x, _computed_target(b, x, target) if b.chance(0.3) else b.ints(target))
    elif kind < 0.6:
        b.add("Tile", x, b.ints([b.choose([1, 1, 1, 2]) for _ in range(rank)]))
    else:
        pads = [0] * 2 * rank
        if b.chance(0.6):
            pads[int(b.rng.integers(2 * rank))] = b.choose([1, 2, -1])
        if b.chance(0.2):
            pads[rank - 1], pads[-1] = 1, -1
        attrs = {"mode": b.choose(["constant", "edge", "reflect"])} if b.chance(0.3) else {}
        if b.opset >= 11:
            value = [b.constant(np.array(b.choose([0, 1.5]), b.values[x].dtype))] if b.chance(0.4) else []
            b.add("Pad", x, b.ints(pads), *value, **attrs)
        else:
            b.add("Pad", x, pads=pads, **attrs)


def slice_of(b: Builder, x: str) -> str:
    """A Slice along some axes, full ranges and empty ones included."""
    rank = b.rank(x)
    axes = sorted({int(b.rng.integers(rank)) for _ in range(b.choose([1, 1, 2]))})
    starts, ends, steps = [], [], []
    for axis in axes:
        n = b.shape(x)[axis]
        start = int(b.choose([0, 0, 0, 1, -1, -2, n // 2]))
        starts.append(start)
        ends.append(int(b.choose([n, 2**63 - 1, 2**31 - 1, 1, start + 1, start + 2, -1, n + 5])))
        steps.append(int(b.choose([1, 1, 1, 1, 2, 3])))
    if b.chance(0.05):
        starts[0], ends[0], steps[0] = -1, -(2**62), -1
    named = [a - rank if b.chance(0.3) else a for a in axes]
    if b.opset < 10:
        return b.add("Slice", x, starts=starts, ends=ends, axes=named)
    inputs = [x, b.ints(starts), b.ints(ends), b.ints(named)]
    if any(s != 1 for s in steps) or b.chance(0.3):
        inputs.append(b.ints(steps))
    elif named == list(range(len(named))) and b.chance(0.3):
        del inputs[3]
    return b.add("Slice", *inputs)


def gather_of(b: Builder, x: str) -> str:
    """A Gather with one or several indices."""
    axis = int(b.rng.integers(b.rank(x)))
    n = b.shape(x)[axis]
    if not n:
        raise Rejected
    low = -n if b.opset >= 11 else 0
    index = b.rng.integers(low, n, b.choose([[], [], [1], [2], [3], [2, 2]])).astype(np.int64)
    if b.chance(0.2):
        index = index.astype(np.int32)
    named = axis - b.rank(x) if b.chance(0.2) else axis
    return b.add("Gather", x, b.constant(index), axis=named)


def part(b: Builder) -> None:
    x = _any(b, 1)
    y = slice_of(b, x) if b.chance(0.6) else gather_of(b, x)
    if b.chance(0.4) and b.rank(y):
        slice_of(b, y)
    if b.chance(0.15):
        node = b.nodes[-1]
        b.add(node.op_type, *node.input, **{a.name: helper.get_attribute_value(a) for a in node.attribute})


def split(b: Builder) -> None:
    """Split, and perhaps Concat of the pieces again."""
    x = b.pick(lambda a: a.ndim >= 1 and max(a.shape) > 1)
    axis = b.choose([i for i, d in enumerate(b.shape(x)) if d > 1])
    n = b.shape(x)[axis]
    cut = int(b.rng.integers(1, n))
    sizes = [cut, n - cut] if b.chance(0.6) or n % 2 else [n // 2, n // 2]
    named = axis - b.rank(x) if b.chance(0.2) else axis
    if b.opset >= 13:
        pieces = b.many("Split", x, b.ints(sizes), outputs=2, keep=True, axis=named)
    else:
        pieces = b.many("Split", x, outputs=2, keep=True, axis=named, split=sizes)
    if b.chance(0.6):
        if b.chance(0.4):
            pieces[0] = unary_of(b, pieces[0])
        if b.chance(0.2):
            pieces = pieces[::-1]
        more = [x] if b.chance(0.3) else []
        b.add("Concat", *pieces, *more, axis=axis if b.chance(0.8) else axis - b.rank(x))


def concat(b: Builder) -> None:
    x = b.pick(lambda a: a.ndim >= 1)
    axis = 1 if b.rank(x) > 1 and b.chance(0.6) else int(b.rng.integers(b.rank(x)))
    shape, dtype = b.shape(x), b.values[x].dtype

    def fits(a: np.ndarray) -> bool:
        same = a.dtype == dtype and a.ndim == len(shape)
        return same and all(p == q or i == axis for i, (p, q) in enumerate(zip(a.shape, shape, strict=True)))

    parts = [x, *(b.pick(fits) for _ in range(b.choose([0, 1, 1, 1, 2])))]
    if b.chance(0.3):
        size = list(shape)
        size[axis] = b.choose([0, 1, 2])
        parts.append(b.constant(b.array(size, dtype)))
    b.add("Concat", *(parts[i] for i in b.rng.permutation(len(parts))), axis=axis)


def shuffle(b: Builder) -> None:
    """A channel shuffle and parts of it."""
    x = b.pick(lambda a: a.ndim >= 2 and a.size > 0 and a.shape[1] > 1)
    shape = list(b.shape(x))
    axis = 1 if b.chance(0.8) else int(b.rng.integers(b.rank(x)))
    groups, each = _split_dim(b, shape[axis])
    first = b("Reshape", x, b.ints([*shape[:axis], groups, each, *shape[axis + 1 :]]))
    perm = list(range(len(shape) + 1))
    perm[axis], perm[axis + 1] = axis + 1, axis
    turned = b("Transpose", first, perm=perm)
    y = b.add("Reshape", turned, b.ints(shape))
    if b.chance(0.8) and shape[axis] > 1:
        cut = int(b.rng.integers(1, shape[axis]))
        if b.opset >= 13:
            b.many("Split", y, b.ints([cut, shape[axis] - cut]), outputs=2, keep=True, axis=axis)
        else:
            b.many("Split", y, outputs=2, keep=True, axis=axis, split=[cut, shape[axis] - cut])
    else:
        slice_of(b, y)


def copy(b: Builder) -> None:
    """An operator that changes nothing, or nearly nothing."""
    x = _any(b)
    kind = b.choose(["Identity", "Dropout", "Cast", "Cast2", "Concat", "Sum"])
    if kind == "Cast2" and b.values[x].dtype.kind == "f":
        middle = b("Cast", x, to=b.choose([1, 11, 10] if b.values[x].dtype == np.float16 else [1, 11]))
        b.add("Cast", middle, to=_TYPES[b.values[x].dtype])
    elif kind == "Cast":
        b.add("Cast", x, to=helper.np_dtype_to_tensor_dtype(b.values[x].dtype))
    elif kind == "Concat" and b.rank(x):
        b.add("Concat", x, axis=0)
    elif kind == "Sum" and b.values[x].dtype.kind == "f":
        b.add(b.choose(["Sum", "Max", "Min", "Mean"]), x)
    elif kind == "Dropout" and b.values[x].dtype.kind == "f":
        b.add("Dropout", x)
    else:
        b.add("Identity", x)


def resize(b: Builder) -> None:
    x = b.image()
    if b.opset < 11:
        raise Rejected
    scales = b.constant(np.array([1, 1, *[b.choose([1, 2]) for _ in range(b.rank(x) - 2)]], np.float32), plain=True)
    roi = "" if b.opset >= 13 else b.constant(np.zeros(0, np.float32), plain=True)
    b.add("Resize", x, roi, scales, mode=b.choose(["nearest", "linear"]))


def again(b: Builder) -> None:
    """A node once more, with the same inputs, or with constants that are equal."""
    node = b.choose(b.nodes) if b.nodes else None
    if node is None or node.op_type in ("Constant", "If"):
        raise Rejected
    inputs = [
        b.constant(b.constants[n]) if n in b.constants and b.chance(0.4) and b.constants[n].size < 65 else n
        for n in node.input
    ]
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    b.many(node.op_type, *inputs, outputs=len(node.output), keep=True, **attrs)


def branch(b: Builder) -> None:
    """An If whose bodies read values from outside, with constants and rules' patterns inside."""
    x = b.pick(lambda a: a.size < 2000)
    array = b.values[x]
    condition = b.input(np.array(b.chance(0.5)), keep=False) if b.chance(0.7) else b.constant(np.array(True))
    bodies: dict[str, onnx.GraphProto] = {}
    captured = {condition, x}
    for name in ("then_branch", "else_branch"):
        nodes, last, constants = [], x, []
        for i in range(b.choose([1, 2, 3])):
            made = b.fresh(f"{name[:4]}")
            op = b.choose(["Relu", "Neg", "Mul", "Add", "Identity", "Sigmoid", "Outer", "Tail"])
            inputs = [last]
            if op == "Outer":
                others = [n for n in b.pool if b.values[n].shape == array.shape and b.values[n].dtype == array.dtype]
                inputs.append(b.choose(others))
                captured.add(inputs[-1])
                op = "Add"
            elif op == "Tail" and b.nodes:
                op = "Identity"
            elif op in ("Mul", "Add"):
                inputs.append(b.fresh("k"))
                value = numpy_helper.from_array(b.array([], array.dtype), inputs[-1])
                if b.ir_version < 4 or b.chance(0.5):
                    nodes.append(helper.make_node("Constant", [], [inputs[-1]], value=value))
                else:
                    constants.append(value)
            nodes.append(helper.make_node(op, inputs, [made], name=f"{op}_{i}_{made}"))
            last = made
        output = helper.make_tensor_value_info(last, helper.np_dtype_to_tensor_dtype(array.dtype), None)
        bodies[name] = helper.make_graph(nodes, name, [], [output], constants)
    attrs: dict[str, Any] = dict(bodies)
    b.many("If", condition, captured=sorted(captured - {condition}), keep=True, **attrs)


def of_shape(b: Builder) -> None:
    """Integers computed of a shape, as a value of their own."""
    x = _any(b, 1)
    axis = int(b.rng.integers(b.rank(x)))
    n = _size(b, x, axis)
    kind = b.rng.random()
    if kind < 0.4:
        y = b("Mul", n, b.ints([2]))
    elif kind < 0.7:
        y = b("Concat", n, b.ints([1]), axis=0)
    else:
        y = b("Cast", n, to=TensorProto.FLOAT)
        if b.values[x].dtype == np.float32:
            b.add("Mul", x, y)
        return
    if b.chance(0.5) and b.values[y].size < 3 and b.values[y].prod() < 100:
        fill = b("ConstantOfShape", y, value=numpy_helper.from_array(np.array([1], b.dtype), "f"))
        b.pool.append(fill)
    else:
        b.pool.append(y)


MOVES = {
    transpose: 6, reshape: 4, view: 4, widen: 4, part: 5, split: 3, concat: 4, shuffle: 2, copy: 3, resize: 1, again: 3,
    branch: 2, of_shape: 1,
}  # fmt: skip
