from __future__ import annotations

import pytest

from onnxfuse.cost import Cost

# 2x3x4 float32: 96 bytes
X = "f32 2 3 4"


@pytest.mark.parametrize("op", ["Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "BitCast", "Constant"])
def test_free(price, op):
    assert price(op, [X, "i64 3"], [X]) == Cost(0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "read", "written"),
    [
        # the shape is written, the tensor never read
        ("Shape", [X], ["i64 3"], {}, 0, 24),
        ("Size", [X], ["i64"], {}, 0, 8),
        # copies: the input once, however large the output
        ("Transpose", [X], ["f32 4 3 2"], {}, 96, 96),
        ("Concat", [X, "f32 2 3 1"], ["f32 2 3 5"], {}, 120, 120),
        ("Pad", [X, "i64 6"], ["f32 2 3 6"], {}, 144, 144),
        ("Tile", [X, "i64 3"], ["f32 4 3 4"], {}, 120, 192),
        ("Expand", ["f32 3 1", "i64 3"], ["f32 2 3 4"], {}, 36, 96),
        ("Trilu", ["f32 4 4"], ["f32 4 4"], {}, 64, 64),
        ("Dropout", [X], [X], {}, 96, 96),  # a copy in onnxruntime
        ("Dropout", [X], [X, "bool 2 3 4"], {}, 96, 120),
        ("DepthToSpace", ["f32 1 4 2 2"], ["f32 1 1 4 4"], {}, 64, 64),
        ("SpaceToDepth", ["f32 1 1 4 4"], ["f32 1 4 2 2"], {}, 64, 64),
        ("ReverseSequence", ["f32 4 2", "i64 2"], ["f32 4 2"], {}, 48, 32),
        # only what comes out is read
        ("Slice", [X, "i64 1", "i64 1"], ["f32 2 3 1"], {}, 24, 24),
        ("Split", [X], ["f32 2 1 4", "f32 2 2 4"], {}, 96, 96),
        ("Split", [X], ["f32 2 1 4", ""], {}, 32, 32),
        ("CenterCropPad", ["f32 8 2", "i64 2"], ["f32 4 4"], {}, 32, 64),  # 4x2 stay
        # gathered rows and int64 indices, not the table of 1000x4
        ("Gather", ["f32 1000 4", "i64 3"], ["f32 3 4"], {}, 72, 48),
        ("GatherElements", ["f32 1000 4", "i64 3 4"], ["f32 3 4"], {}, 144, 48),
        ("GatherND", ["f32 1000 4", "i64 3 1"], ["f32 3 4"], {}, 72, 48),
        ("Compress", ["f32 10 4", "bool 10"], ["f32 3 4"], {}, 58, 48),
        # data 160, indices 16, updates 32
        ("ScatterND", ["f32 10 4", "i64 2 1", "f32 2 4"], ["f32 10 4"], {}, 208, 160),
        ("ScatterElements", ["f32 10 4", "i64 2 4", "f32 2 4"], ["f32 10 4"], {}, 256, 160),
        ("TensorScatter", ["f32 1 10 4", "f32 1 2 4", "i64 1"], ["f32 1 10 4"], {}, 200, 160),
        # written from nothing
        ("ConstantOfShape", ["i64 3"], [X], {}, 0, 96),
        ("EyeLike", ["f32 3 3"], ["f32 3 3"], {}, 0, 36),
        ("OneHot", ["i64 3", "i64", "f32 2"], ["f32 3 5"], {}, 0, 60),
    ],
)
def test_moves(price, op, inputs, outputs, attrs, read, written):
    assert price(op, inputs, outputs, attrs) == Cost(0, 0, 0, read, written)


def test_scatter_with_reduction(price):
    # 8 updates are added
    cost = price("ScatterND", ["f32 10 4", "i64 2 1", "f32 2 4"], ["f32 10 4"], {"reduction": "add"})
    assert cost == Cost(0, 8, 0, 208, 160)


def test_range(price):
    assert price("Range", ["i64", "i64", "i64"], ["i64 5"]) == Cost(0, 5, 0, 0, 40)


@pytest.mark.parametrize("op", ["RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike"])
def test_random(price, op):
    assert price(op, ["f32 5"] if "Like" in op else [], ["f32 5"]) == Cost(0, 0, 5, 0, 20)


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "expected"),
    [
        ("Cast", ["f32 10"], ["f16 10"], Cost(0, 0, 0, 40, 20)),
        ("Cast", ["f32 10"], ["f32 10"], Cost(0, 0, 0, 0, 0)),  # a view
        ("CastLike", ["f32 10", "f16 1000"], ["f16 10"], Cost(0, 0, 0, 40, 20)),
        ("Cast", ["i4 5"], ["f32 5"], Cost(0, 0, 0, 3, 20)),  # 20 bits in 3 bytes
        ("Cast", ["i2 5"], ["f32 5"], Cost(0, 0, 0, 2, 20)),
        ("Cast", ["f6 5"], ["f32 5"], Cost(0, 0, 0, 4, 20)),  # 30 bits
        ("Cast", ["f8 5"], ["bf16 5"], Cost(0, 0, 0, 5, 10)),
        ("QuantizeLinear", ["f32 10", "f32", "u8"], ["u8 10"], Cost(0, 20, 0, 45, 10)),
        ("DequantizeLinear", ["i4 4 3", "f32 4"], ["f32 4 3"], Cost(0, 24, 0, 22, 48)),
        ("DynamicQuantizeLinear", ["f32 10"], ["u8 10", "f32", "u8"], Cost(0, 40, 0, 40, 15)),
    ],
)
def test_convert(price, op, inputs, outputs, expected):
    assert price(op, inputs, outputs) == expected


def test_strings_have_no_known_size(price):
    assert price("Concat", ["str 2", "str 3"], ["str 5"]) == Cost(0, 0, 0, None, None)


@pytest.mark.parametrize(
    ("op", "inputs", "outputs"),
    [
        ("TopK", ["f32 10", "i64 1"], ["f32 3", "i64 3"]),
        ("Unique", ["f32 9", "i64"], ["f32 3", "i64 3"]),
        ("NonZero", ["f32 11"], ["i64 1 4", "f32 1"]),
    ],
)
def test_search(price, op, inputs, outputs):
    # 40 + 8 or 36 + 8 or 44 bytes in, 12 + 24 or 32 + 4 out; keys are compared, not computed
    cost = price(op, inputs, outputs)
    assert (cost.macs, cost.arith, cost.transcendentals) == (0, 0, 0)
    assert (cost.bytes_read, cost.bytes_written) == ({"TopK": 48, "Unique": 44, "NonZero": 44}[op], 36)


def test_non_max_suppression(price):
    # boxes 1x6x4, scores 1x2x6, three parameters; at most 4 boxes come out
    cost = price("NonMaxSuppression", ["f32 1 6 4", "f32 1 2 6", "i64 1", "f32 1", "f32 1"], ["i64 4 3"])
    assert cost == Cost(0, 0, 0, 96 + 48 + 16, 96)
