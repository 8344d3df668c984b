"""A node whose values nobody reads goes: g(f(x), h(x)) = g(f(x)) where g does not use h.

With it go the nodes and initializers that served it alone. Operators have no effect but their outputs; random ones of
the standard take their numbers from generators of their own. A body's captured values count as read. No value that is
read changes, NaN included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import defs

from onnxfuse.patterns import Rewrite, Scope

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 0
ROOTS = tuple(sorted({s.name for s in defs.get_all_schemas() if not s.domain}))
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x) => (float[N,4] y) <float[4] c = {1, 2, 3, 4}> { y = Relu(x)  a = Mul(x, c)  b = Sin(a) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None."""
    editor = scope.editor
    for tensor in node.outputs:
        if tensor.name and (editor.use_count(tensor) or editor.is_output(tensor) or tensor.name in scope.pinned):
            return None
    return Rewrite(unread=(node,)) if any(t.name for t in node.outputs) else None
