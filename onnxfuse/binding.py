"""Sizes for the free dimensions of a model, where a cost or a plan needs numbers and nobody gave any; and the costs
as formulas in those dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter

from onnxfuse import feeds, interface
from onnxfuse.cost import Cost, costs
from onnxfuse.cost.quantity import COUNTS, Number, of_counts
from onnxfuse.facts import Expr, Facts, free_dims, infer, symbols
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


def formulas(model: Model, bound: Bound) -> tuple[Facts, tuple[Cost, ...]]:
    """Facts and costs with the assumed dimensions left as symbols; those of `bound` where none was assumed.

    A count is a formula only if it holds for every size. It is None (unknown) where the graph itself depends on the
    sizes (an If whose condition they decide), and where it is not the number that the inference at `bound.dims` gives.
    """
    if not bound.assumed:
        return bound.facts, bound.costs
    given = {name: size for name, size in bound.dims.items() if name not in bound.assumed}
    facts = infer(model.program, given, model.array)
    decided = _decided_by_sizes(facts, bound.facts)
    prices = costs(facts)
    seen: dict[tuple[int, int], Cost] = {}  # nodes that are alike share a cost, and are compared once
    checked = []
    for i, (formula, number) in enumerate(zip(prices, bound.costs, strict=True)):
        if i in decided:
            checked.append(_UNKNOWN)
            continue
        key = id(formula), id(number)
        if key not in seen:
            seen[key] = _formula(formula, number, bound.dims)
        checked.append(seen[key])
    return facts, tuple(checked)


def _formula(formula: Cost, number: Cost, dims: Mapping[str, int]) -> Cost:
    """A cost with the counts that hold for every size, and its branches, as far as there are any at these sizes."""
    pairs = zip(_counts(formula), _counts(number), strict=True)
    counts = of_counts([_checked(f, n, dims) for f, n in pairs], formula.why or "no formula holds for all sizes")
    if not number.branches and not formula.least:
        return counts
    general = {(branch.node, branch.name): branch.cost for branch in formula.branches}
    branches = [
        replace(branch, cost=_formula(general.get((branch.node, branch.name), _UNKNOWN), branch.cost, dims))
        for branch in number.branches
    ]
    return replace(counts, least=formula.least, branches=tuple(branches))


def misfit(model: Model, bound: Bound) -> str | None:
    """The first node of the main graph that contradicts itself at these sizes, as "Conv 'name'"; None without one.

    The shapes of its inputs are known, and at other sizes it has an output.
    """
    if not bound.dims or all(price.known for price in bound.costs):
        return None
    general = infer(model.program, {}, model.array)
    for node in bound.facts.nodes:
        made = next(filter(None, node.outputs), "")
        if bound.facts[made].shape is not None or general[made].shape is None:
            continue
        read = [bound.facts[name].shape for name in node.inputs if name]
        if all(shape is not None and all(isinstance(d, int) for d in shape) for shape in read):
            return f"{node.op_type} '{node.name or made}'"
    return None


_counts = attrgetter(*COUNTS)
_UNKNOWN = of_counts([None] * len(COUNTS), "the sizes decide which branch runs")


def _checked(formula: Number, number: Number, dims: Mapping[str, int]) -> Number:
    """The formula; None where it is not the number at these sizes. In a symbol of the data it cannot be compared."""
    if number is None or (isinstance(formula, Expr) and symbols(formula) - dims.keys()):
        return formula
    try:
        value = formula.evaluate(dims) if isinstance(formula, Expr) else formula
    except ZeroDivisionError:
        return None
    return formula if value == number else None


def _decided_by_sizes(general: Facts, sized: Facts) -> set[int]:
    """Nodes with an If in them whose condition is known at fixed sizes only."""
    found = set()
    for (i, attribute), body in sized.bodies.items():
        node = sized.nodes[i]
        known = sized[node.inputs[0]].data is not None if node.op_type == "If" and attribute else False
        other = general.bodies.get((i, attribute))
        if (known and general[node.inputs[0]].data is None) or other is None or _decided_by_sizes(other, body):
            found.add(i)
    return found
