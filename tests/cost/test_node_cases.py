"""The operator tests that come with onnx: every one is priced, and an operator has the MACs of its own definition."""

from __future__ import annotations

import pytest
from support import node_cases

from onnxfuse import ir
from onnxfuse.cost import Cost, costs, kind
from onnxfuse.cost.registry import FORMULAS, Unknown
from onnxfuse.facts import Dim, infer

from .conftest import call


@pytest.fixture(scope="module")
def cases() -> dict[str, tuple[Cost, ...]]:
    found = node_cases()
    return {case.name: costs(infer(ir.read(case.model))) for case in found}


def macs(cost: tuple[Cost, ...]) -> Dim | None:
    known = [c.macs for c in cost if c.macs is not None]
    return sum(known[1:], known[0]) if len(known) == len(cost) else None


def test_operator_has_the_macs_of_its_expansion(cases):
    compared, with_macs = 0, 0
    for name, cost in cases.items():
        for twin in (f"{name}_expanded", *(f"{name}_expanded_ver{v}" for v in (18, 26)), f"{name}_ver18_expanded"):
            if twin in cases and None not in (macs(cost), macs(cases[twin])):
                assert macs(cost) == macs(cases[twin]), name
                compared += 1
                with_macs += macs(cost) != 0
    assert compared >= 440
    assert with_macs >= 60


def test_what_is_unknown_has_a_reason(cases):
    without = [name for name, cost in cases.items() if any(not c.known and not c.why for c in cost)]
    assert without == []
    assert {c.why for c in cases["test_loop11"]} == {"its trip count is not known"}
    assert "its axis is not known" in {c.why for c in cases["test_dft"]}
    assert {c.why for c in cases["test_equal_string"]} == {"works on strings, whose lengths are not in the model"}
    assert "the shape of its output is not known" in {c.why for c in cases["test_reduce_l1_do_not_keepdims_random"]}


def test_only_what_is_free_costs_nothing():
    # a Cast to the same type is a view, and so is a branch of constants; a tensor without elements moves nothing
    free = []
    for case in node_cases():
        facts = infer(ir.read(case.model))
        for node, cost in zip(facts.nodes, costs(facts), strict=True):
            moves = any(facts[name].shape is not None and 0 not in facts[name].shape for name in node.outputs if name)
            cast = node.op_type in ("Cast", "CastLike") and facts[node.inputs[0]].dtype == facts[node.outputs[0]].dtype
            if cost == Cost() and moves and not cast and kind(node) not in ("view", "constant", "control"):
                free.append(f"{case.name}: {node.op_type}")
    assert free == []


@pytest.mark.parametrize("rank", range(6))
@pytest.mark.parametrize("out_rank", range(6))
def test_no_formula_trips_over_a_malformed_node(rank, out_rank):
    # every rank of inputs with every rank of outputs, with and without attributes
    inputs, outputs = [" ".join(["f32", *["2"] * rank])] * 9, [" ".join(["f32", *["2"] * out_rank])] * 3
    common = {"num_heads": 2, "kv_num_heads": 1, "q_num_heads": 2, "kernel_shape": (1, 1), "K": 2, "N": 2}
    for (domain, name), entry in FORMULAS.items():
        for attrs in ({}, common, common | {"axis": 9, "equation": "ij,jk", "mode": "linear"}):
            for arity in (0, 1, 3, 9):
                try:
                    result = entry.formula(call(name, inputs[:arity], outputs, attrs, domain, (1, 12, 28)[rank % 3]))
                except Unknown:
                    continue
                assert isinstance(result, Cost)
