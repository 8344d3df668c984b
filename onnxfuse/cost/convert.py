"""Conversions of dtype: a Cast computes nothing, quantizing or dequantizing is 2 FLOPs an element, with the scale found
at run time 4. Sub-byte tensors are packed.
"""

from __future__ import annotations

from onnxfuse.cost.registry import FREE, Call, Cost, op


@op("Cast", "CastLike", kind="convert")
def cast(call: Call) -> Cost:
    """A Cast to the same type is a view; CastLike does not read its second input's elements."""
    if call.input(0).dtype == call.output().dtype != 0:
        return FREE
    return call.cost(read=call.read(0))


@op("QuantizeLinear", "DequantizeLinear", kind="convert")
@op("QuantizeLinear", "DequantizeLinear", kind="convert", domain="com.microsoft")
def quantize(call: Call) -> Cost:
    """One multiplication or division, one addition of the zero point."""
    return call.cost(arith=2 * call.size(0))


@op("QuantizeWithOrder", "DequantizeWithOrder", "DequantizeBFP", kind="convert", domain="com.microsoft")
def quantize_with_order(call: Call) -> Cost:
    """One multiplication or division by the scale; DequantizeBFP has an exponent for each block instead."""
    return call.cost(arith=call.out_size())


@op("QuantizeBFP", kind="convert", domain="com.microsoft")
def quantize_bfp(call: Call) -> Cost:
    """The largest magnitude of each block, then a division an element."""
    return call.cost(arith=2 * call.size(0))


@op("DynamicQuantizeLinear", kind="convert")
def dynamic_quantize(call: Call) -> Cost:
    """Minimum, maximum, division, addition of the zero point."""
    return call.cost(arith=4 * call.size(0))
