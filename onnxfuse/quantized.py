"""Operators between DequantizeLinear and QuantizeLinear, of which runtimes make one with integers.

onnxruntime looks for DequantizeLinear → operator → (Relu or Clip) → QuantizeLinear, where operators that only move
elements may stand in between, and runs QLinearConv, QGemm, QLinearAdd … in the place of all. Its results differ from
those of the float operator by up to a step. What it does not know there, such as FusedConv or other weights, costs it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from onnxfuse.patterns import NotLegal, is_op

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

    from onnxfuse.graph import Editor

_ENDS = ("Relu", "Clip")
_OF_TWO = ("Conv", "ConvTranspose", "MatMul", "Gemm", "Add", "Mul", "Where")
_OF_ONE = ("AveragePool", "GlobalAveragePool", "LeakyRelu", "Sigmoid", "Softmax", "Resize", "Split", *_ENDS)
_MOVES = ("MaxPool", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice")
_FARTHEST = 8  # steps


def check(dead: Iterable[gs.Node], editor: Editor) -> None:
    """Raise NotLegal if one of these nodes, which other ones are to stand for, may run with integers."""
    for node in dead:
        if is_op(node, "DequantizeLinear", "QuantizeLinear") or _is_quantized(node, editor):
            raise NotLegal(f"'{node.name or node.op}' may run with integers, as what is around it is quantized")


def _is_quantized(node: gs.Node, editor: Editor) -> bool:
    before = editor.producer(node.inputs[0]) if is_op(node, *_ENDS) else None
    lead = before if before is not None and is_op(before, *_OF_TWO) else node
    if is_op(lead, "Concat"):
        read = list(lead.inputs)
    elif is_op(lead, *_OF_TWO):
        read = list(lead.inputs[-2:] if lead.op == "Where" else lead.inputs[:2])
    elif is_op(lead, *_OF_ONE):
        read = [lead.inputs[0]]
    else:
        return False
    return all(_is_dequantized(t, editor) for t in read) and _becomes_quantized(lead, editor)


def _is_dequantized(tensor: gs.Tensor, editor: Editor) -> bool:
    for _ in range(_FARTHEST):
        node = editor.producer(tensor)
        if node is None or not is_op(node, *_MOVES):
            return is_op(node, "DequantizeLinear")
        tensor = node.inputs[0]
    return False


def _becomes_quantized(node: gs.Node, editor: Editor) -> bool:
    todo = [node]
    for _ in range(_FARTHEST):
        readers = [n for one in todo for t in one.outputs for n in editor.consumers(t)]
        if any(is_op(n, "QuantizeLinear") for n in readers):
            return True
        todo = [n for n in readers if is_op(n, *_ENDS, *_MOVES)][:_FARTHEST]
    return False
