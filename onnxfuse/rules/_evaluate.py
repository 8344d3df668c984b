"""Values computed ahead of time: what facts know, what is stored, and a table of exact operators in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from onnxfuse.facts.arithmetic import computed, largest, least
from onnxfuse.facts.call import Unclear
from onnxfuse.patterns import Scope
from onnxfuse.rules._known import elements, ints, listed, perm_of

if TYPE_CHECKING:  # importing graphsurgeon takes longer than most analyses
    import onnx_graphsurgeon as gs

_MOST = 1 << 16  # elements that are computed from less; what is only moved may be as large as it is
Inputs = list[np.ndarray]


def evaluate(tensor: gs.Tensor, scope: Scope) -> np.ndarray | None:
    """The elements of a value that are the same in every run; None where they are not known or too many."""
    return _value(tensor, scope, {})


def _value(tensor: gs.Tensor, scope: Scope, done: dict[int, np.ndarray | None]) -> np.ndarray | None:
    todo = [tensor]
    while todo:  # chains may be long
        here = todo[-1]
        if id(here) in done:
            todo.pop()
            continue
        node = scope.editor.producer(here)
        found = scope.constant(here)
        if found is None:
            found = elements(scope.value(here))
        if found is not None or not _takes(node, here, scope):
            done[id(here)] = found
            continue
        assert node is not None
        open_inputs = [t for t in node.inputs if t.name and id(t) not in done]
        if open_inputs:
            todo += open_inputs
            continue
        done[id(here)] = _run(node, scope, [done[id(t)] for t in node.inputs if t.name])
    return done[id(tensor)]


def _takes(node: gs.Node | None, tensor: gs.Tensor, scope: Scope) -> bool:
    if node is None or node.op not in TABLE or node.domain not in ("", "ai.onnx", None):
        return False
    value = scope.value(tensor)
    if not value.constant or len(node.outputs) != 1 or any(not t.name for t in node.inputs):
        return False
    if value.shape is None or not all(isinstance(d, int) for d in value.shape):
        return False
    count = math.prod(d for d in value.shape if isinstance(d, int))
    return count <= _MOST or (node.op in _MOVES and _moves_no_more(node, count, scope))


def _moves_no_more(node: gs.Node, count: int, scope: Scope) -> bool:
    sizes = (scope.value(t).shape or () for t in node.inputs)
    return count <= sum(math.prod(d for d in s if isinstance(d, int)) for s in sizes)


def _run(node: gs.Node, scope: Scope, given: list[np.ndarray | None]) -> np.ndarray | None:
    arrays = [a for a in given if a is not None]
    if len(arrays) != len(given):
        return None
    value = scope.value(node.outputs[0])
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(TABLE[node.op](node, arrays, scope))
    except (Unclear, ValueError, IndexError, TypeError):
        return None
    from onnx import helper

    if found.shape != value.shape or found.dtype != helper.tensor_dtype_to_np_dtype(value.dtype):
        return None
    return found


def _reshape(node: gs.Node, x: Inputs, scope: Scope) -> np.ndarray:
    shape = scope.value(node.outputs[0]).shape
    return x[0].reshape(tuple(d for d in shape or () if isinstance(d, int)))


def _transpose(node: gs.Node, x: Inputs, scope: Scope) -> np.ndarray:
    return np.ascontiguousarray(np.transpose(x[0], perm_of(node, scope)))


def _concat(node: gs.Node, x: Inputs, scope: Scope) -> np.ndarray:  # noqa: ARG001 - all have the same form
    return np.concatenate(x, node.attrs["axis"])


def _gather(node: gs.Node, x: Inputs, scope: Scope) -> np.ndarray:  # noqa: ARG001
    return np.take(x[0], x[1], axis=node.attrs.get("axis", 0))


def _slice(node: gs.Node, x: Inputs, scope: Scope) -> np.ndarray:
    starts, ends, axes = (listed(node, name, i, scope) for i, name in ((1, "starts"), (2, "ends"), (3, "axes")))
    steps = ints(node.inputs[4], scope) if len(node.inputs) > 4 else [1] * len(starts or ())
    if starts is None or ends is None or steps is None or any(s < 1 for s in steps):
        raise Unclear
    if axes is None:
        if "axes" in node.attrs or len(node.inputs) > 3:
            raise Unclear
        axes = list(range(len(starts)))
    cut = [slice(None)] * x[0].ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        cut[axis] = slice(start, end, step)
    return np.ascontiguousarray(x[0][tuple(cut)])


def _cast(node: gs.Node, x: Inputs, scope: Scope) -> np.ndarray:  # noqa: ARG001
    from onnx import helper

    to = helper.tensor_dtype_to_np_dtype(node.attrs["to"])
    plain = "fiub"
    if x[0].dtype.kind not in plain or to.kind not in plain:
        raise Unclear
    if to == np.float16 and x[0].dtype != np.float32:  # some runtimes go by way of float32
        raise Unclear
    if to.kind in "iu" and x[0].size:  # what does not fit is converted differently everywhere
        low, high = (f(x[0].astype(np.float64)) for f in (np.min, np.max))
        if not (np.iinfo(to).min <= low and high < np.iinfo(to).max):
            raise Unclear
    return x[0].astype(to)


def _expand(node: gs.Node, x: Inputs, scope: Scope) -> np.ndarray:  # noqa: ARG001
    shape = np.broadcast_shapes(x[0].shape, tuple(x[1].tolist()))
    return np.ascontiguousarray(np.broadcast_to(x[0], shape))


def _filled(node: gs.Node, x: Inputs, scope: Scope) -> np.ndarray:
    value = node.attrs.get("value")
    fill = np.zeros(1, np.float32) if value is None else scope.array(value)
    return np.full(tuple(x[0].tolist()), fill.reshape(-1)[0], fill.dtype)


def _scatter(node: gs.Node, x: Inputs, scope: Scope) -> np.ndarray:  # noqa: ARG001
    if node.attrs.get("reduction", "none") != "none":
        raise Unclear
    if np.any(x[1] < 0):
        raise Unclear
    rows = x[1].reshape(-1, x[1].shape[-1])
    if len({tuple(r) for r in rows.tolist()}) != len(rows):  # which of two comes last is not said
        raise Unclear
    out = x[0].copy()
    out[tuple(np.moveaxis(x[1], -1, 0))] = x[2]
    return out


def _arithmetic(function: Callable[..., np.ndarray]) -> Callable[[gs.Node, Inputs, Scope], np.ndarray]:
    def run(node: gs.Node, x: Inputs, scope: Scope) -> np.ndarray:  # noqa: ARG001
        if "axis" in node.attrs or "broadcast" in node.attrs:  # opset below 7
            raise Unclear
        if x[0].dtype.kind in "iu" and function in (np.divide, np.mod):
            raise Unclear
        if function is not np.where and all(a.dtype.kind == "f" for a in x):
            found = computed(function, x)
            return found.astype(bool) if found.dtype == object else found
        return function(*x)

    return run


_Operator = Callable[["gs.Node", Inputs, Scope], np.ndarray]
_ELEMENTWISE: dict[str, Callable[..., np.ndarray]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Neg": np.negative, "Sqrt": np.sqrt,
    "Equal": np.equal, "Not": np.logical_not, "Where": np.where, "Abs": np.abs, "And": np.logical_and,
    "Or": np.logical_or, "Greater": np.greater, "Less": np.less, "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal, "Floor": np.floor, "Ceil": np.ceil, "Round": np.rint, "Min": least, "Max": largest,
}  # fmt: skip
_MOVES: dict[str, _Operator] = {
    "Reshape": _reshape, "Squeeze": _reshape, "Unsqueeze": _reshape, "Flatten": _reshape, "Transpose": _transpose,
    "Concat": _concat, "Gather": _gather, "Slice": _slice, "Cast": _cast,
}  # fmt: skip
TABLE: dict[str, _Operator] = {
    **_MOVES,
    "Expand": _expand,
    "ConstantOfShape": _filled,
    "ScatterND": _scatter,
    **{op: _arithmetic(function) for op, function in _ELEMENTWISE.items()},
}
