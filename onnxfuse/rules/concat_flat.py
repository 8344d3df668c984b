"""Concatenations along one axis become one, and pieces put together again disappear.

concat(a, concat(b, c)) = concat(a, b, c), and concat(split(x)) = x where every piece of one Split comes in its order,
along the same axis. The inner Concat's copy is saved, and both copies of the second. The values are the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxfuse.patterns import Build, Rewrite, Scope, is_op

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 0
_MOST = 256  # inputs of one Concat
ROOTS = ("Concat",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] a, float[N,4] b, float[N,4] c) => (float[N,12] y)
{ p, q = Split <axis = 1> (b)  r = Concat <axis = -1> (p, q)  s = Concat <axis = 1> (r, c)
  y = Concat <axis = 1> (a, s) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,4] a, float[N,4] b, float[N,4] c) => (float[N,12] y) { y = Concat <axis = 1> (a, b, c) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    axis = _axis(node, scope)
    if axis is None:
        return None
    inputs: list[gs.Tensor] = []
    changed = False
    i = 0
    while i < len(node.inputs):
        tensor = node.inputs[i]
        maker = scope.editor.producer(tensor)
        pieces = [t for t in maker.outputs if t.name] if maker is not None and is_op(maker, "Split") else []
        if maker is not None and is_op(maker, "Concat") and _axis(maker, scope) == axis:
            inputs += maker.inputs
            changed, i = True, i + 1
        elif (
            maker is not None
            and len(pieces) > 1
            and len(pieces) == len(maker.outputs)
            and _axis(maker, scope) == axis
            and ([id(t) for t in node.inputs[i : i + len(pieces)]] == [id(t) for t in pieces])
        ):
            inputs.append(maker.inputs[0])
            changed, i = True, i + len(pieces)
        else:
            inputs.append(tensor)
            i += 1
    if not changed or len(inputs) > _MOST:
        return None
    if len(inputs) == 1 and not scope.editor.is_output(node.outputs[0]):
        return Rewrite(same=((node.outputs[0], inputs[0]),), alike=True)
    build = Build(scope, node)
    build("Concat", *inputs, out=node.outputs[0], axis=axis)
    return build.rewrite(alike=True)


def _axis(node: gs.Node, scope: Scope) -> int | None:
    shape = scope.value(node.inputs[0]).shape
    axis = int(node.attrs.get("axis", 0 if node.op == "Split" else 1))
    if shape is None:
        return None
    return axis + len(shape) if axis < 0 else axis
