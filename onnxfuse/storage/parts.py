"""How many parts a serialized model holds at every depth, counted before it is parsed.

Two bytes can be a node or an attribute, which takes some 300 bytes in memory and some microseconds of each walk over
the model: a file of a few megabytes could fill the machine.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import onnx

from onnxfuse.errors import ModelError
from onnxfuse.storage import wire
from onnxfuse.storage.source import Memory

MOST_MESSAGES = 5_000_000  # nodes, attributes, tensors, types … of all graphs
MOST_FIELDS = 20_000_000  # values in them, a packed list being one


def check(data: bytes) -> None:
    """Raises ModelError for more parts than any model has. Bytes that are no message are left to the parser to refuse;
    not a group, which it would read, and behind which are parts that are not counted.

    Counting takes half a second a million fields, so it is done only where there may be so many.
    """
    if len(data) <= 2 * MOST_MESSAGES:
        return
    memory, messages, seen = Memory(data), 0, 0
    todo = [(_inner("onnx.ModelProto"), 0, len(data))]
    try:
        while todo:
            inner, start, end = todo.pop()
            for number, kind, _, begin, stop in wire.fields(memory, start, end):
                seen += 1
                if kind == wire.BYTES and number in inner:
                    messages += 1
                    if begin < stop:
                        todo.append((_inner(inner[number]), begin, stop))
                if messages > MOST_MESSAGES or seen > MOST_FIELDS:
                    raise ModelError(f"has more than {MOST_MESSAGES:,} nodes, attributes and other parts; split it")
    except wire.Group as error:
        raise ModelError(f"is not an ONNX model, or damaged: there is {error} in it") from error
    except wire.Anomaly:
        return


@cache
def _inner(message: str) -> dict[int, str]:
    """The fields of a message that are messages themselves: number → name of the message."""
    described: Any = onnx.onnx_ml_pb2.DESCRIPTOR.pool.FindMessageTypeByName(message)
    return {field.number: field.message_type.full_name for field in described.fields if field.message_type}
