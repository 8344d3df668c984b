from __future__ import annotations

import pytest

from onnxfuse.cost import Cost
from onnxfuse.cost.registry import Unknown

MS = "com.microsoft"
NBITS = {"K": 32, "N": 8, "bits": 4, "block_size": 32}


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "expected"),
    [
        # 3 rows · 32 · 8 = 768 MACs, 2 · 256 to dequantize; a 384, b 8·1·16 bytes, 8 scales; y 24
        (
            "MatMulNBits",
            ["f32 3 32", "u8 8 1 16", "f32 8"],
            ["f32 3 8"],
            NBITS,
            Cost(768, 512, 0, 384 + 128 + 32, 96),
        ),
        # a table look-up: 1 FLOP a weight
        ("MatMulBnb4", ["f32 3 32", "u8 128", "f32 4"], ["f32 3 8"], NBITS, Cost(768, 256, 0, 384 + 128 + 16, 96)),
        ("MatMulFpQ4", ["f32 3 32", "u8 160", "i64 2"], ["f32 3 8"], {}, Cost(768, 512, 0, 384 + 160 + 16, 96)),
        # a global scale: 24 more
        ("MatMulPacked", ["f32 3 32", "u8 8 18", "f32"], ["f32 3 8"], NBITS, Cost(768, 536, 0, 384 + 144 + 4, 96)),
        # fp8: a scale a weight (256), bias 24, a quantized 2 · 96
        (
            "MatMulBlockQuantizedFp8Weight",
            ["f16 3 32", "f8 8 32", "f32 8 1", "f32", "f16 8"],
            ["f16 3 8"],
            {},
            Cost(768, 256 + 24 + 192, 0, 192 + 256 + 32 + 4 + 16, 48),
        ),
        # fp4: two scales a weight
        (
            "MatMulBlockQuantizedFp4Weight",
            ["f16 3 32", "u8 8 16", "u8 8 2", "f32"],
            ["f16 3 8"],
            {},
            Cost(768, 512, 0, 192 + 128 + 16 + 4, 48),
        ),
        # two products; RMSNorm 4 · 96 + 2 · 3 with 3 roots; silu 24 with 24 sigmoids, · up 24
        (
            "MatMulNBitsMlp",
            ["f32 3 32", "", "f32 32", "u8 8 1 16", "f32 8", "", "u8 8 1 16", "f32 8"],
            ["f32 3 8"],
            NBITS | {"activation": "silu"},
            Cost(1536, 390 + 1024 + 24 + 24, 27, 384 + 128 + 2 * (128 + 32), 96),
        ),
        # q 8, k and v 4 columns: 3 · 32 · 16; skip 96 more; biases 3 · 8 of q
        (
            "MatMulNBitsQkv",
            ["f32 3 32", "f32 3 32", "f32 32", "u8 8 1 16", "f32 8", "f32 8", "u8 4 1 16", "f32 4", "", "u8 4 1 16",
             "f32 4"],
            ["f32 3 8", "f32 3 4", "f32 3 4"],
            {"K": 32, "Nq": 8, "Nkv": 4},
            Cost(1536, 480 + 6 + 1024 + 24, 3, 384 * 2 + 128 + (128 + 32 + 32) + 2 * (64 + 16), 4 * 48),
        ),
        # rank 2: 3 · (256 + 2·32 + 2·8); 2 FLOPs a weight, 24 to add
        (
            "MatMulNBitsQLoRA",
            ["f32 3 32", "u8 8 1 16", "f32 8 1", "u8 2 1 16", "f32 2 1", "u8 8 1 16", "f32 8 1"],
            ["f32 3 8"],
            NBITS,
            Cost(1008, 696, 0, 384 + (128 + 32) + (32 + 8) + (128 + 32), 96),
        ),
        # 5 of 100 rows of 32: 160 elements in 80 bytes, 5 scales, 40 bytes of indices
        (
            "GatherBlockQuantized",
            ["u8 100 16", "i64 5", "f32 100 1"],
            ["f32 5 32"],
            {"block_size": 32},
            Cost(0, 160, 0, 80 + 20 + 40, 640),
        ),
        # with zero points 2 FLOPs and 5 nibbles more; int4 by its own type
        (
            "GatherBlockQuantized",
            ["i4 100 32", "i64 5", "f32 100 1", "i4 100 1"],
            ["f32 5 32"],
            {"block_size": 32},
            Cost(0, 320, 0, 80 + 20 + 40 + 3, 640),
        ),
        ("GatherPacked", ["u8 100 18", "i64 5"], ["f32 5 32"], {"K": 32}, Cost(0, 320, 0, 90 + 40, 640)),
    ],
)  # fmt: skip
def test_packed_weights(price, op, inputs, outputs, attrs, expected):
    assert price(op, inputs, outputs, attrs, MS) == expected


# 5 tokens of 4, 8 experts of 4 -> 6 -> 4; 2 a token: 10 rows, so all 8 experts are read. Routing: 4·40 − 2·5 FLOPs and
# 40 exp; the sum: 2 rows of 4, (2·10 − 5) · 4 FLOPs
ROUTING, SUM = 150, 60


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "expected"),
    [
        # 10 · (24 + 24) MACs, relu 60
        (
            "MoE",
            ["f32 5 4", "f32 5 8", "f32 8 6 4", "", "f32 8 4 6"],
            {"k": 2},
            Cost(480, ROUTING + SUM + 60, 40, 80 + 160 + 2 * 768, 80),
        ),
        # silu · fc3: 10 · 72 MACs; an element: silu 1 and the product 1, a sigmoid; biases 10 · 6
        (
            "MoE",
            ["f32 5 4", "f32 5 8", "f32 8 6 4", "f32 8 6", "f32 8 4 6", "", "f32 8 6 4"],
            {"k": 2, "activation_type": "silu"},
            Cost(720, ROUTING + SUM + 120 + 60, 100, 80 + 160 + 3 * 768 + 192, 80),
        ),
        # one token chooses 2 of 8 experts: two are read, 8 + 32 bytes of x and routing beside them
        (
            "MoE",
            ["f32 1 4", "f32 1 8", "f32 8 6 4", "", "f32 8 4 6"],
            {"k": 2},
            Cost(96, 32 - 2 + 12 + 12, 8, 16 + 32 + 2 * 192, 16),
        ),
        # fused swiglu, 4 bits: 12 rows -> 6; 10 · 4 · 18 MACs, 8 · 72 weights · 2, 2 FLOPs and a sigmoid for 60
        (
            "QMoE",
            ["f32 5 4", "f32 5 8", "u8 8 12 2", "f32 8 12", "", "u8 8 4 3", "f32 8 4"],
            {"k": 2, "activation_type": "swiglu"},
            Cost(720, ROUTING + SUM + 120 + 1152, 100, 80 + 160 + 192 + 384 + 96 + 128, 80),
        ),
        # gate, up, down of 4·6
        (
            "MoEPacked",
            ["f32 5 4", "f32 5 8", "u8 8 6 4", "u8 8 6 4", "u8 8 4 6"],
            {"k": 2},
            Cost(720, ROUTING + SUM + 120 + 1152, 100, 80 + 160 + 3 * 192, 80),
        ),
    ],
)
def test_experts(price, op, inputs, attrs, expected):
    outputs = [inputs[0]]
    assert price(op, inputs, outputs, attrs, MS) == expected


def test_router(price):
    # 5 tokens, 8 experts: σ of 40, + bias 40, two groups of the sum of two: 5 · 2; log of 3 a token
    cost = price("MoEGroupRouter", ["f32 5 8", "f32 8"], ["f32 5 8"], {"top_k": 3, "n_group": 2}, MS)
    assert cost == Cost(0, 50, 55, 160 + 32, 160)
    projected = price("MoEGroupRouter", ["f32 5 4", "f32 8", "f32 8 4"], ["f32 5 8"], {"top_k": 3}, MS)
    assert projected.macs == 160


def test_a_size_that_does_not_fit_is_unknown(price):
    with pytest.raises(Unknown):
        price("MatMulNBitsMlp", ["f32 3 16", "", "", "u8 8 1 16", "f32 8", "", "u8 8 1 16", "f32 8"], ["?"], NBITS, MS)
