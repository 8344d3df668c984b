"""The choice among rewrites that exclude each other, against every subset by brute force."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import assert_same, graph, ops, optimized, random_feeds

from onnxfuse.plan import EXACT_CLUSTER, Choice, _choose


def choice(name: str, nodes: list[Any], gain: float) -> Choice:
    return Choice(("rule", "", name), SimpleNamespace(old=nodes), name, (), 1, 0, gain, 1.0)  # type: ignore[arg-type]


def random_choices(rng: np.random.Generator, n: int, width: int) -> list[Choice]:
    nodes = [SimpleNamespace(i=i) for i in range(n)]
    picks = [rng.choice(n, size=int(rng.integers(1, width + 1)), replace=False) for _ in range(n)]
    return [choice(str(i), [nodes[j] for j in pick], float(rng.integers(1, 20))) for i, pick in enumerate(picks)]


def disjoint(choices: tuple[Choice, ...]) -> bool:
    used = [id(node) for c in choices for node in c.match.old]
    return len(used) == len(set(used))


@pytest.mark.parametrize("seed", range(40))
def test_the_chosen_subset_has_the_largest_gain(seed: int) -> None:
    choices = random_choices(np.random.default_rng(seed), 9, 3)
    taken, beaten = _choose(choices)
    assert disjoint(tuple(taken)) and len(taken) + len(beaten) == len(choices)
    subsets = (s for k in range(len(choices) + 1) for s in combinations(choices, k) if disjoint(s))
    best = max(sum(c.seconds_saved for c in s) for s in subsets)
    assert sum(c.seconds_saved for c in taken) == best


def test_a_large_cluster_is_solved_greedily_and_legally() -> None:
    choices = random_choices(np.random.default_rng(0), 10 * EXACT_CLUSTER, 4)
    taken, beaten = _choose(choices)
    assert disjoint(tuple(taken)) and len(taken) + len(beaten) == len(choices)
    used = {id(node) for c in taken for node in c.match.old}
    assert all(any(id(n) in used for n in c.match.old) for c in choices if c not in taken)  # nothing more would fit


def test_a_branch_and_its_surroundings_are_planned_together() -> None:
    body = """
    a = Conv(x, w) b = Relu(a)
    y = If (flag) <then_branch = t () => (float[1,4,4,4] u) { c = Conv(b, v) u = Relu(c) },
                   else_branch = e () => (float[1,4,4,4] z) { d = Conv(b, v) z = Neg(d) }>
    """
    inputs = "float[1,3,8,8] x, float[4,3,3,3] w, float[4,4,3,3] v, bool flag"
    model = graph(body, inputs=inputs, outputs="float[1,4,4,4] y")
    result = optimized(model)
    assert [f.rule for f in result.fusions] == ["conv_relu", "conv_relu"]
    assert ops(result.model) == ["com.microsoft::FusedConv", "If"]
    assert_same(model, result.model, random_feeds(model))


def test_relu_reads_an_outer_value_from_a_branch() -> None:
    """A Conv outside whose only reader is a Relu inside a branch is left alone."""
    body = """
    a = Conv(x, w)
    y = If (flag) <then_branch = t () => (float[1,4,6,6] u) { u = Relu(a) },
                   else_branch = e () => (float[1,4,6,6] z) { s = Constant <value_ints = [1, 4, 6, 6]> ()
                                                              z = ConstantOfShape(s) }>
    """
    model = graph(body, inputs="float[1,3,8,8] x, float[4,3,3,3] w, bool flag", outputs="float[1,4,6,6] y")
    result = optimized(model)
    assert not result.fusions and any("captured" in r.reason for r in result.refused)


def test_unknown_costs_are_refused() -> None:
    model = graph("t = Conv(x, w) y = Relu(t)", inputs="float x, float[4,3,3,3] w", outputs="float y")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    result = optimized(model, verify=False)
    assert not result.fusions and "--dim" in result.refused[0].reason
