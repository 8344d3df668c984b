"""Two nodes that compute the same become one: f(x), f(x) = y, y.

The same operator with the same attributes and the same inputs (small constants with equal contents count as the same)
gives the same bits, unless it is random or has bodies. Where one of them makes a graph output, its name stays; where
both do, both stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import defs

from onnxfuse.patterns import NotLegal, Rewrite, Scope
from onnxfuse.rules._known import MEASURED as MEASURED

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 0
_KEPT = frozenset({
    "Constant", "If", "Loop", "Scan", "SequenceMap", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout", "Identity",
})  # fmt: skip
ROOTS = tuple(sorted({s.name for s in defs.get_all_schemas() if not s.domain} - _KEPT))
_CROWD = 64  # readers of a value among which twins are looked for
_SMALL = 64  # elements of constants that are compared
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x) => (float[N,4] y)
<float[4] a = {1, 2, 3, 4}, float[4] b = {1, 2, 3, 4}>
{ p = Mul(x, a)  q = Mul(x, b)  r = Sin(p)  s = Sin(q)  y = Max(r, s, x) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x) => (float[N,4] y) <float[4] a = {1, 2, 3, 4}> { p = Mul(x, a)  r = Sin(p)  y = Max(r, r, x) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    editor = scope.editor
    shared = [t for t in node.inputs if t.name and 1 < editor.use_count(t) <= _CROWD]
    if not shared:
        return None
    rarest = min(shared, key=editor.use_count)
    for twin in editor.consumers(rarest):
        if twin is node or not _twins(node, twin, scope):
            continue
        here, there = node, twin
        if any(map(editor.is_output, node.outputs)):
            here, there = twin, node
        if any(map(editor.is_output, here.outputs)):
            here, there = there, here
        if any(map(editor.is_output, there.outputs)) and any(map(editor.is_output, here.outputs)):
            raise NotLegal(f"it computes the same as {twin.name or twin.op}, but both make graph outputs")
        pairs = ((b, a) for a, b in zip(here.outputs, there.outputs, strict=True) if b.name)
        return Rewrite(same=tuple(pairs), alike=True)
    return None


def _twins(a: gs.Node, b: gs.Node, scope: Scope) -> bool:
    if a.op != b.op or (a.domain or "") != (b.domain or "") or len(a.inputs) != len(b.inputs):
        return False
    if [bool(t.name) for t in a.outputs] != [bool(t.name) for t in b.outputs]:
        return False
    if scope.editor.owner(a) is not scope.editor.owner(b) or _attributes(a) is None or _attributes(a) != _attributes(b):
        return False
    return all(_same(s, t, scope) for s, t in zip(a.inputs, b.inputs, strict=True))


def _attributes(node: gs.Node) -> dict[str, Any] | None:
    """Attributes in a form that can be compared; None where one is a tensor, a graph or the like."""
    found = {}
    for name, value in node.attrs.items():
        plain = tuple(value) if isinstance(value, (list, tuple)) else value
        parts = plain if isinstance(plain, tuple) else (plain,)
        if not all(isinstance(p, (int, float, str, bytes)) for p in parts):
            return None
        # The file holds float32, whatever digits a new node was given.
        found[name] = tuple(repr(np.float32(p) if isinstance(p, float) else p) for p in parts), isinstance(plain, tuple)
    return found


def _same(a: gs.Tensor, b: gs.Tensor, scope: Scope) -> bool:
    if a is b or (not a.name and not b.name):
        return True
    if not a.name or not b.name:
        return False
    x, y = scope.value(a), scope.value(b)
    if not (x.constant and y.constant) or x.dtype != y.dtype or x.shape != y.shape:
        return False
    if x.data is None or y.data is None or x.data.size > _SMALL:
        return False
    if x.data.dtype == object:
        return bool((x.data == y.data).all())
    return np.ascontiguousarray(x.data).tobytes() == np.ascontiguousarray(y.data).tobytes()
