from __future__ import annotations

import pytest

from onnxfuse.cost import Cost

MS = "com.microsoft"
# x 1x3x8x8 = 192 elements, w 4x3x3x3 = 108, y (pad 1) 1x4x8x8 = 256: 256 · 27 = 6912 MACs
X, W, B, Y = "f32 1 3 8 8", "f32 4 3 3 3", "f32 4", "f32 1 4 8 8"


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "domain", "expected"),
    [
        # bytes 4·192 + 4·108 = 1200 read, 4·256 = 1024 written
        ("Conv", [X, W], [Y], {}, "", Cost(6912, 0, 0, 1200, 1024)),
        # the bias: 256 FLOPs, 16 bytes
        ("Conv", [X, W, B], [Y], {}, "", Cost(6912, 256, 0, 1216, 1024)),
        # depthwise 4 channels 8x8, 3x3: 256 · 9 = 2304; 1024 + 144 bytes read
        ("Conv", ["f32 1 4 8 8", "f32 4 1 3 3"], [Y], {"group": 4}, "", Cost(2304, 0, 0, 1168, 1024)),
        # 1-D, batch 2: y 2x5x6 = 60, w 5x3x3: 60 · 9 = 540; x 2x3x8 = 48: 192 + 180
        ("Conv", ["f32 2 3 8", "f32 5 3 3"], ["f32 2 5 6"], {}, "", Cost(540, 0, 0, 372, 240)),
        # 3-D, half precision: y 1x2x2x2x2 = 16, w 2x1x3x3x3: 16 · 27 = 432; x 1x1x4x4x4 = 64: 128 + 108
        ("Conv", ["f16 1 1 4 4 4", "f16 2 1 3 3 3"], ["f16 1 2 2 2 2"], {}, "", Cost(432, 0, 0, 236, 32)),
        # 64 -> 32 channels, 2x2, stride 2, 8x8 -> 16x16: by the INPUT volume 64·64·32·4 = 524,288
        (
            "ConvTranspose",
            ["f32 1 64 8 8", "f32 64 32 2 2", "f32 32"],
            ["f32 1 32 16 16"],
            {},
            "",
            Cost(524288, 8192, 0, 16384 + 32768 + 128, 32768),
        ),
        # integer: 192 + 108 bytes + two zero points of 1 byte; int32 out
        ("ConvInteger", ["u8 1 3 8 8", "u8 4 3 3 3", "u8", "u8"], ["i32 1 4 8 8"], {}, "", Cost(6912, 0, 0, 302, 1024)),
        # x, w bytes 192 + 108, scales 3·4, zero points 3·1, bias 16
        (
            "QLinearConv",
            ["u8 1 3 8 8", "f32", "u8", "u8 4 3 3 3", "f32", "u8", "f32", "u8", "i32 4"],
            ["u8 1 4 8 8"],
            {},
            "",
            Cost(6912, 256, 0, 192 + 108 + 12 + 3 + 16, 256),
        ),
        # bias, residual, Relu: 3 · 256 FLOPs; the residual adds 1024 bytes
        ("FusedConv", [X, W, B, Y], [Y], {"activation": "Relu"}, MS, Cost(6912, 768, 0, 2240, 1024)),
        ("FusedConv", [X, W, B], [Y], {"activation": "Sigmoid"}, MS, Cost(6912, 256, 256, 1216, 1024)),
        ("FusedConv", [X, W, "", Y], [Y], {"activation": "HardSigmoid"}, MS, Cost(6912, 256 + 1024, 0, 2224, 1024)),
        # y 1x2x2x2 = 8, w 2x1x2x2 = 8, x 1x1x3x3 = 9, offset 1x8x2x2 = 32: 8·4 = 32 MACs; samples 1·1·4·4 = 16,
        # 4·2²·16 = 256 FLOPs; bytes 4·(9 + 8 + 32)
        (
            "DeformConv",
            ["f32 1 1 3 3", "f32 2 1 2 2", "f32 1 8 2 2"],
            ["f32 1 2 2 2"],
            {},
            "",
            Cost(32, 256, 0, 196, 32),
        ),
        # depthwise 1x4x6, 3 taps: 24 · 3 = 72; bias 24, SiLU 24 + 24; bytes 4·(24 + 12 + 4 + 8)
        (
            "CausalConvWithState",
            ["f32 1 4 6", "f32 4 1 3", "f32 4", "f32 1 4 2"],
            ["f32 1 4 6", "f32 1 4 2"],
            {"activation": "silu"},
            "",
            Cost(72, 48, 24, 192, 128),
        ),
        # NHWC weights (M, kH, kW, C/group): the same product
        ("NhwcFusedConv", ["f16 1 8 8 3", "f16 4 3 3 3"], ["f16 1 8 8 4"], {}, MS, Cost(6912, 0, 0, 600, 512)),
    ],
)
def test_conv(price, op, inputs, outputs, attrs, domain, expected):
    assert price(op, inputs, outputs, attrs, domain) == expected


def test_published_first_layer_of_resnet(price):
    # 7x7 stride 2 on 224x224: 112·112·64 · 3·49 = 118,013,952, as in every table of ResNet-50 (0.118 GMAC)
    cost = price("Conv", ["f32 1 3 224 224", "f32 64 3 7 7"], ["f32 1 64 112 112"], {"strides": (2, 2)})
    assert cost.macs == 118_013_952
    assert cost.flops == 2 * 118_013_952
