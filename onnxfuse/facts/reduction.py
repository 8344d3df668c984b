"""Shapes of reductions, normalisations, losses and quantisation."""

from __future__ import annotations

from onnx import TensorProto as T

from onnxfuse.facts.call import SAME, Call, Result, Unclear, like, normal_axis, rule
from onnxfuse.facts.expr import Dim
from onnxfuse.facts.value import Shape


def _reduced(x: Shape, axes: set[int], keep: bool) -> Shape:
    if keep:
        return tuple(1 if i in axes else d for i, d in enumerate(x))
    return tuple(d for i, d in enumerate(x) if i not in axes)


@rule(
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
    "ReduceSumSquare com.microsoft:ReduceSumInteger"
)
def _reduce(c: Call) -> Result:
    x = c.shape(0)
    keep = bool(c.attr("keepdims", 1))
    if c.has(1) and c.value(1).data is None and c.value(1).shape != (0,):
        if keep:  # which axes become 1 is not known
            return c.fresh_shape(0, len(x))
        raise Unclear
    axes = c.ints_of("axes", 1)
    if not axes:
        if c.attr("noop_with_empty_axes", 0):
            return x
        axes = list(range(len(x)))
    return _reduced(x, {normal_axis(a, len(x)) for a in axes}, keep)


@rule("ArgMax ArgMin", T.INT64)
def _arg_extreme(c: Call) -> Result:
    x = c.shape(0)
    return _reduced(x, {c.axis(len(x), 0)}, bool(c.attr("keepdims", 1)))


# Normalisation -------------------------------------------------------------------------------------------------------


@rule("BatchNormalization", SAME, like(3))
def _batch_normalization(c: Call) -> Result:
    statistics = c.value(3).shape
    return [c.shape(0), *[statistics] * 4]


@rule(
    "InstanceNormalization GroupNormalization LpNormalization MeanVarianceNormalization LRN RMSNormalization "
    "com.microsoft:GroupNorm"
)
def _normalization(c: Call) -> Result:
    return [c.shape(0)]


# onnxruntime's own (LayerNormalization before opset 17) give the dtype of the scale, which ONNX's have for all.
@rule("LayerNormalization SimplifiedLayerNormalization", like(1), lambda c: c.attr("stash_type", T.FLOAT))
def _layer_normalization(c: Call) -> Result:
    x = c.shape(0)
    axis = c.axis(len(x), -1)
    statistics = (*x[:axis], *(1 for _ in x[axis:]))
    return [x, statistics, statistics]


@rule(
    "com.microsoft:SkipLayerNormalization com.microsoft:SkipSimplifiedLayerNormalization", SAME, T.FLOAT, T.FLOAT, SAME
)
def _skip_layer_normalization(c: Call) -> Result:
    x = c.shape(0)
    statistics = (*x[:-1], 1)
    return [x, statistics, statistics, x]


@rule("com.microsoft:EmbedLayerNormalization", like(2), T.INT32)
def _embed_layer_normalization(c: Call) -> Result:
    ids = c.shape(0)
    return [(*ids, c.shape(2)[1]), (ids[0],)]


# Losses --------------------------------------------------------------------------------------------------------------


@rule("NegativeLogLikelihoodLoss")
def _negative_log_likelihood(c: Call) -> Result:
    return c.shape(1) if c.text("reduction", "mean") == "none" else ()


@rule("SoftmaxCrossEntropyLoss")
def _cross_entropy(c: Call) -> Result:
    return [c.shape(1) if c.text("reduction", "mean") == "none" else (), c.shape(0)]


# Quantisation --------------------------------------------------------------------------------------------------------


def _quantized(c: Call) -> int:
    return c.value(2).dtype if c.has(2) else c.attr("output_dtype", 0) or T.UINT8


@rule("QuantizeLinear com.microsoft:QuantizeLinear", _quantized)
def _quantize(c: Call) -> Result:
    return c.shape(0)


@rule("DequantizeLinear com.microsoft:DequantizeLinear", lambda c: c.attr("output_dtype", 0) or c.value(1).dtype)
def _dequantize(c: Call) -> Result:
    return c.shape(0)


@rule("DynamicQuantizeLinear", T.UINT8, T.FLOAT, T.UINT8)
def _dynamic_quantize(c: Call) -> Result:
    return [c.shape(0), (), ()]


@rule("com.microsoft:QLinearGlobalAveragePool")
def _quantized_global_pool(c: Call) -> Result:
    x = c.shape(0)
    if c.attr("channels_last", 0):
        return (x[0], *(1 for _ in x[1:-1]), x[-1])
    return (*x[:2], *(1 for _ in x[2:]))


@rule("com.microsoft:QLinearConcat", like(1))
def _quantized_concat(c: Call) -> Result:
    shapes = [c.shape(i) for i in range(2, len(c.inputs), 3)]
    if not shapes:
        raise Unclear
    out: list[Dim] = list(shapes[0])
    axis = c.axis(len(out), 0)
    for s in shapes[1:]:
        out[axis] = out[axis] + s[axis]
    return tuple(out)
