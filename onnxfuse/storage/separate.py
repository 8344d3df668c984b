"""A model above protobuf's 2 GiB: its weights go into a data file beside it.

The data file is called after the model and its own content, so that it never takes the place of another one, and the
same model has the same data file in every run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

import onnx
from onnx import TensorProto

from onnxfuse.storage import files, tensors
from onnxfuse.storage.carry import place
from onnxfuse.storage.external import Range
from onnxfuse.storage.source import Source

ALIGNMENT = 4096  # bytes: runtimes map the data of a tensor, which starts at a page
_CHUNK = 1 << 20  # bytes


@contextmanager
def separated(proto: onnx.ModelProto, source: Source, path: Path) -> Iterator[onnx.ModelProto]:
    """A copy of the skeleton whose left-out weights are external data beside `path`; the file gets its name at the end.

    Raises OutputError; then, as where the block fails, nothing is left.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    left_out = [(t, where) for t in copy.graph.initializer if (where := tensors.marked(t))]
    with files.naming(path), files.unnamed(path.parent) as (temporary, descriptor):
        offsets, digest = _write([where for _, where in left_out], source, descriptor)
        name = f"{path.name if files.is_utf8(path.name) else 'model.onnx'}.{digest}.data"
        for (tensor, where), offset in zip(left_out, offsets, strict=True):
            tensors.unmark(tensor)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", name), ("offset", str(offset)), ("length", str(where.length))):
                tensor.external_data.add(key=key, value=value)
        yield copy
        place(temporary, path.parent / name)


def _write(ranges: list[Range], source: Source, descriptor: int) -> tuple[list[int], str]:
    """Writes ranges of the source one behind the other; gives their offsets, and what the content is called."""
    offsets, digest = [], blake2b(digest_size=8)
    with os.fdopen(descriptor, "wb", closefd=False) as file:
        for where in ranges:
            padding = bytes(-file.tell() % ALIGNMENT)
            file.write(padding)
            digest.update(padding)
            offsets.append(file.tell())
            for start in range(where.offset, where.offset + where.length, _CHUNK):
                part = source.read(start, min(_CHUNK, where.offset + where.length - start))
                file.write(part)
                digest.update(part)
    os.fsync(descriptor)
    return offsets, digest.hexdigest()
