from __future__ import annotations

import onnx.parser
import pytest

from onnxfuse import ir
from onnxfuse.cost import Cost, costs
from onnxfuse.facts import infer

MS = "com.microsoft"


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "expected"),
    [
        # S 5, B 2, I 3, H 4, D 1: 10 steps · 4 gates · 4 · (3 + 4) = 1120 MACs; 12·4·10, 5·4·10.
        # x 30, w 16x3, r 16x4, b 32 elements; y 5x1x2x4 = 40, y_h 8, y_c 8
        (
            "LSTM",
            ["f32 5 2 3", "f32 1 16 3", "f32 1 16 4", "f32 1 32"],
            ["f32 5 1 2 4", "f32 1 2 4", "f32 1 2 4"],
            {"hidden_size": 4},
            Cost(1120, 480, 200, 4 * (30 + 48 + 64 + 32), 4 * 56),
        ),
        # both directions, no bias, only y: everything twice
        (
            "LSTM",
            ["f32 5 2 3", "f32 2 16 3", "f32 2 16 4"],
            ["f32 5 2 2 4"],
            {"hidden_size": 4, "direction": "bidirectional"},
            Cost(2240, 960, 400, 4 * (30 + 96 + 128), 320),
        ),
        # peepholes (1, 12): 3·4·10 MACs more
        (
            "LSTM",
            ["f32 5 2 3", "f32 1 16 3", "f32 1 16 4", "", "", "", "", "f32 1 12"],
            ["", "f32 1 2 4"],
            {"hidden_size": 4},
            Cost(1240, 480, 200, 4 * (30 + 48 + 64 + 12), 32),
        ),
        # layout 1: (B, S, I), the same product
        (
            "GRU",
            ["f32 2 5 3", "f32 1 12 3", "f32 1 12 4"],
            ["f32 2 5 1 4"],
            {"hidden_size": 4, "layout": 1},
            Cost(840, 360, 120, 4 * (30 + 36 + 48), 160),
        ),
        (
            "RNN",
            ["f32 5 2 3", "f32 1 4 3", "f32 1 4 4"],
            ["f32 5 1 2 4"],
            {"hidden_size": 4},
            Cost(280, 80, 40, 4 * (30 + 12 + 16), 160),
        ),
    ],
)
def test_rnn(price, op, inputs, outputs, attrs, expected):
    assert price(op, inputs, outputs, attrs) == expected


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "domain", "expected"),
    [
        # B 2, H 3, Sq 4, Skv 5, D 6, Dv 7: 120 scores · 13 = 1560 MACs; 5 · 120; q 144, k 180, v 210, y 168
        (
            "Attention",
            ["f32 2 3 4 6", "f32 2 3 5 6", "f32 2 3 5 7"],
            ["f32 2 3 4 7"],
            {},
            "",
            Cost(1560, 600, 120, 4 * (144 + 180 + 210), 672),
        ),
        # (B, S, H·D) and a mask: 1 more a score; grouped: 3 query heads on 1 key head
        (
            "Attention",
            ["f32 2 4 18", "f32 2 5 6", "f32 2 5 7", "f32 4 5"],
            ["f32 2 4 21"],
            {"q_num_heads": 3, "kv_num_heads": 1},
            "",
            Cost(1560, 720, 120, 4 * (144 + 60 + 70 + 20), 672),
        ),
        # 2 past steps: Skv 7, 168 scores; causal counts as a mask; soft cap 2 FLOPs and a tanh
        (
            "Attention",
            ["f32 2 3 4 6", "f32 2 3 5 6", "f32 2 3 5 6", "", "f32 2 3 2 6", "f32 2 3 2 6"],
            ["f32 2 3 4 6", "f32 2 3 7 6", "f32 2 3 7 6"],
            {"is_causal": 1, "softcap": 20.0},
            "",
            Cost(2016, 168 * 8, 336, 4 * (144 + 180 + 180 + 72 + 72), 4 * (144 + 252 + 252)),
        ),
        (
            "FlexAttention",
            ["f32 2 3 4 6", "f32 2 3 5 6", "f32 2 3 5 7"],
            ["f32 2 3 4 7"],
            {},
            "ai.onnx.preview",
            Cost(1560, 600, 120, 4 * (144 + 180 + 210), 672),
        ),
        # MultiHeadAttention B 2, S 4, H 3, D 6, L 5
        (
            "MultiHeadAttention",
            ["f32 2 4 18", "f32 2 5 18", "f32 2 5 18"],
            ["f32 2 4 18"],
            {"num_heads": 3},
            MS,
            Cost(1440, 600, 120, 4 * (144 + 180 + 180), 576),
        ),
        # packed q, k, v (B, S, H, 3, D): 96 scores · 12
        (
            "MultiHeadAttention",
            ["f32 2 4 3 3 6"],
            ["f32 2 4 18"],
            {"num_heads": 3},
            MS,
            Cost(1152, 480, 96, 4 * 432, 576),
        ),
        # Attention with its projection: B 2, S 4, C 8, 3·H·D = 24: 8·8·24 = 1536; scores 2·2·4·4 = 64, · 8 = 512;
        # bias 8·24
        (
            "Attention",
            ["f32 2 4 8", "f32 8 24", "f32 24"],
            ["f32 2 4 8"],
            {"num_heads": 2},
            MS,
            Cost(2048, 5 * 64 + 192, 64, 4 * (64 + 192 + 24), 256),
        ),
        # GQA: B 1, S 1, 4 query heads on 2 of 8; 10 steps in all: 40 scores · 16
        (
            "GroupQueryAttention",
            ["f32 1 1 32", "f32 1 1 16", "f32 1 1 16", "f32 1 2 9 8", "f32 1 2 9 8"],
            ["f32 1 1 32", "f32 1 2 10 8", "f32 1 2 10 8"],
            {"num_heads": 4, "kv_num_heads": 2},
            MS,
            Cost(640, 240, 40, 4 * (32 + 16 + 16 + 144 + 144), 4 * (32 + 160 + 160)),
        ),
        # 2x3x4x6: 3 FLOPs for each of 144; caches of 4x3
        (
            "RotaryEmbedding",
            ["f32 2 3 4 6", "f32 2 4 3", "f32 2 4 3"],
            ["f32 2 3 4 6"],
            {},
            "",
            Cost(0, 432, 0, 4 * (144 + 48), 576),
        ),
        # 4 of 6 turn: 2·3·4·4 = 96
        (
            "RotaryEmbedding",
            ["f32 2 3 4 6", "f32 2 4 2", "f32 2 4 2"],
            ["f32 2 3 4 6"],
            {"rotary_embedding_dim": 4},
            "",
            Cost(0, 288, 0, 4 * (144 + 32), 576),
        ),
        # B 2, H 3, S 4, D 6, Dv 7: 24 head steps update a state of 42 and read it
        (
            "LinearAttention",
            ["f32 2 4 18", "f32 2 4 18", "f32 2 4 21"],
            ["f32 2 4 21"],
            {"q_num_heads": 3, "kv_num_heads": 3, "update_rule": "linear"},
            "",
            Cost(2016, 0, 0, 4 * (144 + 144 + 168), 672),
        ),
        # the delta rule reads by the key too, on one key head: 8 · 42 · (3 + 2)
        (
            "LinearAttention",
            ["f32 2 4 18", "f32 2 4 6", "f32 2 4 7"],
            ["f32 2 4 21"],
            {"q_num_heads": 3, "kv_num_heads": 1, "update_rule": "delta"},
            "",
            Cost(1680, 0, 0, 4 * (144 + 48 + 56), 672),
        ),
    ],
)
def test_attention(price, op, inputs, outputs, attrs, domain, expected):
    assert price(op, inputs, outputs, attrs, domain, 23) == expected


def test_flex_attention_counts_the_graphs_that_change_scores():
    """B 1, H 2, S 4, D 8: 32 scores · 16 = 512 MACs and 5 · 32 FLOPs, 32 exps. The first graph multiplies every score
    (32 FLOPs), the second one takes its sigmoid (32) and adds 1 (32). q, k, v, y have 64 elements.
    """
    text = (
        '<ir_version: 13, opset_import: ["": 26, "ai.onnx.preview": 1]>\n'
        "m (float[1,2,4,8] q, float[1,2,4,8] k, float[1,2,4,8] v) => (float[1,2,4,8] y) <float one = {1}> {"
        "y = ai.onnx.preview.FlexAttention (q, k, v) <"
        "score_mod = s (float[B,H,L,S] a) => (float[B,H,L,S] b) { b = Mul (a, one) },"
        "prob_mod = p (float[B,H,L,S] c) => (float[B,H,L,S] e) { d = Sigmoid (c) e = Add (d, one) }> }"
    )
    (cost,) = costs(infer(ir.read(onnx.parser.parse_model(text))))
    assert cost == Cost(512, 5 * 32 + 32 + 32, 32 + 32, 4 * 3 * 64, 4 * 64)
    (cost,) = costs(infer(ir.read(onnx.parser.parse_model(text.replace("Sigmoid", "StringNormalizer")))))
    assert (
        cost.macs is None and cost.why == "holds StringNormalizer: works on strings, whose lengths are not in the model"
    )
