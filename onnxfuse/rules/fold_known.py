"""A value that is the same in every run becomes a constant: f(c1, c2) = c.

Known are the contents of constants, the sizes that do not depend on a free dimension, and what is computed of them:
shape arithmetic, tables of indices, weights behind Transpose, Cast or Reshape. Integers are computed exactly; floating
numbers with numpy in their own dtype, each operation rounded once, as a runtime does it. Only the last value of a
chain is stored, and no large one in the place of a small one. Random operators, and what depends on a default that
callers may override, stay. So does a part of the target in a Reshape of what is empty: onnx's shape inference takes a
part that it does not know for a −1, and refuses that beside a 0 that it knows. NaN, infinities and −0 come out as in a
runtime; a Cast of them to integers stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from onnx import defs

from onnxfuse.patterns import NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._evaluate import TABLE, evaluate
from onnxfuse.rules._known import elements

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 0
_KEPT = frozenset({"Constant", "If", "Loop", "Scan", "Identity"})
_LARGEST = 16384  # bytes that are stored for what was less; runtimes compute the larger ones once, when they load
ROOTS = tuple(sorted({s.name for s in defs.get_all_schemas() if not s.domain} - _KEPT))
_FEW = 16  # elements
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4,6] x) => (float[N,24] y)
<int64[1] zero = {0}, int64 one = {1}, int64 two = {2}, int64[1] minus = {-1}>
{ s = Shape(x) a = Gather(s, one) b = Gather(s, two) p = Mul(a, b) q = Unsqueeze(p, zero)
  r = Concat <axis = 0> (minus, q)  y = Reshape(x, r) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4,6] x) => (float[N,24] y) <int64[2] r = {-1, 24}> { y = Reshape(x, r) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    outputs = [t for t in node.outputs if t.name]
    if not outputs or not _foldable(node, scope):
        return None
    editor = scope.editor
    if all(
        not editor.is_output(t) and editor.use_count(t) and all(_folds(n, scope) for n in editor.consumers(t))
        for t in outputs
    ):
        return None  # the end of the chain is stored instead
    pairs = []
    for tensor in outputs:
        if editor.is_output(tensor):
            raise NotLegal(f"the known value '{tensor.name}' is a graph output")
        array = evaluate(tensor, scope)
        if array is None or array.nbytes > max(_LARGEST, _stored(node, scope)):
            return None
        if node.op == "ConstantOfShape" and array.size > _FEW:
            return None  # it is the shorter form already
        if array.dtype == np.int64 and _shapes_nothing(tensor, scope):
            raise NotLegal("it is part of the target of a Reshape of an empty value")
        pairs.append((tensor, editor.constant(f"{tensor.name}/constant", array)))
    return Rewrite(same=tuple(pairs))


def _shapes_nothing(tensor: gs.Tensor, scope: Scope) -> bool:
    """Whether a Concat of the value is the target of a Reshape of something with no elements."""
    joined = (n.outputs[0] for n in scope.editor.consumers(tensor) if is_op(n, "Concat"))
    reshapes = (n for t in joined for n in scope.editor.consumers(t) if is_op(n, "Reshape"))
    return any(0 in (scope.value(n.inputs[0]).shape or ()) for n in reshapes)


def _stored(node: gs.Node, scope: Scope) -> int:
    """Bytes of a node's constant inputs, which go where nobody else reads them."""
    arrays = [scope.constant(t) for t in node.inputs if t.name and scope.value(t).constant]
    return sum(a.nbytes for a in arrays if a is not None)


def _folds(node: gs.Node, scope: Scope) -> bool:
    return _foldable(node, scope) and not any(scope.editor.is_output(t) for t in node.outputs)


def _foldable(node: gs.Node, scope: Scope) -> bool:
    if node.domain not in ("", "ai.onnx", None) or is_op(node, *_KEPT):
        return False
    for tensor in node.outputs:
        value = scope.value(tensor)
        if tensor.name and not (value.constant and node.op in TABLE) and elements(value) is None:
            return False
    return True
