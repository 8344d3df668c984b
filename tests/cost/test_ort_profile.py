"""Bytes and MACs of the light model zoo in the onnx wheel, node by node, against onnxruntime's profile."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest

from .profiled import Event, disagreements, number, priced, profile

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
MODELS = sorted(path.stem for path in LIGHT.glob("*.onnx"))

# GMACs that torchvision publishes with its weights of the same network (`_ops`, pytorch/vision, 3 decimals)
PUBLISHED = {"light_vgg19": 19.632, "light_densenet121": 2.834}


def macs(event: Event) -> int:
    """By the definition, on the shapes of the execution."""
    if event.op_type == "Conv":
        return math.prod(event.outputs[0]) * math.prod(event.inputs[1][1:])
    if event.op_type == "Gemm":
        return math.prod(event.outputs[0]) * event.inputs[0][1]
    return 0


@pytest.mark.parametrize("name", MODELS)
def test_light_zoo(name, tmp_path):
    model = onnx.load(LIGHT / f"{name}.onnx")
    number(model.graph)
    data = next(i for i in model.graph.input if i.name not in {t.name for t in model.graph.initializer})
    shape = [d.dim_value for d in data.type.tensor_type.shape.dim]
    events = profile(model, {data.name: np.ones(shape, np.float32)}, tmp_path)
    _, facts, cost = priced(model)

    found, absent = disagreements(facts, events)
    assert found == []
    assert absent == set()

    total = sum(c.macs for c in cost)
    assert total == sum(map(macs, events.values())) > 0
    if name in PUBLISHED:
        assert round(total / 1e9, 3) == PUBLISHED[name]
