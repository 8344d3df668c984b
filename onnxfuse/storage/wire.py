"""A serialized model taken apart without parsing it: its small parts, and where its big weights are.

Wire format: https://protobuf.dev/programming-guides/encoding/. A field is a key (number << 3 | wire type) and a value;
a length-delimited value (wire type 2) is a length and that many bytes. Whatever is not plain (a graph given twice,
groups, a repeated raw_data) raises `Anomaly`, and the caller lets protobuf itself parse the whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto

from onnxfuse.errors import ModelError
from onnxfuse.storage.external import Range
from onnxfuse.storage.source import Memory, Source
from onnxfuse.storage.tensors import LEFT_OUT, marked, nbytes, unmark

MOST_PARTS = 2_000_000  # of a graph
SMALL = 1024  # bytes; a tensor message up to this size stays in the skeleton
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # field numbers of ModelProto, GraphProto, TensorProto
BYTES = 2  # wire type
_KEYS = {number: bytes([number << 3 | BYTES]) for number in (_GRAPH, _INITIALIZER, _RAW_DATA)}
_MARK = LEFT_OUT.encode()
_HEADER = {1, 2, 8, 12, 14, 16}  # dims, data_type, name, doc_string, data_location, metadata_props
_MOST_IN_HEADER = 64  # fields of a tensor that is left out; of one with more, every few bytes would be a step here


class Anomaly(Exception):
    """The bytes are not a serialized message, or not a plain one."""


class Group(Anomaly):
    """A kind of field that protobuf reads and ONNX does not use."""


class Field(NamedTuple):
    """One field; `at` is where its key starts, its value is [start, end)."""

    number: int
    wire: int
    at: int
    start: int
    end: int


def _varint(buffer: bytes, i: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[i]
        value |= (byte & 127) << shift
        i += 1
        if byte < 128:
            return value, i
        shift += 7
        if shift > 63:
            raise Anomaly("a number is longer than ten bytes")


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(source: Source, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """The fields (see `Field`) of the message in [start, end), in the order they stand; values are hopped over."""
    buffer, base = source.window(start)
    limit = base + len(buffer)
    try:
        while start < end:
            if start + 20 > limit:  # a key and a length have at most ten bytes each
                buffer, base = source.window(start)
                limit = base + len(buffer)
            i = start - base
            key = buffer[i]
            i += 1
            if key > 127:
                key, i = _varint(buffer, i - 1)
            elif key < 8:
                raise Anomaly("a field of number 0")
            wire = key & 7
            if wire == BYTES:
                length = buffer[i]
                i += 1
                if length > 127:
                    length, i = _varint(buffer, i - 1)
                stop = base + i + length
            elif wire == 0:
                stop = base + _varint(buffer, i)[1]
            elif wire in (1, 5):
                stop = base + i + (8 if wire == 1 else 4)
            elif wire in (3, 4):
                raise Group("a protobuf group")
            else:
                raise Anomaly(f"wire type {wire}")
            if stop > end:
                raise Anomaly(f"a part that should end at byte {stop} is cut off at {end}")
            yield key >> 3, wire, start, base + i, stop
            start = stop
    except IndexError:
        raise Anomaly(f"cut off at byte {source.size}") from None


class LeftOut(NamedTuple):
    """The main graph's initializer of that number, and where its bytes are."""

    initializer: int
    where: Range


def split(source: Source) -> tuple[bytes, list[LeftOut]]:
    """A serialized model without its big weights, and where those are.

    Only `raw_data` whose length fits the tensor's shape and type is left out: the rest is for the checker to judge.
    Raises Anomaly, ModelError for a graph of too many parts.
    """
    graph = _only(source, _GRAPH, 0, source.size)
    left: list[LeftOut] = []
    parts: list[bytes] = []
    kept, index = graph.start, -1
    for number, wire, at, start, end in _few(fields(source, graph.start, graph.end), "nodes and weights"):
        if number != _INITIALIZER:
            continue
        index += 1
        if end - start <= SMALL or wire != BYTES:
            continue
        found = _header(source, start, end)
        if found is not None:
            header, where = found
            left.append(LeftOut(index, where))
            parts += (source.read(kept, at - kept), _KEYS[_INITIALIZER], _encode(len(header)), header)
            kept = end
    parts.append(source.read(kept, graph.end - kept))
    length = _encode(sum(map(len, parts)))
    before, after = source.read(0, graph.at), source.read(graph.end, source.size - graph.end)
    return b"".join((before, _KEYS[_GRAPH], length, *parts, after)), left


def _few(found: Iterator[tuple[int, int, int, int, int]], what: str) -> Iterator[tuple[int, int, int, int, int]]:
    """The fields, up to a number that no real model has: two bytes can be one, and hopping takes a second a million."""
    yield from islice(found, MOST_PARTS)
    if next(found, None) is not None:
        raise ModelError(f"has more than {MOST_PARTS:,} {what}; split it")


def _only(source: Source, number: int, start: int, end: int) -> Field:
    found = [Field(*f) for f in _few(fields(source, start, end), "parts beside its graph") if f[0] == number]
    if len(found) != 1 or found[0].wire != BYTES:
        raise Anomaly(f"{len(found)} fields where there should be one graph")
    return found[0]


def _header(source: Source, start: int, end: int) -> tuple[bytes, Range] | None:
    """A TensorProto's bytes without raw_data, and the range of that; None where it had better stay inline."""
    raw: Field | None = None
    for count, f in enumerate(fields(source, start, end)):
        if count == _MOST_IN_HEADER:
            return None
        if f[0] == _RAW_DATA and raw is None and f[1] == BYTES:
            raw = Field(*f)
        elif f[0] not in _HEADER:
            return None
    if raw is None or raw.end - raw.start <= SMALL:
        return None
    header = source.read(start, raw.at - start) + source.read(raw.end, end - raw.end)
    try:
        tensor = TensorProto.FromString(header)
    except DecodeError as error:
        raise Anomaly(str(error)) from error
    where = Range(raw.start, raw.end - raw.start)
    if tensor.data_location != TensorProto.DEFAULT or nbytes(tensor) != where.length:
        return None
    return header, where


def join(skeleton: bytes) -> list[bytes | Range]:
    """The serialized whole of a skeleton whose left-out tensors are marked: bytes, and ranges of its source."""
    memory = Memory(skeleton)
    graph = _only(memory, _GRAPH, 0, len(skeleton))
    pieces: list[bytes | Range] = []
    kept = graph.start
    for number, _, at, start, end in fields(memory, graph.start, graph.end):
        if number == _INITIALIZER and skeleton.find(_MARK, start, end) >= 0:
            tensor = TensorProto.FromString(skeleton[start:end])
            if where := marked(tensor):
                pieces += (skeleton[kept:at], *_whole(tensor, where))
                kept = end
    pieces.append(skeleton[kept : graph.end])
    length = _encode(sum(map(size, pieces)))
    return [skeleton[: graph.at], _KEYS[_GRAPH], length, *pieces, skeleton[graph.end :]]


def _whole(tensor: TensorProto, where: Range) -> tuple[bytes, bytes, bytes, bytes, Range, bytes]:
    unmark(tensor)
    header = tensor.SerializeToString()
    memory = Memory(header)
    cut = next((f[2] for f in fields(memory, 0, len(header)) if f[0] > _RAW_DATA), len(header))
    length = _encode(where.length)
    total = len(header) + 1 + len(length) + where.length
    return (
        _KEYS[_INITIALIZER], _encode(total), header[:cut], _KEYS[_RAW_DATA] + length, where, header[cut:],
    )  # fmt: skip


def size(piece: bytes | Range) -> int:
    """Length in bytes."""
    return piece.length if isinstance(piece, Range) else len(piece)
