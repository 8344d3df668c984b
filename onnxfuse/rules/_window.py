"""A linear operator over one value that reads it through a window: convolutions, scales a channel, the value itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxfuse.patterns import NotLegal, Scope

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """weight ∗ x + bias as onnx's Conv computes it, with weights in double precision.

    pads: in front of each spatial axis, then behind each. biased: whether a bias was given.
    """

    x: gs.Tensor
    dtype: np.dtype
    weight: np.ndarray
    bias: np.ndarray
    group: int
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    biased: bool = True

    @property
    def taps(self) -> tuple[int, ...]:
        """Places of the window along each spatial axis."""
        return self.weight.shape[2:]

    @property
    def grows(self) -> tuple[int, ...]:
        """By how much the result of stride 1 is longer than the input, for each spatial axis."""
        n = len(self.taps)
        pads = zip(self.pads[:n], self.pads[n:], self.dilations, self.taps, strict=True)
        return tuple(a + b - d * (k - 1) for a, b, d, k in pads)

    @property
    def macs(self) -> int:
        """Multiplications for each place of the result."""
        return self.weight.size

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes of the Conv."""
        return {
            "dilations": list(self.dilations),
            "group": self.group,
            "kernel_shape": list(self.taps),
            "pads": list(self.pads),
            "strides": list(self.strides),
        }

    def rounded(self) -> tuple[np.ndarray, np.ndarray]:
        """Weight and bias in the operator's dtype, rounded once. Raises NotLegal where they are not finite."""
        with np.errstate(over="ignore"):
            weight, bias = self.weight.astype(self.dtype), self.bias.astype(self.dtype)
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise NotLegal("the weights would not be finite")
        return weight, bias


def unpadded(node: gs.Node) -> bool:
    """Whether a convolution or pooling node pads nothing."""
    return node.attrs.get("auto_pad", "NOTSET") in ("NOTSET", "VALID") and not any(node.attrs.get("pads") or ())


def of_conv(node: gs.Node, scope: Scope) -> Window:
    """The window of a Conv node. Raises NotLegal."""
    weight = scope.constant(node.inputs[1])
    biased = len(node.inputs) > 2 and bool(node.inputs[2].name)
    bias = scope.constant(node.inputs[2]) if biased else np.zeros(1)
    if weight is None or bias is None:
        raise NotLegal("a weight of a convolution is not constant")
    if weight.dtype not in FLOATS or weight.ndim < 3:
        raise NotLegal(f"weights of dtype {weight.dtype}")
    taps, n = weight.shape[2:], weight.ndim - 2
    ones = [1] * n
    strides, dilations = (tuple(node.attrs.get(k, ones)) for k in ("strides", "dilations"))
    auto = node.attrs.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", "VALID"):
        pads = tuple(node.attrs.get("pads", [0] * 2 * n)) if auto == "NOTSET" else (0,) * 2 * n
    elif all(s == 1 for s in strides):
        whole = [d * (k - 1) for d, k in zip(dilations, taps, strict=True)]
        small, large = [w // 2 for w in whole], [w - w // 2 for w in whole]
        pads = (*small, *large) if auto == "SAME_UPPER" else (*large, *small)
    else:
        raise NotLegal(f"auto_pad {auto} with strides")
    if min(pads) < 0:
        raise NotLegal("negative pads")
    wide = np.broadcast_to(bias.astype(np.float64), weight.shape[:1])
    group = int(node.attrs.get("group", 1))
    return Window(
        node.inputs[0], weight.dtype, weight.astype(np.float64), wide, group, strides, pads, dilations, biased
    )


def of_scale(x: gs.Tensor, scale: np.ndarray, shift: np.ndarray, like: Window) -> Window:
    """scale·x + shift for each channel, as a window of as many axes as another one has."""
    n = len(like.taps)
    ones = (1,) * n
    weight = scale.astype(np.float64).reshape(-1, 1, *ones)
    return Window(x, like.dtype, weight, shift.astype(np.float64), weight.shape[0], ones, (0,) * 2 * n, ones)


def batchnorm(node: gs.Node, scope: Scope) -> tuple[np.ndarray, np.ndarray]:
    """Scale and shift of a BatchNormalization, in double precision. Raises NotLegal."""
    if node.attrs.get("training_mode", 0) or any(t.name for t in node.outputs[1:]):
        raise NotLegal("BatchNormalization is in training mode")
    given = [scope.constant(t) for t in node.inputs[1:5]]
    if len(given) != 4 or any(a is None or a.dtype not in FLOATS for a in given):
        raise NotLegal("a weight of BatchNormalization is not a float constant")
    return scale_and_shift(node, [a for a in given if a is not None])


def scale_and_shift(node: gs.Node, parameters: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """What a BatchNormalization multiplies by and adds, of its scale, B, mean and variance, in double precision.

    Raises NotLegal where it is not finite.
    """
    scale, shift, mean, variance = (a.astype(np.float64) for a in parameters)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + node.attrs.get("epsilon", 1e-5))
        offset = shift - mean * factor
    if not (np.isfinite(factor).all() and np.isfinite(offset).all()):
        raise NotLegal("the parameters of BatchNormalization are not finite")
    return factor, offset


def in_groups(weight: np.ndarray, group: int, fewer: int) -> np.ndarray:
    """The weight of a convolution in groups as that of one in fewer groups, whose other elements are 0."""
    if group == fewer:
        return weight
    outs, width = weight.shape[0], weight.shape[1]
    wide = np.zeros((outs, width * group // fewer, *weight.shape[2:]), weight.dtype)
    for o in range(outs):
        first = (o // (outs // group)) * width - (o // (outs // fewer)) * wide.shape[1]
        wide[o, first : first + width] = weight[o]
    return wide


def added(a: Window, b: Window) -> Window | None:
    """a + b of one value as one window; None where they step differently or do not make the same size."""
    if a.x is not b.x or a.strides != b.strides or a.grows != b.grows or len(a.bias) != len(b.bias):
        return None
    if a.dtype != b.dtype:
        return None
    n, group = len(a.taps), gcd(a.group, b.group)
    firsts, lasts, steps = [], [], []
    for i in range(n):
        low = [-w.pads[i] for w in (a, b)]
        high = [p + w.dilations[i] * (w.taps[i] - 1) for p, w in zip(low, (a, b), strict=True)]
        step = gcd(low[1] - low[0], *(w.dilations[i] for w in (a, b) if w.taps[i] > 1))
        firsts.append(min(low))
        lasts.append(max(high))
        steps.append(step or 1)
    behind = [grown + last for grown, last in zip(a.grows, lasts, strict=True)]
    if max(firsts) > 0 or min(behind) < 0:
        return None
    taps = [(last - first) // step + 1 for first, last, step in zip(firsts, lasts, steps, strict=True)]
    weights = [in_groups(w.weight, w.group, group) for w in (a, b)]
    if weights[0].shape[1] != weights[1].shape[1]:
        return None
    total = np.zeros((*weights[0].shape[:2], *taps))
    for window, weight in zip((a, b), weights, strict=True):
        total[(slice(None), slice(None), *_places(window, firsts, steps))] += weight
    pads = (*(-f for f in firsts), *behind)
    return Window(a.x, a.dtype, total, a.bias + b.bias, group, a.strides, pads, tuple(steps))


def _places(window: Window, firsts: Sequence[int], steps: Sequence[int]) -> list[slice]:
    found = []
    for i, (first, step) in enumerate(zip(firsts, steps, strict=True)):
        start = (-window.pads[i] - first) // step
        stride = window.dilations[i] // step if window.taps[i] > 1 else 1
        found.append(slice(start, start + stride * (window.taps[i] - 1) + 1, stride))
    return found
