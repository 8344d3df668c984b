"""The models that are run to measure efficiencies: each one runs the kernel that it is there for."""

from __future__ import annotations

import pytest

from onnxfuse import roofline, workloads
from onnxfuse.cost import costs
from onnxfuse.executed import executed
from onnxfuse.facts import infer

BLOCKED = {"ReorderInput", "ReorderOutput"}  # where onnxruntime has kernels for blocks of channels


@pytest.mark.parametrize("work", workloads.KINDS)
def test_every_kind_of_work_is_in_the_graph_that_measures_it(work):
    with executed(workloads.of(work)) as model:
        facts = infer(model.program, {}, model.array)
        found = {roofline.work(node, facts): cost for node, cost in zip(facts.nodes, costs(facts), strict=True)}
    if work in BLOCKED and not any(node.domain == "com.microsoft.nchwc" for node in facts.nodes):
        pytest.skip("onnxruntime has no blocked layout on this processor")
    assert found[work].known and found[work].bytes > 10**5


def test_a_weight_is_a_constant_of_its_shape():
    with executed(workloads.model("float[2,3] x", "w: 3,4; s: ; y = MatMul(x, w); z = Add(y, s)")) as model:
        assert {tuple(t.dims) for t in model.proto.graph.initializer} >= {(3, 4)}


def test_feeds_have_the_shapes_and_dtypes_of_the_inputs():
    model = workloads.model("float[N,3] a, uint8[4] b", "y = Cast<to = 1>(b)")
    feeds = workloads.feeds(model, {"N": 5})
    assert {name: (value.shape, value.dtype.name) for name, value in feeds.items()} == {
        "a": ((5, 3), "float32"),
        "b": ((4,), "uint8"),
    }
