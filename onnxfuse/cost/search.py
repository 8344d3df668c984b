"""Sorting and searching: no FLOPs (comparisons of keys are not counted); the input is read, the output written.

Outputs whose size depends on the data count at their upper bound, where the shape has one.
"""

from __future__ import annotations

from onnxfuse.cost.registry import Call, Cost, op


@op("TopK", "Unique", "NonZero", "NonMaxSuppression", kind="sort")
@op("Unique", "NGramRepeatBlock", kind="sort", domain="com.microsoft")
def search(call: Call) -> Cost:
    """Keys in, keys and positions out."""
    return call.cost()
