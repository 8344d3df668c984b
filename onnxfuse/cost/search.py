"""Sorting and searching: no FLOPs (comparisons of keys are not counted); the input is read, the output written.

Outputs whose size depends on the data count at their upper bound, where the shape has one.
"""

from __future__ import annotations

from onnxfuse.cost.registry import Call, Cost, Unknown, bytes_of, op
from onnxfuse.facts.expr import ceil_div

_MS = "com.microsoft"


@op("TopK", "Unique", "NonZero", "NonMaxSuppression", kind="sort")
@op("EfficientNMS_TRT", kind="sort")
@op("Unique", "NGramRepeatBlock", "BifurcationDetector", "SpeculativePrefixCommit", kind="sort", domain=_MS)
@op("PackedSparseAttentionIndexerMerge", kind="sort", domain=_MS)
def search(call: Call) -> Cost:
    """Keys in, keys and positions out."""
    return call.cost()


@op("DynamicTimeWarping", kind="sort", domain=_MS)
def dynamic_time_warping(call: Call) -> Cost:
    """Costs (M, N): the least of three neighbours and one addition a cell."""
    return call.cost(arith=3 * call.size(0))


@op("MurmurHash3", kind="elementwise", domain=_MS)
def murmur_hash(call: Call) -> Cost:
    """4 multiplications and additions for every 4 bytes, 2 more to finish. Unknown for strings."""
    return call.cost(arith=ceil_div(bytes_of(call.input(0)), 4) * 4 + 2 * call.size(0))


@op("NGramHashMapping", "VarlenNGramHashMapping", kind="elementwise", domain=_MS)
def ngram_hash(call: Call) -> Cost:
    """ids -> hashes (…, heads): n multiplications for the n-grams of length 2 … max, then modulo and offset a head."""
    longest = call.attr("max_ngram_size", 0)
    if not isinstance(longest, int) or longest < 2:
        raise Unknown("its max_ngram_size is missing")
    offset = 1 if call.has(4 if call.node.op_type == "NGramHashMapping" else 5) else 0
    return call.cost(arith=call.size(0) * sum(range(2, longest + 1)) + (1 + offset) * call.out_size())
