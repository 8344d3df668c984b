"""Rows for operators that only onnxruntime has: other layouts, its legacy names, and relatives of standard ones."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxfuse import ir
from onnxfuse.cost import Cost
from onnxfuse.cost.registry import FORMULAS, Call, Unknown
from onnxfuse.facts.value import Value

MS, NHWC, NCHWC = "com.microsoft", "com.ms.internal.nhwc", "com.microsoft.nchwc"


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "domain", "expected"),
    [
        # 1x8x8x8 blocks, w 16x8x3x3: 1024 · 72 MACs; bias, sum and Relu 1024 each
        (
            "Conv",
            ["f32 1 8 8 8", "f32 16 8 3 3", "f32 16", "f32 1 16 8 8"],
            ["f32 1 16 8 8"],
            {"activation": "Relu"},
            NCHWC,
            Cost(73728, 3072, 0, 4 * (512 + 1152 + 16 + 1024), 4096),
        ),
        ("MaxPool", ["f32 1 8 8 8"], ["f32 1 8 4 4"], {"kernel_shape": (2, 2)}, NCHWC, Cost(0, 384, 0, 2048, 512)),
        ("AveragePool", ["f32 1 8 8 8"], ["f32 1 8 4 4"], {"kernel_shape": (2, 2)}, NCHWC, Cost(0, 512, 0, 2048, 512)),
        ("GlobalAveragePool", ["f32 1 8 8 8"], ["f32 1 8 1 1"], {}, NCHWC, Cost(0, 512, 0, 2048, 32)),
        ("GlobalMaxPool", ["f32 1 8 8 8"], ["f32 1 8 1 1"], {}, NCHWC, Cost(0, 504, 0, 2048, 32)),
        ("ReorderInput", ["f32 1 12 8 8"], ["f32 1 16 8 8"], {}, NCHWC, Cost(0, 0, 0, 3072, 4096)),
        ("ReorderOutput", ["f32 1 16 8 8"], ["f32 1 12 8 8"], {"channels": 12}, NCHWC, Cost(0, 0, 0, 4096, 3072)),
        ("Upsample", ["f32 1 8 4 4"], ["f32 1 8 8 8"], {"mode": "linear"}, NCHWC, Cost(0, 4096, 0, 512, 2048)),
        # channels last: the weights are as ever, 256 · 27
        ("Conv", ["f32 1 8 8 3", "f32 4 3 3 3"], ["f32 1 8 8 4"], {}, NHWC, Cost(6912, 0, 0, 1200, 1024)),
        # 3 int8 channels onto 8: 192 · 8 · 4 MACs by the input, bias 2048
        (
            "QLinearConvTranspose",
            ["u8 1 8 8 3", "f32", "u8", "i8 3 8 2 2", "f32", "i8", "f32", "u8", "i32 8"],
            ["u8 1 16 16 8"],
            {},
            NHWC,
            Cost(6144, 2048, 0, 192 + 96 + 32 + 12 + 3, 2048),
        ),
        # a row is a channel of a sample: 2·3
        (
            "InstanceNormalization",
            ["f32 2 4 4 3", "f32 3", "f32 3"],
            ["f32 2 4 4 3"],
            {},
            NHWC,
            Cost(0, 672, 6, 384 + 24, 384),
        ),
        # 5 tokens of 4 channels, 3 taps
        (
            "VarlenCausalConvWithState",
            ["f32 5 4", "f32 4 1 3", "i32 3", "f32 4", "f32 2 4 2"],
            ["f32 5 4", "f32 2 4 2"],
            {"activation": "silu"},
            MS,
            Cost(60, 40, 20, 4 * (20 + 12 + 3 + 4 + 16), 144),
        ),
        # 3 words of 7 characters, window 2: 6 positions, 5 filters over 2·4: 90 · 8; bias 90, max 75; 21 rows of the
        # table would be more than its 10
        (
            "WordConvEmbedding",
            ["i32 3 7", "f32 5 1 2 4", "f32 5", "f32 10 4"],
            ["f32 3 5"],
            {},
            MS,
            Cost(720, 165, 90, 84 + 160 + 20 + 160, 60),
        ),
        # |a|² + |b|² − 2·a·b: 6 · 4 + 8 + 12 MACs
        ("CDist", ["f32 2 4", "f32 3 4"], ["f32 2 3"], {"metric": "euclidean"}, MS, Cost(44, 18, 6, 80, 24)),
        # 6 · 4 MACs; scales 6, bias 6, c 12
        (
            "QOrderedMatMul",
            ["i8 1 2 4", "f32", "i8 4 3", "f32", "f32", "f32 3", "i8 1 2 3", "f32"],
            ["i8 1 2 3"],
            {},
            MS,
            Cost(24, 24, 0, 8 + 12 + 6 + 12 + 16, 6),
        ),
        ("GemmFloat8", ["f8 2 4", "f8 4 3", "", "f32", "f32"], ["f16 2 3"], {}, MS, Cost(24, 6, 0, 28, 12)),
        # 2 rows of 4 by 4x9: a router of 3 and 2 halves of 3
        ("RouterGateUpProj", ["f32 2 4", "f32 4 9"], ["f32 2 3", "f32 2 3"], {}, MS, Cost(72, 12, 6, 176, 48)),
        ("BiasDropout", ["f32 2 4", "f32 4", "f32 2 4"], ["f32 2 4"], {}, MS, Cost(0, 16, 0, 80, 32)),
        ("BitmaskDropout", ["f32 2 4"], ["f32 2 4", "?"], {}, MS, Cost(0, 0, 0, 32, None)),
        ("MulInteger", ["u8 2 4", "u8", "u8 4", "u8"], ["i32 2 4"], {}, MS, Cost(0, 20, 0, 14, 32)),
        ("IsAllFinite", ["f32 2 4", "f32 3"], ["bool"], {}, MS, Cost(0, 0, 0, 44, 1)),
        ("QuantizeWithOrder", ["f32 2 4", "f32"], ["i8 2 4"], {}, MS, Cost(0, 8, 0, 36, 8)),
        ("QuantizeBFP", ["f32 2 4"], ["u8 10", "i64 2", "i64 2"], {}, MS, Cost(0, 16, 0, 32, 42)),
        # 2·4 tables of int8 rows: 3 tables, 8 elements: (6 + 9) · 8 + 3 · 2
        (
            "QEmbedLayerNormalization",
            ["i32 1 2", "i32 1 2", "i8 99 4", "i8 9 4", "i8 2 4", "i8 4", "i8 4"],
            ["f32 1 2 4"],
            {},
            MS,
            Cost(0, 126, 2, 24 + 16 + 8, 32),
        ),
        # LayerNorm of 2 rows of 4 (7 · 8 + 6) between two scalings
        (
            "QOrderedLayerNormalization",
            ["i8 2 4", "f32", "f16 4", "f16 4", "f32"],
            ["i8 2 4"],
            {},
            MS,
            Cost(0, 78, 2, 8 + 4 + 8 + 8 + 4, 8),
        ),
        # 3 real signals of 8: half of 5 · 8 · 3
        ("Rfft", ["f32 3 8"], ["f32 3 5 2"], {"signal_ndim": 1}, MS, Cost(0, 180, 0, 96, 120)),
        ("Irfft", ["f32 3 5 2"], ["f32 3 8"], {"signal_ndim": 1}, MS, Cost(0, 180, 0, 120, 96)),
        ("RemovePadding", ["f32 2 4 3", "i32 2"], ["f32 5 3", "i32 2 4", "i32 3", "i32 1"], {}, MS,
         Cost(0, 0, 0, 68, 60 + 32 + 12 + 4)),
        ("RestorePadding", ["f32 5 3", "i32 2 4"], ["f32 2 4 3"], {}, MS, Cost(0, 0, 0, 92, 96)),
        ("DynamicTimeWarping", ["f32 3 4"], ["i32 2 6"], {}, MS, Cost(0, 36, 0, 48, 48)),
        # 5 int64: 10 words · 4 and 2 each
        ("MurmurHash3", ["i64 5"], ["i32 5"], {}, MS, Cost(0, 50, 0, 40, 20)),
        # 6 tokens: 2 + 3 multiplications, then modulo of 6 · 4 heads
        (
            "NGramHashMapping",
            ["i64 2 3", "i64 3", "i64 4"],
            ["i64 2 3 4"],
            {"max_ngram_size": 3, "n_head_per_ngram": 2},
            MS,
            Cost(0, 54, 0, 48 + 24 + 32, 192),
        ),
        # legacy names of the default domain
        ("DisentangledAttention_TRT", ["f32 6 4 4", "f32 6 4 9", "f32 6 4 9"], ["f32 6 4 4"], {}, "",
         Cost(0, 288, 0, 3 * 384, 384)),
        ("GRUUnit", ["f32 2 4", "f32 2 12", "i32 2", "i32"], ["f32 2 4"], {}, "", Cost(0, 32, 16, 32 + 96 + 12, 32)),
        # 3 boxes of 2x2 in 2 channels: 24 elements, 8 FLOPs and 4 taps each; both maps are larger
        (
            "PyramidROIAlign_TRT",
            ["f32 1 3 4", "f32 1 2 32 32", "f32 1 2 16 16"],
            ["f32 1 3 2 2 2"],
            {},
            "",
            Cost(0, 192, 0, 48 + 384, 96),
        ),
        ("EfficientNMS_TRT", ["f32 1 9 4", "f32 1 9 2"], ["i32 1 1", "f32 1 3 4", "f32 1 3", "i32 1 3"], {}, "",
         Cost(0, 0, 0, 144 + 72, 4 + 48 + 12 + 12)),
        ("MemcpyToHost", ["f32 2 4"], ["f32 2 4"], {}, "", Cost(0, 0, 0, 32, 32)),
        ("GivenTensorFill", ["i64 2"], ["f32 2 4"], {}, "", Cost(0, 0, 0, 0, 32)),
        # of the standard: 6 mel bands of 5 frequencies, 4 FLOPs each, 8 powers and 2 logarithms
        ("MelWeightMatrix", ["i64", "i64", "i64", "f32", "f32"], ["f32 5 6"], {}, "", Cost(0, 20, 10, 0, 120)),
        # the inserted tensor is copied, nothing else
        ("SequenceInsert", ["?", "f32 2 4", "i64"], ["?"], {}, "", Cost(0, 0, 0, 40, 32)),
        ("SequenceErase", ["?", "i64"], ["?"], {}, "", Cost(0, 0, 0, 0, 0)),
    ],
)  # fmt: skip
def test_formulas(price, op, inputs, outputs, attrs, domain, expected):
    assert price(op, inputs, outputs, attrs, domain) == expected


def test_tables_of_a_tree_ensemble(price):
    # 5 rows through 2 trees; two nodes: feature int64 and a float split; three leaves: target int64 and a float weight
    attrs = {
        "tree_roots": (0, 1),
        "nodes_featureids": (0, 1),
        "nodes_splits": onnx.helper.make_tensor("s", 1, [2], [0.5, 0.5]),
        "leaf_targetids": (0, 0, 1),
        "leaf_weights": onnx.helper.make_tensor("w", 1, [3], [1.0, 2.0, 3.0]),
    }
    cost = price("TreeEnsemble", ["f32 5 3"], ["f32 5 2"], attrs, "ai.onnx.ml")
    assert cost == Cost(0, 10, 0, 60 + 2 * 12 + 3 * 12, 40)


def test_kernels_that_change_from_token_to_token_are_unknown(price):
    inputs = ["f32 5 4", "f32 4 1 3", "i32 3", "", "f32 2 4 2", "", "f32 5 2 2", "f32 5 1"]
    with pytest.raises(Unknown):
        price("VarlenCausalConvWithState", inputs, ["f32 5 4"], {}, MS)


def test_a_sequence_has_the_bytes_of_its_tensors():
    tensors = Value(items=(Value(1, (2, 3)), Value(1, (4,))))
    node = ir.Node("ConcatFromSequence", "", "", ("s",), ("y",), {"axis": 0})
    cost = FORMULAS["", "ConcatFromSequence"].formula(Call(node, (tensors,), (Value(1, (10,)),), 17))
    assert cost == Cost(0, 0, 0, 40, 40)
    node = ir.Node("SequenceAt", "", "", ("s", "i"), ("y",), {})
    position = Value(7, (), np.array(0, object))
    read = Call(node, (tensors, position), (Value(1, (2, 3)),), 17).read
    assert read() == 40 + 8
