"""Every operator test of the onnx wheel: shapes, types and folded elements against the expected outputs."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
import support

from onnxfuse import facts, ir
from onnxfuse.facts import scope
from onnxfuse.facts.call import Unclear


@dataclass
class NodeCase:
    name: str
    model: onnx.ModelProto
    inputs: list[object]
    outputs: list[object]


@functools.cache
def node_cases() -> list[NodeCase]:
    found = support.node_cases()
    return [NodeCase(c.name, c.model, list(i), list(o)) for c in found for i, o in c.data_sets]


@pytest.fixture
def no_excuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a valid model a shape function may only say `Unclear`; any other error is a mistake of ours."""
    monkeypatch.setattr(scope, "INCONSISTENT", (Unclear,))


def frozen(case: NodeCase) -> onnx.ModelProto:
    """The model with its small numeric inputs as initializers, so that shapes that depend on them can be computed."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    kept = []
    for info, a in zip(case.model.graph.input, case.inputs, strict=False):
        dtype = info.type.tensor_type.elem_type
        if dtype and isinstance(a, (np.ndarray, np.generic)) and a.size <= 1024 and a.dtype.kind in "iufb":
            tensor = onnx.helper.make_tensor(info.name, dtype, a.shape, np.ascontiguousarray(a).tobytes(), raw=True)
            model.graph.initializer.append(tensor)
        else:
            kept.append(info)
    del model.graph.input[:]
    model.graph.input.extend(kept)
    return model


def compare(case: NodeCase, model: onnx.ModelProto) -> tuple[int, int, int, list[str]]:
    """(tensors, static shapes, folded values) and what is wrong."""
    found = facts.infer(ir.read(model))
    tensors = static = folded = 0
    wrong = []
    for info, expected in zip(case.model.graph.output, case.outputs, strict=True):
        if not isinstance(expected, (np.ndarray, np.generic)):
            continue  # a sequence or an optional
        tensors += 1
        value, shape = found[info.name], np.shape(expected)
        if value.dtype != info.type.tensor_type.elem_type:
            wrong.append(f"{case.name}: dtype {value.dtype}, not {info.type.tensor_type.elem_type}")
        if value.shape is None:
            continue
        if len(value.shape) != len(shape) or any(
            isinstance(d, int) and d != s for d, s in zip(value.shape, shape, strict=True)
        ):
            wrong.append(f"{case.name}: {value.shape}, not {shape}")
            continue
        static += all(isinstance(d, int) for d in value.shape)
        if value.data is not None:
            folded += 1
            ours, theirs = np.array(value.data.tolist()), np.array(np.asarray(expected).tolist())
            # Floats: float16 cases round differently by one unit in the last place.
            if not np.allclose(ours.astype(float), theirs.astype(float), rtol=1e-3, atol=0, equal_nan=True):
                wrong.append(f"{case.name}: {ours}, not {theirs}")
    return tensors, static, folded, wrong


def test_declared_inputs(no_excuses: None) -> None:
    totals, wrong = np.zeros(3, int), []
    for case in node_cases():
        *counts, mistakes = compare(case, case.model)
        totals += counts
        wrong += mistakes
    assert wrong == []
    assert totals[1] >= 0.83 * totals[0] > 1700  # the others take their shape from the contents of an input


def test_inputs_as_initializers(no_excuses: None) -> None:
    totals, wrong = np.zeros(3, int), []
    for case in node_cases():
        *counts, mistakes = compare(case, frozen(case))
        totals += counts
        wrong += mistakes
    assert wrong == []
    assert totals[1] >= 0.97 * totals[0]
    assert totals[2] >= 280
