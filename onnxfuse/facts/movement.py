"""Shapes and values of operators that rearrange, join, cut and repeat tensors."""

from __future__ import annotations

from math import gcd

from onnx import TensorProto as T

from onnxfuse.facts.call import (
    Call,
    Result,
    Unclear,
    broadcast,
    normal_axis,
    prod,
    rule,
    same_dim,
)  # fmt: skip
from onnxfuse.facts.evaluation import symbols
from onnxfuse.facts.expr import Dim, Expr, ceil_div, dmax, dmin, floor_div, provably_nonnegative
from onnxfuse.facts.value import Shape

TO_THE_END = 2**31 - 1  # an end at or beyond this is "as far as there is"


@rule("Reshape")
def _reshape(c: Call) -> Result:
    given = c.attr_ints("shape")
    if given is not None:
        target: list[Dim] = list(given)
    elif c.value(1).data is not None:
        target = c.dims(1)
    else:
        (rank,) = c.shape(1)
        if not isinstance(rank, int):
            raise Unclear
        return c.fresh_shape(0, rank)
    source = c.value(0).shape
    keep_zero = c.attr("allowzero", 0)
    out: list[Dim] = []
    hole = -1
    for i, d in enumerate(target):
        if d == 0 and not keep_zero:
            out.append(c.fresh(0, i) if source is None else source[i])
        elif d == -1:
            if hole >= 0:
                raise Unclear
            hole = i
            out.append(1)
        elif provably_nonnegative(d - 1) or ((keep_zero or c.estimate) and provably_nonnegative(d)):
            out.append(d)
        elif source is not None and i < len(source) and d == source[i]:
            out.append(d)  # where it is 0, that stands for this very size
        else:  # could be −1 or 0
            return c.fresh_shape(0, len(target))
    if source is not None and hole < 0 and isinstance(total := prod(source), int):
        have = prod(out)
        if isinstance(have, int) and have != total:
            raise Unclear
    if hole >= 0:
        if source is None:
            out[hole] = c.fresh(0, hole)
        else:
            total, rest = prod(source), prod(out)
            if rest == 0 or (isinstance(total, int) and isinstance(rest, int) and total % rest):
                raise Unclear
            out[hole] = floor_div(total, rest)
    return tuple(out)


@rule("Flatten")
def _flatten(c: Call) -> Result:
    x = c.shape(0)
    axis = c.attr("axis", 1)
    axis = len(x) if axis == len(x) else normal_axis(axis, len(x))
    return (prod(x[:axis]), prod(x[axis:]))


@rule("Transpose")
def _transpose(c: Call) -> Result:
    x = c.shape(0)
    perm = c.attr_ints("perm") or tuple(reversed(range(len(x))))
    if sorted(perm) != list(range(len(x))):
        raise Unclear
    return tuple(x[p] for p in perm)


@rule("Squeeze")
def _squeeze(c: Call) -> Result:
    x = c.shape(0)
    axes = c.ints_of("axes", 1)
    if axes is None:
        if any(isinstance(d, Expr) and not provably_nonnegative(d - 2) for d in x):
            raise Unclear  # a symbol may be 1
        return tuple(d for d in x if d != 1)
    drop = {normal_axis(a, len(x)) for a in axes}
    if any(isinstance(x[a], int) and x[a] != 1 for a in drop):
        raise Unclear
    return tuple(d for i, d in enumerate(x) if i not in drop)


@rule("Unsqueeze")
def _unsqueeze(c: Call) -> Result:
    x = c.shape(0)
    axes = c.ints_of("axes", 1)
    if axes is None:
        raise Unclear
    rank = len(x) + len(axes)
    new = {normal_axis(a, rank) for a in axes}
    if len(new) != len(axes):
        raise Unclear
    rest = iter(x)
    return tuple(1 if i in new else next(rest) for i in range(rank))


@rule("Concat")
def _concat(c: Call) -> Result:
    shapes = [c.shape(i) for i in range(len(c.inputs))]
    if not shapes or any(len(s) != len(shapes[0]) for s in shapes):
        raise Unclear
    axis = c.axis(len(shapes[0]), 1)
    out = [same_dim(s[i] for s in shapes) if i != axis else 0 for i in range(len(shapes[0]))]
    for s in shapes:
        out[axis] = out[axis] + s[axis]
    return tuple(out)


def _short(index: Dim, size: Dim) -> bool:
    """Is it size − c, c > 0, where the size is 0 or at least c? Below 0 it is only for size 0, and then clamped to it.

    A size without a constant term is a multiple of what its coefficients have in common.
    """
    c = size - index
    if not isinstance(c, int) or c <= 0 or not isinstance(size, Expr):
        return False
    return all(monomial for monomial, _ in size.terms) and gcd(*(k for _, k in size.terms)) >= c


def clamped(index: Dim, size: Dim, low: int, high: Dim) -> Dim | None:
    """A slice bound in place: negative ones count from the end, the result lies in [low, high]; None if undecidable."""
    if isinstance(index, int) and index >= TO_THE_END:
        return high
    if isinstance(index, int) and index <= -TO_THE_END:
        return dmin(low, high)
    if not provably_nonnegative(index) and not _short(index, size):
        if provably_nonnegative(-index - 1):
            index = index + size
        elif symbols(index) <= symbols(size):
            index = index + size * (1 - dmin(dmax(index + 1, 0), 1))  # the size is added where the index is below 0
        else:
            return None
    return dmin(dmax(index, low), high)


def slice_bounds(start: Dim, end: Dim, step: int, size: Dim) -> tuple[Dim, Dim] | None:
    """First index and the one after the last, for that step (ONNX Slice-13); None if undecidable."""
    if step > 0:
        first, last = clamped(start, size, 0, size), clamped(end, size, 0, size)
    else:
        first = clamped(start, size, 0, size - 1)
        # Backwards, the largest integer means "to the front" for onnxruntime.
        last = -1 if end in (2**31 - 1, 2**63 - 1) else clamped(end, size, -1, size - 1)
    return None if first is None or last is None else (first, last)


def slices(c: Call) -> tuple[list[int] | None, list[Dim] | None, list[Dim] | None, list[int] | None]:
    """(axes, starts, ends, steps), None where not known."""
    if "starts" in c.node.attrs:
        starts, ends = c.attr_ints("starts") or (), c.attr_ints("ends") or ()
        return list(c.attr_ints("axes") or range(len(starts))), list(starts), list(ends), [1] * len(starts)
    starts_, ends_ = (c.dims(i) if c.value(i).data is not None else None for i in (1, 2))
    count = len(starts_ or ends_ or ())
    if not count:
        shape = c.value(1).shape
        count = shape[0] if shape and isinstance(shape[0], int) else 0
    if count > len(c.shape(0)):
        raise Unclear  # an axis can be named once
    axes: list[int] | None = list(range(count))
    if c.has(3):
        axes = c.ints(3) if c.value(3).data is not None else None
    steps: list[int] | None = [1] * count
    if c.has(4):
        steps = c.ints(4) if c.value(4).data is not None else None
    return axes, starts_, ends_, steps


@rule("Slice")
def _slice(c: Call) -> Result:
    x = c.shape(0)
    axes, starts, ends, steps = slices(c)
    if axes is None:
        return c.fresh_shape(0, len(x))
    out = list(x)
    for i, a in enumerate(axes):
        axis = normal_axis(a, len(x))
        length = None
        if starts is not None and ends is not None and steps is not None:
            if steps[i] == 0:
                raise Unclear
            span = slice_bounds(starts[i], ends[i], steps[i], x[axis])
            if span is not None:
                length = dmax(ceil_div(span[1] - span[0], steps[i]), 0)
        out[axis] = c.fresh(0, axis) if length is None else length
    return tuple(out)


@rule("Split")
def _split(c: Call) -> Result:
    return [*split_shapes(c)]


def split_shapes(c: Call) -> list[Shape]:
    """The shape of each part that Split makes."""
    x = c.shape(0)
    axis = c.axis(len(x), 0)
    parts: list[Dim] | None = None
    given = c.attr_ints("split")
    if given is not None:
        parts = list(given)
    elif c.has(1) and c.value(1).data is None:
        parts = [c.fresh(i, axis) for i in range(len(c.node.outputs))]
    elif c.has(1):
        parts = c.dims(1)
    if parts is None:
        n = c.attr("num_outputs", len(c.node.outputs))
        if n < 1:
            raise Unclear
        chunk = ceil_div(x[axis], n)
        last = x[axis] - chunk * (n - 1)
        if c.version < 18 and isinstance(x[axis], Expr):  # the parts must be even
            chunk = last = floor_div(x[axis], n)
        parts = [chunk if k < n - 1 else last for k in range(len(c.node.outputs))]
    return [(*x[:axis], p, *x[axis + 1 :]) for p in parts]


@rule("Expand")
def _expand(c: Call) -> Result:
    x = c.shape(0)
    if c.value(1).data is None:
        (rank,) = c.shape(1)
        if not isinstance(rank, int):
            raise Unclear
        return c.fresh_shape(0, max(rank, len(x)))
    target = tuple(c.dims(1))
    if not all(provably_nonnegative(d) for d in target):
        target = tuple(d if provably_nonnegative(d) else c.fresh(0, i) for i, d in enumerate(target))
    return broadcast((x, target))


@rule("Tile")
def _tile(c: Call) -> Result:
    x = c.shape(0)
    if c.version < 6:
        (times,), (axis,) = c.ints(1), c.ints(2)
        return tuple(d * times if i == axis else d for i, d in enumerate(x))
    if c.value(1).data is None:
        return c.fresh_shape(0, len(x))
    repeats = c.dims(1)
    if len(repeats) != len(x):
        raise Unclear
    return tuple(d * r for d, r in zip(x, repeats, strict=True))


@rule("Pad com.microsoft:Pad")
def _pad(c: Call) -> Result:
    x = c.shape(0)
    given = c.attr_ints("pads") or c.attr_ints("paddings")
    axes = list(range(len(x)))
    if c.has(3):
        if c.value(3).data is None:
            return c.fresh_shape(0, len(x))
        axes = [normal_axis(a, len(x)) for a in c.ints(3)]
    if given is None and c.value(1).data is None:
        return tuple(c.fresh(0, i) if i in axes else d for i, d in enumerate(x))
    pads: list[Dim] = list(given) if given is not None else c.dims(1)
    if len(pads) != 2 * len(axes):
        raise Unclear
    out = list(x)
    for i, a in enumerate(axes):
        out[a] = out[a] + pads[i] + pads[i + len(axes)]
    return tuple(out)


@rule("DepthToSpace")
def _depth_to_space(c: Call) -> Result:
    n, channels, h, w = _four(c)
    b = c.attr("blocksize", 0)
    return (n, floor_div(channels, b * b), h * b, w * b)


@rule("SpaceToDepth")
def _space_to_depth(c: Call) -> Result:
    n, channels, h, w = _four(c)
    b = c.attr("blocksize", 0)
    return (n, channels * (b * b), floor_div(h, b), floor_div(w, b))


def _four(c: Call) -> Shape:
    x = c.shape(0)
    if len(x) != 4:
        raise Unclear
    return x


@rule("CenterCropPad")
def _center_crop_pad(c: Call) -> Result:
    out = list(c.shape(0))
    axes = c.attr_ints("axes")
    for a, d in zip(range(len(out)) if axes is None else axes, c.dims(1), strict=True):
        out[normal_axis(a, len(out))] = d
    return tuple(out)


@rule("Shape", T.INT64)
def _shape(c: Call) -> Result:
    return (len(cut(c)),)


@rule("Size", T.INT64)
def _size(_: Call) -> Result:
    return ()


def cut(c: Call) -> Shape:
    """The dims that Shape returns, between its `start` and `end`."""
    return c.shape(0)[c.attr("start", 0) : c.attr("end", TO_THE_END)]
