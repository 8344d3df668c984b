"""What operators ask of their integer inputs: indices into an axis, lengths, sizes.

Each function gives (position of an input, ranges of its elements) for the inputs that it knows. Sizes are small: a
model runs quickly with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnxfuse.bounds import sizes
from onnxfuse.bounds.call import Call, Use
from onnxfuse.bounds.ranges import SOME, Range, exactly, position, up_to


def _gather(call: Call) -> Use:
    yield 1, position(call.size(0, call.attr("axis", 0)))


def _gather_blocks(call: Call) -> Use:
    yield 1, position(call.size(0, call.attr("gather_axis", 0)))


def _gather_nd(call: Call) -> Use:
    dims, first = call.dims(0), call.attr("batch_dims", 0)
    depth = call.size(1, -1)
    if dims is not None and isinstance(depth, int):
        sizes = dims[first : first + depth]
        if sizes and all(isinstance(d, int) for d in sizes):
            yield 1, position(min(d for d in sizes if isinstance(d, int)))
        elif len(sizes) == 1:
            yield 1, position(sizes[0])


def _array_features(call: Call) -> Use:
    yield 1, position(call.size(0, -1), negative=False)


def _one_hot(call: Call) -> Use:
    depth = call.numbers(1)
    yield 0, position(depth[0]) if depth and depth[0] > 0 else ()
    yield 1, (Range(1, SOME),)


def _embed(call: Call) -> Use:
    for ids, table in ((0, 2), (1, 4), (8, 3)):
        yield ids, position(call.size(table, 0), negative=False)


def _classes(call: Call) -> Use:
    yield 1, position(call.size(0, 1), negative=False)


def _boxes(call: Call) -> Use:
    yield 2, position(call.size(0, 0), negative=False)


def _recurrent(call: Call) -> Use:
    yield 4, up_to(call.size(0, 1 if call.attr("layout", 0) else 0))


def _reverse(call: Call) -> Use:
    yield 1, up_to(call.size(0, call.attr("time_axis", 0)))


def _mask_lengths(call: Call) -> Use:
    if len(call.dims(3) or ()) == 1:
        yield 3, up_to(call.size(0, 1))


def _key_lengths(call: Call) -> Use:
    yield 6, up_to(call.size(1, -2))


def _cached_lengths(call: Call) -> Use:
    """GroupQueryAttention without keys in its cache: the lengths less one, and the length."""
    length = call.size(0, 1)
    yield 5, tuple(r.shifted(1, 1) for r in exactly(length))
    yield 6, exactly(length)


def _rotary(call: Call) -> Use:
    """com.microsoft: one position is the first of all, so that only 0 is sure to fit."""
    alone = call.dims(1) in ((), (1,))
    yield 1, (Range(0, 1),) if alone else position(call.size(2, 0), negative=False)


def _rotary_standard(call: Call) -> Use:
    yield 3, position(call.size(1, 0), negative=False)


def _range(_call: Call) -> Use:
    yield from ((0, (Range(0, 1),)), (1, (Range(2, SOME),)), (2, (Range(1, 2),)))


def _axis(call: Call) -> Use:
    dims = call.dims(0)
    yield 1, position(len(dims)) if dims else ()


def _top(call: Call) -> Use:
    yield 1, up_to(call.size(0, call.attr("axis", -1)))


def _fixed(*ranges: tuple[int, int, int]) -> Callable[[Call], Use]:
    return lambda _call: [(i, (Range(low, high),)) for i, low, high in ranges]


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
DIVISIONS = ("Div", "Mod")
USES: Mapping[tuple[str, str], Callable[[Call], Use]] = {
    **{("", op): _gather for op in ("Gather", "GatherElements", "ScatterElements", "Scatter")},
    **{("", op): _gather_nd for op in ("GatherND", "ScatterND")},
    **{("", op): _recurrent for op in ("RNN", "LSTM", "GRU")},
    **{("", op): _classes for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")},
    **{("", f"Reduce{op}"): sizes.axes for op in _REDUCTIONS},
    **{("", op): _fixed((1, 1, SOME)) for op in DIVISIONS},  # no division by zero
    ("", "Attention"): _key_lengths,
    ("", "ConstantOfShape"): _fixed((0, 1, 4)),
    ("", "CumSum"): _axis,
    ("", "Dropout"): _fixed((2, 0, 1)),  # a mode of training gives random outputs
    ("", "Expand"): sizes.expand,
    ("", "Loop"): _fixed((0, 1, 4)),
    ("", "NonMaxSuppression"): _fixed((2, 1, SOME)),
    ("", "OneHot"): _one_hot,
    ("", "Pad"): _fixed((1, 0, 2)),
    ("", "Range"): _range,
    ("", "Reshape"): sizes.reshape,
    ("", "Resize"): sizes.resize,
    ("", "ReverseSequence"): _reverse,
    ("", "RoiAlign"): _boxes,
    ("", "RotaryEmbedding"): _rotary_standard,
    ("", "Slice"): sizes.slice,
    ("", "Split"): sizes.split,
    ("", "Squeeze"): sizes.squeeze,
    ("", "Tile"): _fixed((1, 1, 3)),
    ("", "TopK"): _top,
    ("", "Unsqueeze"): sizes.axes,
    ("", "Upsample"): sizes.resize,
    ("ai.onnx.ml", "ArrayFeatureExtractor"): _array_features,
    ("com.microsoft", "Attention"): _mask_lengths,
    ("com.microsoft", "EmbedLayerNormalization"): _embed,
    ("com.microsoft", "GatherBlockQuantized"): _gather_blocks,
    ("com.microsoft", "GatherND"): _gather_nd,
    ("com.microsoft", "GroupQueryAttention"): _cached_lengths,
    ("com.microsoft", "RotaryEmbedding"): _rotary,
}
