"""Sizes for the free dimensions of a model, where a cost or a plan needs numbers and nobody gave any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from onnxfuse import feeds, interface
from onnxfuse.cost import Cost, costs
from onnxfuse.facts import Facts, free_dims, infer
from onnxfuse.model import Model

# Bindings are tried until every cost is known. A model of that many nodes is tried once, a smaller one more often.
_NODES = 8000
_MOST = 16


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A model at fixed sizes. dims: of all free dimensions; assumed: the names of those that nobody gave."""

    dims: Mapping[str, int]
    assumed: tuple[str, ...]
    facts: Facts
    costs: tuple[Cost, ...]


def bind(model: Model, dims: Mapping[str, int]) -> Bound:
    """Facts and costs of a model with the given sizes, and typical ones for the other free dimensions.

    dims: by symbol, or by "<input>.<axis>". Of the bindings that `feeds.candidates` deems likely the first is taken at
    which every cost is known, else the one with the most known costs. Raises UsageError for an unknown dimension.
    """
    program = model.program
    free = free_dims(program)
    seen = interface.of(model.proto)
    given = feeds.resolve(seen, dims)
    tries = max(1, min(_MOST, _NODES // max(1, len(program.graph.nodes))))
    best: Bound | None = None
    most = -1
    for likely in islice(feeds.candidates(seen, dims, typical=True), tries):
        sizes = {name: feeds.size(name, likely) for name in free}
        facts = infer(program, sizes, model.array)
        prices = costs(facts)
        known = sum(price.known for price in prices)
        if known > most:
            best, most = Bound(sizes, tuple(n for n in free if n not in given), facts, prices), known
        if known == len(prices) or not free:
            break
    assert best is not None  # candidates are never empty
    return best
