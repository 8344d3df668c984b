"""Operators that move data and compute nothing: views, shapes, copies, gathers, scatters, generated tensors.

Measured in onnxruntime on a 64 MB tensor: Identity, Reshape, Flatten, Squeeze, Unsqueeze and a Cast to the same type
take no time; Dropout, a full-range Slice, a Concat of one, a Pad by zero, an Expand or Tile to the same shape and a
Transpose that only moves axes of 1 are full copies. SequenceErase takes no time, SequenceInsert that of one tensor.
"""

from __future__ import annotations

from onnxfuse.cost.registry import FREE, NCHWC, NHWC, Call, Cost, bytes_of, op
from onnxfuse.facts.expr import Dim, dmin
from onnxfuse.facts.value import Value


@op("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "BitCast", kind="view")
@op("Optional", "OptionalGetElement", "SequenceEmpty", "SequenceErase", kind="view")
@op("ExpandDims", kind="view", domain="com.microsoft")
@op("Constant", kind="constant")  # charged to the nodes that read it, like an initializer
def view(_call: Call) -> Cost:
    """Nothing moves."""
    return FREE


@op("Shape", "Size", "SequenceLength", "OptionalHasElement", kind="shape")
def meta(call: Call) -> Cost:
    """Reads the type of its input, never its elements."""
    return call.cost(read=0)


@op("Transpose", "Concat", "Pad", "Tile", "Expand", "Trilu", "Dropout", kind="copy")
@op("DepthToSpace", "SpaceToDepth", "ReverseSequence", "MemcpyFromHost", "MemcpyToHost", kind="copy")
@op("QLinearConcat", "Pad", "Trilu", "UnfoldTensor", "BitmaskDropout", kind="copy", domain="com.microsoft")
@op("RestorePadding", "SampleOp", kind="copy", domain="com.microsoft")
@op("ReorderInput", "ReorderOutput", kind="copy", domain=NCHWC)
@op("DepthToSpace", "SpaceToDepth", kind="copy", domain=NHWC)
def copy(call: Call) -> Cost:
    """The input once, even where it is repeated in the output."""
    return call.cost()


@op("Slice", "Split", "DynamicSlice", "Crop", kind="copy")
def slice_(call: Call) -> Cost:
    """Only what comes out is read."""
    written = call.written()
    return call.cost(read=written, written=written)


@op("CenterCropPad", kind="copy")
def center_crop_pad(call: Call) -> Cost:
    """Reads what stays of the input."""
    shape = call.shape(0)
    kept = tuple(dmin(i, o) for i, o in zip(shape, call.out_shape(0, len(shape)), strict=True))
    return call.cost(read=bytes_of(Value(call.input(0).dtype, kept)))


@op("SequenceConstruct", kind="copy")
def sequence_construct(call: Call) -> Cost:
    """Every tensor is copied into the sequence."""
    read: Dim = 0
    for value in call.inputs:
        read = read + bytes_of(value)
    return call.cost(read=read, written=read)


@op("SequenceInsert", kind="copy")
def sequence_insert(call: Call) -> Cost:
    """The inserted tensor is copied; the others stay where they are."""
    written = bytes_of(call.input(1))
    return call.cost(read=written + (bytes_of(call.input(2)) if call.has(2) else 0), written=written)


@op("RemovePadding", kind="copy", domain="com.microsoft")
def remove_padding(call: Call) -> Cost:
    """Only the tokens that stay are read, and their counts."""
    return call.cost(read=bytes_of(call.output()) + bytes_of(call.input(1)))


@op("SequenceAt", "ConcatFromSequence", kind="copy")
def sequence_at(call: Call) -> Cost:
    """The tensor is copied out of the sequence."""
    written = call.written()
    return call.cost(read=written, written=written)


@op("SplitToSequence", kind="copy")
def split_to_sequence(call: Call) -> Cost:
    """The whole tensor is copied."""
    read = bytes_of(call.input(0))
    return call.cost(read=read, written=read)


@op("Gather", "GatherElements", "GatherND", "Compress", kind="gather")
@op("GatherND", "TorchEmbedding", kind="gather", domain="com.microsoft")
def gather(call: Call) -> Cost:
    """The gathered elements and the indices, not the whole table."""
    return call.cost(read=bytes_of(call.output()) + bytes_of(call.input(1)))


@op("ScatterND", "ScatterElements", "Scatter", kind="scatter")
def scatter(call: Call) -> Cost:
    """data, indices, updates -> a changed copy of data; a reduction is 1 FLOP an update."""
    reduces = call.attr("reduction", "none") != "none"
    return call.cost(arith=call.size(2) if reduces else 0)


@op("TensorScatter", "MaxUnpool", kind="scatter")
@op("MaxUnpool", kind="scatter", domain=NHWC)
def scatter_plain(call: Call) -> Cost:
    """Old values, new values, positions -> a changed copy."""
    return call.cost()


@op("ConstantOfShape", "EyeLike", "OneHot", "GivenTensorFill", kind="generate")
def generate(call: Call) -> Cost:
    """Written from nothing but a few numbers."""
    return call.cost(read=0)


@op("Range", kind="generate")
@op("Range", kind="generate", domain="com.microsoft")
def range_(call: Call) -> Cost:
    """One addition an element."""
    return call.cost(arith=call.out_size(), read=0)


@op("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", kind="random")
def random(call: Call) -> Cost:
    """One special function a draw, as XLA counts it."""
    return call.cost(transcendentals=call.out_size(), read=0)


@op("Bernoulli", "Multinomial", kind="random")
def random_from(call: Call) -> Cost:
    """Draws by the probabilities in the input."""
    return call.cost(transcendentals=call.out_size())
