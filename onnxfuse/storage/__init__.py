"""Models in files: read without the weights, written as a stream, atomically.

`read` gives a *skeleton*: the ModelProto without the bytes of its big weights, which stay where they are and are marked
(see `tensors`). `write` serializes the skeleton around those bytes, so that a model of any size takes little memory,
and the result is to the byte what protobuf would have written. Above protobuf's 2 GiB the weights go into a data file.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]
from onnx import helper

from onnxfuse.errors import ModelError, OutputError
from onnxfuse.storage import apart, files, parts, tensors, wire
from onnxfuse.storage.carry import carried
from onnxfuse.storage.external import Folder, Range
from onnxfuse.storage.separate import separated
from onnxfuse.storage.source import File, Grown, Memory, Source

log = logging.getLogger(__name__)
LIMIT = (1 << 31) - 1  # bytes; protobuf's bound for one message
KEPT_FROM = 1 << 16  # bytes of a new weight that leaves memory …
_KEPT = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "b1")  # … of one of these dtypes
_NO_MEMORY = "alloc failed"  # how protobuf's one error for whatever it cannot parse says so


@dataclass(frozen=True, slots=True)
class Stored:
    """A skeleton, where its left-out bytes are, and the folder of its external data (None for a model from memory)."""

    proto: onnx.ModelProto
    source: Grown
    folder: Folder | None
    serialized: bytes | None = None  # the skeleton as it was read, of a ModelProto above 2 GiB: no source has it whole


def read(model: Path | onnx.ModelProto) -> Stored:
    """The skeleton of a model; a ModelProto is copied, so that the caller's own is never touched.

    External files are checked, not opened. Raises ModelError: no such file, not a model, larger than protobuf's 2 GiB,
    external data that is missing, too short, or outside the model's folder.
    """
    if isinstance(model, onnx.ModelProto):
        if apart.weight(model) > apart.LARGE:
            proto, grown = apart.taken(model)
            return Stored(proto, grown, None, serialized(proto))
        memory = Memory(serialized(model))
        return Stored(_parse(memory, "the ModelProto")[0], Grown(memory), None)
    source, folder = File(model), Folder.of(model)
    proto, may_be_external = _parse(source, str(model))
    try:
        if may_be_external:
            tensors.check_external(proto, folder)
    except ModelError as error:
        raise ModelError(f"{model}: {error}") from error
    return Stored(proto, Grown(source), folder)


def keep(stored: Stored, name: str, array: np.ndarray) -> onnx.TensorProto | None:
    """A tensor for a large array, whose bytes go into a scratch file: it is marked as one that `read` left out.

    None for a small array, and where no file takes it: then it stays in memory.
    """
    if array.nbytes < KEPT_FROM or array.dtype.str[1:] not in _KEPT:
        return None
    dtype = int(helper.np_dtype_to_tensor_dtype(array.dtype))
    tensor = onnx.TensorProto(dims=array.shape, data_type=dtype, name=name)
    try:
        where = stored.source.add(np.ascontiguousarray(array).data)
    except OSError as error:
        log.debug("a weight of %d bytes stays in memory: %s", array.nbytes, error)
        return None
    tensors.mark(tensor, where)
    return tensor


def serialized(proto: onnx.ModelProto) -> bytes:
    """The message as bytes. Raises ModelError above protobuf's 2 GiB, MemoryError."""
    try:
        data: bytes = proto.SerializeToString()
    except (EncodeError, ValueError) as error:  # protobuf has one error for both
        if apart.weight(proto) <= apart.LARGE:
            raise MemoryError from error
        raise ModelError("the ModelProto is above 2 GiB; save it with external data and give the path") from error
    return data


def original(stored: Stored, name: str) -> onnx.ModelProto:
    """The skeleton as it was read; `name` is for the message of the ModelError."""
    if stored.serialized is not None:
        proto: onnx.ModelProto = onnx.ModelProto.FromString(stored.serialized)
        return proto
    return _parse(stored.source.base, name)[0]


def _parse(source: Source, name: str) -> tuple[onnx.ModelProto, bool]:
    """The skeleton, and whether any tensor in it may be external (a search for the key is quicker than a walk)."""
    if source.size == 0:
        raise ModelError(f"{name}: is empty")
    if source.size > LIMIT:
        raise ModelError(f"{name}: has {source.size} bytes, and one protobuf file cannot have more than 2 GiB")
    anomaly = ""
    left: list[wire.LeftOut] = []
    try:
        try:
            data, left = wire.split(source)
        except wire.Anomaly as error:
            anomaly, data = str(error), source.read(0, source.size)
        parts.check(data)
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from error
    if tensors.LEFT_OUT.encode() in data:
        raise ModelError(f"{name}: the weights are not in it, they were left in the file it came from; use that file")
    try:
        proto: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        if _NO_MEMORY in str(error):
            raise MemoryError from error
        reason = f"truncated or damaged: {anomaly}" if data[:1] == b"\x08" and anomaly else "not an ONNX model"
        raise ModelError(f"{name}: is {reason}") from error
    for index, where in left:
        tensors.mark(proto.graph.initializer[index], where)
    return proto, b"location" in data


def write(stored: Stored, path: Path) -> None:
    """Writes the model as the skeleton now says it, and puts its external data files beside it (see `carry`).

    In memory is never more than the skeleton. A model that one file cannot hold gets its large weights in a data file
    (see `separate`). Raises OutputError, and then what was at `path` before is still there.
    """
    large = _size(stored.proto) > LIMIT
    with _saving(stored, path) as (out, stack):
        proto = stack.enter_context(separated(stored.proto, stored.source, path)) if large else stored.proto
        try:
            pieces = wire.join(serialized(proto))
        except ModelError as error:
            raise OutputError(f"{path}: the model would be above 2 GiB without its large weights; split it") from error
        for piece in pieces:
            if isinstance(piece, Range):
                stored.source.copy(piece.offset, piece.length, out)
            else:
                out.write(piece)


def copy(stored: Stored, path: Path) -> None:
    """Writes the very bytes the model was read from; otherwise as `write`."""
    if stored.serialized is not None:
        write(stored, path)
        return
    with _saving(stored, path) as (out, _):
        stored.source.copy(0, stored.source.size, out)


def _size(proto: onnx.ModelProto) -> int:
    """Bytes of the model of a skeleton, in one file."""
    left_out = sum(where.length for t in proto.graph.initializer if (where := tensors.marked(t)))
    try:
        return int(proto.ByteSize()) + left_out
    except EncodeError:  # the skeleton itself is above 2 GiB
        return 2 * LIMIT


@contextmanager
def _saving(stored: Stored, path: Path) -> Iterator[tuple[BinaryIO, ExitStack]]:
    """The output file, open for the while; what the stack ends has its name before the model has its own."""
    if "\0" in str(path):
        raise OutputError(f"{str(path)!r}: is not a usable path")
    locations = tensors.locations(stored.proto)
    base = stored.folder.base if stored.folder else path.parent
    if locations and stored.folder is None:
        _expect_external(stored.proto, path)
    with ExitStack() as stack:  # which ends the last first
        out = stack.enter_context(files.atomic(path))
        for location in locations:
            data, target = base / location, path.parent / location
            if os.path.realpath(path) in (os.path.realpath(data), os.path.realpath(target)):
                raise OutputError(f"{path}: is the model's external data file; choose another name")
            stack.enter_context(carried(data, target, path.parent))
        yield out, stack
        out.flush()  # what can fail has failed by now


def _expect_external(proto: onnx.ModelProto, path: Path) -> None:
    """A model given in memory has no folder to take data files from: they must be at the output already."""
    try:
        tensors.check_external(proto, Folder.of(path))
    except ModelError as error:
        raise OutputError(f"{path}: {error}; give the model as a path, so that its data files are found") from error


def whole(stored: Stored) -> onnx.ModelProto:
    """A new ModelProto with the left-out weights in it; external data stays external. Raises ModelError above 2 GiB."""
    if _size(stored.proto) > LIMIT:
        raise ModelError("the model is above 2 GiB and does not fit into one ModelProto; save it to a file")
    proto = onnx.ModelProto()
    proto.CopyFrom(stored.proto)
    for tensor in proto.graph.initializer:
        if where := tensors.marked(tensor):
            tensors.unmark(tensor)
            tensor.raw_data = stored.source.read(where.offset, where.length)
    return proto


@contextmanager
def utf8(path: Path) -> Iterator[Path]:
    """The same model under a path that is UTF-8, for libraries that take no other, for the while: through a symlink.

    Raises ModelError where a file with external data has itself a name that is not: no link can stand beside its data.
    """
    if files.is_utf8(path):
        yield path
        return
    with files.scratch() as made:
        link = made / "link"
        if not tensors.locations(read(path).proto):
            link.symlink_to(path.absolute())
            yield link
        elif files.is_utf8(path.name):
            link.symlink_to(path.parent.absolute(), target_is_directory=True)
            yield link / path.name
        else:
            raise ModelError(f"{path}: onnx and onnxruntime open no file of a name that is not UTF-8; rename it")
