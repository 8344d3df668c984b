"""Conv + activation: every kernel limit, every spelling, every opset."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator
from support import assert_same, graph, ops, optimized, random_feeds, with_weights

from onnxfuse import targets
from onnxfuse.targets import FusedKernel, Target

X = "float[1,3,8,8] x, float[4,3,3,3] w, float[4] b"
NEWEST = defs.onnx_opset_version()
# The FusedConv of onnxruntime's CPU provider ends with any of these; as a target it lets every activation run here.
EVERY_ACTIVATION = frozenset({"Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid"})


def cpu_kernels() -> Target:
    kernel = FusedKernel(frozenset({TensorProto.FLOAT}), EVERY_ACTIVATION)
    return replace(targets.find("ort-cuda"), kernels={("com.microsoft", "FusedConv"): kernel})


@pytest.mark.parametrize(
    "activation",
    [
        "Relu (t)",
        "Sigmoid (t)",
        "Tanh (t)",
        "LeakyRelu (t)",
        "LeakyRelu <alpha = 0.3> (t)",
        "LeakyRelu <alpha = -0.5> (t)",
        "HardSigmoid (t)",
        "HardSigmoid <alpha = 0.5, beta = 0.25> (t)",
        "Clip (t)",
        "Clip (t, low, high)",
        "Clip (t, low)",
        'Clip (t, "", high)',
    ],
)
def test_every_activation_that_the_kernel_takes(activation: str) -> None:
    bounds = "low = Constant <value_float = -0.25> () high = Constant <value_float = 0.5> ()"
    model = graph(f"{bounds} t = Conv(x, w, b) y = {activation}", inputs=X, outputs="float[1,4,6,6] y")
    result = optimized(model, rules=["conv_relu"], target=cpu_kernels())
    assert "com.microsoft::FusedConv" in ops(result.model) and len(result.fusions) == 1
    for seed in range(3):
        assert_same(model, result.model, random_feeds(model, seed))


def test_the_cuda_kernel_ends_with_relu_only() -> None:
    model = graph("t = Conv(x, w, b) y = Sigmoid(t)", inputs=X, outputs="float[1,4,6,6] y")
    result = optimized(model)
    assert not result.fusions and "cannot end with Sigmoid" in result.refused[0].reason


def test_clip_bounds_must_be_constant_and_in_order() -> None:
    dynamic = graph("t = Conv(x, w, b) y = Clip(t, m)", inputs=X + ", float m", outputs="float[1,4,6,6] y")
    result = optimized(dynamic, target=cpu_kernels())
    assert not result.fusions and "not a constant" in result.refused[0].reason
    body = (
        "l = Constant <value_float = 1.0> () h = Constant <value_float = -1.0> () t = Conv(x, w, b) y = Clip(t, l, h)"
    )
    result = optimized(graph(body, inputs=X, outputs="float[1,4,6,6] y"), target=cpu_kernels())
    assert not result.fusions and "bounds" in result.refused[0].reason


def test_a_bound_that_callers_may_override_is_no_constant() -> None:
    model = graph("t = Conv(x, w, b) y = Clip(t, m)", inputs=X + ", float m", outputs="float[1,4,6,6] y")
    model.graph.initializer.append(numpy_helper.from_array(np.float32(-0.5).reshape(()), "m"))
    assert not optimized(model, target=cpu_kernels()).fusions


def test_attribute_clip_of_old_opsets() -> None:
    model = graph(
        "t = Conv(x, w, b) y = Clip <min = -0.5, max = 0.5> (t)", inputs=X, outputs="float[1,4,6,6] y", opset=9
    )
    result = optimized(model, target=cpu_kernels())
    assert ops(result.model) == ["com.microsoft::FusedConv"]
    assert_same(model, result.model, random_feeds(model))


@pytest.mark.parametrize("opset", range(7, NEWEST + 1))
@pytest.mark.parametrize("target", ["ort-cuda", "portable"])
def test_every_opset(opset: int, target: str) -> None:
    model = graph("t = Conv(x, w, b) y = Relu(t)", inputs=X, outputs="float[1,4,6,6] y", opset=opset)
    # onnxruntime knows opsets up to a release behind the newest onnx; there the result is made, but not run.
    runs = opset <= newest_of_onnxruntime()
    result = optimized(model, target=target, verify=runs)
    fused = {"ort-cuda": "com.microsoft::FusedConv", "portable": "onnxfuse::ConvRelu"}[target]
    assert ops(result.model) == [fused]
    assert next(o.version for o in result.model.opset_import if not o.domain) == opset
    onnx.checker.check_model(result.model)


def newest_of_onnxruntime() -> int:
    import onnxruntime as ort

    for opset in range(NEWEST, 6, -1):
        model = graph("y = Relu(x)", inputs="float[1] x", outputs="float[1] y", opset=opset)
        try:
            ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        except Exception:  # noqa: BLE001 - onnxruntime's exceptions have no common base
            continue
        return opset
    raise AssertionError("no opset runs")


@pytest.mark.parametrize(("dtype", "name"), [("float16", "float16"), ("double", "double")])
def test_dtypes_without_a_kernel_are_left(dtype: str, name: str) -> None:
    model = graph(
        "t = Conv(x, w) y = Relu(t)", inputs=f"{dtype}[1,3,8,8] x, {dtype}[4,3,3,3] w", outputs=f"{dtype}[1,4,6,6] y"
    )
    result = optimized(model)
    assert not result.fusions and name in result.refused[0].reason


@pytest.mark.parametrize("dtype", ["float16", "double", "float"])
def test_a_function_takes_every_dtype(dtype: str) -> None:
    model = graph(
        "t = Conv(x, w) y = Relu(t)", inputs=f"{dtype}[1,3,8,8] x, {dtype}[4,3,3,3] w", outputs=f"{dtype}[1,4,6,6] y"
    )
    runs = dtype != "double"  # onnxruntime's CPU provider has no Conv for it: onnx's own evaluator compares
    result = optimized(model, target="portable", verify=runs)
    assert ops(result.model) == ["onnxfuse::ConvReluNoBias"]
    if runs:
        assert_same(model, result.model, random_feeds(model))
    else:
        a, b = (ReferenceEvaluator(m).run(None, random_feeds(model)) for m in (model, result.model))
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("target", ["ort-cuda", "portable"])
@pytest.mark.parametrize(
    ("x", "w", "y", "attributes"),
    [
        ("1,4,9", "6,4,3", "1,6,7", ""),
        ("1,4,9", "6,4,3", "1,6,9", '<auto_pad = "SAME_UPPER">'),
        ("2,4,9,7", "6,2,3,3", "2,6,5,4", "<group = 2, strides = [2, 2], pads = [1, 1, 1, 1], kernel_shape = [3, 3]>"),
        ("1,4,9,9", "6,4,3,3", "1,6,5,5", "<dilations = [2, 2]>"),
        ("1,4,9,9", "6,4,3,3", "1,6,9,9", '<auto_pad = "SAME_LOWER">'),
        ("1,4,9,9", "6,4,3,3", "1,6,7,7", '<auto_pad = "VALID">'),
        ("1,2,5,6,7", "3,2,3,3,3", "1,3,3,4,5", ""),
    ],
)
def test_every_rank_and_attribute(target: str, x: str, w: str, y: str, attributes: str) -> None:
    model = graph(
        f"t = Conv {attributes} (x, w) y = Relu(t)", inputs=f"float[{x}] x, float[{w}] w", outputs=f"float[{y}] y"
    )
    result = optimized(model, target=target)
    assert len(result.fusions) == 1
    assert_same(model, result.model, random_feeds(model))


def test_both_signatures_of_the_function_in_one_model() -> None:
    body = "t = Conv(x, w, b) u = Relu(t) v = Conv(u, w2) z = Relu(v) p = Conv(z, w2) y = Relu(p)"
    model = graph(body, inputs=X + ", float[4,4,1,1] w2", outputs="float[1,4,6,6] y")
    result = optimized(model, target="portable")
    assert ops(result.model) == ["onnxfuse::ConvRelu", "onnxfuse::ConvReluNoBias", "onnxfuse::ConvReluNoBias"]
    assert sorted(f.name for f in result.model.functions) == ["ConvRelu", "ConvReluNoBias"]
    attributes = {a.name: helper.get_attribute_value(a) for a in result.model.graph.node[1].attribute}
    assert attributes == {"group": 1, "dilations": [1, 1], "strides": [1, 1], "pads": [0] * 4, "kernel_shape": [1, 1]}


def test_an_operator_of_another_domain_is_not_relu() -> None:
    model = graph("t = Conv(x, w, b) y = Relu(t)", inputs=X, outputs="float[1,4,6,6] y")
    model.graph.node[1].domain = "my.domain"
    model.opset_import.append(helper.make_opsetid("my.domain", 1))
    result = optimized(model)
    assert not result.fusions and result.model.SerializeToString() == model.SerializeToString()


def test_the_runtime_that_fuses_by_itself_is_left_alone() -> None:
    model = graph("t = Conv(x, w, b) y = Relu(t)", inputs=X, outputs="float[1,4,6,6] y")
    result = optimized(model, target="ort-cpu")
    assert not result.fusions and ops(result.model) == ["Conv", "Relu"]


def test_sources_and_metadata_are_kept() -> None:
    model = graph("[c1] t = Conv(x, w, b) [r1] y = Relu(t)", inputs=X, outputs="float[1,4,6,6] y")
    model.graph.node[0].metadata_props.add(key="pkg.torch.onnx.name_scopes", value="layer1")
    node = optimized(model).model.graph.node[0]
    assert node.name == "c1"
    metadata = {p.key: p.value for p in node.metadata_props}
    assert metadata["onnxfuse.sources"] == '["c1", "r1"]' and metadata["onnxfuse.rule"] == "conv_relu"
    assert metadata["pkg.torch.onnx.name_scopes"] == "layer1"


def test_an_operator_that_the_model_defines_itself_is_not_taken_for_the_runtimes() -> None:
    """onnxruntime has a kernel of the name, and by the standard the model's own function goes first."""
    m = parser.parse_model("""<ir_version: 9, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[1,4,8,8] x, float[4,4,3,3] w) => (float[1,4,6,6] y, float[1,4,8,8] z)
    { c = Conv(x, w)  y = Relu(c)  z = com.microsoft.FusedConv <activation = "Relu"> (x, w) }
    <domain: "com.microsoft", opset_import: ["" : 17]> FusedConv <activation> (X, W) => (Y) { Y = Neg(X) }""")
    with_weights(m)
    result = optimized(m, target="ort-cuda", verify=False)
    assert ops(result.model)[:2] == ["Conv", "Relu"]
    assert any("the model has another function 'com.microsoft::FusedConv'" in r.reason for r in result.refused)
