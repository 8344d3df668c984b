"""Parameters and weight bytes: counted by hand, floating and quantized."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from onnxfuse import ir
from onnxfuse.facts import infer
from onnxfuse.weights import stored

HEAD = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>\n'


def counted(text: str, *initializers: onnx.TensorProto) -> tuple[object, object]:
    model = parser.parse_model(HEAD + text)
    model.graph.initializer.extend(initializers)
    program = ir.read(model)
    return stored(program.graph, infer(program))


def tensor(name: str, dtype: int, *dims: int) -> onnx.TensorProto:
    return helper.make_tensor(name, dtype, dims, [1] * int(np.prod(dims)))


SCALE = tensor("s", TensorProto.FLOAT)


@pytest.mark.parametrize(
    ("dtype", "nbytes"), [("INT8", 24), ("UINT8", 24), ("INT4", 12), ("FLOAT8E4M3FN", 24), ("INT32", 96)]
)
def test_dequantized_weights_are_parameters(dtype: str, nbytes: int) -> None:
    """24 weights and a scale; the zero point is none. The scale takes 4 bytes, the zero point 1."""
    weight = tensor("w", getattr(TensorProto, dtype), 8, 3)
    text = "g (float[N,8] x) => (float[N,3] y) { d = DequantizeLinear (w, s) y = MatMul (x, d) }"
    assert counted(text, weight, SCALE) == (25, nbytes + 4)


def test_zero_points_and_shapes_are_no_parameters() -> None:
    """12 weights, 3 biases and 3 scales of 1; zero points (3 of 1 byte) and the shape (8 bytes) are none."""
    text = (
        "g (int8[1,4,5,5] x) => (int8[75] y){ c = QLinearConv (x, s, z, w, s2, z2, s3, z3, b) y = Reshape (c, shape) }"
    )
    scales = [tensor(name, TensorProto.FLOAT) for name in ("s", "s2", "s3")]
    zeros = [tensor(name, TensorProto.INT8) for name in ("z", "z2", "z3")]
    weight, bias = tensor("w", TensorProto.INT8, 3, 4, 1, 1), tensor("b", TensorProto.INT32, 3)
    shape = numpy_helper.from_array(np.array([75], np.int64), "shape")
    assert counted(text, *scales, *zeros, weight, bias, shape) == (12 + 3 + 3, 12 + 12 + 12 + 3 + 8)


@pytest.mark.parametrize(("bits", "blob"), [(4, 16), (8, 32), (2, 8)])
def test_packed_weights_count_by_their_bits(bits: int, blob: int) -> None:
    """K 32, N 4, blocks of 32: 128 weights and 4 scales, whatever the bits."""
    text = (
        "g (float[M,32] x) => (float[M,4] y)"
        f"{{ y = com.microsoft.MatMulNBits <K = 32, N = 4, block_size = 32, bits = {bits}> (x, w, s) }}"
    )
    weights = tensor("w", TensorProto.UINT8, 4, 1, blob), tensor("s", TensorProto.FLOAT, 4, 1)
    assert counted(text, *weights) == (128 + 4, 4 * blob + 16)


def test_a_weight_counts_once_wherever_it_is_read() -> None:
    """Two readers, one of them in a branch; and a Constant node with 4 weights."""
    text = (
        "g (bool c, float[N,4] x) => (float[N,2] y, float[2,2] k) { d = DequantizeLinear (w, s)"
        "y = If (c) < then_branch = t () => (float[N,2] a) { e = DequantizeLinear (w, s) a = MatMul (x, e) },"
        "else_branch = e () => (float[N,2] b) { b = MatMul (x, d) } >"
        "q = Constant <value = int8[2,2] {1,2,3,4}> () k = DequantizeLinear (q, s) }"
    )
    assert counted(text, tensor("w", TensorProto.INT8, 4, 2), SCALE) == (8 + 4 + 1, 8 + 4 + 4)
