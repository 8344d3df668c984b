"""The lossless bridge between a `ModelProto` and its editable view, a `gs.Graph`.

The proto stays the truth. `view` makes gs objects by itself (gs's importer drops and corrupts too much), each pinned to
the message it was made of; `splice` compares them with their messages and writes back what differs, in place: an
untouched message is neither copied nor rewritten, and no weight is ever read.

What differs from gs's own import: a node's attributes that gs has no form for stand in `attrs` as the `AttributeProto`
they are (GRAPHS as a list of bodies, a string that is not UTF-8 as bytes); `domain` is "" for ai.onnx; a `dtype` is
always an ONNX enum number and a `shape` a tuple of int, str and None; a captured value is the same object inside and
outside; an initializer that callers may override is a Variable (a graph input), not a Constant. Before IR version 4
every weight is listed among the inputs and runtimes let nobody override it: there it is a Constant, and its input entry
comes and goes with it.

Setting `node.metadata = {key: value}` replaces a node's metadata_props at the next splice.
"""

from __future__ import annotations

from onnx_graphsurgeon.logger import G_LOGGER

from onnxfuse.bridge.read import Stored, bodies, metadata, release, stored, value_names, view, walk
from onnxfuse.bridge.write import splice

__all__ = ["Stored", "bodies", "metadata", "release", "splice", "stored", "value_names", "view", "walk"]

# Above CRITICAL: gs logs to stdout, which belongs to results; what it cannot do it raises all the same.
G_LOGGER.severity = 60
