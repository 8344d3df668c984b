"""What is known of a value on the way from the inputs, and what an operator's outputs have of its inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from onnx import TensorProto, helper

from onnxfuse.bounds.call import NOTHING, Call, Origin, Seen
from onnxfuse.bounds.ranges import Dim

# Operators whose output has the elements of its first input, in order, or some of them, or those of several inputs.
_VIEWS = {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "CastLike"}
SAME_SHAPE = {"Identity", "Cast", "CastLike", "DequantizeLinear", "QuantizeLinear", "Relu", "Neg", "Abs"}
_PARTS = {
    "Transpose", "Expand", "Slice", "Gather", "GatherElements", "GatherND", "Split", "Tile", "Compress",
    "ReverseSequence", "ReduceMax", "ReduceMin", "DepthToSpace", "SpaceToDepth",
}  # fmt: skip
_MOST = 16  # origins of one value
_SEVERAL = {"Concat": 0, "Where": 1}  # from this input on


def constant(call: Call) -> Seen:
    """What is known of a Constant's output."""
    for a in call.node.attribute:
        if a.ref_attr_name:
            continue
        if a.name == "value":
            return Seen(tuple(a.t.dims), (), a.t)
        if a.name == "value_int":
            return Seen((), (), helper.make_tensor("", TensorProto.INT64, (), [a.i]))
        if a.name == "value_ints":
            return Seen((len(a.ints),), (), helper.make_tensor("", TensorProto.INT64, (len(a.ints),), a.ints))
    return NOTHING


def passed(call: Call) -> Seen:
    """What an operator's outputs have of its inputs."""
    op, first = call.node.op_type, call.inputs[0]
    if op in _VIEWS:
        dims = first.dims if op in SAME_SHAPE else None
        return Seen(dims, first.origins, first.tensor if dims is not None else None)
    if op in SAME_SHAPE:
        return Seen(first.dims)
    if op in _PARTS:
        return Seen(_turned(call) if op == "Transpose" else None, _partly(first.origins))
    if op in _SEVERAL:
        return Seen(None, distinct(_partly(o for seen in call.inputs[_SEVERAL[op] :] for o in seen.origins)))
    if op in ("Add", "Sub"):
        return _sum(call, -1 if op == "Sub" else 1)
    return NOTHING


def _turned(call: Call) -> tuple[Dim, ...] | None:
    """The dims of a Transpose, as of a table that is stored the other way."""
    dims, perm = call.dims(0), call.attr("perm")
    if dims is None:
        return None
    order = perm or range(len(dims) - 1, -1, -1)
    return tuple(dims[i] for i in order) if sorted(order) == list(range(len(dims))) else None


def _sum(call: Call, sign: int) -> Seen:
    for value, other in ((0, 1), (1, 0)) if sign > 0 else ((0, 1),):
        if call.seen(value).origins and (numbers := call.numbers(other)):
            least, most = min(sign * n for n in numbers), max(sign * n for n in numbers)
            origins = call.seen(value).origins
            return Seen(None, tuple(Origin(o.input, o.least + least, o.most + most, whole=False) for o in origins))
    return NOTHING


def _partly(origins: Iterable[Origin]) -> tuple[Origin, ...]:
    return tuple(replace(o, whole=False) for o in origins)


def distinct(origins: Iterable[Origin]) -> tuple[Origin, ...]:
    """Each input once, as it is where it can be: an index below 0 to which a size is added is the other case."""
    ordered = sorted(dict.fromkeys(origins), key=lambda o: (o.least, o.most) != (0, 0))
    plain = {o.input for o in ordered if (o.least, o.most) == (0, 0)}
    return tuple(o for o in ordered if o.input not in plain or (o.least, o.most) == (0, 0))[:_MOST]


def element(seen: Seen) -> Seen:
    """One step of what a Scan reads."""
    return Seen(seen.dims[1:] if seen.dims else None, _partly(seen.origins))
