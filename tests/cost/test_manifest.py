"""Real models: MACs to the integer against two independent counts, bytes node by node against onnxruntime's profile.

Needs a folder of models (ONNXFUSE_MODELS: <name>.onnx) and one of truth (ONNXFUSE_TRUTH: ort_profile.csv with model,
input_shape and macs from runtime shapes; flopcounter.csv with those of PyTorch's FlopCounterMode).
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxfuse.facts import free_dims

from .profiled import disagreements, number, priced, profile

MODELS, TRUTH = os.environ.get("ONNXFUSE_MODELS"), os.environ.get("ONNXFUSE_TRUTH")
pytestmark = pytest.mark.skipif(
    not (MODELS and TRUTH), reason="set ONNXFUSE_MODELS and ONNXFUSE_TRUTH to folders of models and of their truth"
)

# networks that were exported without a part that PyTorch counts
LEFT_OUT = {
    "bert2": 768 * 768,  # the pooler, whose output nobody uses
    "fcn_resnet50": 65 * 65 * (1024 * 256 * 9 + 256 * 21),  # the auxiliary head: 3x3 to 256 channels, 1x1 to 21
}
FEEDS = {"sr": np.array(16000, np.int64)}  # sampling rate of silero_vad


def rows(name: str) -> dict[str, dict[str, str]]:
    if not TRUTH:
        return {}
    with (Path(TRUTH) / name).open(newline="") as file:
        return {row["model"]: row for row in csv.DictReader(file)}


def inputs(model: onnx.ModelProto, text: str) -> dict[str, np.ndarray]:
    """Feeds of the shapes in the table, inputs apart by ";"."""
    weights = {t.name for t in model.graph.initializer}
    given = [i for i in model.graph.input if i.name not in weights]
    feeds = {}
    for info, shape in zip(given, text.split(";"), strict=True):
        dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        dims = [int(d) for d in shape.split("x")] if shape else []
        feeds[info.name] = FEEDS[info.name] if info.name in FEEDS else np.ones(dims, dtype)
    return feeds


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(rows("ort_profile.csv")))
def test_model(name, tmp_path):
    row = rows("ort_profile.csv")[name]
    model = onnx.load(Path(MODELS or "") / f"{name}.onnx")
    number(model.graph)
    feeds = inputs(model, row["input_shape"])
    program, _, _ = priced(model)
    dims = {
        symbol: feeds[value].shape[axis]
        for symbol, places in free_dims(program).items()
        for value, axis in places
        if feeds[value].ndim
    }
    _, facts, cost = priced(model, dims)

    unknown = [node.op_type for node, c in zip(facts.nodes, cost, strict=True) if c.flops is None or c.bytes is None]
    assert unknown == []

    total = sum(c.macs for c in cost)
    assert total == int(row["macs"])
    network = name.split("__")[0]
    counted = rows("flopcounter.csv").get(network)
    if counted:
        assert total == int(counted["macs"]) - LEFT_OUT.get(network, 0)

    events = profile(model, feeds, tmp_path)
    found, absent = disagreements(facts, events)
    assert found == []
    assert absent <= {"Constant", "HardSwish", "Cast"}  # an initializer; inlined; one of two in a row
