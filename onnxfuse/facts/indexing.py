"""Shapes and values of operators that pick, place and generate elements."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto as T

from onnxfuse.facts.call import SAME, Call, Result, Unclear, like, numbers, prod, rule
from onnxfuse.facts.expr import Dim, Expr, ceil_div, dmax, floor_div, provably_nonnegative
from onnxfuse.facts.fraction import Ratio


@rule("Gather")
def _gather(c: Call) -> Result:
    x = c.shape(0)
    axis = c.axis(len(x), 0)
    return (*x[:axis], *c.shape(1), *x[axis + 1 :])


@rule("GatherElements")
def _gather_elements(c: Call) -> Result:
    return c.shape(1)


@rule("GatherND com.microsoft:GatherND")
def _gather_nd(c: Call) -> Result:
    x, index = c.shape(0), c.shape(1)
    skipped = c.attr("batch_dims", 0)
    if not index or not isinstance(index[-1], int) or skipped + index[-1] > len(x):
        raise Unclear
    return (*index[:-1], *x[skipped + index[-1] :])


@rule("Scatter ScatterElements ScatterND TensorScatter")
def _scatter(c: Call) -> Result:
    return c.shape(0)


@rule("OneHot", like(2))
def _one_hot(c: Call) -> Result:
    x = c.shape(0)
    axis = c.axis(len(x) + 1, -1)
    data = c.value(1).data
    depth: Dim = c.fresh(0, axis)
    if data is not None:
        given = data.reshape(-1)[0]
        depth = depth if isinstance(given, Ratio) else given if isinstance(given, Expr) else int(given)
    return (*x[:axis], depth, *x[axis:])


@rule("NonZero", T.INT64)
def _non_zero(c: Call) -> Result:
    data = c.value(0).data
    count: Dim = c.fresh(0, 1) if data is None else int(np.count_nonzero(numbers(data)))
    return (len(c.shape(0)) or 1, count)


@rule("Compress")
def _compress(c: Call) -> Result:
    if "axis" not in c.node.attrs:
        return (c.fresh(0, 0),)
    x = c.shape(0)
    axis = c.axis(len(x), 0)
    return (*x[:axis], c.fresh(0, axis), *x[axis + 1 :])


@rule("Unique", SAME, T.INT64)
def _unique(c: Call) -> Result:
    count = c.fresh(0, 0)
    if "axis" not in c.node.attrs:
        return [(count,), (count,), (prod(c.shape(0)),), (count,)]
    x = c.shape(0)
    axis = c.axis(len(x), 0)
    return [(*x[:axis], count, *x[axis + 1 :]), (count,), (x[axis],), (count,)]


@rule("NonMaxSuppression", T.INT64)
def _non_max_suppression(c: Call) -> Result:
    return (c.fresh(0, 0), 3)


@rule("TopK", SAME, T.INT64)
def _top_k(c: Call) -> Result:
    x = c.shape(0)
    axis = c.axis(len(x), -1)
    k: Dim = c.fresh(0, axis)
    if "k" in c.node.attrs:
        k = c.attr("k", 0)
    elif c.value(1).data is not None:
        (k,) = c.dims(1)
    shape = (*x[:axis], k, *x[axis + 1 :])
    return [shape, shape]


# Generators ----------------------------------------------------------------------------------------------------------


def _filled(c: Call) -> int:
    value = c.node.attrs.get("value")
    return value.data_type if isinstance(value, onnx.TensorProto) else T.FLOAT


@rule("ConstantOfShape", _filled)
def _constant_of_shape(c: Call) -> Result:
    if c.value(0).data is None:
        (rank,) = c.shape(0)
        if not isinstance(rank, int):
            raise Unclear
        return c.fresh_shape(0, rank)
    return tuple(d if provably_nonnegative(d) else c.fresh(0, i) for i, d in enumerate(c.dims(0)))


def _constant_dtype(c: Call) -> int:
    for name, value in c.node.attrs.items():
        if isinstance(value, onnx.TensorProto):
            return value.data_type
        if isinstance(value, onnx.SparseTensorProto):
            return value.values.data_type
        if name in ("value_int", "value_ints"):
            return T.INT64
        if name in ("value_float", "value_floats"):
            return T.FLOAT
        if name in ("value_string", "value_strings"):
            return T.STRING
    return 0


@rule("Constant", _constant_dtype)
def _constant(c: Call) -> Result:
    for name, value in c.node.attrs.items():
        if isinstance(value, (onnx.TensorProto, onnx.SparseTensorProto)):
            return tuple(value.dims)
        if name in ("value_int", "value_float", "value_string"):
            return ()
        if name in ("value_ints", "value_floats", "value_strings") and isinstance(value, tuple):
            return (len(value),)
    raise Unclear


@rule("Range", SAME)
def _range(c: Call) -> Result:
    arrays = [c.value(i).data for i in range(3)]
    if any(a is None or a.size != 1 for a in arrays):
        return (c.fresh(0, 0),)
    ends = [a.reshape(-1)[0] for a in arrays if a is not None]
    if all(isinstance(d, np.floating) for d in ends):
        first, last, step = map(float, ends)
        return (max(math.ceil((last - first) / step), 0),)
    if any(isinstance(d, Ratio) or (not isinstance(d, Expr) and d != int(d)) for d in ends):  # limits or steps of 0.5
        return (c.fresh(0, 0),)
    start, limit, delta = (d if isinstance(d, Expr) else int(d) for d in ends)
    return (dmax(ceil_div(limit - start, delta), 0),)


def _as_attribute(c: Call) -> int:
    return c.attr("dtype", 0) or c.value(0).dtype


@rule("RandomNormal RandomUniform", lambda c: c.attr("dtype", T.FLOAT), random=True)
def _random(c: Call) -> Result:
    shape = c.attr_ints("shape")
    if shape is None:
        raise Unclear
    return shape


@rule("RandomNormalLike RandomUniformLike Bernoulli", _as_attribute, random=True)
def _random_like(c: Call) -> Result:
    return c.shape(0)


@rule("EyeLike", _as_attribute)
def _eye_like(c: Call) -> Result:
    return c.shape(0)


@rule("Multinomial", lambda c: c.attr("dtype", T.INT32), random=True)
def _multinomial(c: Call) -> Result:
    return (c.shape(0)[0], c.attr("sample_size", 1))


@rule("HannWindow HammingWindow BlackmanWindow", lambda c: c.attr("output_datatype", T.FLOAT))
def _window_function(c: Call) -> Result:
    return tuple(c.dims(0)) if c.value(0).data is not None else (c.fresh(0, 0),)


@rule("MelWeightMatrix", lambda c: c.attr("output_datatype", T.FLOAT))
def _mel_weights(c: Call) -> Result:
    (bins,), (length,) = c.dims(0), c.dims(1)
    return (floor_div(length, 2) + 1, bins)


@rule("OptionalHasElement", T.BOOL)
def _optional_has_element(_: Call) -> Result:
    return ()
