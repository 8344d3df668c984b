"""Shapes of com.microsoft's operators: ours against those that onnxruntime's own schemas infer, where they do."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from onnxfuse import ir
from onnxfuse.facts import infer

state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
TYPES = {"f": T.FLOAT, "h": T.FLOAT16, "u": T.UINT8, "b": T.INT8, "i": T.INT32, "l": T.INT64, "?": T.BOOL}
NAMES = {f"tensor({name.lower()})": number for name, number in T.DataType.items()}

# operator, inputs ("f 2 3", "" absent, "i=5" a constant), attributes, our shapes of the outputs
ROWS = [
    ("BiasSplitGelu", ["f 2 4 10", "f 10"], {}, ["2 4 5"]),
    ("BitmaskDropout", ["f 3 50"], {}, ["3 50", "5"]),  # 150 bits
    ("CDist", ["f 3 4", "f 5 4"], {}, ["3 5"]),
    ("CausalConvWithState", ["f 2 4 9", "f 4 1 3", "", "f 2 4 2"], {}, ["2 4 9", "2 4 2"]),
    ("ComplexMul", ["f 2 3 2", "f 2 3 2"], {}, ["2 3 2"]),
    ("DequantizeWithOrder", ["b 2 4", "f"], {"to": 1, "order_input": 1, "order_output": 1}, ["2 4"]),
    ("DynamicTimeWarping", ["f 3 4"], {}, ["2 *"]),
    ("EngramGate", ["f 2 3 2 5", "f 2 3 2 5", "f 2 3 5", "f 2 5", "f 2 5", "f 2 5"], {}, ["2 3 2 5", "2 3 2 5"]),
    ("ExpandDims", ["f 2 3", "i=-1"], {}, ["2 3 1"]),
    ("GatedAdd", ["f 2 3", "f 2 3", "f 2 1"], {}, ["2 3"]),
    ("GatedRMSNorm", ["f 2 8", "f 4", "f 2 8"], {}, ["2 8"]),
    ("GatherBlockQuantized", ["u 100 16", "l 5", "f 100 1"], {"block_size": 32, "bits": 4}, ["5 32"]),
    ("GroupQueryAttention", ["f 1 3 32", "f 1 3 16", "f 1 3 16", "f 1 2 9 8", "f 1 2 9 8", "i 1", "i=12"],
     {"num_heads": 4, "kv_num_heads": 2}, ["1 3 32", "1 2 12 8", "1 2 12 8"]),
    ("HyperConnectionPreMix", ["f 3 2 4", "f 3 2"], {}, ["3 4"]),
    ("HyperConnectionPostMix", ["f 3 2 4", "f 3 4", "f 3 2"], {}, ["3 2 4"]),
    ("HyperConnectionLowRankMix", ["f 3 8", "f 8", "f 8 5", "f 5 8", "f 8 2"], {"num_branches": 2}, ["3 4", "3 2"]),
    ("IsAllFinite", ["f 2 3"], {}, [""]),
    ("LinearAttentionGate", ["f 1 3 6", "f 6", "f 6", "f 1 3 6"], {}, ["1 3 6", "1 3 6"]),
    ("LongformerAttention", ["f 2 8 6", "f 6 18", "f 18", "f 2 8", "f 6 18", "f 18", "i 2 8"],
     {"num_heads": 2, "window": 2}, ["2 8 6"]),
    ("MatMulFpQ4", ["f 3 32", "u 160", "l=32 8"], {"blk_quant_type": 0}, ["3 8"]),
    ("MatMulNBitsMlp", ["f 3 32", "", "f 32", "u 8 1 16", "f 8 1", "", "u 8 1 16", "f 8 1"],
     {"K": 32, "N": 8, "bits": 4, "block_size": 32, "activation": "silu"}, ["3 8"]),
    ("MatMulNBitsQkv", ["f 3 32", "", "f 32", "u 8 1 16", "f 8 1", "", "u 4 1 16", "f 4 1", "", "u 4 1 16", "f 4 1"],
     {"K": 32, "Nq": 8, "Nkv": 4, "bits": 4, "block_size": 32}, ["3 8", "3 4", "3 4"]),
    ("MoE", ["f 5 4", "f 5 8", "f 8 6 4", "", "f 8 4 6"], {"k": 2}, ["5 4"]),
    ("MoEGroupRouter", ["f 2 5 8", "f 8"], {"top_k": 2}, ["10 8"]),
    ("MulInteger", ["u 2 4", "u", "u 4", "u"], {}, ["2 4"]),
    ("MultiHeadAttention", ["f 2 4 18", "f 2 4 18", "f 2 4 18", "", "", "", "f 2 3 7 6", "f 2 3 7 6"], {"num_heads": 3},
     ["2 4 18", "2 3 11 6", "2 3 11 6"]),
    ("NGramHashMapping", ["l 2 3", "l 3", "l 4"], {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 0},
     ["2 3 4"]),
    ("NGramRepeatBlock", ["l 2 5", "f 2 99"], {"ngram_size": 2}, ["2 99"]),
    ("PackedAttention", ["f 6 8", "f 8 24", "f 24", "i 2 4", "i 3"], {"num_heads": 2}, ["6 8"]),
    ("PackedMultiHeadAttention", ["f 6 2 3 4", "", "", "", "i 2 4", "i 3"], {"num_heads": 2}, ["6 8"]),
    ("PagedAttention",
     ["h 3 64", "", "", "h 100 16 2 8", "h 100 16 2 8", "i 3", "i 2", "i 2 2"],
     {"num_heads": 4, "kv_num_heads": 2}, ["3 32", "100 16 2 8", "100 16 2 8"]),
    ("Attention", ["f 2 4 8", "f 8 24", "f 24", "", "f 2 2 2 3 4"], {"num_heads": 2}, ["2 4 8", "2 2 2 7 4"]),
    ("QAttention", ["u 2 4 8", "b 8 24", "f 24", "f", "f", "", "u", "b", "f 2 2 2 3 4"], {"num_heads": 2},
     ["2 4 8", "2 2 2 7 4"]),
    ("QEmbedLayerNormalization",
     ["i 1 2", "i 1 2", "u 99 4", "u 9 4", "u 2 4", "u 4", "u 4", "", "f", "f", "f", "f", "f", "u", "u", "u", "u", "u"],
     {}, ["1 2 4", "1"]),
    ("QLinearReduceMean", ["u 2 3 4", "f", "u", "f", "u"], {"axes": [1], "keepdims": 0}, ["2 4"]),
    ("QLinearAveragePool", ["u 1 8 8 3", "f", "u", "f", "u"],
     {"kernel_shape": [2, 2], "strides": [2, 2], "channels_last": 1}, ["1 4 4 3"]),
    ("QLinearWhere", ["? 2 1", "u 3", "f", "u", "u 2 3", "f", "u", "f", "u"], {}, ["2 3"]),
    ("QMoE", ["f 5 4", "f 5 8", "u 8 6 2", "f 8 6", "", "u 8 4 3", "f 8 4"], {"k": 2}, ["5 4"]),
    ("QuantizeWithOrder", ["f 2 4", "f"], {"order_input": 1, "order_output": 1}, ["2 4"]),
    ("RelativePositionBias", ["f 32 3", "l=4", "l=5"], {"max_distance": 9}, ["1 3 4 5"]),
    ("RemovePadding", ["f 2 4 3", "i 2"], {}, ["* 3", "2 4", "3", "1"]),
    ("RestorePadding", ["f 5 3", "i 2 4"], {}, ["2 4 3"]),
    ("Rfft", ["f 3 8"], {"signal_ndim": 1, "onesided": 1, "normalized": 0}, ["3 5 2"]),
    ("Irfft", ["f 3 5 2"], {"signal_ndim": 1, "onesided": 1, "normalized": 0}, ["3 8"]),
    ("RouterGateUpProj", ["h 2 4", "h 4 9"], {"router_size": 3}, ["2 3", "2 3"]),
    ("SkipGroupNorm", ["h 1 4 4 8", "f 8", "f 8", "h 1 4 4 8"], {"groups": 2, "activation": 0},
     ["1 4 4 8", "1 4 4 8"]),
    ("SwiGLU", ["f 3 8"], {}, ["3 4"]),
    ("SwiGLU", ["f 3 4", "f 3 4"], {}, ["3 4"]),
    ("TorchEmbedding", ["f 100 8", "l 2 3"], {}, ["2 3 8"]),
    ("UnfoldTensor", ["f 2 10"], {"dim": -1, "size": 4, "step": 3}, ["2 3 4"]),
    ("Unique", ["f 9"], {}, ["*", "9", "*"]),
    ("VarlenCausalConvWithState", ["f 5 4", "f 4 1 3", "i 3", "", "f 2 4 2"], {}, ["5 4", "2 4 2"]),
]  # fmt: skip


def model(op: str, inputs: list[str], attrs: dict[str, object], outputs: int) -> onnx.ModelProto:
    names, declared, constants = [], [], []
    for k, text in enumerate(inputs):
        names.append(f"i{k}" if text else "")
        kind, _, numbers = text.partition("=")
        if numbers:
            data = np.array([int(n) for n in numbers.split()], {"i": np.int32, "l": np.int64}[kind])
            constants.append(numpy_helper.from_array(data, f"i{k}"))
        elif text:
            dtype, *dims = text.split()
            declared.append(helper.make_tensor_value_info(f"i{k}", TYPES[dtype], [int(d) for d in dims]))
    node = helper.make_node(op, names, [f"o{k}" for k in range(outputs)], domain="com.microsoft", **attrs)
    graph = helper.make_graph([node], "g", declared, [onnx.ValueInfoProto(name=o) for o in node.output], constants)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def text(shape: tuple[object, ...] | None) -> str:
    return "?" if shape is None else " ".join(str(d) if isinstance(d, int) else "*" for d in shape)


@pytest.mark.parametrize(("op", "inputs", "attrs", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_shapes(op: str, inputs: list[str], attrs: dict[str, object], expected: list[str]) -> None:
    proto = model(op, inputs, attrs, len(expected))
    found = infer(ir.read(proto))
    assert [text(found[f"o{k}"].shape) for k in range(len(expected))] == expected

    options = state.SessionOptions()
    options.log_severity_level = 4
    loaded = state.InferenceSession(options, proto.SerializeToString(), False, False)  # checked and inferred, not run
    for k, (theirs, ours) in enumerate(zip(loaded.outputs_meta, expected, strict=True)):
        assert found[f"o{k}"].dtype == NAMES[theirs.type]
        if theirs.shape:  # where their schema infers one
            assert len(theirs.shape) == len(ours.split())
            pairs = zip(theirs.shape, ours.split(), strict=True)
            assert all(not isinstance(d, int) or o == "*" or d == int(o) for d, o in pairs)
