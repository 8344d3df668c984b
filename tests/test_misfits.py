"""Nodes that no runtime would run: which of them are left alone, and that all others are not."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from support import LIGHT_ZOO, graph, node_cases, ops, optimized

from onnxfuse import patterns, targets
from onnxfuse.binding import bind
from onnxfuse.graph import Editor
from onnxfuse.model import Model
from onnxfuse.surroundings import surroundings

CONV = "float[1,4,5,5] x, float[4,4,3,3] w"
MISFITS = (
    ("Conv <pads = [1, 1]> (x, w)", CONV),
    ("Conv <strides = [1]> (x, w)", CONV),
    ("Conv <strides = [0, 1]> (x, w)", CONV),
    ("Conv <dilations = [1, 1, 1]> (x, w)", CONV),
    ("Conv <group = 3> (x, w)", CONV),
    ("Conv <group = 2> (x, w)", CONV),
    ("Conv <kernel_shape = [2, 2]> (x, w)", CONV),
    ('Conv <auto_pad = "SOME"> (x, w)', CONV),
    ("Conv (x, w, b)", f"{CONV}, float[5] b"),
    ("Conv (x, w, b)", f"{CONV}, float[1,4] b"),
    ("Conv (x, w)", "float[1,4,5,5] x, float[4,4,3] w"),
    ("Conv (x, w)", "float x, float w"),
    ("ConvTranspose (x, w)", "float[1,4,5,5] x, float[3,4,3,3] w"),
    ("ConvTranspose <output_padding = [1]> (x, w)", CONV),
    ("MaxPool <kernel_shape = [2, 2], pads = [1, 1]> (x)", "float[1,4,5,5] x"),
    ("MaxPool <kernel_shape = [2]> (x)", "float[1,4,5,5] x"),
    ("AveragePool <kernel_shape = [0, 0]> (x)", "float[1,4,5,5] x"),
    ("Transpose <perm = [0, 1, 1]> (x)", "float[2,3,4] x"),
    ("Transpose <perm = [0, 1, 2, 3]> (x)", "float[2,3,4] x"),
    ("BatchNormalization (x, s, s, s, v)", "float[2,3,4] x, float[3] s, float[2] v"),
    ("BatchNormalization (x, s, s, s, s)", "float[2,3,4] x, float[4] s"),
    ("InstanceNormalization (x, s, s)", "float[2,3,4] x, float[4] s"),
    ("Slice (x, i, j)", "float[2,3,4] x, int64[1] i, int64[2] j"),
    ("Concat <axis = 3> (x, x)", "float[2,3,4] x"),
    ("Softmax <axis = -4> (x)", "float[2,3,4] x"),
    ("LayerNormalization <axis = 3> (x, s)", "float[2,3,4] x, float[4] s"),
    ("ReduceMean <axes = [5]> (x)", "float[2,3,4] x"),
    ("Add (x, s)", "float[2,3,4] x, float[3] s"),
    ("MatMul (x, w)", "float[2,3] x, float[2,3] w"),
    ("Gemm (x, w)", "float[2,3,4] x, float[4,3] w"),
)


def marked(source: onnx.ModelProto | Path) -> list[int]:
    """Numbers of the nodes of the main graph that are misfits."""
    model = Model.load(source)
    bound = bind(model, {})
    surroundings(model, Editor(model.graph), bound.facts, bound, targets.find("ort-cpu"))
    return [i for i, node in enumerate(model.graph.nodes) if patterns.MISFIT in vars(node)]


@pytest.mark.parametrize(("node", "inputs"), MISFITS)
def test_a_misfit_is_not_looked_at(node: str, inputs: str) -> None:
    """Its neighbours are: the Identity goes."""
    model = graph(f"t = {node} u = Identity(t) y = Relu(u)", inputs=inputs, outputs="float[?] y")
    assert marked(model) == [0]
    for target in targets.names():
        assert ops(optimized(model, target=target, verify=False).model)[0] == ops(model)[0]


def test_what_runtimes_run_is_no_misfit() -> None:
    """The operator tests of onnx and the architectures of its zoo."""
    models = [case.model for case in node_cases() if len(case.model.graph.node) < 5]
    assert len(models) > 1000
    for model in models:
        assert not marked(model), model.graph.name


@pytest.mark.parametrize("path", LIGHT_ZOO, ids=lambda p: p.stem)
def test_no_node_of_a_real_model_is_one(path: Path) -> None:
    assert not marked(path)
