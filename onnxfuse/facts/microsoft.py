"""Shapes of com.microsoft's operators, by their schemas in onnxruntime: element by element, products, windows.

Attention is in `microsoft_attention`, moving and finding in `microsoft_data`.
"""

from __future__ import annotations

from dataclasses import replace

from onnx import TensorProto as T

from onnxfuse.facts import linear, reduction, window  # noqa: F401  # their rules are reused
from onnxfuse.facts.call import RULES, SAME, Call, Result, Unclear, broadcast, like, prod, rule
from onnxfuse.facts.expr import floor_div
from onnxfuse.facts.value import Shape


@rule(
    "com.microsoft:BiasAdd com.microsoft:BranchwiseRMSNorm com.microsoft:GatedAdd com.microsoft:GatedRMSNorm "
    "com.microsoft:HyperConnectionPostMix com.microsoft:MoE com.microsoft:MoEPacked com.microsoft:QMoE "
    "com.microsoft:QOrderedGelu com.microsoft:QOrderedLayerNormalization com.microsoft:SampleOp "
    "com.microsoft:ScaledSiLU"
)
def _like_input(c: Call) -> Result:
    return c.shape(0)


@rule("com.microsoft:QuantizeWithOrder", T.INT8)
def _quantize_with_order(c: Call) -> Result:
    return c.shape(0)


@rule("com.microsoft:DequantizeWithOrder", lambda c: c.attr("to", 0))
def _dequantize_with_order(c: Call) -> Result:
    return c.shape(0)


@rule("com.microsoft:MurmurHash3", lambda c: T.UINT32 if c.attr("positive", 1) else T.INT32)
def _murmur_hash(c: Call) -> Result:
    return c.shape(0)


@rule("com.microsoft:SkipGroupNorm com.microsoft:EngramGate")
def _twice(c: Call) -> Result:
    return [c.shape(0), c.shape(0)]


@rule("com.microsoft:LinearAttentionGate com.microsoft:GemmaRotaryEmbedding", SAME, SAME)
def _two_inputs(c: Call) -> Result:
    first = 0 if c.node.op_type == "LinearAttentionGate" else 1
    return [c.shape(first), c.value(3).shape]


@rule("com.microsoft:BitmaskDropout com.microsoft:BitmaskBiasDropout", SAME, T.UINT32, random=True)
def _bitmask_dropout(c: Call) -> Result:
    x = c.shape(0)
    return [x, (floor_div(prod(x) + 31, 32),)]  # a bit an element


@rule("com.microsoft:IsAllFinite", T.BOOL)
def _is_all_finite(_: Call) -> Result:
    return ()


@rule("com.microsoft:ComplexMul com.microsoft:ComplexMulConj")
def _complex(c: Call) -> Result:
    return broadcast((c.shape(0), c.shape(1)))


@rule("com.microsoft:MulInteger", T.INT32)
def _mul_integer(c: Call) -> Result:
    return broadcast((c.shape(0), c.shape(2)))


@rule("com.microsoft:QLinearWhere", like(1))
def _quantized_where(c: Call) -> Result:
    return broadcast((c.shape(0), c.shape(1), c.shape(4)))


@rule("com.microsoft:BiasSplitGelu com.microsoft:SwiGLU")
def _gated_halves(c: Call) -> Result:
    x = c.shape(0)
    if c.node.op_type == "SwiGLU" and c.has(1):
        return x
    return (*x[:-1], floor_div(x[-1], 2))


@rule("com.microsoft:HyperConnectionPreMix")
def _pre_mix(c: Call) -> Result:
    x, branches = c.shape(0), c.attr("num_branches", 0)
    return (*x[:-1], floor_div(x[-1], branches)) if branches else (*x[:-2], x[-1])


@rule("com.microsoft:HyperConnectionLowRankMix")
def _low_rank_mix(c: Call) -> Result:
    x, branches = c.shape(0), c.attr("num_branches", 0)
    if branches < 1:
        raise Unclear
    return [(*x[:-1], floor_div(x[-1], branches)), (*x[:-1], branches), x]


@rule("com.microsoft:RMSNormRotary", lambda c: T.FLOAT16 if c.attr("output_fp16", 0) else T.BFLOAT16, T.FLOAT)
def _rms_norm_rotary(c: Call) -> Result:
    batch, steps, heads, _ = c.shape(0)
    (width,) = c.shape(1)
    y: Shape = (1, batch * steps, heads * width) if c.attr("flatten_batch", 0) else (batch, steps, heads * width)
    return [y, (batch, steps, heads, width)]


# Products ------------------------------------------------------------------------------------------------------------


@rule("com.microsoft:MatMulNBitsMlp com.microsoft:MatMulNBitsQLoRA com.microsoft:MatMulPacked", SAME)
def _columns(c: Call) -> Result:
    x, columns = c.shape(0), c.attr("N", 0)
    if not x or columns < 1:
        raise Unclear
    return [(*x[:-1], columns), x]  # the second: MatMulNBitsMlp's sum of input and skip


@rule("com.microsoft:MatMulNBitsQkv")
def _qkv(c: Call) -> Result:
    x, q, kv = c.shape(0), c.attr("Nq", 0), c.attr("Nkv", 0)
    if not x or q < 1 or kv < 1:
        raise Unclear
    return [(*x[:-1], q), (*x[:-1], kv), (*x[:-1], kv), x]


@rule("com.microsoft:MatMulBlockQuantizedFp8Weight com.microsoft:MatMulBlockQuantizedFp4Weight")
def _transposed_weight(c: Call) -> Result:
    return (*c.shape(0)[:-1], c.shape(1)[0])


@rule("com.microsoft:MatMulFpQ4")
def _matmul_fpq4(c: Call) -> Result:
    return (*c.shape(0)[:-1], c.dims(2)[-1])


@rule("com.microsoft:QOrderedMatMul")
def _qordered_matmul(c: Call) -> Result:
    return linear.product_shape(c.shape(0), c.shape(2))


@rule("com.microsoft:RouterGateUpProj")
def _router_gate_up(c: Call) -> Result:
    x, (_, width), router = c.shape(0), c.shape(1), c.attr("router_size", 0)
    return [(*x[:-1], router), (*x[:-1], floor_div(width - router, 2))]


@rule("com.microsoft:MoEGroupRouter", lambda c: c.value(0).dtype, T.FLOAT)
def _moe_group_router(c: Call) -> Result:
    return [(prod(c.shape(0)[:-1]), *c.shape(1))] * 3


@rule("com.microsoft:CDist")
def _cdist(c: Call) -> Result:
    return (c.shape(0)[0], c.shape(1)[0])


# Convolutions and pools ----------------------------------------------------------------------------------------------


@rule("com.microsoft:ConvTransposeWithDynamicPads")
def _dynamic_pads(c: Call) -> Result:
    attrs = {**c.node.attrs, "pads": tuple(c.ints(2))} if c.has(2) else c.node.attrs
    return RULES["ConvTranspose"].shape(replace(c, node=replace(c.node, attrs=attrs)))


@rule("com.microsoft:MaxpoolWithMask")
def _maxpool_with_mask(c: Call) -> Result:
    return RULES["MaxPool"].shape(c)


@rule("com.microsoft:CausalConvWithState", SAME)
def _causal_conv(c: Call) -> Result:
    return [c.shape(0), c.value(3).shape]


@rule("com.microsoft:VarlenCausalConvWithState", SAME)
def _varlen_causal_conv(c: Call) -> Result:
    return [c.shape(0), c.value(4).shape]


@rule("com.microsoft:WordConvEmbedding", like(1))
def _word_conv(c: Call) -> Result:
    return (c.shape(0)[0], c.shape(1)[0])


@rule("com.microsoft:CropAndResize")
def _crop_and_resize(c: Call) -> Result:
    boxes, channels = c.shape(1)[0], c.shape(0)[1]
    height, width = c.dims(3) if c.value(3).data is not None else (c.fresh(0, 2), c.fresh(0, 3))
    return (boxes, channels, height, width)


@rule("com.microsoft:QLinearReduceMean")
def _quantized_mean(c: Call) -> Result:
    return RULES["ReduceMean"].shape(replace(c, inputs=c.inputs[:1], node=replace(c.node, inputs=c.node.inputs[:1])))
