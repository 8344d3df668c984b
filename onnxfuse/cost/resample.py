"""Interpolation: 2 FLOPs for each tap of an output element: 2^d taps of a linear, 4^d of a cubic one in d dimensions.

A nearest neighbour has no FLOPs. No more of the input is read than the taps touch.
"""

from __future__ import annotations

from onnxfuse.cost.registry import NCHWC, NHWC, Call, Cost, Unknown, bytes_of, op, prod
from onnxfuse.facts.expr import Dim, dmin

_BASE = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}


def _taps(mode: str, dimensions: int) -> int:
    base = _BASE.get(mode)
    if base is None:
        raise Unknown(f"its mode {mode!r} has no formula")
    return int(base**dimensions)


def _resampled(call: Call, taps: int) -> Cost:
    """Reads at most `taps` elements of input 0 for each of the output, and the parameters."""
    read = dmin(bytes_of(call.input(0)), taps * bytes_of(call.output()))
    parameters = range(1, len(call.node.inputs))
    if parameters:
        read = read + call.read(*parameters)
    return call.cost(arith=2 * taps * call.out_size() if taps > 1 else 0, read=read)


@op("Resize", "Upsample", kind="resample")
@op("Upsample", kind="resample", domain=NCHWC)
@op("Resize", kind="resample", domain=NHWC)
def resize(call: Call) -> Cost:
    """d = the number of axes whose length changes."""
    shape = call.shape(0)
    changed = sum(i != o for i, o in zip(shape, call.out_shape(0, len(shape)), strict=True))
    return _resampled(call, _taps(call.attr("mode", "nearest"), changed))


@op("GridSample", kind="resample")
@op("GridSample", kind="resample", domain="com.microsoft")
@op("GridSample", kind="resample", domain=NHWC)
def grid_sample(call: Call) -> Cost:
    """x (N, C, D…), grid (N, D'…, d); 8 FLOPs a sampling point turn grid coordinates into positions."""
    grid = call.shape(1)
    dimensions = len(grid) - 2
    taps = _taps(call.attr("mode", "linear"), dimensions)
    read = dmin(bytes_of(call.input(0)), taps * bytes_of(call.output())) + bytes_of(call.input(1))
    n = call.out_size()
    return call.cost(arith=(2 * taps * n if taps > 1 else 0) + 8 * prod(grid[:-1]), read=read)


@op("RoiAlign", kind="resample")
def roi_align(call: Call) -> Cost:
    """sampling_ratio² bilinear samples of 8 FLOPs an output element; ratio 0 depends on the boxes."""
    ratio = call.attr("sampling_ratio", 0)
    if ratio == 0:
        raise Unknown("takes as many samples as the boxes say")
    return _boxes(call, 8 * ratio**2 * call.out_size(), 4 * ratio**2)


@op("CropAndResize", kind="resample", domain="com.microsoft")
def crop_and_resize(call: Call) -> Cost:
    """One nearest or four bilinear taps."""
    nearest = call.attr("mode", "bilinear") == "nearest"
    return _boxes(call, 0 if nearest else 8 * call.out_size(), 1 if nearest else 4)


@op("MultilevelCropAndResize_TRT", "PyramidROIAlign_TRT", kind="resample")
def crop_pyramid(call: Call) -> Cost:
    """boxes, then feature maps; four bilinear taps an output element, of whichever map has the size of the box."""
    maps = call.read(*range(1, len(call.node.inputs)))
    read = dmin(maps, 4 * bytes_of(call.output())) + bytes_of(call.input(0))
    return call.cost(arith=8 * call.out_size(), read=read)


def _boxes(call: Call, arith: Dim, taps: int) -> Cost:
    read = dmin(bytes_of(call.input(0)), taps * bytes_of(call.output())) + call.read(*range(1, len(call.node.inputs)))
    return call.cost(arith=arith, read=read)


@op("AffineGrid", kind="resample")
def affine_grid(call: Call) -> Cost:
    """theta (N, d, d + 1) times every homogeneous grid point."""
    return call.cost(macs=call.out_size() * call.shape(0, 3)[2])


@op("Col2Im", kind="resample")
def col2im(call: Call) -> Cost:
    """Every input element is added to one of the output."""
    return call.cost(arith=call.size(0))
