from __future__ import annotations

import pytest

from onnxfuse.cost import Cost

ML, TRAINING = "ai.onnx.ml", "ai.onnx.preview.training"


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "attrs", "expected"),
    [
        # 5 rows of 3 features, 2 targets: 5·6 MACs, 5·2 FLOPs; 60 + 6·4 + 2·4 bytes
        (
            "LinearRegressor",
            ["f32 5 3"],
            ["f32 5 2"],
            {"coefficients": (0.5,) * 6, "intercepts": (1.0, 2.0)},
            Cost(30, 10, 0, 92, 40),
        ),
        # 4 support vectors of 3: 5·12 MACs, 5·4 exp; 60 + 12·4 + 4·4 + 4
        (
            "SVMRegressor",
            ["f32 5 3"],
            ["f32 5 1"],
            {"support_vectors": (0.5,) * 12, "coefficients": (0.5,) * 4, "rho": (1.0,), "kernel_type": "RBF"},
            Cost(60, 0, 20, 128, 20),
        ),
        # 2 trees of 3 nodes: 5·2 additions; node: 3 int64 and a float, leaf: int64 and a float
        (
            "TreeEnsembleRegressor",
            ["f32 5 3"],
            ["f32 5 1"],
            {
                "nodes_treeids": (0, 0, 0, 1, 1, 1),
                "nodes_featureids": (0,) * 6,
                "nodes_truenodeids": (1, 0, 0) * 2,
                "nodes_falsenodeids": (2, 0, 0) * 2,
                "nodes_values": (0.5,) * 6,
                "target_ids": (0,) * 4,
                "target_weights": (1.0,) * 4,
            },
            Cost(0, 10, 0, 60 + 6 * 28 + 4 * 12, 20),
        ),
        ("Scaler", ["f32 5 3"], ["f32 5 3"], {"offset": (0.5,) * 3, "scale": (2.0,) * 3}, Cost(0, 30, 0, 84, 60)),
        ("Normalizer", ["f32 5 3"], ["f32 5 3"], {}, Cost(0, 30, 0, 60, 60)),
        ("Binarizer", ["f32 5 3"], ["f32 5 3"], {}, Cost(0, 0, 0, 60, 60)),
        ("Imputer", ["f32 5 3"], ["f32 5 3"], {}, Cost(0, 0, 0, 60, 60)),
        ("FeatureVectorizer", ["f32 5 3", "f32 5 2"], ["f32 5 5"], {}, Cost(0, 0, 0, 100, 100)),
        ("ArrayFeatureExtractor", ["f32 5 3", "i64 2"], ["f32 5 2"], {}, Cost(0, 0, 0, 56, 40)),
        ("LabelEncoder", ["i64 5"], ["f32 5"], {}, Cost(0, 0, 0, 40, 20)),
        ("LabelEncoder", ["str 5"], ["i64 5"], {}, Cost(0, 0, 0, None, 40)),
    ],
)
def test_tabular(price, op, inputs, outputs, attrs, expected):
    assert price(op, inputs, outputs, attrs, ML) == expected


@pytest.mark.parametrize(
    ("op", "groups", "states", "arith", "special"),
    # two tensors of 3 and 4 elements: 7 · 12, 7 · 6, 7 · 4 FLOPs
    [("Adam", 4, 2, 84, 7), ("Adagrad", 3, 1, 42, 7), ("Momentum", 3, 1, 28, 0)],
)
def test_training(price, op, groups, states, arith, special):
    # learning rate 4 bytes, step 8; groups of 28 bytes; parameters and states come out
    inputs = ["f32", "i64", *["f32 3", "f32 4"] * groups]
    outputs = ["f32 3", "f32 4"] * (1 + states)
    assert price(op, inputs, outputs, {}, TRAINING) == Cost(0, arith, special, 12 + 28 * groups, 28 * (1 + states))
