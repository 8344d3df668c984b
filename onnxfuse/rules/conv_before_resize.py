"""A 1x1 convolution goes before the Resize that it reads, where fewer places are left.

A 1x1 convolution mixes the channels of one place, a Resize of the picture the places of one channel. Where the weights
of its mean sum to 1, w·resize(x) + b = resize(w·x + b). They do in a nearest one, which copies, and in a linear or
cubic one that does not extrapolate (tf_crop_and_resize), leave taps out (exclude_outside) or widen them (antialias).
A function of each element behind the convolution goes along with a copy, f(resize(x)) = resize(f(x)), and stays behind
a mean. Of concatenated channels w·[resize(a); c] + b = resize(w₁·a + b) + w₂·c, where Resizes of one kind become one.

Conditions: constant weights, one group; nobody else reads the Resize; scales or sizes that surely leave the channels
alone; no more channels to resize than before; and less time as the roofline sees it. Where more kernels run then, as a
function or an Add stays behind the Resize with which the convolution was one, or, on ort-cpu, as what is added is not
in its blocked layout, at least 24 multiplications for each element of the result are saved on ort-cpu, and at most half
as many channels are made elsewhere. NaN and infinities come out as before, but that the blocked layout's linear Resize
makes NaN of an infinity; an overflow may appear or vanish.

Measured (onnxruntime 1.32, CPU, one thread of AVX-512, processor time, medians of paired ratios): segformer 1.11x to
1.52x, unet 1.03x to 1.05x, yolov8 1.01x to 1.03x, deeplab 1.01x to 1.02x. Alone, to twice the width and height: 4 to
16 channels 1.02x to 2.4x, 64 1.3x to 3.0x, 256 to 2 1.2x to 11x; of concatenated ones, 16 channels 1.07x to 1.2x, 128
and 64 1.3x to 2.2x. Without the conditions 16 channels 0.93x to 1.1x, to twice as many channels 0.78x to 2.4x.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxfuse.patterns import CROWD, Build, NotLegal, Rewrite, Scope, is_op
from onnxfuse.rules._activation import ACTIVATIONS
from onnxfuse.rules._blocked import is_blocked
from onnxfuse.rules._known import given, ints

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 3
ROOTS = ("Conv",)
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,8,8] x) => (float[1,1,16,16] y)
<float[4] s = {1, 1, 2, 2}, float[1,3,1,1] w = {2, 3, 4}, float[1] b = {1}>
{ r = Resize <mode = "linear"> (x, , s)  y = Conv (r, w, b) }
"""
AFTER = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,3,8,8] x) => (float[1,1,16,16] y)
<float[4] s = {1, 1, 2, 2}, float[1,3,1,1] w = {2, 3, 4}, float[1] b = {1}>
{ c = Conv (x, w, b)  y = Resize <mode = "linear"> (c, , s) }
"""
_OF_ELEMENTS = (*ACTIVATIONS, "Elu", "Gelu", "HardSwish", "Mish")
_MODES = ("nearest", "linear", "bilinear", "cubic")
# The others may take a place from outside the picture, or move the channels, too, whose scale is 1.
_COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
_HAS_ROI, _SIZES = 11, 3  # the opset since which scales are the third input of a Resize, and sizes the fourth
_SEQUENCE = 3  # axes
_MEASURED_ON = "ort-cpu"
_LEAST_SAVED = 24  # multiplications for each element of the result that make up for another kernel
_UNKNOWN_GROWTH = 4  # places for one where sizes depend on the input


@dataclass(frozen=True, slots=True, eq=False)
class _Resize:
    """A Resize or Upsample.

    sizes: the input that gives them, None where scales are given. lengths: those sizes, which may be symbolic, or
    scales; empty where not known. place: where the channels stand among them, None where they do not.
    """

    node: gs.Node
    sizes: gs.Tensor | None
    lengths: tuple[Any, ...]
    place: int | None
    mode: str


@dataclass(frozen=True, slots=True, eq=False)
class _Term:
    """Values that one convolution reads, the channels of its weights that meet them, and the Resize behind it."""

    sources: Sequence[gs.Tensor]
    channels: Sequence[int]
    resize: _Resize | None


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    parts = _parts(node, scope)
    if not any(is_op(scope.editor.producer(t), "Resize", "Upsample") for t in parts):
        return None
    weight = scope.constant(node.inputs[1])
    if weight is None or weight.ndim < 3 or any(d != 1 for d in weight.shape[2:]) or node.attrs.get("group", 1) != 1:
        return None
    if set(node.attrs.get("strides", [1])) != {1} or any(node.attrs.get("pads", [])):
        raise NotLegal("the 1x1 convolution has strides or pads")
    terms = _terms(parts, weight, scope)
    if len(terms) > 1 and weight.dtype.itemsize < np.dtype(np.float32).itemsize:
        raise NotLegal("each term of the sum would be rounded")
    reader = scope.editor.only_use(node.outputs[0])
    copies = len(terms) == 1 and terms[0].resize is not None and terms[0].resize.mode == "nearest"
    function = reader if copies and is_op(reader, *_OF_ELEMENTS) else None
    if function is None:
        _check_saved(terms, len(weight), reader, scope)
    out = node.outputs[0] if function is None else function.outputs[0]
    build, biases = Build(scope, node), node.inputs[2:]
    total: gs.Tensor | None = None
    for term in terms:
        x = term.sources[0] if len(term.sources) == 1 else build("Concat", *term.sources, axis=1)
        w = build.constant(np.take(weight, term.channels, 1)) if len(terms) > 1 else node.inputs[1]
        made, biases = build("Conv", x, w, *biases, **node.attrs), []
        if function is not None:
            made = build(function.op, made, *function.inputs[1:], **function.attrs)
        if term.resize is not None:
            inputs, like = _with_channels(term.resize, len(weight), build, scope), term.resize.node
            made = build(like.op, made, *inputs, out=None if len(terms) > 1 else out, **like.attrs)
        if total is not None:
            made = build("Add", total, made, out=out if term is terms[-1] else None)
        total = made
    return build.rewrite(alike=True)  # what is put together or added is of one size


def _parts(conv: gs.Node, scope: Scope) -> Sequence[gs.Tensor]:
    """The values whose channels the convolution reads: those of a Concat that nobody else reads, or its input."""
    concat, shape = scope.editor.producer(conv.inputs[0]), scope.value(conv.inputs[1]).shape
    if concat is None or not is_op(concat, "Concat") or shape is None or scope.editor.only_use(conv.inputs[0]) is None:
        return tuple(conv.inputs[:1])
    whole = concat.attrs["axis"] in (1, 1 - len(shape)) and len(concat.inputs) <= CROWD
    return tuple(concat.inputs) if whole else ()


def _terms(parts: Sequence[gs.Tensor], weight: np.ndarray, scope: Scope) -> list[_Term]:
    """The terms of the sum, one without a Resize last. Raises NotLegal where there would be none with one."""
    outs, width = weight.shape[:2]
    widths = [width]
    if len(parts) > 1:
        widths = [d for t in parts if isinstance(d := (scope.value(t).shape or (0, None))[1], int)]
    if len(widths) < len(parts) or sum(widths) != width:
        raise NotLegal("how many channels each of the concatenated values has is not known")
    reason = "the Resize does not enlarge, or the convolution makes more channels than it has"
    resizes: dict[int, _Resize] = {}
    kinds: dict[Hashable, list[int]] = {}
    for i, part in enumerate(parts):
        try:
            if (resize := _resize(part, scope)) is not None:
                kinds.setdefault(_kind(resize, widths[i], scope), []).append(i)
                resizes[i] = resize
        except NotLegal as found:
            reason = str(found)
    groups = [g for g in kinds.values() if sum(widths[i] for i in g) >= outs and _growth(resizes[g[0]], scope) > 1]
    if not groups:
        raise NotLegal(reason)
    ends = np.cumsum(widths)

    def term(group: Sequence[int], resize: _Resize | None) -> _Term:
        channels = [c for i in group for c in range(ends[i] - widths[i], ends[i])]
        return _Term([parts[i] if resize is None else resizes[i].node.inputs[0] for i in group], channels, resize)

    rest = [i for i in range(len(parts)) if not any(i in g for g in groups)]
    return [*(term(g, resizes[g[0]]) for g in groups), *([term(rest, None)] if rest else [])]


def _resize(tensor: gs.Tensor, scope: Scope) -> _Resize | None:
    """The Resize that makes a value; None where none does."""
    node = scope.editor.producer(tensor)
    if node is None or not is_op(node, "Resize", "Upsample"):
        return None
    sizes, shape = given(node, _SIZES), scope.value(node.inputs[0]).shape
    if sizes is not None and scope.value(sizes).shape == (0,):
        sizes = None
    told = given(node, 2 if scope.opset >= _HAS_ROI else 1) if sizes is None else sizes
    data = None if told is None else scope.value(told).data
    lengths = tuple(node.attrs.get("scales", ())) if data is None else tuple(data.tolist())
    axes = [a if a >= 0 or shape is None else a + len(shape) for a in node.attrs.get("axes", ())]
    place = 1 if not axes else axes.index(1) if 1 in axes else None
    return _Resize(node, sizes, lengths, place, str(node.attrs.get("mode", "nearest")))


def _kind(resize: _Resize, width: int, scope: Scope) -> Hashable:
    """What Resizes that may be one have in common. Raises NotLegal where it is not a mean of each channel."""
    node, lengths, place = resize.node, resize.lengths, resize.place
    if scope.editor.only_use(node.outputs[0]) is None:
        raise NotLegal(f"'{node.outputs[0].name}' is needed elsewhere, too")
    coordinates = node.attrs.get("coordinate_transformation_mode", "half_pixel")
    if resize.mode not in _MODES or coordinates not in _COORDINATES:
        raise NotLegal(f"the weights of a {resize.mode} Resize with {coordinates} may not sum to 1")
    if node.attrs.get("exclude_outside", 0) or node.attrs.get("antialias", 0):
        raise NotLegal("the weights of a Resize with exclude_outside or antialias may not sum to 1")
    shape = scope.value(node.inputs[0]).shape
    if shape is None or not lengths:
        raise NotLegal("the scales or sizes of the Resize are not known")
    if resize.mode != "nearest" and len(shape) == _SEQUENCE:
        raise NotLegal(
            "a mean along a sequence takes the next channel, too, with the weight 0, which spreads infinities"
        )
    if place is not None:
        if lengths[place] != 1 if resize.sizes is None else not lengths[place] == shape[1] == width:
            raise NotLegal("the Resize may change the number of channels")
        if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise NotLegal("the Resize keeps a ratio to the channels")
        lengths = lengths[:place] + lengths[place + 1 :]
    return node.op, repr(sorted(node.attrs.items())), resize.sizes is None, lengths, (shape[0], *shape[2:])


def _growth(resize: _Resize, scope: Scope) -> float:
    """How many places a Resize makes of one."""
    if resize.sizes is None:
        return float(prod(resize.lengths))
    before, after = ((scope.value(t).shape or ())[2:] for t in (resize.node.inputs[0], resize.node.outputs[0]))
    old, new = ([d for d in dims if isinstance(d, int) and d] for dims in (before, after))
    return prod(new) / prod(old) if len(old) == len(before) == len(new) > 0 else _UNKNOWN_GROWTH


def _with_channels(resize: _Resize, outs: int, build: Build, scope: Scope) -> list[gs.Tensor]:
    """The inputs of a Resize behind the first, for a value of so many channels."""
    inputs, sizes, place = list(resize.node.inputs[1:]), resize.sizes, resize.place
    if sizes is None or place is None or resize.lengths[place] == outs:
        return inputs
    known = ints(sizes, scope)
    if known is None:
        more = np.zeros(len(resize.lengths), np.int64)
        more[place] = outs - resize.lengths[place]
        return [*inputs[: _SIZES - 1], build("Add", sizes, build.constant(more))]
    known[place] = outs
    return [*inputs[: _SIZES - 1], build.constant(np.array(known, np.int64))]


def _check_saved(terms: Sequence[_Term], outs: int, reader: gs.Node | None, scope: Scope) -> None:
    """Raises NotLegal where a kernel more, which the estimate may not see, would take what is saved."""
    split = len(terms) == 1 and is_op(reader, "Add", "Sum", *_OF_ELEMENTS)
    if scope.target.name != _MEASURED_ON:
        if split and 2 * outs > len(terms[0].channels):
            raise NotLegal("what could become one node with the convolution would read the whole result")
        return
    rest = terms[-1].sources if terms[-1].resize is None else ()
    if not split and (len(terms) == 1 or any(is_blocked(t, scope) for t in rest)):
        return
    for t in terms:
        if t.resize is not None and len(t.channels) * (1 - 1 / _growth(t.resize, scope)) < _LEAST_SAVED:
            raise NotLegal("too little work is saved for another kernel")
