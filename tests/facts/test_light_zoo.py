"""Every intermediate value of the onnx wheel's light zoo has a shape, and it is the one that onnxruntime computes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
from support import LIGHT_ZOO

from onnxfuse import facts, ir

ort = pytest.importorskip("onnxruntime")


def runtime_shapes(model: onnx.ModelProto, size: int) -> dict[str, tuple[int, ...]]:
    """Shape of every node output in onnxruntime, without its optimizations."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    outputs = {o.name for o in probe.graph.output}
    probe.graph.output.extend(
        onnx.ValueInfoProto(name=name) for n in probe.graph.node for name in n.output if name and name not in outputs
    )
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(probe.SerializeToString(), options, providers=["CPUExecutionProvider"])
    weights = {t.name for t in model.graph.initializer}
    (name,) = (i.name for i in model.graph.input if i.name not in weights)
    names = [o.name for o in session.get_outputs()]
    values = session.run(names, {name: np.zeros((1, 3, size, size), np.float32)})
    return {name: tuple(np.shape(v)) for name, v in zip(names, values, strict=True)}


@pytest.mark.parametrize("path", LIGHT_ZOO, ids=lambda p: p.stem)
def test_every_value_is_resolved(path: Path) -> None:
    model = onnx.load(path)
    program = ir.read(model)
    found = facts.infer(program)
    # The same with a free image size: expressions that give these numbers.
    inputs = {
        name: dataclasses.replace(t, dims=("N", 3, "H", "W")) if name not in program.graph.initializers else t
        for name, t in program.graph.inputs.items()
    }
    free = facts.infer(dataclasses.replace(program, graph=dataclasses.replace(program.graph, inputs=inputs)))
    for name, shape in runtime_shapes(model, 224).items():
        assert found[name].shape == shape, name
        symbolic = free[name].shape
        assert symbolic is not None, name
        assert tuple(facts.evaluate(d, {"N": 1, "H": 224, "W": 224}) for d in symbolic) == shape, name
