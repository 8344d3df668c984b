"""What a model stores: how many parameters, in how many bytes.

Parameters are the elements of all floating initializers, and those of integer ones that DequantizeLinear or a quantized
operator reads as weights (not as zero points): a quantized network has those of its original, and its scales. Weight
bytes are those of all initializers. Each counts once, however many nodes read it. Tensors (not scalars) in Constant
nodes that are such parameters count as initializers, since some exporters keep all weights there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from onnxfuse import ir
from onnxfuse.cost.registry import NHWC, bytes_of, bytes_or_none, elements
from onnxfuse.facts import Facts, expr
from onnxfuse.facts.expr import Dim
from onnxfuse.facts.value import Value

FLOATS = frozenset({1, 10, 11, 16, 17, 18, 19, 20, 23, 24, 27, 28})  # by TensorProto.DataType
_MS = "com.microsoft"

# (domain, operator) -> the inputs that may be integer weights or biases
_QUANTIZED: Mapping[tuple[str, str], tuple[int, ...]] = {
    ("", "DequantizeLinear"): (0,), (_MS, "DequantizeLinear"): (0,),
    **{(domain, "QLinearConv"): (3, 8) for domain in ("", _MS, NHWC)},
    ("", "QLinearMatMul"): (0, 3), (_MS, "QLinearAdd"): (0, 3), (_MS, "QLinearMul"): (0, 3), (_MS, "QGemm"): (0, 3, 6),
    ("", "MatMulInteger"): (0, 1), (_MS, "MatMulInteger16"): (0, 1), (_MS, "MatMulIntegerToFloat"): (0, 1),
    ("", "ConvInteger"): (0, 1), (_MS, "DynamicQuantizeMatMul"): (1,), (_MS, "DynamicQuantizeLSTM"): (1, 2),
    (_MS, "QAttention"): (1,), (_MS, "QEmbedLayerNormalization"): (2, 3, 4), (_MS, "QOrderedMatMul"): (2,),
    (_MS, "MatMulNBits"): (1,), (_MS, "MatMulBnb4"): (1,), (_MS, "GatherBlockQuantized"): (0,),
    (_MS, "QMoE"): (2, 5, 8),
}  # fmt: skip
# Those whose weights may be bytes that hold several elements: the attribute with the bits of one; by default 4.
_PACKED = {"MatMulNBits": "bits", "GatherBlockQuantized": "bits", "QMoE": "expert_weight_bits", "MatMulBnb4": "bits"}
_UINT8 = 2


def stored(graph: ir.Graph, facts: Facts) -> tuple[Dim, Dim]:
    """(parameters, bytes of the weights) of a graph and of the bodies in it; what has no known size is left out."""
    weights = Counter(_weights(graph, facts, dict(_quantized(graph))))  # many are one object
    return (
        _measured(lambda weight: _parameters(*weight), weights),
        _measured(lambda weight: bytes_of(weight[0]), weights),
    )


_Weight = tuple[Value, int | None]  # None: of no quantized operator; else the bits of an element, 0: those of its type


def _measured(measure: Callable[[_Weight], Dim], weights: Mapping[_Weight, int]) -> Dim:
    """The sum of a measure of weights, each so often."""
    found = ((n, bytes_or_none(partial(measure, weight))) for weight, n in weights.items())
    return expr.total(n * size for n, size in found if size is not None)


def _parameters(value: Value, bits: int | None) -> Dim:
    if value.dtype in FLOATS:
        return elements(value)
    if bits is None:
        return 0
    return elements(value) * 8 // bits if bits and value.dtype == _UINT8 else elements(value)


def _quantized(graph: ir.Graph) -> Iterator[tuple[str, int]]:
    """Names that quantized operators read as weights, in a graph and the bodies in it, with the bits of an element."""
    for node in ir.all_nodes(graph):
        for i in _QUANTIZED.get((node.domain, node.op_type), ()):
            bits = node.attrs.get(_PACKED[node.op_type], 4) if node.op_type in _PACKED else 0
            if i < len(node.inputs) and isinstance(bits, int):
                yield node.inputs[i], bits


def _weights(graph: ir.Graph, facts: Facts, quantized: Mapping[str, int]) -> Iterator[_Weight]:
    """Weights of a graph and of the bodies in it: initializers, and tensors in Constant nodes."""
    yield from ((facts[name], quantized.get(name)) for name in graph.initializers)
    for node in graph.nodes:
        if node.op_type == "Constant" and not node.domain and node.outputs:
            name = node.outputs[0]
            value = facts[name]
            if value.shape and (value.dtype in FLOATS or name in quantized):
                yield value, quantized.get(name)
    for (i, attribute), inner in facts.bodies.items():
        body = graph.nodes[i].attrs.get(attribute)
        if isinstance(body, ir.Graph):
            yield from _weights(body, inner, quantized)
