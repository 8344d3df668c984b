"""Operators of ai.onnx.ml: linear models, support vectors, trees and table look-ups. x is (N, features).

Their weights are attributes: 4 bytes a float and 8 an integer, read once a call with the input. Every node of a tree is
taken to be visited by some row, an upper bound of the bytes; FLOPs are one addition a row and tree.
"""

from __future__ import annotations

import math

import onnx

from onnxfuse.cost.quantity import BITS
from onnxfuse.cost.registry import Call, Cost, Number, bytes_or_none, op, prod
from onnxfuse.facts.expr import Dim

ML = "ai.onnx.ml"
_NODES = ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_values")
_ENSEMBLE = (
    "nodes_featureids", "nodes_splits", "nodes_modes", "nodes_truenodeids", "nodes_trueleafs", "nodes_falsenodeids",
    "nodes_falseleafs", "nodes_missing_value_tracks_true", "membership_values", "leaf_targetids", "leaf_weights",
)  # fmt: skip
_LEAVES = ("target_ids", "target_weights", "class_ids", "class_weights", "leaf_targetids")


def _rows(call: Call) -> Dim:
    return prod(call.shape(0)[:-1])


def _read(call: Call, *attributes: str) -> Number:
    """Input 0 and the tables in these attributes."""
    table = 0
    for attribute in attributes:
        given = call.attr(attribute, ())
        if isinstance(given, onnx.TensorProto):
            table += math.prod(given.dims) * BITS[given.data_type] // 8
        else:
            table += sum(8 if isinstance(number, int) else 4 for number in given)
    read = bytes_or_none(call.read)
    return None if read is None else read + table


@op("LinearRegressor", "LinearClassifier", kind="matmul", domain=ML)
def linear(call: Call) -> Cost:
    """A coefficient for each feature and target."""
    rows = _rows(call)
    macs, bias = rows * len(call.attr("coefficients", ())), rows * len(call.attr("intercepts", ()))
    return call.cost(macs, bias, read=_read(call, "coefficients", "intercepts"))


@op("SVMRegressor", "SVMClassifier", kind="matmul", domain=ML)
def svm(call: Call) -> Cost:
    """x by every support vector, one special function a product unless the kernel is linear; or a linear model."""
    rows, vectors = _rows(call), call.attr("support_vectors", ())
    macs = rows * len(vectors or call.attr("coefficients", ()))
    nonlinear = bool(vectors) and call.attr("kernel_type", "LINEAR") != "LINEAR"
    special = macs // call.shape(0, 1, 2)[-1] if nonlinear else 0
    return call.cost(macs, transcendentals=special, read=_read(call, "support_vectors", "coefficients", "rho"))


@op("TreeEnsembleRegressor", "TreeEnsembleClassifier", kind="tree", domain=ML)
def trees(call: Call) -> Cost:
    """One leaf a row and tree."""
    count = len(set(call.attr("nodes_treeids", ())))
    return call.cost(arith=_rows(call) * count, read=_read(call, *_NODES, *_LEAVES))


@op("TreeEnsemble", kind="tree", domain=ML)
def tree_ensemble(call: Call) -> Cost:
    """One leaf a row and tree; nodes and leaves are attributes, `tree_roots` one a tree."""
    trees = len(call.attr("tree_roots", ()))
    return call.cost(arith=_rows(call) * trees, read=_read(call, *_ENSEMBLE))


@op("Scaler", "Normalizer", kind="elementwise", domain=ML)
def scale(call: Call) -> Cost:
    """(x − offset) · scale, or x / ‖x‖."""
    return call.cost(arith=2 * call.size(0), read=_read(call, "offset", "scale"))


@op("Binarizer", "Imputer", kind="elementwise", domain=ML)
def select(call: Call) -> Cost:
    """A comparison and a selection: no FLOPs."""
    return call.cost()


@op("FeatureVectorizer", kind="copy", domain=ML)
def concatenate(call: Call) -> Cost:
    """Features side by side."""
    return call.cost()


@op("ArrayFeatureExtractor", kind="gather", domain=ML)
def extract(call: Call) -> Cost:
    """The selected columns and their indices."""
    return call.cost(read=call.written() + call.read(1))


@op("LabelEncoder", "OneHotEncoder", kind="gather", domain=ML)
def encode(call: Call) -> Cost:
    """A look-up for each element; bytes are unknown for strings."""
    return call.cost()
