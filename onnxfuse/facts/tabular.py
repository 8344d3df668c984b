"""Shapes of the classical models of ai.onnx.ml, whose first axis is the sample, and of optimizer steps."""

from __future__ import annotations

from onnx import TensorProto as T

from onnxfuse.facts.call import SAME, Call, Result, Unclear, rule
from onnxfuse.facts.value import Shape


def _rows(c: Call) -> Shape:
    """Leading axis of [N, features]; a vector is one sample."""
    x = c.shape(0)
    return x[:1] if len(x) > 1 else (1,)


@rule("ai.onnx.ml:Normalizer ai.onnx.ml:Scaler", T.FLOAT)
def _scaled(c: Call) -> Result:
    return c.shape(0)


@rule("ai.onnx.ml:Binarizer ai.onnx.ml:Imputer", SAME)
def _same(c: Call) -> Result:
    return c.shape(0)


def _labels(c: Call) -> int:
    attrs = c.node.attrs
    for kind, dtype in (("string", T.STRING), ("int64", T.INT64), ("float", T.FLOAT)):
        if f"values_{kind}s" in attrs or f"default_{kind}" in attrs:
            return dtype
    table = attrs.get("values_tensor")
    return table.data_type if isinstance(table, T) else 0


@rule("ai.onnx.ml:LabelEncoder", _labels)
def _label_encoder(c: Call) -> Result:
    return c.shape(0)


@rule("ai.onnx.ml:OneHotEncoder", T.FLOAT)
def _one_hot_encoder(c: Call) -> Result:
    categories = c.node.attrs.get("cats_int64s") or c.node.attrs.get("cats_strings") or ()
    return (*c.shape(0), len(categories))


@rule("ai.onnx.ml:FeatureVectorizer", T.FLOAT)
def _feature_vectorizer(c: Call) -> Result:
    widths = c.attr_ints("inputdimensions")
    if widths is None:
        raise Unclear
    return (*_rows(c), sum(widths))


def _label_type(c: Call) -> int:
    attrs = c.node.attrs
    return T.STRING if attrs.get("classlabels_strings") or attrs.get("classlabels") else T.INT64


@rule("ai.onnx.ml:LinearClassifier ai.onnx.ml:TreeEnsembleClassifier ai.onnx.ml:SVMClassifier", _label_type, T.FLOAT)
def _classifier(c: Call) -> Result:
    """A label a sample and its scores; how many scores depends on the form of a model of two classes."""
    rows = _rows(c)
    return [rows, (*rows, c.fresh(1, 1))]


@rule("ai.onnx.ml:ArrayFeatureExtractor")
def _array_features(c: Call) -> Result:
    x, index = c.shape(0), c.shape(1)
    count = index[-1] if index else 1
    return (1, count) if len(x) == 1 else (*x[:-1], count)


@rule("ai.onnx.ml:LinearRegressor", T.FLOAT)
def _linear_regressor(c: Call) -> Result:
    return (*_rows(c), c.attr("targets", 1))


@rule("ai.onnx.ml:TreeEnsembleRegressor ai.onnx.ml:SVMRegressor", T.FLOAT)
def _regressor(c: Call) -> Result:
    return (*_rows(c), c.attr("n_targets", 1))


@rule("ai.onnx.ml:TreeEnsemble", SAME)
def _tree_ensemble(c: Call) -> Result:
    return (*_rows(c), c.attr("n_targets", 1))


@rule("ai.onnx.preview.training:Adam ai.onnx.preview.training:Adagrad ai.onnx.preview.training:Momentum", T.FLOAT)
def _optimizer_step(c: Call) -> Result:
    """Inputs: rate, step, then parameters, gradients and states; outputs: new parameters, new states."""
    groups = 4 if c.node.op_type == "Adam" else 3
    n = (len(c.inputs) - 2) // groups
    return [c.value(i).shape for i in (*range(2, 2 + n), *range(2 + 2 * n, len(c.inputs)))]
