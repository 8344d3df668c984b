from __future__ import annotations

import pytest

from onnxfuse.cost import Cost

MS = "com.microsoft"


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "expected"),
    [
        # 5 tokens, 2 query and key heads of 3, 4 value heads of 6: state 18 a head. Read by 4 heads, by the key and
        # updated: 5·18·12 MACs; decayed 5·4·18; exp of 20 decays
        (
            "GatedDeltaNet",
            ["f32 5 2 3", "f32 5 2 3", "f32 5 4 6", "", "f32 5 4", "f32 5 4"],
            ["f32 5 4 6"],
            {},
            Cost(1080, 360, 20, 4 * (30 + 30 + 120 + 20 + 20), 480),
        ),
        # packed: 2·2·3 + 4·6 = 36 columns and the state; normalized q and k (60 elements, 20 vectors) and
        # σ(beta): 20; a softplus decay: 3 FLOPs and 2 functions more
        (
            "GatedDeltaNet",
            ["f32 5 36", "", "", "", "f32 5 4", "f32 5 4", "f32 1 4 6 3", "f32 4", "f32 4"],
            ["f32 5 4 6", "f32 1 4 6 3"],
            {"qk_l2_norm": 1, "beta_activation": "sigmoid", "gate_activation": "softplus"},
            Cost(1080, 360 + 60 + 180, 60 + 20 + 20, 4 * (180 + 40 + 72 + 8), 4 * (120 + 72)),
        ),
        # 3 tokens of 2·6: 3 FLOPs and 2 functions for the decay, a sigmoid for beta
        (
            "LinearAttentionGate",
            ["f32 1 3 6", "f32 6", "f32 6", "f32 1 3 6"],
            ["f32 1 3 6", "f32 1 3 6"],
            {},
            Cost(0, 54, 54, 4 * 48, 144),
        ),
        # 2 tokens, 3 heads of 4, state 5: inner 12, channels 12 + 2·5 = 22; 2 · (88 + 120 + 12) MACs;
        # 2 · (44 + 60 + 12 + 12 + 24 + 48 + 2), 2 · (22 + 9 + 12 + 1)
        (
            "Mamba2Verify",
            ["f32 2 37", "f32 4 22 3", "f32 4 3 5 4", "f32 22 4"],
            ["f32 2 12"],
            {"n_groups": 1},
            Cost(440, 404, 88, 4 * (74 + 264 + 240 + 88), 96),
        ),
        # LSTM of S 5, B 2, I 3, H 4 (1120 MACs, 480, 200); memory 2x6x7, A 3, no attention layer: a step of one row
        # takes 4·3 + 6·(3 + 7) = 72, the keys 2·6·7·3 = 252; tanh and exp 18 + 6, sums 18, softmax 22
        (
            "AttnLSTM",
            ["f32 5 2 3", "f32 1 16 3", "f32 1 16 4", "", "", "", "", "", "f32 1 4 3", "f32 1 7 3", "f32 1 3",
             "f32 2 6 7"],
            ["f32 5 1 2 4"],
            {"hidden_size": 4},
            Cost(1120 + 720 + 252, 480 + 400, 200 + 240, 4 * (30 + 48 + 64 + 12 + 21 + 3 + 84), 160),
        ),
    ],
)  # fmt: skip
def test_state(price, op, inputs, outputs, attrs, expected):
    assert price(op, inputs, outputs, attrs, MS) == expected


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "expected"),
    [
        # g · σ(g) · u: 2 FLOPs, a sigmoid; clamps 3, alpha and beta 1 each
        ("SwiGLU", ["f32 3 8"], ["f32 3 4"], {}, Cost(0, 24, 12, 96, 48)),
        (
            "SwiGLU",
            ["f32 3 4", "f32 3 4"],
            ["f32 3 4"],
            {"limit": 7.0, "activation_alpha": 1.7, "activation_beta": 1.0},
            Cost(0, 84, 12, 96, 48),
        ),
        ("GatedAdd", ["f32 3 4", "f32 3 4", "f32 3 1"], ["f32 3 4"], {}, Cost(0, 24, 0, 108, 48)),
        # the gate is projected: 3·5 MACs, 3 sigmoids
        (
            "GatedAdd",
            ["f32 3 4", "f32 3 4", "f32 3 5", "f32 5 1"],
            ["f32 3 4"],
            {},
            Cost(15, 24, 3, 96 + 60 + 20, 48),
        ),
        # 3 rows of 2 branches of 4: 24 elements, 6 rows; without scale 3 an element
        ("BranchwiseRMSNorm", ["f32 3 2 4", "f32 4"], ["f32 3 2 4"], {}, Cost(0, 108, 6, 112, 96)),
        ("BranchwiseRMSNorm", ["f32 3 8"], ["f32 3 8"], {"num_branches": 2}, Cost(0, 84, 6, 96, 96)),
        # 24 elements in groups of 4; silu 1, · gate 1
        ("GatedRMSNorm", ["f32 3 8", "f32 4", "f32 3 8"], ["f32 3 8"], {}, Cost(0, 156, 30, 208, 96)),
        (
            "GatedRMSNorm",
            ["f32 3 8", "f32 4", "f32 3 8"],
            ["f32 3 8"],
            {"activation": "sigmoid"},
            Cost(0, 132, 30, 208, 96),
        ),
        # 6 rows, 4 of 10 columns are read, 2 of them turned: 6 · (16 + 2 + 6)
        (
            "RMSNormRotary",
            ["f16 1 2 3 10", "f32 4", "i64 1", "f32 9 1", "f32 9 1"],
            ["bf16 1 2 12"],
            {"rotary_embedding_dim": 2, "input_width": 4},
            Cost(0, 144, 6, 48 + 16 + 8 + 72, 48),
        ),
        # 2·3·2 rows of 5 = 60: two norms of 240 + 24, product 60 MACs, |·| max · √ and 1/√H 4 a row, · value 60
        (
            "EngramGate",
            ["f32 2 3 2 5", "f32 2 3 2 5", "f32 2 3 5", "f32 2 5", "f32 2 5"],
            ["f32 2 3 2 5"],
            {},
            Cost(60, 2 * 264 + 48 + 60, 48, 4 * (120 + 30 + 20), 240),
        ),
        ("HyperConnectionPreMix", ["f32 3 2 4", "f32 3 2"], ["f32 3 4"], {}, Cost(24, 0, 0, 120, 48)),
        # each of 24 takes the block's output, and with a mix both streams
        ("HyperConnectionPostMix", ["f32 3 2 4", "f32 3 4", "f32 3 2"], ["f32 3 2 4"], {}, Cost(24, 0, 0, 168, 96)),
        (
            "HyperConnectionPostMix",
            ["f32 3 2 4", "f32 3 4", "f32 3 2", "f32 3 2 2"],
            ["f32 3 2 4"],
            {},
            Cost(72, 0, 0, 216, 96),
        ),
        # 3 rows, 2 streams of 4, rank 5: 24 · (10 + 1 + 2) MACs; norm 96 + 12, silu 15; 24 + 15 + 6 roots and 6 gates
        (
            "HyperConnectionLowRankMix",
            ["f32 3 8", "f32 8", "f32 8 5", "f32 5 8", "f32 8 2"],
            ["f32 3 4", "f32 3 2"],
            {"num_branches": 2},
            Cost(312, 123, 51, 4 * (24 + 8 + 40 + 40 + 16), 72),
        ),
    ],
)
def test_gates(price, op, inputs, outputs, attrs, expected):
    assert price(op, inputs, outputs, attrs, MS) == expected
