"""The operator tests of the onnx wheel through the optimizer: the same outputs as before, and as the tests expect.

Every test runs in four forms: as it is; with all inputs but the first as constants; with all of them, which makes the
whole graph known ahead of time; and with no size of an input known.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from support import node_cases, optimized

from onnxfuse import OnnxfuseError, targets

if TYPE_CHECKING:
    from onnx.backend.test.case.test_case import TestCase

FORMS = ("as it is", "constant weights", "all constant", "free dims")
SAMPLE = 150  # tests of each form in a default run; all of them are slow
PARTS = 8
# Here a size is a simpler formula where nodes around it are gone, and a Reshape then surely one to the same shape.
SIMPLER_SIZES = "test_layer_normalization_2d_axis"
# onnxruntime refuses these, too, once it has inlined their Ifs itself: then it sees that Range reads vectors.
REFUSED = {"test_affine_grid_2d_expanded", "test_affine_grid_2d_align_corners_expanded"}


def array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def as_form(case: TestCase, form: str) -> onnx.ModelProto | None:
    """The test's model in a form; None where it has no such."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    if form == "free dims":
        dims = [d for v in [*graph.input, *graph.output] for d in v.type.tensor_type.shape.dim]
        for i, dim in enumerate(dims):
            dim.dim_param = f"d{i}"
        return model if dims else None
    if form == "as it is":
        return model
    left = list(graph.input)[: 1 if form == "constant weights" else 0]
    for info, value in list(zip(graph.input, case.data_sets[0][0], strict=True))[len(left) :]:
        if not isinstance(value, (np.ndarray, np.generic, onnx.TensorProto)):
            return None
        tensor = onnx.TensorProto()
        tensor.CopyFrom(value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(np.asarray(value)))
        tensor.name = info.name
        graph.initializer.append(tensor)
    if len(graph.input) == len(left):
        return None
    del graph.input[:]
    graph.input.extend(left)
    model.ir_version = max(model.ir_version, 4)
    if form == "all constant":
        if not all(o.type.HasField("tensor_type") for o in graph.output):
            return None
        for output in graph.output:
            graph.node.append(helper.make_node("Identity", [output.name], [f"{output.name}/out"]))
            output.name += "/out"
    return model


def outputs(model: onnx.ModelProto, case: TestCase) -> list[Any]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {i.name: array(v) for i, v in zip(case.model.graph.input, case.data_sets[0][0], strict=True)}
    return session.run(None, {i.name: feeds[i.name] for i in model.graph.input})


def differences(a: Any, b: Any, tolerance: float) -> Iterator[str]:
    """What is not the same in two outputs."""
    if isinstance(a, (list, tuple)) or a is None or b is None:
        if a is None or b is None:
            yield from () if a is b else ("one is absent",)
        elif len(a) != len(b):
            yield "another number of parts"
        else:
            for x, y in zip(a, b, strict=True):
                yield from differences(x, y, tolerance)
        return
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        yield f"shape {a.shape} and {b.shape}"
    elif a.dtype.kind in "OSU":
        yield from () if bool((a == b).all()) else ("other texts",)
    else:
        a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (a, b))
        scale = np.max(np.abs(a[np.isfinite(a)]), initial=1e-6)
        if not np.allclose(a, b, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
            yield f"off by {np.nanmax(np.abs(a - b))}"


def check(case: TestCase, form: str) -> int:
    """Runs one test in one form on all targets; how many results were compared with what the test expects."""
    model = as_form(case, form) if case.data_sets and case.name not in REFUSED else None
    if model is None:
        return 0
    before: list[Any] | None = None
    seen, compared = set(), 0
    for target in targets.names():
        try:
            result = optimized(model, target=target, verify=False)
        except OnnxfuseError:  # only what onnx itself refuses
            with pytest.raises(onnx.checker.ValidationError):
                onnx.checker.check_model(model)
            return 0
        where = f"{case.name}, {form}, {target}: {[f.rule for f in result.fusions]}"
        if not result.fusions:
            assert result.model.SerializeToString() == model.SerializeToString(), where
            continue
        data = result.model.SerializeToString(deterministic=True)
        if data in seen:
            continue
        seen.add(data)
        held_back = any("allowance" in r.reason for r in result.refused)  # a second run has an allowance of its own
        if not held_back and not (form == "free dims" and case.name.startswith(SIMPLER_SIZES)):
            again = optimized(result.model, target=target, verify=False)
            assert not again.fusions, f"{where}, then {[f.rule for f in again.fusions]}"
        if before is None:
            try:
                before = outputs(model, case)
            except Exception:  # noqa: BLE001 - no kernel for it, or the test is of something else
                return compared
        after = outputs(result.model, case)
        for want, a, b in zip(case.data_sets[0][1], before, after, strict=True):
            half = getattr(a, "dtype", None) == np.float16
            wrong = [*differences(a, b, 2e-3 if half else 1e-5)]
            assert not wrong, f"{where}: {wrong}"
            expected = array(want)
            if not [*differences(expected, a, 1e-2 if half else 1e-3)]:  # random ones, and kernels of other opinions
                wrong = [*differences(expected, b, 1.1e-2 if half else 1.1e-3)]
                assert not wrong, f"{where}: not what the test expects: {wrong}"
                compared += 1
    return compared


@pytest.mark.parametrize("form", FORMS)
def test_a_sample_of_the_operator_tests(form: str) -> None:
    sample = random.Random(0).sample(node_cases(), SAMPLE)
    assert sum(check(case, form) for case in sample) > 20


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", range(PARTS))
def test_all_operator_tests(form: str, part: int) -> None:
    assert sum(check(case, form) for case in node_cases()[part::PARTS]) > 20
