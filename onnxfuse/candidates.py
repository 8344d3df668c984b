"""Fusion candidates of a graph: neighbouring nodes whose merging would save memory traffic, whether or not a kernel
for the merged node exists yet.

Definitions (the source text that onnxfuse follows, see the README): a node is memory-bound below the ridge point (10
FLOP/byte in the general rule), the most promising pairs are those of the lowest intensity, and where both nodes are
compute-bound none is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from onnxfuse.devices import Device
from onnxfuse.execution import Bytes, Piece, merged, piece_seconds
from onnxfuse.roofline import ridge
from onnxfuse.targets import Target


@dataclass(frozen=True, slots=True)
class Candidate:
    """Two neighbours and what merging them would do.

    intensity_apart, intensity_fused: FLOPs per byte of both nodes together, executed one by one and as one kernel.
    rule: the rewrite that makes such a pair one node on this target, if there is one; `optimize --explain` says
        whether it is legal here.
    reason: why the pair is not worth merging or cannot be; None if nothing is known against it.
    """

    nodes: tuple[str, ...]
    op_types: tuple[str, ...]
    intensity_apart: float
    intensity_fused: float
    bytes_saved: int
    seconds_saved: float
    rule: str | None
    reason: str | None


def is_compute_bound(piece: Piece, device: Device, max_intensity: float | None) -> bool:
    """Whether a node's intensity is at or above the threshold: the device's ridge point, or `max_intensity`."""
    intensity = piece.cost.intensity
    return intensity is not None and intensity >= threshold(piece, device, max_intensity)


def threshold(piece: Piece, device: Device, max_intensity: float | None) -> float:
    """FLOP/byte from which a node counts as compute-bound."""
    return ridge(device, piece.dtype, piece.matrix) if max_intensity is None else max_intensity


def compute_bound_reason(pieces: Sequence[Piece], device: Device, max_intensity: float | None) -> str | None:
    """One line if every piece is compute-bound, so that merging them would save no time; else None."""
    if not all(is_compute_bound(p, device, max_intensity) for p in pieces):
        return None
    figures = " and ".join(f"{p.op_type} {p.cost.intensity:.1f}" for p in pieces)
    limit = threshold(pieces[0], device, max_intensity)
    return f"all are compute-bound ({figures} FLOP/byte, the limit is {limit:.1f})"


def find(
    pieces: Sequence[Piece],
    exported: frozenset[str],
    target: Target,
    device: Device,
    nbytes: Bytes,
    pairs: Mapping[tuple[str, str], str],
    max_intensity: float | None = None,
) -> tuple[Candidate, ...]:
    """All candidates of one graph, from the lowest intensity up.

    pieces: the graph's nodes in order. exported: names that must exist outside (graph outputs, captured values).
    pairs: (producer op, consumer op) → the rule that merges them on this target.
    A pair counts if the consumer is the only reader of the value between them.
    """
    reads = Counter(name for p in pieces for name in p.inputs if name)
    makers = {p.outputs[0]: p for p in pieces if p.outputs and p.outputs[0]}
    kinds = {id(p): _kind(p) for p in pieces}
    seen: dict[tuple[object, ...], Candidate | None] = {}  # a large model has few kinds of pairs
    found = []
    for consumer in pieces:
        read = set(consumer.inputs)
        for name in consumer.inputs:  # one that is twice among them is read twice
            producer = makers.get(name)
            if producer is None or reads[name] != 1 or name in exported:
                continue
            key = kinds[id(producer)], kinds[id(consumer)], *_inside(producer, read, consumer.outputs, nbytes)
            if key not in seen:
                seen[key] = _candidate(producer, consumer, target, device, nbytes, pairs, max_intensity)
            if (alike := seen[key]) is not None:
                found.append(
                    Candidate(
                        (producer.label, consumer.label),
                        alike.op_types,
                        alike.intensity_apart,
                        alike.intensity_fused,
                        alike.bytes_saved,
                        alike.seconds_saved,
                        alike.rule,
                        alike.reason,
                    )
                )
    return tuple(sorted(found, key=lambda c: c.intensity_apart))


def _kind(piece: Piece) -> tuple[object, ...]:
    """What decides about a pair, of one of the two, beside the values between them; nodes alike share their cost."""
    return piece.op_type, piece.dtype, piece.matrix, piece.work, id(piece.cost)


def _inside(producer: Piece, read: Collection[str], written: Collection[str], nbytes: Bytes) -> tuple[int | None, ...]:
    """Sizes of the values that the merged node would not read, -1, and of those that it would not write.

    read, written: names of what the consumer reads and writes.
    """
    known = dict.fromkeys((*producer.inputs, *producer.outputs))
    spared = [nbytes(name) for name in known if name and name in read]
    return *spared, -1, *[nbytes(name) for name in producer.outputs if name and name not in written]


def _candidate(
    producer: Piece,
    consumer: Piece,
    target: Target,
    device: Device,
    nbytes: Bytes,
    pairs: Mapping[tuple[str, str], str],
    max_intensity: float | None,
) -> Candidate | None:
    both = (producer, consumer)
    if not all(p.cost.flops and p.cost.bytes for p in both):
        return None  # views, copies and unknown costs are no kernels to merge
    apart, fused = producer.cost + consumer.cost, merged(both, nbytes)
    before = [piece_seconds(p.cost, [p], device) for p in both]
    after = piece_seconds(fused, both, device)
    if apart.intensity is None or fused.intensity is None or after is None or None in before:
        return None
    rule = pairs.get((producer.op_type, consumer.op_type))
    reason = compute_bound_reason(both, device, max_intensity)
    ends = producer.op_type, consumer.op_type
    if reason is None and any(producer.dtype in dtypes and _within(c, *ends) for c, dtypes in target.chains.items()):
        reason = f"{target.name} merges them by itself"
    if reason is None and rule is None:
        reason = "no rule or kernel for it yet"
    saved = apart.bytes - fused.bytes  # type: ignore[operator]  # both are ints where the intensities are known
    return Candidate(
        tuple(p.label for p in both),
        tuple(p.op_type for p in both),
        apart.intensity,
        fused.intensity,
        saved,  # type: ignore[arg-type]
        sum(t for t in before if t is not None) - after,
        None if reason else rule,
        reason,
    )


def _within(chain: tuple[str, ...], first: str, second: str) -> bool:
    return any(pair == (first, second) for pair in pairwise(chain))
