"""The whole way: optimize, quantize with onnxruntime, run; the error is that of the quantized original."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from support import graph, ops, optimized, parse, run, with_weights

from onnxfuse import quantizing, targets
from onnxfuse.errors import UsageError

ROOT = Path(__file__).parent.parent
WAYS = ("dynamic", "QDQ", "QOperator")
STEPS = 64
MASKED = -10.0  # not less: quantize_static takes the range of masked scores for its scale
LAYER = f"""<ir_version: 8, opset_import: ["" : 17]>
g (float[2,{STEPS},16] x, float[MASK,1,{STEPS},{STEPS}] m, float[16,48] w, float[48] b, float[16,16] o)
=> (float[2,{STEPS},16] y)
<int64[3] parts = {{16, 16, 16}}, int64[4] apart = {{0, 0, 4, 4}},
 int64[3] together = {{0, 0, 16}}, float scale = {{0.5}}>
{{ xw = MatMul (x, w)  qkv = Add (xw, b)  q, k, v = Split <axis = 2> (qkv, parts)
  qs = Reshape (q, apart)  qh = Transpose <perm = [0, 2, 1, 3]> (qs)
  ks = Reshape (k, apart)  kh = Transpose <perm = [0, 2, 3, 1]> (ks)
  vs = Reshape (v, apart)  vh = Transpose <perm = [0, 2, 1, 3]> (vs)
  qk = MatMul (qh, kh)  scores = Mul (qk, scale)  masked = Add (scores, m)  p = Softmax <axis = -1> (masked)
  ph = MatMul (p, vh)  ps = Transpose <perm = [0, 2, 1, 3]> (ph)  r = Reshape (ps, together)  y = MatMul (r, o) }}
"""


def layer(masks: int) -> onnx.ModelProto:
    """A layer of self-attention with constant weights."""
    model, rng = parse(LAYER.replace("MASK", str(masks))), np.random.default_rng(0)
    for info in list(model.graph.input)[2:]:
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        data = rng.standard_normal(shape) / np.sqrt(shape[0])
        model.graph.initializer.append(numpy_helper.from_array(data.astype(np.float32), info.name))
        model.graph.input.remove(info)
    return model


def causal() -> onnx.ModelProto:
    """A layer in which no token looks at later ones; the mask is a constant."""
    model = layer(1)
    mask = np.triu(np.full((1, 1, STEPS, STEPS), MASKED, np.float32), 1)
    model.graph.initializer.append(numpy_helper.from_array(mask, "m"))
    del model.graph.input[1]
    return model


def padded() -> onnx.ModelProto:
    """A layer that is told which tokens are padding."""
    return layer(2)


def convolutions() -> onnx.ModelProto:
    """Convolutions with a residual, activations and a pool."""
    return with_weights(
        graph(
            "a = Conv <pads = [1, 1, 1, 1]> (x, w, b) r = Relu (a) c = Conv <pads = [1, 1, 1, 1]> (r, v, b)"
            " s = Add (c, r) t = Relu (s) p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (t) y = Conv (p, v, b)",
            inputs="float[1,8,16,16] x, float[8,8,3,3] w, float[8] b, float[8,8,3,3] v",
            outputs="float[1,8,6,6] y",
        )
    )


MODELS = {"causal": causal, "padded": padded, "convolutions": convolutions}


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Normal data; of the second sequence the last half is padding."""
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    data = {"x": np.random.default_rng(7).standard_normal(shape).astype(np.float32)}
    if len(model.graph.input) > 1:
        data["m"] = np.zeros((2, 1, STEPS, STEPS), np.float32)
        data["m"][1, :, :, STEPS // 2 :] = MASKED
    return data


class Calibration(CalibrationDataReader):
    """The same data once."""

    def __init__(self, data: dict[str, np.ndarray]) -> None:
        self.left = iter([data])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.left, None)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Without the quantizer's advice."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def error(model: onnx.ModelProto, original: onnx.ModelProto, way: str, folder: Path) -> float:
    """Error of the quantized model, relative to what the original gives."""
    onnx.save(model, folder / "model.onnx")
    data = feeds(original)
    if way == "dynamic":
        quantize_dynamic(folder / "model.onnx", folder / "quantized.onnx", weight_type=QuantType.QInt8)
    else:
        quantize_static(
            folder / "model.onnx", folder / "quantized.onnx", Calibration(data), quant_format=QuantFormat[way]
        )
    expected = run(original, data)[0]
    found = run(onnx.load(folder / "quantized.onnx"), data, plain=False)[0]
    return float(np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2)))


@pytest.mark.parametrize("target", targets.names())
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_a_result_quantizes_as_well_as_the_original(name: str, way: str, target: str, tmp_path: Path) -> None:
    original = MODELS[name]()
    result = optimized(original, target=target, then="quantize")
    assert result.quantizable
    before, after = (error(m, original, way, tmp_path) for m in (original, result.model))
    assert after <= 1.1 * before + 0.002
    assert before < 0.05  # else nothing would be shown


def test_it_is_said_which_results_the_quantizer_breaks(tmp_path: Path) -> None:
    from onnxfuse.report.text import optimization

    original = causal()
    result = optimized(original, target="ort-cpu")
    assert "com.microsoft::Attention" in ops(result.model) and not result.quantizable
    assert result.to_json()["quantizable"] is False
    assert "To quantize the result, make it with --then quantize" in optimization(result)
    wrong, right = (error(m, original, "dynamic", tmp_path) for m in (result.model, original))
    assert wrong > 10 * right  # QAttention has no mask


@pytest.mark.parametrize("target", targets.names())
def test_what_the_quantizer_breaks_is_not_emitted(target: str) -> None:
    pool = graph(
        "r = Relu (x) y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r)",
        inputs="float[1,3,8,8] x", outputs="float[1,3,4,4] y",
    )  # fmt: skip
    for model in (causal(), padded(), convolutions(), pool):
        result = optimized(model, target=target, then="quantize")
        assert result.quantizable and quantizing.takes(result.model)
        assert not result.model.functions


@pytest.mark.parametrize(
    ("domain", "op_type", "inputs", "takes"),
    [
        ("com.microsoft", "FusedConv", "xw", False), ("com.microsoft", "Attention", "xwb", True),
        ("com.microsoft", "FastGelu", "x", True), ("onnxfuse", "ReluMaxPool", "x", False), ("", "Conv", "xw", True),
    ],
)  # fmt: skip
def test_what_the_quantizer_takes(domain: str, op_type: str, inputs: str, takes: bool) -> None:
    node = helper.make_node(op_type, list(inputs), ["y"], domain=domain)
    assert quantizing.takes(helper.make_model(helper.make_graph([node], "g", [], []))) == takes


def test_a_mask_is_an_input_of_attention() -> None:
    for inputs, takes in ((["x", "w", "b", "", "", "m"], False), (["x", "w", "b", "", "", ""], True)):
        node = helper.make_node("Attention", inputs, ["y"], domain="com.microsoft")
        assert quantizing.takes(helper.make_model(helper.make_graph([node], "g", [], []))) == takes


def test_unknown_next_steps_are_named() -> None:
    with pytest.raises(UsageError, match="unknown next step 'prune'; known: quantize"):
        optimized(causal(), then="prune")
