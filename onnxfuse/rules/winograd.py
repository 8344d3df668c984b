"""A 3x3 convolution of many channels is computed by Winograd's minimal filtering along one axis.

m neighbouring results of a row filter of 3 taps need m + 2 multiplications instead of 3·m: w ∗ x = Aᵀ[(G·w) ⊙ (Bᵀ·x)],
Winograd's F(m, 3), here with m = 2 or 4, which takes 1.5 or 2 times fewer multiplications. Along the other axis, and over
the channels, it stays an ordinary convolution: m + 2 convolutions of 3 taps on values m times shorter. All of it is
plain operators that onnxruntime's CPU provider keeps in its blocked layout: Bᵀ·x is m + 2 depthwise convolutions with
stride m; most additions of Aᵀ go into convolutions as their sum; and the m parts of the result are interleaved in the
order NHWC, where they lie side by side. G·w is left to the runtime, which computes it once, when it loads the model:
the file keeps the weights that it has. A filter of dilation d does the same for each of d residues along the axis.

Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016; Winograd, Arithmetic Complexity of
Computations, SIAM 1980. The largest error against a direct convolution is some 1e-6 of the output's scale, with sums
that cancel within m + 2 neighbours instead of 3; values beyond 1e37 overflow, and an infinity spoils its neighbours too.

Conditions: float32, stride 1, group 1, a result as large as the input, constant weights, enough channels and places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from onnxfuse.patterns import Build, NotLegal, Rewrite, Scope, is_op

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

STAGE = 3
MEASURED = ("ort-cpu",)
ROOTS = ("Conv",)
LARGEST = 16384  # bytes of a constant that repeats itself
BLOCK = 16  # channels of the largest block of onnxruntime's layout
LEAST_WORK = 64  # channels in · out / (in + out): below, the transforms cost what the multiplications save
LEAST_PLACES = 196  # of an image: below, the larger weights cost it
ACTIVATIONS = frozenset(("Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish"))
BEFORE = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[1,128,14,14] x) => (float[1,128,14,14] y) <int64[4] s = {128,128,3,3}>
{ w = ConstantOfShape <value = float {0.01}> (s)  y = Conv <pads = [1,1,1,1]> (x, w) }
"""
AFTER = BEFORE


@dataclass(frozen=True, slots=True)
class Row:
    """One row of Bᵀ, whose non-zero taps are evenly spaced, and the row of G that belongs to it.

    start: place of the first tap, from the place of the tile's first result. step: from tap to tap.
    """

    taps: tuple[float, ...]
    start: int
    step: int
    kernel: tuple[float, float, float]


# The points of F(2, 3) are 0, 1, -1, ∞; those of F(4, 3) 0, 1, -1, 2, -2, ∞.
_ROWS = {
    2: (
        Row((1, -1), -1, 2, (1, 0, 0)),
        Row((1, 1), 0, 1, (1 / 2, 1 / 2, 1 / 2)),
        Row((-1, 1), 0, 1, (1 / 2, -1 / 2, 1 / 2)),
        Row((1, -1), 0, 2, (0, 0, -1)),
    ),
    4: (
        Row((4, -5, 1), -1, 2, (1 / 4, 0, 0)),
        Row((-4, -4, 1, 1), 0, 1, (-1 / 6, -1 / 6, -1 / 6)),
        Row((4, -4, -1, 1), 0, 1, (-1 / 6, 1 / 6, -1 / 6)),
        Row((-2, -1, 2, 1), 0, 1, (1 / 24, 1 / 12, 1 / 6)),
        Row((2, -1, -2, 1), 0, 1, (1 / 24, -1 / 12, 1 / 6)),
        Row((4, -5, 1), 0, 2, (0, 0, 1)),
    ),
}


def match(node: gs.Node, scope: Scope) -> Rewrite | None:
    """Rewrite or None; raises NotLegal with the reason of a near miss."""
    if scope.target.name not in MEASURED:
        return None
    found = _suitable(node, scope)
    if found is None:
        return None
    axis, m = _tiling(found, scope)
    last, activation = _behind(node, scope)
    return _Writer(Build(scope, node), scope, found, axis, m, activation).write(last.outputs[0])


@dataclass(frozen=True, slots=True, eq=False)
class _Conv:
    """What is computed: sizes of the image are numbers, or None where they depend on a free dimension."""

    x: gs.Tensor
    weight: gs.Tensor
    bias: gs.Tensor | None
    channels: tuple[int, int]
    dilation: int
    size: tuple[int | None, int | None]


def _suitable(node: gs.Node, scope: Scope) -> _Conv | None:
    x, weight = scope.value(node.inputs[0]), scope.value(node.inputs[1])
    if weight.dtype != TensorProto.FLOAT or weight.shape is None or x.shape is None or len(x.shape) != 4:
        return None
    out, into = weight.shape[:2]
    if weight.shape[2:] != (3, 3) or not isinstance(out, int) or not isinstance(into, int):
        return None
    attrs = node.attrs
    dilations = list(attrs.get("dilations", (1, 1)))
    d = dilations[0]
    auto = attrs.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")
    if attrs.get("group", 1) != 1 or list(attrs.get("strides", (1, 1))) != [1, 1] or dilations != [d, d]:
        return None
    if not auto and (attrs.get("auto_pad", "NOTSET") != "NOTSET" or list(attrs.get("pads", ())) != [d] * 4):
        return None
    if out % BLOCK or into % BLOCK or out * into < LEAST_WORK * (out + into):
        return None
    sizes = tuple(s if isinstance(s, int) else None for s in x.shape[2:])
    if sizes[0] is not None and sizes[1] is not None and sizes[0] * sizes[1] < LEAST_PLACES:
        return None
    if not weight.constant:
        raise NotLegal("the weights are not constant")
    bias = node.inputs[2] if len(node.inputs) > 2 and node.inputs[2].name else None
    return _Conv(node.inputs[0], node.inputs[1], bias, (into, out), d, (sizes[0], sizes[1]))


def _behind(node: gs.Node, scope: Scope) -> tuple[gs.Node, gs.Node | None]:
    """The last node that is replaced, and the activation that goes with the convolution."""
    reader = scope.editor.only_use(node.outputs[0])
    if is_op(reader, "Add", "Sum"):
        raise NotLegal("onnxruntime computes the sum behind it together with the convolution")
    if reader is not None and is_op(reader, *ACTIVATIONS) and node.outputs[0].name not in scope.pinned:
        return reader, reader
    return node, None


def _tiling(conv: _Conv, scope: Scope) -> tuple[int, int]:
    """The axis of the image and m: the fewest multiplications with the last tile filled up; the first axis if equal.

    The layout of the second axis needs no sizes, so it is the one for those that are not known.
    """
    if None in conv.size:
        if conv.size[1] is None and scope.opset < 15:
            raise NotLegal("an image of unknown width needs opset 15")
        return 1, 4
    best = []
    for axis, size in enumerate(conv.size):
        assert size is not None
        for m in (4, 2):
            if not axis and conv.dilation > 1:
                continue
            tiles = -(-size // (m * conv.dilation))
            best.append((tiles * (m + 2) * conv.dilation / size, -m, axis))
    _, m, axis = min(best)
    return axis, -m


@dataclass(slots=True, eq=False)
class _Writer:
    """Writes the nodes of one convolution."""

    build: Build
    scope: Scope
    conv: _Conv
    axis: int
    m: int
    activation: gs.Node | None

    def write(self, out: gs.Tensor) -> Rewrite:
        """The rewrite that makes `out`."""
        rows = range(self.conv.dilation)
        parts = [self._outputs(r) for r in rows]
        parts = [parts[r][a] for a in range(self.m) for r in rows]  # place = (m · tile + a) · d + r
        self._interleave(parts, out)
        return self.build.rewrite()

    def _along(self, one: Any, other: Any) -> list[Any]:
        """A pair of axes: `one` for the tiled axis."""
        return [other, one] if self.axis else [one, other]

    def _input(self, row: Row, residue: int) -> gs.Tensor:
        """One row of Bᵀ·x for every tile."""
        d, size = self.conv.dilation, self.conv.size[self.axis]
        stride, step, start = self.m * d, d * row.step, d * row.start + residue
        taps = np.array(row.taps, np.float32)
        if start > 0:  # no pad is negative: taps of 0 in front
            spread = np.zeros(start + step * (len(taps) - 1) + 1, np.float32)
            spread[start::step] = taps
            taps, step, start = spread, 1, 0
        reach = step * (len(taps) - 1)
        behind = reach + start  # enough tiles for every size
        if size is not None:
            behind = max(0, stride * (-(-size // stride) - 1) + start + reach - size + 1)
        channels = self.conv.channels[0]
        filters = self._everywhere(taps.reshape(1, 1, *self._along(-1, 1)), channels)
        pads = [*self._along(-start, 0), *self._along(behind, 0)]
        return self.build(
            "Conv", self.conv.x, filters, group=channels, dilations=self._along(step, 1),
            kernel_shape=self._along(len(taps), 1), pads=pads, strides=self._along(stride, 1),
        )  # fmt: skip

    def _everywhere(self, array: np.ndarray, channels: int) -> gs.Tensor:
        """The array for each of the channels; a large one is repeated by the runtime when it loads the model."""
        whole = np.broadcast_to(array, (channels, *array.shape[1:]))
        if whole.nbytes <= LARGEST:
            return self.build.constant(np.ascontiguousarray(whole))
        return self.build("Expand", self.build.constant(array), self.build.constant(np.array(whole.shape, np.int64)))

    def _product(self, i: int, residue: int, bias: gs.Tensor | None = None) -> gs.Tensor:
        """One row of (G·w) ⊙ (Bᵀ·x), summed over channels and the other axis."""
        row = _ROWS[self.m][i]
        kernel = np.array(row.kernel, np.float32)
        if self.axis:
            weight = self.build("MatMul", self.conv.weight, self.build.constant(kernel.reshape(3, 1)))
        else:
            weight = self.build("MatMul", self.build.constant(kernel.reshape(1, 3)), self.conv.weight)
        d = self.conv.dilation
        return self.build(
            "Conv", self._input(row, residue), weight, *([bias] if bias is not None else []),
            group=1, dilations=self._along(1, d), kernel_shape=self._along(1, 3), pads=self._along(0, d) * 2, strides=[1, 1],
        )  # fmt: skip

    def _plus(self, factor: float, scaled: gs.Tensor, other: gs.Tensor, bias: gs.Tensor | None = None) -> gs.Tensor:
        """factor · scaled + other, for the runtime one convolution with a sum."""
        channels = self.conv.channels[1]
        weight = self.build.constant(np.full((channels, 1, 1, 1), factor, np.float32))
        attrs = {
            "group": channels,
            "dilations": [1, 1],
            "kernel_shape": [1, 1],
            "pads": [0, 0, 0, 0],
            "strides": [1, 1],
        }
        made = self.build("Conv", scaled, weight, *([bias] if bias is not None else []), **attrs)
        return self.build("Add", made, other)

    def _outputs(self, residue: int) -> list[gs.Tensor]:
        """Aᵀ of the products: the m results of every tile."""
        add, bias = lambda a, b: self.build("Add", a, b), self.conv.bias
        second = self._product(2, residue)
        plus = add(self._product(1, residue), second)
        minus = self._plus(-2, second, plus)
        if self.m == 2:
            results = [add(self._product(0, residue, bias), plus), add(self._product(3, residue, bias), minus)]
        else:
            fourth = self._product(4, residue)
            plus2 = add(self._product(3, residue), fourth)
            minus2 = self._plus(-2, fourth, plus2)
            results = [
                add(self._product(0, residue, bias), add(plus, plus2)),
                self._plus(2, minus2, minus, bias),
                self._plus(4, plus2, plus, bias),
                add(self._product(5, residue, bias), self._plus(8, minus2, minus)),
            ]
        if self.activation is None:
            return results
        return [self.build(self.activation.op, r, **self.activation.attrs) for r in results]

    def _interleave(self, parts: list[gs.Tensor], out: gs.Tensor) -> None:
        """The parts one place after the other along the axis."""
        build, channels, size = self.build, self.conv.channels[1], self.conv.size[self.axis]
        step = len(parts)
        full = -1 if size is None else -(-size // step) * step
        if self.axis:
            image = build("Transpose", build("Concat", *parts, axis=1), perm=[0, 2, 3, 1])
            shape = [0, 0, full, channels]
        else:
            image = build("Concat", *(build("Transpose", p, perm=[0, 2, 3, 1]) for p in parts), axis=2)
            shape = [0, full, self.conv.size[1], channels]
        image = build("Reshape", image, build.constant(np.array(shape, np.int64)))
        if full != size:
            zero, along = build.constant(np.zeros(1, np.int64)), build.constant(np.array([self.axis + 1], np.int64))
            if size is None:
                end = build("Shape", self.conv.x, start=self.axis + 2, end=self.axis + 3)
            else:
                end = build.constant(np.array([size], np.int64))
            image = build("Slice", image, zero, end, along)
        build("Transpose", image, perm=[0, 3, 1, 2], out=out)
