"""Shapes of the classical models of ai.onnx.ml, whose first axis is the sample."""

from __future__ import annotations

from onnx import TensorProto as T

from onnxfuse.facts.call import SAME, Call, Result, rule
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
