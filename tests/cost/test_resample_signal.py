from __future__ import annotations

import numpy as np
import pytest

from onnxfuse import ir
from onnxfuse.cost import Cost
from onnxfuse.cost.registry import FORMULAS, Call
from onnxfuse.facts.value import UNKNOWN, Value


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "expected"),
    [
        # 1x2x3x3 = 18 -> 1x2x6x6 = 72 elements; all of the input is read, 4 scales
        ("Resize", ["f32 1 2 3 3", "", "f32 4"], ["f32 1 2 6 6"], {"mode": "nearest"}, Cost(0, 0, 0, 88, 288)),
        # two axes change: 2² taps of 2 FLOPs for each of 72
        ("Resize", ["f32 1 2 3 3", "", "f32 4"], ["f32 1 2 6 6"], {"mode": "linear"}, Cost(0, 576, 0, 88, 288)),
        # 4² taps
        ("Resize", ["f32 1 2 3 3", "", "f32 4"], ["f32 1 2 6 6"], {"mode": "cubic"}, Cost(0, 2304, 0, 88, 288)),
        # one axis changes: 2 taps of 2 FLOPs for each of 36
        ("Resize", ["f32 1 2 3 3", "", "f32 4"], ["f32 1 2 3 6"], {"mode": "linear"}, Cost(0, 144, 0, 88, 144)),
        # nearest 8x8 -> 2x2 touches 8 elements of 128
        ("Resize", ["f32 1 2 8 8", "", "", "i64 4"], ["f32 1 2 2 2"], {"mode": "nearest"}, Cost(0, 0, 0, 64, 32)),
        ("Upsample", ["f32 1 2 3 3", "f32 4"], ["f32 1 2 6 6"], {}, Cost(0, 0, 0, 88, 288)),
        # 4 taps of 2 FLOPs for each of 8 elements, 8 a grid point (4)
        ("GridSample", ["f32 1 2 8 8", "f32 1 2 2 2"], ["f32 1 2 2 2"], {}, Cost(0, 96, 0, 160, 32)),
        # 3 boxes, 2 channels, 2x2, 2² bilinear samples of 8 FLOPs: 24 · 32; x 512, boxes 48, indices 24; at most
        # 4·4 taps an output element would be read, more than there is
        (
            "RoiAlign",
            ["f32 1 2 8 8", "f32 3 4", "i64 3"],
            ["f32 3 2 2 2"],
            {"sampling_ratio": 2},
            Cost(0, 768, 0, 584, 96),
        ),
        # 1x2x3 grid points of (x, y, 1) by 2x3: 12 outputs · 3
        ("AffineGrid", ["f32 1 2 3", "i64 4"], ["f32 1 2 3 2"], {}, Cost(36, 0, 0, 56, 48)),
        # 1 x 4 x 9 columns added into the image
        ("Col2Im", ["f32 1 4 9", "i64 2", "i64 2"], ["f32 1 1 4 4"], {}, Cost(0, 36, 0, 176, 64)),
        # 4x4: 64/3 = 21 MACs; batch of 2: 128/3 = 42
        ("Det", ["f32 4 4"], ["f32"], {}, Cost(21, 0, 0, 64, 4)),
        ("Det", ["f32 2 4 4"], ["f32 2"], {}, Cost(42, 0, 0, 128, 8)),
        ("HannWindow", ["i64"], ["f32 8"], {}, Cost(0, 24, 8, 0, 32)),
        ("HammingWindow", ["i64"], ["f32 8"], {}, Cost(0, 24, 8, 0, 32)),
        ("BlackmanWindow", ["i64"], ["f32 8"], {}, Cost(0, 48, 16, 0, 32)),
        # scores 2x5: 5·10, 10 exp; one loss
        ("SoftmaxCrossEntropyLoss", ["f32 2 5", "i64 2"], ["f32"], {}, Cost(0, 50, 10, 56, 4)),
        ("NegativeLogLikelihoodLoss", ["f32 2 5", "i64 2"], ["f32"], {}, Cost(0, 4, 0, 56, 4)),
    ],
)
def test_formulas(price, op, inputs, outputs, attrs, expected):
    assert price(op, inputs, outputs, attrs) == expected


def test_inverse(price):
    assert price("Inverse", ["f32 4 4"], ["f32 4 4"], domain="com.microsoft") == Cost(64, 0, 0, 64, 64)


def test_dft():
    # 3 signals of 8 complex numbers: 5 · 8 · 3 = 120 each; one-sided real: half
    node = ir.Node("DFT", "", "", ("x", "", "axis"), ("y",), {})
    axis = Value(7, (), np.array(-2, object))
    out = Value(1, (3, 8, 2))
    full = FORMULAS["", "DFT"].formula(Call(node, (Value(1, (3, 8, 2)), UNKNOWN, axis), (out,), 20))
    assert full == Cost(0, 360, 0, 3 * 8 * 2 * 4 + 8, 192)
    half = ir.Node("DFT", "", "", ("x",), ("y",), {"onesided": 1, "axis": 1})
    out = Value(1, (3, 5, 2))
    assert FORMULAS["", "DFT"].formula(Call(half, (Value(1, (3, 8, 1)),), (out,), 17)) == Cost(0, 180, 0, 96, 120)


def test_stft():
    # 2 signals, 5 frames of 8, one-sided: 10 · (60 + 8 for the window); signal 2x40, step 8, window 32 bytes
    node = ir.Node("STFT", "", "", ("x", "step", "window"), ("y",), {})
    inputs = (Value(1, (2, 40, 1)), Value(7, ()), Value(1, (8,)))
    cost = FORMULAS["", "STFT"].formula(Call(node, inputs, (Value(1, (2, 5, 5, 2)),), 17))
    assert cost == Cost(0, 680, 0, 320 + 8 + 32, 400)
