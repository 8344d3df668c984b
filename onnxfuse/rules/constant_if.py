"""An If whose condition is the same in every run is the branch that it takes: if(true, f, g) = f.

The nodes of that branch go where the If stood, under new names; what the branch makes has the names of the If's
outputs, and what it captures stays what it is. onnxruntime does the same when it loads a model, so this adds no speed
of its own there: it lets other rules see across the border of the branch, and other runtimes see no If. A branch with
loops, or branches that are not known, stays. The values are the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import AttributeProto

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._known import MEASURED as MEASURED
from onnxfuse.rules._known import elements

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 0
ROOTS = ("If",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3] x) => (float[N,3] y) <bool flag = {1}>
{
  h = Neg(x)
  c = If (flag) <
    then_branch = t () => (float[N,3] a) { r = Relu(h)  a = Exp(r) },
    else_branch = e () => (float[N,3] b) { b = Abs(h) }>
  y = Sqrt(c)
}
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[N,3] x) => (float[N,3] y) { h = Neg(x)  r = Relu(h)  c = Exp(r)  y = Sqrt(c) }
"""


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    body = _taken(node, scope)
    if body is None:
        return None
    inner: dict[int, gs.Tensor] = {}
    constants: set[int] = set()
    nodes = _nodes(body, inner, constants, scope)
    if any(t.name in scope.pinned for n in nodes for t in n.outputs):
        raise NotLegal("a value in the branch is named by the model's annotations")
    build, editor = Build(scope, node), scope.editor
    wanted = [(_source(t, inner), out) for t, out in zip(body.outputs, node.outputs, strict=False) if out.name]
    results = {id(t): out for t, out in wanted}
    made: dict[int, gs.Tensor] = {}

    def here(tensor: gs.Tensor) -> gs.Tensor:
        """What stands for a value of the branch: a copy, or itself where it is captured."""
        tensor = _source(tensor, inner)
        if id(tensor) in constants and id(tensor) not in made:
            array = scope.constant(tensor)
            if array is None:
                raise NotLegal("a constant in the branch is too large to be copied")
            made[id(tensor)] = build.constant(array)
        return made.get(id(tensor), tensor)

    for old in nodes:
        if _holds_tensor(old):  # a Constant
            made[id(old.outputs[0])] = build.constant(scope.array(old.attrs["value"]))
            continue
        inputs = [here(t) for t in old.inputs]
        for t in old.outputs:
            made[id(t)] = results.get(id(t)) or (editor.value(t.name) if t.name else t)
        outputs = [made[id(t)] for t in old.outputs]
        build.nodes.append(editor.node(old.op, inputs, outputs, attrs=old.attrs, name=old.name, domain=old.domain))
    for t, out in wanted:
        if here(t) is not out:  # captured, a constant, or an output twice
            build("Identity", here(t), out=out)
    return build.rewrite()


def _taken(node: gs.Node, scope: Scope) -> gs.Graph | None:
    """The branch that an If takes in every run; None where that is not known."""
    if not is_op(node, "If"):
        return None
    held = scope.constant(node.inputs[0])
    flag = elements(scope.value(node.inputs[0])) if held is None else held
    if flag is None or flag.size != 1:
        return None
    return node.attrs["then_branch" if flag.item() else "else_branch"]


def _nodes(body: gs.Graph, inner: dict[int, gs.Tensor], constants: set[int], scope: Scope) -> list[gs.Node]:
    """The nodes of a branch, those of Ifs in it that are known too included; adds to `constants` the stored values.

    inner: where an If stood in it, its output → what its branch makes. Raises NotLegal.
    """
    from onnxfuse.bridge import bodies  # here, as it imports graphsurgeon

    constants.update(map(id, body.constants))
    found: list[gs.Node] = []
    for node in body.nodes:
        try:
            scope.editor.owner(node)
        except KeyError:
            raise NotLegal("the branch that is taken was rewritten before") from None
        fixed = is_op(node, "If") and scope.editor.producer(node.inputs[0]) is None
        taken = _taken(node, scope) if fixed else None
        if taken is not None:
            found += _nodes(taken, inner, constants, scope)
            inner.update((id(out), t) for t, out in zip(taken.outputs, node.outputs, strict=False))
        elif bodies(node):
            raise NotLegal("the branch that is taken holds loops or branches that are not known")
        elif "proto" in vars(node) and node.proto.overload:
            raise NotLegal("a node in the branch calls one of several functions of a name")
        elif _holds_tensor(node) and not is_op(node, "Constant"):
            raise NotLegal("an attribute in the branch is a tensor")
        elif any(isinstance(value, AttributeProto) for value in node.attrs.values()):
            raise NotLegal("an attribute in the branch is of a kind that is not copied")
        else:
            found.append(node)
    return found


def _source(tensor: gs.Tensor, inner: dict[int, gs.Tensor]) -> gs.Tensor:
    while id(tensor) in inner:
        tensor = inner[id(tensor)]
    return tensor


def _holds_tensor(node: gs.Node) -> bool:
    """Whether an attribute is a tensor: a gs.Constant, whose class is not imported here, for it takes long."""
    return any(type(value).__name__ == "Constant" for value in node.attrs.values())
