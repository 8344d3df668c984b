from __future__ import annotations

import pytest

from onnxfuse.cost import Cost

MS = "com.microsoft"
# x 2x3x4: n = 24, 96 bytes; rows of 4: r = 6; rows of 12: r = 2
X = "f32 2 3 4"


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "domain", "opset", "expected"),
    [
        # max 24−6, subtract 24, sum 24−6, divide 24 = 84
        ("Softmax", [X], [X], {}, "", 13, Cost(0, 84, 24, 96, 96)),
        # until opset 12 axis 1 makes 2 rows of 12: 96 − 4
        ("Softmax", [X], [X], {}, "", 11, Cost(0, 92, 24, 96, 96)),
        # axis 1 alone: rows of 3, r = 8
        ("Softmax", [X], [X], {"axis": 1}, "", 13, Cost(0, 80, 24, 96, 96)),
        ("LogSoftmax", [X], [X], {}, "", 13, Cost(0, 96, 30, 96, 96)),
        ("Hardmax", [X], [X], {}, "", 13, Cost(0, 18, 0, 96, 96)),
        # 7·24 + 3·6; x 96, scale 16, bias 16
        ("LayerNormalization", [X, "f32 4", "f32 4"], [X], {}, "", 17, Cost(0, 186, 6, 128, 96)),
        ("LayerNormalization", [X, "f32 4"], [X], {}, "", 17, Cost(0, 162, 6, 112, 96)),
        # axis 1: r = 2; mean and 1/σ of 2 each are written
        (
            "LayerNormalization",
            [X, "f32 3 4", "f32 3 4"],
            [X, "f32 2 1 1", "f32 2 1 1"],
            {"axis": 1},
            "",
            17,
            Cost(0, 174, 2, 192, 112),
        ),
        # 4·24 + 2·6
        ("RMSNormalization", [X, "f32 4"], [X], {}, "", 23, Cost(0, 108, 6, 112, 96)),
        ("SimplifiedLayerNormalization", [X, "f32 4"], [X], {}, "", 17, Cost(0, 108, 6, 112, 96)),
        # LayerNorm 186 + skip 24; reads x, skip, gamma, beta
        ("SkipLayerNormalization", [X, X, "f32 4", "f32 4"], [X], {}, MS, 1, Cost(0, 210, 6, 224, 96)),
        # + bias 24; the sum is a fourth output
        (
            "SkipLayerNormalization",
            [X, X, "f32 4", "f32 4", "f32 4"],
            [X, "", "", X],
            {},
            MS,
            1,
            Cost(0, 234, 6, 240, 192),
        ),
        ("SkipSimplifiedLayerNormalization", [X, X, "f32 4"], [X], {}, MS, 1, Cost(0, 132, 6, 208, 96)),
        # 7·24, one row for each of 2·3 channels
        ("InstanceNormalization", [X, "f32 3", "f32 3"], [X], {}, "", 17, Cost(0, 168, 6, 120, 96)),
        # 1x4x6, 2 groups
        (
            "GroupNormalization",
            ["f32 1 4 6", "f32 4", "f32 4"],
            ["f32 1 4 6"],
            {"num_groups": 2},
            "",
            21,
            Cost(0, 168, 2, 128, 96),
        ),
        # NHWC with SiLU: 7·24 + 24, 2 + 24
        (
            "GroupNorm",
            ["f16 1 6 4", "f32 4", "f32 4"],
            ["f16 1 6 4"],
            {"groups": 2, "activation": 1},
            MS,
            1,
            Cost(0, 192, 26, 80, 48),
        ),
        # 2·24 + 4·3; four vectors of 3
        ("BatchNormalization", [X, *["f32 3"] * 4], [X], {}, "", 15, Cost(0, 60, 3, 144, 96)),
        # squares 24, sums 24 − 6, divisions 24
        ("LpNormalization", [X], [X], {}, "", 1, Cost(0, 66, 6, 96, 96)),
        ("LpNormalization", [X], [X], {"p": 1}, "", 1, Cost(0, 66, 0, 96, 96)),
        # axes 0, 2: one row for each of 3 channels: 5·24 + 3·3
        ("MeanVarianceNormalization", [X], [X], {"axes": (0, 2)}, "", 13, Cost(0, 129, 3, 96, 96)),
        # all elements are one row: 5·24 + 3
        ("MeanVarianceNormalization", [X], [X], {"across_channels": 1}, "", 8, Cost(0, 123, 1, 96, 96)),
        # bias 24 + Softmax with rows of 4 (axis 2)
        ("BiasSoftmax", [X, "f32 4"], [X], {"axis": 2}, MS, 1, Cost(0, 108, 24, 112, 96)),
        # 2x3 tokens, hidden 4: LayerNorm 7·24 + 3·6, two more embeddings are added: 2·24. Read: 3 gathered rows of 96,
        # ids 24 + 24, gamma, beta 16 + 16; written: 96 and the mask index 8
        (
            "EmbedLayerNormalization",
            ["i32 2 3", "i32 2 3", "f32 100 4", "f32 50 4", "f32 2 4", "f32 4", "f32 4"],
            [X, "i32 2"],
            {},
            MS,
            1,
            Cost(0, 234, 6, 368, 104),
        ),
    ],
)
def test_norm(price, op, inputs, outputs, attrs, domain, opset, expected):
    assert price(op, inputs, outputs, attrs, domain, opset) == expected
