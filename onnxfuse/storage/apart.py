"""A ModelProto near or above protobuf's 2 GiB, which nothing can serialize: taken apart field by field."""

from __future__ import annotations

import onnx
from google.protobuf.message import Message  # type: ignore[import-untyped]
from onnx import TensorProto

from onnxfuse.errors import ModelError
from onnxfuse.storage import tensors
from onnxfuse.storage.source import Grown, Memory

LARGE = 3 << 29  # bytes of weights from which on a message is taken apart: three quarters of what one can hold
SMALL = 1024  # bytes; a weight up to this size stays in the skeleton


def weight(proto: onnx.ModelProto) -> int:
    """Bytes of all weights in the message, by their shapes: protobuf would serialize it to tell."""
    inline = (t for t in tensors.walk(proto) if t.data_location != TensorProto.EXTERNAL)
    return sum(tensors.nbytes(t) or 0 for t in inline)


def taken(proto: onnx.ModelProto) -> tuple[onnx.ModelProto, Grown]:
    """A skeleton, and the scratch file in which its large weights are now. Raises ModelError where that has no room."""
    skeleton, source = onnx.ModelProto(), Grown(Memory(b""))
    _copy(proto, skeleton, "graph")
    _copy(proto.graph, skeleton.graph, "initializer")
    for tensor in proto.graph.initializer:
        made = skeleton.graph.initializer.add()
        raw = tensor.raw_data if tensor.data_location != TensorProto.EXTERNAL else b""
        if len(raw) <= SMALL or len(raw) != tensors.nbytes(tensor):
            made.CopyFrom(tensor)
            continue
        _copy(tensor, made, "raw_data")
        try:
            tensors.mark(made, source.add(memoryview(raw)))
        except OSError as error:
            raise ModelError(
                f"the ModelProto is above 2 GiB, and its weights find no room in the folder for temporary files "
                f"({error.strerror}); save it with external data and give the path"
            ) from error
    return skeleton, source


def _copy(source: Message, target: Message, but: str) -> None:
    """Copies all fields but one."""
    for field, value in source.ListFields():
        if field.name == but:
            continue
        if field.is_repeated:
            getattr(target, field.name).MergeFrom(value)
        elif field.message_type is None:
            setattr(target, field.name, value)
        else:
            getattr(target, field.name).SetInParent()  # also where it is empty
            getattr(target, field.name).MergeFrom(value)
