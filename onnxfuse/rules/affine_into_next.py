"""A constant scale and shift in front of convolutions and matrix products go into their weights.

w∗(s·x + t) + b = (w·s)∗x + (b + Σ w·t), the sum over the input channels and the taps. A scale goes in always: zeros
that a convolution pads stay zeros. A shift goes in where nothing is padded (a padded zero is not shifted with the
rest); else s·x + t = s·(x + t/s), and only the addition stays. Every reader of the value must take it, directly or
behind what moves or averages elements; a scale also passes a product with another value, Relu (s > 0) and Concat (with
1 for the other channels). Measured on onnxruntime 1.32, one thread of AVX2, with the constants behind convolutions:
PP-OCRv4 detection 1.37x, recognition 1.5x. A shift above 1000 stays, as x − t is exact where x is near t. NaN and
infinities give what they gave; an overflow may vanish or appear where values are near the largest number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, check_size, is_op
from onnxfuse.rules._affine import (
    AFFINE,
    LONGEST,
    Affine,
    chain,
    check_near,
    dtype_of,
    ends_composite,
    read,
    rounded,
    spread,
    summed,
)
from onnxfuse.rules._affine_along import MOVERS, moved
from onnxfuse.rules._window import unpadded

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 2
ROOTS = AFFINE
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,3,3] x) => (float[1,1,2,2] y)
<float s = {2}, float t = {3}, float[1,1,2,2] w = {1, 2, 3, 4}, float[1] b = {1}>
{ m = Mul(x, s)  a = Add(t, m)  y = Conv(a, w, b) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,1,3,3] x) => (float[1,1,2,2] y) <float[1,1,2,2] w = {2, 4, 6, 8}, float[1] b = {31}> { y = Conv(x, w, b) }
"""
_MOST_READERS = 8


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    found = chain(node, scope)
    if found is None:
        return None
    readers = scope.editor.consumers(node.outputs[0])
    if len(readers) == 1 and is_op(readers[0], *AFFINE) and read(readers[0], scope) is not None:
        return None  # the last of them takes all
    x, affine, nodes = found
    try:
        return _Push(node, scope).run(node.outputs[0], x, affine)
    except NotLegal:
        if len(nodes) < 2 or not affine.scales or not affine.shifts or not np.all(affine.scale):
            raise
    push = _Push(node, scope)
    only = Affine(affine.scale, np.zeros(()), affine.axis)
    shift = push.build.constant(spread(affine.shift / affine.scale, affine, x, scope))
    return push.run(node.outputs[0], push.build("Add", x, shift), only)


class _Push:
    """One operation on its way to all readers of its value."""

    def __init__(self, node: gs.Node, scope: Scope) -> None:
        self.scope, self.build, self.owner = scope, Build(scope, node), scope.editor.owner(node)
        self.seen: set[int] = set()

    def run(self, old: gs.Tensor, new: gs.Tensor, affine: Affine) -> Rewrite:
        """All readers of `old` = affine(`new`) read `new` instead. Raises NotLegal."""
        self._visit(old, new, affine)
        return self.build.rewrite()

    def _visit(self, old: gs.Tensor, new: gs.Tensor, affine: Affine) -> None:
        editor = self.scope.editor
        if editor.is_output(old) or old.name in self.scope.pinned:
            raise NotLegal(f"'{old.name}' is seen from outside")
        if not 0 < editor.use_count(old) <= _MOST_READERS or len(self.seen) > _MOST_READERS * LONGEST:
            raise NotLegal(f"'{old.name}' has too many readers")
        for reader, index in sorted(editor.uses(old), key=lambda use: use[0].op not in ("Conv", "Gemm", "MatMul")):
            if id(reader) in self.seen or editor.owner(reader) is not self.owner or not is_op(reader, reader.op):
                raise NotLegal(f"{reader.op} reads the value twice or in a body")
            self.seen.add(id(reader))
            self._take(reader, index, new, affine)

    def _take(self, node: gs.Node, index: int, new: gs.Tensor, affine: Affine) -> None:
        """A reader with the operation in its constants, or in front of its own readers."""
        if index == 0 and node.op in ("Conv", "ConvTranspose"):
            self._conv(node, new, affine)
        elif index == 0 and node.op in ("Gemm", "MatMul"):
            self._matmul(node, new, affine)
        elif index == 0 and node.op in MOVERS:
            after = moved(node, affine, self.scope, up=False)
            self._pass(node, [new, *node.inputs[1:]], after)
        elif node.op == "Mul" or (node.op == "Div" and index == 0):
            other, out = (self.scope.value(t).shape for t in (node.inputs[1 - index], node.outputs[0]))
            rank = self.scope.value(node.inputs[index]).shape
            if affine.shifts or other is None or out is None or rank is None:
                raise NotLegal(f"{node.op} does not let a shift through")
            if ends_composite(node.outputs[0], self.scope):
                raise NotLegal("a runtime may know the product as the end of a GELU or normalization")
            after = affine if affine.axis is None else affine.at(affine.axis + len(out) - len(rank))
            self._pass(node, [new if i == index else t for i, t in enumerate(node.inputs)], after)
        elif node.op == "Concat":
            self._pass(
                node, [new if i == index else t for i, t in enumerate(node.inputs)], self._beside(node, index, affine)
            )
        else:
            raise NotLegal(f"{node.op} reads the value and cannot take the constants")

    def _pass(self, node: gs.Node, inputs: list[gs.Tensor], after: Affine) -> None:
        self._visit(node.outputs[0], self.build(node.op, *inputs, **node.attrs), after)

    def _beside(self, concat: gs.Node, index: int, affine: Affine) -> Affine:
        """The operation on a part of a concatenation, as one on all of it."""
        shapes = [self.scope.value(t).shape for t in concat.inputs]
        if any(s is None for s in shapes):
            raise NotLegal("the rank is unknown")
        axis = int(concat.attrs["axis"]) % len(shapes[0] or ())
        sizes = [n for s in shapes if s is not None and isinstance(n := s[axis], int)]
        if affine.axis not in (None, axis) or len(sizes) < len(shapes):
            raise NotLegal("the parts are not put together along the channels")
        check_size(sum(sizes))
        scale, shift = affine.along(axis, sizes[index])
        parts = [(scale, shift) if i == index else (np.ones(n), np.zeros(n)) for i, n in enumerate(sizes)]
        return Affine(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]), axis)

    def _conv(self, conv: gs.Node, new: gs.Tensor, affine: Affine) -> None:
        dtype = dtype_of(conv.inputs[1], self.scope)
        if affine.shifts and (conv.op == "ConvTranspose" or not unpadded(conv)):
            raise NotLegal("a shift does not go through padding")
        check_near(affine.shift)
        has_bias = len(conv.inputs) > 2 and bool(conv.inputs[2].name)
        weight = self.scope.constant(conv.inputs[1])
        bias = self.scope.constant(conv.inputs[2]) if has_bias and affine.shifts else np.zeros(())
        if weight is None or bias is None:
            raise NotLegal("a weight of the convolution is not constant")
        weight, ones, group = weight.astype(np.float64), [1] * (weight.ndim - 2), int(conv.attrs.get("group", 1))
        if conv.op == "ConvTranspose":
            scale, _ = affine.along(1, weight.shape[0])
            scaled = weight * scale.reshape(-1, 1, *ones)
        else:  # weights are [M, C/group, …], and the outputs of group g read the channels from g·C/group on
            scale, shift = affine.along(1, weight.shape[1] * group)
            parts = weight.reshape(group, -1, *weight.shape[1:])
            scaled = (parts * scale.reshape(group, 1, -1, *ones)).reshape(weight.shape)
            taps = (parts * shift.reshape(group, 1, -1, *ones)).reshape(weight.shape)
            bias = summed(bias, taps.reshape(weight.shape[0], -1).sum(1))
        inputs = [new, self.build.constant(rounded(scaled, dtype)), *conv.inputs[2:]]
        if affine.shifts:
            inputs = [*inputs[:2], self.build.constant(rounded(bias, dtype))]
        self.build(conv.op, *inputs, out=conv.outputs[0], **conv.attrs)

    def _matmul(self, node: gs.Node, new: gs.Tensor, affine: Affine) -> None:
        dtype, shape = dtype_of(node.inputs[1], self.scope), self.scope.value(node.inputs[0]).shape
        weight = self.scope.constant(node.inputs[1])
        if weight is None or weight.ndim != 2 or shape is None or len(shape) < 2 or node.attrs.get("transA", 0):
            raise NotLegal("the second factor is not a constant matrix")
        check_near(affine.shift)
        across = bool(node.attrs.get("transB", 0))
        rows = weight.T.astype(np.float64) if across else weight.astype(np.float64)
        scale, shift = affine.along(len(shape) - 1, rows.shape[0])
        scaled, bias = rows * scale[:, None], shift @ rows
        factor = self.build.constant(rounded(np.ascontiguousarray(scaled.T) if across else scaled, dtype))
        if not affine.shifts:
            self.build(node.op, new, factor, *node.inputs[2:], out=node.outputs[0], **node.attrs)
        elif node.op == "MatMul":
            self._matmul_add(node, new, factor, bias, dtype)
        else:
            own = self.scope.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2].name else np.zeros(1)
            if own is None or (own.ndim > 1 and own.shape[0] != 1 and own.shape[1] == 1):
                raise NotLegal("the bias of Gemm is not one constant a column")
            bias = summed(own.astype(np.float64) * node.attrs.get("beta", 1.0), node.attrs.get("alpha", 1.0) * bias)
            attrs = {k: v for k, v in node.attrs.items() if k != "beta"}
            self.build("Gemm", new, factor, self.build.constant(rounded(bias, dtype)), out=node.outputs[0], **attrs)

    def _matmul_add(self, node: gs.Node, new: gs.Tensor, factor: gs.Tensor, bias: np.ndarray, dtype: np.dtype) -> None:
        """The product and its bias: into the Add that follows, if there is one with a constant a column."""
        editor, out = self.scope.editor, node.outputs[0]
        follower = editor.only_use(out)
        found = read(follower, self.scope) if is_op(follower, "Add") else None
        if follower is not None and found is not None:
            shape = self.scope.value(out).shape
            if shape is not None and found[1].axis in (None, len(shape) - 1):
                out, bias = follower.outputs[0], summed(bias, found[1].shift)
                self.seen.add(id(follower))
        product = self.build("MatMul", new, factor)
        self.build("Add", product, self.build.constant(rounded(bias, dtype)), out=out)
