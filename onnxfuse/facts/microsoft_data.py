"""Shapes of com.microsoft's operators that move, find, hash, transform and convert, and of onnxruntime's own names in
the default domain.
"""

from __future__ import annotations

from onnx import TensorProto as T

from onnxfuse.facts import indexing  # noqa: F401  # its rules are reused
from onnxfuse.facts.call import RULES, SAME, Call, Result, Unclear, like, normal_axis, rule
from onnxfuse.facts.expr import Dim, floor_div

# Moving and finding --------------------------------------------------------------------------------------------------


@rule("com.microsoft:Range")
def _range(c: Call) -> Result:
    return RULES["Range"].shape(c) if c.has(2) else (c.fresh(0, 0),)


@rule("com.microsoft:TorchEmbedding")
def _torch_embedding(c: Call) -> Result:
    return (*c.shape(1), c.shape(0)[1])


@rule("com.microsoft:GatherBlockQuantized", like(2))
def _gather_block_quantized(c: Call) -> Result:
    x = list(c.shape(0))
    axis = normal_axis(c.attr("gather_axis", 0), len(x))
    if c.value(0).dtype == T.UINT8:  # several elements a byte
        x[-1] = x[-1] * floor_div(8, c.attr("bits", 4))
    return (*x[:axis], *c.shape(1), *x[axis + 1 :])


@rule("com.microsoft:GatherPacked", lambda c: c.attr("output_dtype", 0))
def _gather_packed(c: Call) -> Result:
    width = c.attr("K", 0)
    if width < 1:
        raise Unclear
    return (*c.shape(1), width)


@rule("com.microsoft:ExpandDims")
def _expand_dims(c: Call) -> Result:
    x, (axis,) = c.shape(0), c.ints(1)
    at = normal_axis(axis, len(x) + 1)
    return (*x[:at], 1, *x[at:])


@rule("com.microsoft:UnfoldTensor")
def _unfold(c: Call) -> Result:
    x, size, step = c.shape(0), c.attr("size", 0), c.attr("step", 1)
    axis = normal_axis(c.attr("dim", -1), len(x))
    return (*x[:axis], floor_div(x[axis] - size, step) + 1, *x[axis + 1 :], size)


@rule("com.microsoft:RemovePadding", SAME, T.INT32)
def _remove_padding(c: Call) -> Result:
    batch, steps, hidden = c.shape(0)
    return [(c.fresh(0, 0), hidden), (batch, steps), (batch + 1,), (1,)]


@rule("com.microsoft:RestorePadding")
def _restore_padding(c: Call) -> Result:
    return (*c.shape(1), c.shape(0)[1])


@rule("com.microsoft:Unique", SAME, T.INT64)
def _unique(c: Call) -> Result:
    count = c.fresh(0, 0)
    return [(count,), c.shape(0), (count,)]


@rule("com.microsoft:NGramRepeatBlock", like(1))
def _ngram_repeat_block(c: Call) -> Result:
    return c.shape(1)


@rule("com.microsoft:BifurcationDetector", SAME)
def _bifurcation(c: Call) -> Result:
    return [(c.fresh(0, 0),), ()]


@rule("com.microsoft:DynamicTimeWarping", T.INT32)
def _time_warping(c: Call) -> Result:
    return (2, c.fresh(0, 1))


@rule("com.microsoft:NGramHashMapping com.microsoft:VarlenNGramHashMapping")
def _ngram_hash(c: Call) -> Result:
    longest, heads = c.attr("max_ngram_size", 0), c.attr("n_head_per_ngram", 0)
    if longest < 2 or heads < 1:
        raise Unclear
    return [(*c.shape(0), (longest - 1) * heads)]


@rule("com.microsoft:SpeculativePrefixCommit", T.INT32, T.INT64)
def _prefix_commit(c: Call) -> Result:
    tokens = c.shape(0)
    return [(tokens[0] if len(tokens) == 2 else 1,), c.shape(3), c.shape(4)]


@rule("com.microsoft:PackedSparseAttentionIndexerMerge")
def _indexer_merge(c: Call) -> Result:
    rows, entries = c.shape(2)[0], c.attr("max_output_entries", 0)
    return [(rows, entries), (rows,), (rows,)]


# Transforms and formats ----------------------------------------------------------------------------------------------


@rule("com.microsoft:Rfft")
def _rfft(c: Call) -> Result:
    x = c.shape(0)
    return (*x[:-1], floor_div(x[-1], 2) + 1, 2)


@rule("com.microsoft:Irfft")
def _irfft(c: Call) -> Result:
    x = c.shape(0)
    return (*x[:-2], (x[-2] - 1) * 2)


@rule("com.microsoft:QuantizeBFP", T.UINT8, T.INT64)
def _quantize_bfp(c: Call) -> Result:
    rank: Dim = len(c.shape(0))
    return [(c.fresh(0, 0),), (rank,), (rank,)]


@rule("com.microsoft:DequantizeBFP", lambda c: c.attr("dtype", T.FLOAT))
def _dequantize_bfp(c: Call) -> Result:
    return tuple(c.dims(1))


@rule("com.microsoft:QEmbedLayerNormalization", T.FLOAT, T.INT32)
def _quantized_embedding(c: Call) -> Result:
    ids = c.shape(0)
    return [(*ids, c.shape(2)[1]), (ids[0],)]


# Names in the default domain that only onnxruntime knows --------------------------------------------------------------


@rule("DisentangledAttention_TRT GRUUnit")
def _like_first(c: Call) -> Result:
    return c.shape(0)


@rule("Crop")
def _crop(c: Call) -> Result:
    n, channels, h, w = c.shape(0)
    scale, border = c.attr_ints("scale"), c.attr_ints("border")
    if scale:
        return (n, channels, *scale)
    if border is None:
        raise Unclear
    left, top, right, bottom = border
    return (n, channels, h - top - bottom, w - left - right)


@rule("DynamicSlice")
def _dynamic_slice(c: Call) -> Result:
    return c.fresh_shape(0, len(c.shape(0)))


@rule("GivenTensorFill", T.FLOAT)
def _given_tensor_fill(c: Call) -> Result:
    extra = c.attr_ints("extra_shape") or ()
    shape = c.attr_ints("shape")
    if not c.has(0):
        return (*(shape or ()), *extra)
    return (*(c.dims(0) if c.attr("input_as_shape", 0) else c.shape(0)), *extra)


@rule("EfficientNMS_TRT", T.INT32, SAME, SAME, T.INT32)
def _efficient_nms(c: Call) -> Result:
    batch, most = c.shape(0)[0], c.attr("max_output_boxes", 0)
    return [(batch, 1), (batch, most, 4), (batch, most), (batch, most)]


@rule("MultilevelCropAndResize_TRT PyramidROIAlign_TRT")
def _crop_pyramid(c: Call) -> Result:
    batch, boxes, _ = c.shape(0)
    size = c.attr("pooled_size", 1)
    return (batch, boxes, c.shape(1)[1], size, size)
