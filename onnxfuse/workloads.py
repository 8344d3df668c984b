"""Small models with one operator each: what is run to measure how far a kernel is from its roofline.

One entry a kind of work (see `roofline.work`); a new one is measured by the next `onnxfuse devices --measure`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, parser

_MAP, _ROWS = "float[1,128,56,56] x", "float[1,197,768] x"  # activations of usual size in a CNN and a transformer

# Kind of work (see `roofline.work`) → inputs and body. As in a network, another operator has just written `t`.
_BODIES: Mapping[str, tuple[str, str]] = {
    "Conv": ("float[1,128,28,28] x", "w: 128,128,3,3; y = Conv<pads = [1,1,1,1]>(t, w)"),
    "DepthwiseConv": (_MAP, "w: 128,1,3,3; y = Conv<pads = [1,1,1,1], group = 128>(t, w)"),
    "FewChannelConv": ("float[1,3,224,224] x", "w: 32,3,3,3; y = Conv<pads = [1,1,1,1], strides = [2,2]>(t, w)"),
    "ConvTranspose": ("float[1,64,56,56] x", "w: 64,32,2,2; y = ConvTranspose<strides = [2,2]>(t, w)"),
    "MatMul": (_ROWS, "w: 768,768; y = MatMul(t, w)"),
    "Gemm": ("float[197,768] x", "w: 768,768; b: 768; y = Gemm(t, w, b)"),
    "FusedMatMul": ("float[12,197,64] x", "y = com.microsoft.FusedMatMul<transB = 1, alpha = 0.125>(t, x)"),
    "LSTM": ("float[64,1,128] x", "w: 1,512,128; r: 1,512,128; y = LSTM<hidden_size = 128>(t, w, r)"),
    "Softmax": ("float[12,197,197] x", "y = Softmax(t)"),
    "LayerNormalization": (_ROWS, "w: 768; b: 768; y = LayerNormalization(t, w, b)"),
    "SkipLayerNormalization": (_ROWS, "w: 768; b: 768; y = com.microsoft.SkipLayerNormalization(t, x, w, b)"),
    "BatchNormalization": (
        _MAP, "w: 128; b: 128; m: 128; v: 128; y = BatchNormalization(t, w, b, m, v)"
    ),
    "InstanceNormalization": (_MAP, "w: 128; b: 128; y = InstanceNormalization(t, w, b)"),
    "Gelu": (_ROWS, "y = com.microsoft.Gelu(t)"),
    "BiasGelu": (_ROWS, "b: 768; y = com.microsoft.BiasGelu(t, b)"),
    "QuickGelu": (_MAP, "y = com.microsoft.QuickGelu<alpha = 1.0>(t)"),
    **{op: (_MAP, f"y = {op}(t)") for op in ("Exp", "Erf", "Sigmoid", "Tanh", "Sqrt", "HardSigmoid")},
    **{op: (_MAP, f"y = {op}(t)") for op in ("Relu", "LeakyRelu", "GlobalAveragePool")},
    "Clip": (_MAP, "l: ; h: ; y = Clip(t, l, h)"),
    "PRelu": (_MAP, "w: 128,1,1; y = PRelu(t, w)"),
    **{op: (_MAP, f"y = {op}(t, x)") for op in ("Add", "Sub", "Mul", "Div")},
    "Pow": (_MAP, "e = Constant<value = float {2.0}>(); y = Pow(t, e)"),
    "Where": (_MAP, "c = Greater(x, t); y = Where(c, t, x)"),
    "Transpose": (_MAP, "y = Transpose<perm = [0,2,3,1]>(t)"),
    "Concat": (_MAP, "y = Concat<axis = 1>(t, x)"),
    "Split": (_MAP, "y, z = Split<axis = 1>(t)"),
    "MaxPool": (_MAP, "y = MaxPool<kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]>(t)"),
    "AveragePool": (_MAP, "y = AveragePool<kernel_shape = [2,2], strides = [2,2]>(t)"),
    "ReduceMean": (_ROWS, "y = ReduceMean<axes = [-1]>(t)"),
    "Resize": (  # the mode of most networks; a linear one takes longer
        _MAP,
        "s = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>(); "
        'y = Resize<coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(t, , s)',
    ),
    "ReorderInput": ("float[1,128,56,56] x", "w: 128,128,1,1; y = Conv(t, w)"),
    "ReorderOutput": ("float[1,128,56,56] x", "w: 128,128,1,1; y = Conv(t, w)"),
}  # fmt: skip

KINDS = tuple(_BODIES)


def of(work: str) -> onnx.ModelProto:
    """The model of a kind of work."""
    inputs, body = _BODIES[work]
    return model(inputs, f"t = Neg(x); {body}")


def model(inputs: str, body: str) -> onnx.ModelProto:
    """A model of text. "w: 4,3" in the body is a weight, which onnxruntime folds before it chooses a layout."""
    lines = []
    for line in body.split(";"):
        name, colon, dims = line.partition(":")
        if colon:
            rank = len(dims.strip() and dims.split(","))
            lines.append(f"{name}_dims = Constant<value = int64[{rank}] {{{dims}}}>()")
            lines.append(f"{name} = ConstantOfShape<value = float[1] {{0.01}}>({name}_dims)")
        else:
            lines.append(line)
    text = "\n".join(lines)
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>\nnet ({inputs}) => (y) {{ {text} }}'
    )


def feeds(model: onnx.ModelProto, dims: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Numbers from 0.5 to 1.5 for every input."""
    numbers = np.random.Generator(np.random.PCG64(0)).random(1 << 20, np.float32) + 0.5
    made = {}
    for info in model.graph.input:
        tensor = info.type.tensor_type
        shape = [dims[d.dim_param] if d.dim_param else d.dim_value for d in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        made[info.name] = np.resize(numbers, shape).astype(dtype)
    return made
