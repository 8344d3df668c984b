"""What operators ask of sizes, starts, ends and axes that are inputs."""

from __future__ import annotations

from onnxfuse.bounds.call import Call, Use
from onnxfuse.bounds.ranges import SOME, Dim, Range, Ranges, each, exactly, up_to


def slice(call: Call) -> Use:
    """Starts in the first half of an axis and ends in the second, so that something is left."""
    n = next(filter(None, (call.count(i) for i in (1, 2, 3, 4))), None)
    if n is None:
        return
    axes, steps = call.numbers(3) or list(range(n)), call.numbers(4) or [1] * n
    starts, ends = call.numbers(1), call.numbers(2)
    if len(axes) != n or len(steps) != n or min(steps) < 1:
        return
    sizes = [call.size(0, axis) for axis in axes]
    yield 1, each([_start(size, ends[i] if ends and len(ends) == n else None) for i, size in enumerate(sizes)])
    yield 2, each([_end(size, starts[i] if starts and len(starts) == n else None) for i, size in enumerate(sizes)])
    yield 3, each([exactly(axis) for axis in range(n)])
    yield 4, (Range(1, 3),)


def _start(size: Dim, end: int | None) -> Ranges:
    if isinstance(size, int) and end is not None:
        return (Range(0, max(1, min(size, end if end >= 0 else size + end))),)
    return (Range(0, max(1, size // 2)),) if isinstance(size, int) else (Range(0, 1),)


def _end(size: Dim, start: int | None) -> Ranges:
    if isinstance(size, int) and start is not None:
        return (Range(min(size, (start if start >= 0 else size + start) + 1), size + 1),)
    if isinstance(size, int):
        return (Range(max(1, (size + 1) // 2), size + 1),)
    return up_to(size) or (Range(1, SOME),)


def split(call: Call) -> Use:
    """Equal parts, the last with what is left."""
    size, n = call.size(0, call.attr("axis", 0)), call.outputs
    if isinstance(size, int) and n:
        yield 1, each([exactly(size // n) for _ in range(n - 1)] + [exactly(size - size // n * (n - 1))])


def resize(call: Call) -> Use:
    """Spatial axes up to twice as large, the others as they are; sizes, or scales as floats."""
    dims = call.dims(0)
    if dims is None:
        return
    axes = [axis % len(dims) for axis in call.attr("axes") or range(len(dims))]
    spatial = [axis >= len(dims) - 2 for axis in axes]
    yield (
        3,
        each([_resized(dims[axis]) if wide else exactly(dims[axis]) for axis, wide in zip(axes, spatial, strict=True)]),
    )
    scales = 1 if len(call.inputs) == 2 else 2  # in opset 10, as of Upsample, they came first
    yield scales, each([(Range(1, 3 if wide else 2),) for wide in spatial])


def _resized(size: Dim) -> Ranges:
    return (Range(size, 2 * size + 1),) if isinstance(size, int) else (Range(8, 65),)


def reshape(call: Call) -> Use:
    """The leading dims as they are (0), the rest in the last."""
    n, dims = call.count(1), call.dims(0)
    if n is not None:
        kept = 0 if dims is None or call.attr("allowzero", 0) else min(n, len(dims)) - 1
        yield 1, each([exactly(0)] * kept + [exactly(1)] * (n - kept - 1) + [exactly(-1)])


def expand(call: Call) -> Use:
    """Axes of size 1 become up to 3."""
    n, dims = call.count(1), call.dims(0)
    if n is None or dims is None:
        yield 1, (Range(1, 2),)
        return
    ones = [False] * max(0, n - len(dims)) + [d == 1 for d in dims[max(0, len(dims) - n) :]]
    yield 1, each([(Range(1, 4),) if one else exactly(1) for one in ones])


def axes(call: Call) -> Use:
    """The first axes, each once."""
    n = call.count(1)
    if n is not None:
        yield 1, each([exactly(axis) for axis in range(n)])


def squeeze(call: Call) -> Use:
    """Axes of size 1."""
    n, dims = call.count(1), call.dims(0) or ()
    ones = [axis for axis, d in enumerate(dims) if d == 1]
    if n is not None and len(ones) >= n:
        yield 1, each([exactly(axis) for axis in ones[:n]])
