from __future__ import annotations

import pytest

from onnxfuse.cost import Cost

MS = "com.microsoft"


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "domain", "expected"),
    [
        # 2x3 by 3x4: 8 · 3 = 24 MACs; (6 + 12) · 4 bytes
        ("MatMul", ["f32 2 3", "f32 3 4"], ["f32 2 4"], {}, "", Cost(24, 0, 0, 72, 32)),
        # one weight matrix for 5 batches is read once: 5·8·3 = 120; (30 + 12) · 4
        ("MatMul", ["f32 5 2 3", "f32 3 4"], ["f32 5 2 4"], {}, "", Cost(120, 0, 0, 168, 160)),
        # vectors: dot product, vector-matrix, matrix-vector
        ("MatMul", ["f32 3", "f32 3"], ["f32"], {}, "", Cost(3, 0, 0, 24, 4)),
        ("MatMul", ["f32 3", "f32 3 4"], ["f32 4"], {}, "", Cost(12, 0, 0, 60, 16)),
        ("MatMul", ["f32 2 3", "f32 3"], ["f32 2"], {}, "", Cost(6, 0, 0, 36, 8)),
        # zero points: 6 + 12 subtractions; 6 + 12 + 1 + 1 bytes, int32 out
        ("MatMulInteger", ["u8 2 3", "u8 3 4", "u8", "u8"], ["i32 2 4"], {}, "", Cost(24, 18, 0, 20, 32)),
        ("MatMulInteger", ["u8 2 3", "u8 3 4", "", "u8"], ["i32 2 4"], {}, "", Cost(24, 12, 0, 19, 32)),
        (
            "QLinearMatMul",
            ["u8 2 3", "f32", "u8", "u8 3 4", "f32", "u8", "f32", "u8"],
            ["u8 2 4"],
            {},
            "",
            Cost(24, 18, 0, 6 + 12 + 12 + 3, 8),
        ),
        # Gemm 2x3 by 3x4 + c of 4: 8 bias additions; (6 + 12 + 4) · 4 bytes
        ("Gemm", ["f32 2 3", "f32 3 4", "f32 4"], ["f32 2 4"], {}, "", Cost(24, 8, 0, 88, 32)),
        # alpha and beta other than 1: 8 + 8 more
        (
            "Gemm",
            ["f32 2 3", "f32 3 4", "f32 4"],
            ["f32 2 4"],
            {"alpha": 0.5, "beta": 2.0},
            "",
            Cost(24, 24, 0, 88, 32),
        ),
        # beta without c costs nothing; a transposed: K = 3 stands first
        (
            "Gemm",
            ["f32 3 2", "f32 4 3"],
            ["f32 2 4"],
            {"transA": 1, "transB": 1, "beta": 2.0},
            "",
            Cost(24, 0, 0, 72, 32),
        ),
        (
            "FusedGemm",
            ["f32 2 3", "f32 3 4", "f32 4"],
            ["f32 2 4"],
            {"activation": "Relu"},
            MS,
            Cost(24, 16, 0, 88, 32),
        ),
        ("FusedMatMul", ["f32 2 3", "f32 3 4"], ["f32 2 4"], {"alpha": 0.125}, MS, Cost(24, 8, 0, 72, 32)),
        (
            "FusedMatMul",
            ["f32 5 3 2", "f32 5 4 3"],
            ["f32 5 2 4"],
            {"transA": 1, "transB": 1},
            MS,
            Cost(120, 0, 0, 360, 160),
        ),
        # transBatchA: a stands as (M, batch, K)
        ("FusedMatMul", ["f32 2 5 3", "f32 5 3 4"], ["f32 5 2 4"], {"transBatchA": 1}, MS, Cost(120, 0, 0, 360, 160)),
        # a transposed; zero points 6 + 12, bias 8; 6 + 12 + 8 + 2 + 32 bytes
        (
            "QGemm",
            ["u8 3 2", "f32", "u8", "u8 3 4", "f32", "u8", "i32 2 4"],
            ["f32 2 4"],
            {"transA": 1},
            MS,
            Cost(24, 26, 0, 60, 32),
        ),
        # bias 8, FastGelu 8 · 8, tanh 8
        ("GemmFastGelu", ["f32 2 3", "f32 3 4", "f32 4"], ["f32 2 4"], {}, MS, Cost(24, 72, 8, 88, 32)),
        # scaling 8, bias 8; 6 + 12 + 4 + 4 + 16
        (
            "MatMulIntegerToFloat",
            ["u8 2 3", "u8 3 4", "f32", "f32", "", "", "f32 4"],
            ["f32 2 4"],
            {},
            MS,
            Cost(24, 16, 0, 42, 32),
        ),
        # quantize 4·6, zero point of a 6, scale 8; 24 + 12 + 4
        ("DynamicQuantizeMatMul", ["f32 2 3", "u8 3 4", "f32"], ["f32 2 4"], {}, MS, Cost(24, 38, 0, 40, 32)),
        # 4-bit: N 4, K 32: a 2x32, packed b 4x1x16 bytes, scales 4: 8·32 = 256 MACs, 2·128 to dequantize; 256 + 64 + 16
        (
            "MatMulNBits",
            ["f32 2 32", "u8 4 1 16", "f32 4"],
            ["f32 2 4"],
            {"K": 32, "N": 4, "bits": 4, "block_size": 32},
            MS,
            Cost(256, 256, 0, 336, 32),
        ),
        # labels b 5, i 2, k 3, j 4: 120
        (
            "Einsum",
            ["f32 5 2 3", "f32 5 3 4"],
            ["f32 5 2 4"],
            {"equation": "bik,bkj->bij"},
            "",
            Cost(120, 0, 0, 360, 160),
        ),
        (
            "Einsum",
            ["f32 5 2 3", "f32 5 3 4"],
            ["f32 5 2 4"],
            {"equation": "...ik, ...kj"},
            "",
            Cost(120, 0, 0, 360, 160),
        ),
        # three operands: (i j)(j k) = 2·3·4 = 24, then (i k)(k l) = 2·4·5 = 40; (6 + 12 + 20) · 4 bytes
        (
            "Einsum",
            ["f32 2 3", "f32 3 4", "f32 4 5"],
            ["f32 2 5"],
            {"equation": "ij,jk,kl->il"},
            "",
            Cost(64, 0, 0, 152, 40),
        ),
        # one operand: row sums, 6 − 2 additions; a transpose costs none
        ("Einsum", ["f32 2 3"], ["f32 2"], {"equation": "ij->i"}, "", Cost(0, 4, 0, 24, 8)),
        ("Einsum", ["f32 2 3"], ["f32 3 2"], {"equation": "ij->ji"}, "", Cost(0, 0, 0, 24, 24)),
        # the trace and the diagonal: 5 elements are read, and added in 4 steps
        ("Einsum", ["f32 5 5"], ["f32"], {"equation": "ii->"}, "", Cost(0, 4, 0, 20, 4)),
        ("Einsum", ["f32 5 5"], ["f32 5"], {"equation": "ii->i"}, "", Cost(0, 0, 0, 20, 20)),
        ("Einsum", ["f32 5 5 2"], ["f32 2"], {"equation": "iij->j"}, "", Cost(0, 8, 0, 40, 8)),
    ],
)
def test_matmul(price, op, inputs, outputs, attrs, domain, expected):
    assert price(op, inputs, outputs, attrs, domain) == expected


def test_bert_attention_scores(price):
    # 12 heads, 128 x 64 by 64 x 128: 12 · 128 · 128 · 64 = 12,582,912
    assert price("MatMul", ["f32 1 12 128 64", "f32 1 12 64 128"], ["f32 1 12 128 128"]).macs == 12_582_912


def test_symbolic(price):
    cost = price("MatMul", ["f32 N 3", "f32 3 4"], ["f32 N 4"])
    assert [str(n) for n in (cost.macs, cost.flops, cost.bytes)] == ["12·N", "24·N", "28·N + 48"]
