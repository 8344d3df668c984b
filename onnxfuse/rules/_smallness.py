"""Whether somebody behind a value looks at the sign of a zero in it, or at how small a number is.

Both are followed through every reader until the value has gone into something that does not show them any more: what
is not listed here carries them on, and where that goes on for too long the answer is yes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.patterns import Scope, is_op
from onnxfuse.rules._known import FLOATING

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

SMALLNESS = "how small the value is counts where it is divided by or its logarithm is taken"
_FARTHEST = 100  # nodes that are looked at
# Weighted sums with constants, what is exp or flat around 0, normalizations with an ε, and what reads no elements.
_ENDS = (
    "Conv", "ConvTranspose", "Gemm", "Softmax", "LogSoftmax", "Exp", "Cos", "Cosh", "Sigmoid", "HardSigmoid",
    "LayerNormalization", "InstanceNormalization", "GroupNormalization", "Shape", "Size", "LSTM", "GRU", "RNN",
)  # fmt: skip
_COMPARES = ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_SHARP = ("Log", "Reciprocal", "LpNormalization", "ReduceLogSum", "Ceil", "Sign", "BitCast")
_STEP = 1e-5  # what is added or compared with it hides an error of 3e-7


def tells_zeros_apart(tensor: gs.Tensor, scope: Scope) -> bool:
    """Whether something behind the value gives another result for −0 than for 0, but for the sign of a zero: 1/x."""
    return _reaches(tensor, scope, signs=True)


def tells_smallness(tensor: gs.Tensor, scope: Scope, *, outputs: bool = False) -> bool:
    """Whether something behind the value gives another result where a small number is 0 or a little larger or smaller:
    a division by it, a logarithm, a search for the largest of small ones. outputs: whether a graph output does, too.
    """
    return _reaches(tensor, scope, signs=False, outputs=outputs)


def _reaches(tensor: gs.Tensor, scope: Scope, *, signs: bool, outputs: bool = False) -> bool:
    editor, seen, todo = scope.editor, {id(tensor)}, [tensor]
    while todo:
        value = todo.pop()
        if outputs and editor.is_output(value):
            return True
        after = []
        for node, index in editor.uses(value):
            if _ends(node, index, scope, signs):
                continue
            if _tells(node, index, scope, signs):
                return True
            after += node.outputs
        for node, index in editor.results(value):
            if not is_op(node, "If"):
                return True
            after.append(node.outputs[index])
        fresh = {id(t): t for t in after if t.name and id(t) not in seen}
        seen.update(fresh)
        if len(seen) > _FARTHEST:
            return True
        todo += fresh.values()
    return False


def _ends(node: gs.Node, index: int, scope: Scope, signs: bool) -> bool:
    """Whether nothing of it shows in what the node gives."""
    if is_op(node, *_ENDS) or (is_op(node, "Pow") and index == 1):
        return True
    least = 0.0 if signs else _STEP
    if is_op(node, "Clip"):
        low = node.attrs.get("min") if len(node.inputs) < 2 else scope.constant(node.inputs[1])
        return index == 0 and low is not None and bool(np.all(low > least))
    if is_op(node, "Max"):
        given = _other(node, index, scope)
        return given is not None and bool(np.all(given > least))
    if is_op(node, "MatMul"):
        return signs or _other(node, index, scope) is not None
    if is_op(node, "Add", "Sub", *_COMPARES):
        given = _other(node, index, scope)
        return (signs and is_op(node, *_COMPARES)) or (given is not None and bool(np.all(np.abs(given) > least)))
    return signs and (is_op(node, "Abs") or all(dtype and dtype not in FLOATING for dtype in _dtypes(node, scope)))


def _tells(node: gs.Node, index: int, scope: Scope, signs: bool) -> bool:
    """Whether the node's result is another one, or may be."""
    if (node.domain or "") not in ("", "ai.onnx") or is_op(node, "If", "Loop", "Scan", *_SHARP):
        return True
    if is_op(node, "Div"):
        return index == 1
    if is_op(node, "Pow"):
        power = _other(node, index, scope)
        return power is None or not bool(np.all(power > 0))
    return not signs and any(dtype not in FLOATING for dtype in _dtypes(node, scope))  # indices, flags, whole numbers


def _dtypes(node: gs.Node, scope: Scope) -> list[int]:
    """Of what the node gives; 0 where it is not known."""
    return [scope.value(t).dtype for t in node.outputs if t.name]


def _other(node: gs.Node, index: int, scope: Scope) -> np.ndarray | None:
    """The constant that a node reads beside its input of that number; None where there is none, or several values."""
    given = [t for i, t in enumerate(node.inputs) if i != index and t.name]
    if len(given) != 1:
        return None
    data = scope.constant(given[0])
    return None if data is None or data.dtype.kind not in "fiu" else data
