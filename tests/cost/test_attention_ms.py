from __future__ import annotations

import numpy as np
import pytest

from onnxfuse import ir
from onnxfuse.cost import Cost
from onnxfuse.cost.registry import FORMULAS, Call, Unknown
from onnxfuse.facts.value import Value

from .conftest import value

MS = "com.microsoft"
GQA = {"num_heads": 4, "kv_num_heads": 2}


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "expected"),
    [
        # B 2, S 4, C 8, 2 heads of 4, 3 past: Skv 7, 112 scores · 8 MACs, projection 8·8·24; with a mask 6 FLOPs each
        (
            "Attention",
            ["f32 2 4 8", "f32 8 24", "f32 24", "i32 2 7", "f32 2 2 2 3 4"],
            ["f32 2 4 8", "f32 2 2 2 7 4"],
            {"num_heads": 2},
            Cost(1536 + 896, 6 * 112 + 192, 112, 4 * (64 + 192 + 24 + 14 + 96), 4 * (64 + 224)),
        ),
        # int8 weights: scaling 192 of the projection, zero points of x 64 and of w 192
        (
            "QAttention",
            ["u8 2 4 8", "i8 8 24", "f32 24", "f32", "f32", "", "u8", "i8"],
            ["f32 2 4 8"],
            {"num_heads": 2},
            Cost(1536 + 512, 5 * 64 + 192 + 192 + 256, 64, 64 + 192 + 96 + 4 + 4 + 1 + 1, 256),
        ),
        # three weights of 8x8, biases; projections (192) and the result (64) are scaled
        (
            "QOrderedAttention",
            ["i8 2 4 8", *["f32"] * 4, *["i8 8 8"] * 3, *["f32"] * 3, *["f32 8"] * 3, "f32", "f32", "f32"],
            ["i8 2 4 8"],
            {"num_heads": 2},
            Cost(1536 + 512, 5 * 64 + 192 + 192 + 64, 64, 64 + 16 + 192 + 12 + 96 + 12, 64),
        ),
        # one new token of 10: 2·2·10 scores of 4 + 4, projection 2·8·24
        (
            "DecoderMaskedSelfAttention",
            ["f32 2 1 8", "f32 8 24", "f32 24", "", "f32 2 2 2 9 4", "", "i32 1"],
            ["f32 2 1 8", "f32 2 2 2 10 4"],
            {"num_heads": 2},
            Cost(384 + 320, 5 * 40 + 48, 40, 4 * (16 + 192 + 24 + 288 + 1), 4 * (16 + 320)),
        ),
        (
            "DecoderMaskedMultiHeadAttention",
            ["f32 2 1 8", "f32 2 1 8", "f32 2 1 8", "", "", "f32 2 2 9 4", "f32 2 2 9 4"],
            ["f32 2 1 8", "f32 2 2 10 4", "f32 2 2 10 4"],
            {"num_heads": 2},
            Cost(320, 200, 40, 4 * (48 + 288), 4 * (16 + 320)),
        ),
        # q (S 4, B 2, C 8), k (T 5): q 64·8, k and v 80·16, 80 scores · 8; biases 64 + 160
        (
            "DecoderAttention",
            ["f32 4 2 8", "f32 5 2 8", "f32 8 8", "f32 8 16", "f32 24", "", "", "", *["bool 1"] * 4],
            ["f32 4 2 8"],
            {"num_heads": 2},
            Cost(512 + 1280 + 640, 5 * 80 + 224, 80, 4 * (64 + 80 + 64 + 128 + 24) + 4, 256),
        ),
        # 6 tokens of at most 4 keys: 24 pairs · 16, 48 scores; projection 6·8·24
        (
            "PackedAttention",
            ["f32 6 8", "f32 8 24", "f32 24", "i32 2 4", "i32 3"],
            ["f32 6 8"],
            {"num_heads": 2},
            Cost(1152 + 384, 5 * 48 + 144, 48, 4 * (48 + 192 + 24 + 8 + 3), 192),
        ),
        (
            "PackedMultiHeadAttention",
            ["f32 6 2 3 4", "", "", "", "i32 2 4", "i32 3"],
            ["f32 6 8"],
            {"num_heads": 2},
            Cost(384, 240, 48, 4 * (144 + 8 + 3), 192),
        ),
        # 3 tokens, 2 sequences of at most 2 pages of 16: 32 keys; 3·4·32 = 384 scores · 16 MACs, 6 FLOPs each.
        # Of 100 pages 64 rows of 2·8 are read, 3 new rows written to each cache
        (
            "PagedAttention",
            ["f32 3 32", "f32 3 16", "f32 3 16", "f32 100 16 2 8", "f32 100 16 2 8", "i32 3", "i32 2", "i32 2 2"],
            ["f32 3 32", "f32 100 16 2 8", "f32 100 16 2 8"],
            GQA,
            Cost(6144, 2304, 384, 4 * (96 + 96 + 2 * 1024 + 3 + 2 + 4), 4 * (96 + 2 * 48)),
        ),
        # 5 selected keys a token: 60 scores
        (
            "SparsePagedAttention",
            ["f32 3 32", "f32 3 16", "f32 3 16", "f32 100 16 2 8", "f32 100 16 2 8", "i32 3", "i32 2", "i32 2 2", "",
             "i32 3 5", "i32 3"],
            ["f32 3 32", "f32 100 16 2 8", "f32 100 16 2 8"],
            GQA,
            Cost(960, 360, 60, 4 * (96 + 96 + 2 * 1024 + 3 + 2 + 4 + 15 + 3), 4 * (96 + 2 * 48)),
        ),
        # a local window of 3 beside the 5; q, k, v packed in 32 + 32 columns
        (
            "DynamicSparseAttention",
            ["f32 1 3 64", "", "", "f32 1 2 20 8", "f32 1 2 20 8", "", "", "i32 3 5", "i32 3", "i32 1", "i32 1"],
            ["f32 1 3 32"],
            GQA | {"attention_mode": "local_plus_selected", "local_window_size": 3},
            Cost(1536, 576, 96, 4 * (192 + 2 * 320 + 15 + 3 + 1 + 1), 4 * 96),
        ),
        # rotary angles of a mixed sequence: 3 FLOPs an element
        (
            "MRotaryEmbedding",
            ["f32 2 4 18", "i64 3 2 4", "f32 9 3", "f32 9 3"],
            ["f32 2 4 18"],
            {},
            Cost(0, 432, 0, 576 + 192 + 216, 576),
        ),
        # sin and cos of 2·4·6 angles, 3 FLOPs for q and k of 144
        (
            "GemmaRotaryEmbedding",
            ["f32 2 4 6", *["f16 2 3 4 6"] * 4],
            ["f16 2 3 4 6"] * 2,
            {},
            Cost(0, 864, 96, 192 + 4 * 288, 576),
        ),
        # B 2, S 4, 3 heads of 5, G 6: 24 rows · 30 MACs; bias 120, + 6, two sums of 3 (4), gates 4; · 2·3·4·4 positions
        (
            "GatedRelativePositionBias",
            ["f32 2 4 15", "f32 15", "f32 1 3 4 4", "f32 5 6", "f32 6", "f32 1 3 1 1"],
            ["f32 2 3 4 4"],
            {"num_heads": 3},
            Cost(720, 120 + 24 * 14 + 96, 48, 4 * (120 + 15 + 48 + 30 + 6 + 3), 384),
        ),
        # one logarithm a pair
        ("RelativePositionBias", ["f32 32 3", "i64", "i64"], ["f32 1 3 4 5"], {}, Cost(0, 0, 20, 384 + 16, 240)),
    ],
)  # fmt: skip
def test_attention(price, op, inputs, outputs, attrs, expected):
    assert price(op, inputs, outputs, attrs, MS) == expected


def test_sparse_attention_is_bounded_by_its_blocks_and_by_a_dense_one():
    # 1 token of total 10 over 4 heads of 8: dense 40 scores; two blocks of 2x2 leave 4·8 = 32
    inputs = ["f32 1 1 32", "f32 1 1 16", "f32 1 1 16", "f32 1 2 16 8", "f32 1 2 16 8", "i32 1 5", "i32 1 {}"]
    for blocks, scores in ((2, 32), (9, 40)):
        values = [value(text.format(blocks)) for text in inputs] + [Value(6, (1,), np.array([10], object))]
        outputs = [value("f32 1 1 32"), value("f32 1 2 16 8"), value("f32 1 2 16 8")]
        node = ir.Node("SparseAttention", MS, "", tuple("abcdefgh"), ("y", "k", "v"), GQA | {"sparse_block_size": 2})
        cost = FORMULAS[MS, "SparseAttention"].formula(Call(node, tuple(values), tuple(outputs), 1))
        # of both caches 10 rows of 2·8 are read, one is written
        read = 4 * (32 + 32 + 2 * 160 + 5 + blocks + 1)
        assert cost == Cost(16 * scores, 6 * scores, scores, read, 4 * (32 + 2 * 16))


def test_decoder_attention_with_caches_is_unknown(price):
    inputs = ["f32 4 2 8", "f32 5 2 8", "f32 8 8", "f32 8 16", "f32 24", "", "f32 2 2 3 4", "f32 2 2 3 4"]
    with pytest.raises(Unknown):
        price("DecoderAttention", inputs, ["f32 4 2 8"], {"num_heads": 2}, MS)
