"""Nodes whose inputs, attributes and shapes do not fit each other.

onnx's checker lets them pass, and a runtime refuses them or never reaches them. Rules do not see such a node: `look`
refuses it, and `is_op` says no. Where a shape or a number is not known, a node fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from onnxfuse.facts import Shape, Value
from onnxfuse.patterns import MISFIT, Scope

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

Shapes = Sequence[Shape | None]

_POOLS = ("MaxPool", "AveragePool", "LpPool")
_PADDING = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_ELEMENTWISE = ("Add", "Sub", "Mul", "Div", "Pow", "PRelu", "Where", "Min", "Max", "Sum", "Mean")
_ON_AXES = (  # of their first input
    "Reduce", "Softmax", "LogSoftmax", "Concat", "Split", "Gather", "Flatten", "LayerNormalization", "Squeeze", "Slice",
    "RMSNormalization", "ArgM",
)  # fmt: skip
# The rank of their result follows from those of their inputs: where it is unknown, the inputs do not fit.
_RANKED = (
    *_ELEMENTWISE, *_POOLS, "Conv", "ConvTranspose", "Gemm", "MatMul", "Concat", "Transpose", "Softmax", "Gather",
    "Resize", "GlobalAveragePool", "GlobalMaxPool", "BatchNormalization", "LayerNormalization",
    "InstanceNormalization",
)  # fmt: skip


def mark(nodes: Sequence[gs.Node], scope: Scope) -> None:
    """Marks the nodes that do not fit."""
    for node in nodes:
        if (node.domain or "") in ("", "ai.onnx") and not _fits(node, scope):
            vars(node)[MISFIT] = True


def _fits(node: gs.Node, scope: Scope) -> bool:
    values = [scope.value(t) for t in node.inputs]
    shapes = [v.shape if t.name else () for t, v in zip(node.inputs, values, strict=True)]
    if node.op in _RANKED and None not in shapes and scope.value(node.outputs[0]).shape is None:
        return False
    check = _CHECKS.get(node.op)
    return _axes_fit(node, shapes, values) and (check is None or check(node.attrs, shapes))


def _axes_fit(node: gs.Node, shapes: Shapes, values: Sequence[Value]) -> bool:
    """Whether the axes that a node names are axes of its first input."""
    shape = shapes[0] if shapes else None
    if shape is None or not node.op.startswith(_ON_AXES):
        return True
    axes = [node.attrs["axis"]] if "axis" in node.attrs else list(node.attrs.get("axes") or ())
    if node.op.startswith("Reduce") and len(values) > 1 and values[1].data is not None:
        axes += [a for a in values[1].data.reshape(-1).tolist() if isinstance(a, int)]
    behind = node.op in ("Flatten", "Softmax", "LogSoftmax")  # which once made a matrix of their input
    return all(-len(shape) <= a < len(shape) + behind for a in axes)


def _are(attrs: dict[str, Any], name: str, n: int, least: int | None = None) -> bool:
    """Whether an attribute is absent, or has n numbers, each at least so large."""
    numbers = attrs.get(name)
    return numbers is None or (len(numbers) == n and (least is None or all(i >= least for i in numbers)))


def _window(attrs: dict[str, Any], n: int) -> bool:
    lists = (("kernel_shape", n, 1), ("strides", n, 1), ("dilations", n, 1), ("pads", 2 * n, None))
    return n > 0 and attrs.get("auto_pad", "NOTSET") in _PADDING and all(_are(attrs, *wanted) for wanted in lists)


def _agree(a: Any, b: Any) -> bool:
    """Whether two dims may be the same."""
    return not (isinstance(a, int) and isinstance(b, int)) or a == b


def _conv(attrs: dict[str, Any], shapes: Shapes) -> bool:
    x, w = shapes[:2]
    bias = shapes[2] if len(shapes) > 2 else ()
    group = attrs.get("group", 1)
    if w is None:
        return x is None or (_window(attrs, len(x) - 2) and group > 0)
    if not _window(attrs, len(w) - 2) or group < 1 or (isinstance(w[0], int) and w[0] % group):
        return False
    fits = x is None or (len(x) == len(w) and _agree(x[1], w[1] * group))
    return fits and _kernel_is(attrs, w) and (not bias or (len(bias) == 1 and _agree(bias[0], w[0])))


def _conv_transpose(attrs: dict[str, Any], shapes: Shapes) -> bool:
    x, w = shapes[:2]
    bias = shapes[2] if len(shapes) > 2 else ()
    group = attrs.get("group", 1)
    if w is None:
        return x is None or (_window(attrs, len(x) - 2) and group > 0)
    if not _window(attrs, len(w) - 2) or group < 1 or (isinstance(w[0], int) and w[0] % group):
        return False
    if not _are(attrs, "output_padding", len(w) - 2) or not _kernel_is(attrs, w):
        return False
    fits = x is None or (len(x) == len(w) and _agree(x[1], w[0]))
    return fits and (not bias or (len(bias) == 1 and _agree(bias[0], w[1] * group)))


def _kernel_is(attrs: dict[str, Any], weight: Shape) -> bool:
    return all(map(_agree, attrs.get("kernel_shape") or weight[2:], weight[2:]))


def _pool(attrs: dict[str, Any], shapes: Shapes) -> bool:
    x, kernel = shapes[0], attrs.get("kernel_shape")
    return kernel is not None and _window(attrs, len(kernel)) and (x is None or len(x) == len(kernel) + 2)


def _transpose(attrs: dict[str, Any], shapes: Shapes) -> bool:
    x, perm = shapes[0], attrs.get("perm")
    return not perm or (sorted(perm) == list(range(len(perm))) and (x is None or len(x) == len(perm)))


def _channels(attrs: dict[str, Any], shapes: Shapes) -> bool:
    """One number of each parameter for each channel."""
    x = shapes[0]
    if not attrs.get("spatial", 1):
        return True
    parameters = [s for s in shapes[1:] if s is not None]
    if any(len(s) != 1 for s in parameters) or (x is not None and len(x) < 2):
        return False
    sizes = [s[0] for s in parameters] + ([x[1]] if x is not None else [])
    return all(_agree(a, b) for a in sizes for b in sizes)


def _group_norm(attrs: dict[str, Any], shapes: Shapes) -> bool:
    """Groups of as many channels each, and a parameter for each channel, or for each group as before opset 21."""
    x, groups = shapes[0], attrs.get("num_groups", 0)
    if groups < 1 or x is None:
        return bool(groups >= 1)
    if len(x) < 2 or (isinstance(x[1], int) and x[1] % groups):
        return False
    return all(s is None or (len(s) == 1 and (_agree(s[0], x[1]) or _agree(s[0], groups))) for s in shapes[1:])


def _slice(attrs: dict[str, Any], shapes: Shapes) -> bool:
    """As many ends as starts, axes and steps."""
    if len(shapes) == 1:
        lengths = [len(attrs[name]) for name in ("starts", "ends", "axes") if name in attrs]
        return len(set(lengths)) == 1
    lists = [s for s in shapes[1:] if s is not None and s != ()]
    return all(len(s) == 1 for s in lists) and all(_agree(a[0], b[0]) for a in lists for b in lists)


_CHECKS: dict[str, Callable[[dict[str, Any], Shapes], bool]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    **dict.fromkeys(_POOLS, _pool),
    "Transpose": _transpose,
    "BatchNormalization": _channels,
    "InstanceNormalization": _channels,
    "GroupNormalization": _group_norm,
    "Slice": _slice,
}
