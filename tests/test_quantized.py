"""Quantized models: onnxruntime keeps every integer kernel that it made of the original, and the results are equal."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from support import assert_same, graph, ops, optimized, random_feeds, run

from onnxfuse import targets

PADS = "<pads = [1, 1, 1, 1]>"
POOL = "MaxPool <kernel_shape = [2, 2], strides = [2, 2]>"
WEIGHTS = "float[8,8,3,3] w, float[8] b, float[2,2,1,1] tiny, float[2] c, float[8,8] m, float[1,8,1,1] k"
IMAGE, SMALL, ROWS, MAP = "float[1,8,8,8] x", "float[1,2,8,8] x", "float[4,8] x", "1,8,8,8"
# Body, input, output, and the values behind which a quantization stands.
CASES = {
    "relu": (f"a = Conv {PADS} (x, w, b) r = Relu (a) y = Conv {PADS} (r, w, b)", IMAGE, MAP, "xr"),
    "clip": (f"a = Conv {PADS} (x, w, b) r = Clip (a, low, high) y = Conv {PADS} (r, w, b)", IMAGE, MAP, "xr"),
    "sum": (f"a = Conv {PADS} (x, w, b) s = Add (a, x) r = Relu (s) y = Conv {PADS} (r, w, b)", IMAGE, MAP, "xar"),
    "relu_pool": (f"a = Conv {PADS} (x, w, b) r = Relu (a) p = {POOL} (r) y = Conv (p, w, b)", IMAGE, "1,8,2,2", "xp"),
    "pool_relu": (f"a = Conv {PADS} (x, w, b) p = {POOL} (a) r = Relu (p) y = Conv (r, w, b)", IMAGE, "1,8,2,2", "xr"),
    "between": (f"a = Conv {PADS} (x, w, b) r = Relu (a) p = {POOL} (r) y = Conv (p, w, b)", IMAGE, "1,8,2,2", "xrp"),
    "factor": (f"a = Conv {PADS} (x, w, b) f = Mul (a, k) r = Relu (f) y = Conv {PADS} (r, w, b)", IMAGE, MAP, "xafr"),
    "twice": (f"a = Conv {PADS} (x, w, b) d = Conv {PADS} (x, w) y = Add (a, d)", IMAGE, MAP, "xad"),
    "tiny": ("a = Conv (x, tiny, c) r = Relu (a) y = Conv (r, tiny, c)", SMALL, "1,2,8,8", "xr"),
    "gemm": ("a = Gemm <transB = 1> (x, m, b) r = Relu (a) y = Gemm <transB = 1> (r, m, b)", ROWS, "4,8", "xar"),
    "product": ("a = MatMul (x, m) r = Relu (a) y = MatMul (r, m)", ROWS, "4,8", "xar"),
    "moved": (
        f"a = Conv {PADS} (x, w, b) t = Transpose <perm = [0, 2, 3, 1]> (a) r = Relu (t)"
        f" n = Transpose <perm = [0, 3, 1, 2]> (r) y = Conv {PADS} (n, w, b)", IMAGE, MAP, "xrn",
    ),
}  # fmt: skip


def quantized(name: str, dtype: type, *, per_channel: bool) -> onnx.ModelProto:
    """A case with QuantizeLinear and DequantizeLinear behind the named values, its output, and before its weights."""
    body, source, shape, places = CASES[name]
    model = graph(
        f"low = Constant <value_float = 0.0> () high = Constant <value_float = 6.0> () {body}",
        inputs=f"{source}, {WEIGHTS}", outputs=f"float[{shape}] y",
    )  # fmt: skip
    rng = np.random.default_rng(0)
    nodes, weights = [], [*model.graph.input][1:]

    def constant(name: str, array: np.ndarray) -> str:
        model.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def rounded(value: str, named: str) -> list[onnx.NodeProto]:
        # r, p and n stand behind a Relu, which goes where nothing below 0 can be said anyway
        zero = np.iinfo(dtype).min + (0 if value in "rpn" else 128)
        scale, point = constant(f"{value}_s", np.float32(0.05)), constant(f"{value}_z", np.array(zero, dtype))
        return [
            helper.make_node("QuantizeLinear", [value, scale, point], [f"{value}_q"]),
            helper.make_node("DequantizeLinear", [f"{value}_q", scale, point], [named]),
        ]

    for info in weights:
        model.graph.input.remove(info)
        dims = [d.dim_value for d in info.type.tensor_type.shape.dim]
        if info.name in ("b", "c"):  # int32, whose scale is the product of those of data and weight
            array, scale, axis = rng.integers(-2000, 2000, dims).astype(np.int32), np.float32(0.001), {}
        else:
            array, scale, axis = rng.integers(-127, 128, dims).astype(np.int8), np.float32(0.02), {}
        if per_channel and info.name != "k":
            scale, axis = np.full(dims[0], scale, np.float32), {"axis": 1 if name == "product" else 0}
        parts = [constant(f"{info.name}_q", array), constant(f"{info.name}_s", scale)]
        if array.dtype == np.int8:
            parts.append(constant(f"{info.name}_z", np.zeros(np.shape(scale), np.int8)))
        nodes.append(helper.make_node("DequantizeLinear", parts, [info.name], **axis))
    todo = {p: f"{p}_dq" for p in places}
    nodes += rounded("x", "x_dq")
    for node in model.graph.node:
        node.input[:] = [todo.get(v, v) for v in node.input]
        node.output[:] = ["y_f" if v == "y" else v for v in node.output]
        nodes.append(node)
        nodes += [n for v in node.output if v in places for n in rounded(v, todo[v])]
    nodes += rounded("y_f", "y")
    read = {v for node in nodes for v in node.input}
    kept = [n for n in nodes if any(v in read or v == "y" for v in n.output)]
    made = helper.make_graph(kept, "g", model.graph.input, model.graph.output, model.graph.initializer)
    read = {v for node in kept for v in node.input}
    for tensor in [t for t in made.initializer if t.name not in read]:
        made.initializer.remove(tensor)
    result = helper.make_model(made, opset_imports=model.opset_import, ir_version=8)
    onnx.checker.check_model(result)
    return result


def kernels(model: onnx.ModelProto, folder: Path) -> Counter[str]:
    """Operators of the graph that onnxruntime executes on the CPU at its default level."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "executed.onnx")
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(folder / "executed.onnx").graph.node)


def integer(found: Counter[str]) -> Counter[str]:
    """Those with integers inside."""
    return Counter({name: n for name, n in found.items() if name.startswith(("QLinear", "QGemm", "MatMulInteger"))})


@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8], ids=lambda t: t.__name__)
@pytest.mark.parametrize("name", CASES)
def test_every_integer_kernel_stays(name: str, dtype: type, per_channel: bool, tmp_path: Path) -> None:
    model = quantized(name, dtype, per_channel=per_channel)
    before = kernels(model, tmp_path)
    assert integer(before), before  # else nothing would be shown
    feeds = random_feeds(model)
    expected = run(model, feeds, plain=False)[0]
    for target in targets.names():
        result = optimized(model, target=target, verify=False).model
        after = kernels(result, tmp_path)
        assert not integer(before) - integer(after), (target, ops(result))
        assert after.total() <= before.total(), (target, before, after)
        np.testing.assert_array_equal(run(result, feeds, plain=False)[0], expected, err_msg=target)
        assert_same(model, result, feeds)


def test_a_convolution_that_is_not_quantized_behind_is_fused() -> None:
    model = quantized("relu", np.uint8, per_channel=False)
    for node in [n for n in model.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == "r"]:
        model.graph.node.remove(node)
    for node in [n for n in model.graph.node if n.output[0] == "r_dq"]:
        model.graph.node.remove(node)
    for node in model.graph.node:
        node.input[:] = ["r" if v == "r_dq" else v for v in node.input]
    result = optimized(model, target="ort-cuda")
    assert "com.microsoft::FusedConv" in ops(result.model)


def test_the_reason_is_told() -> None:
    result = optimized(quantized("relu", np.uint8, per_channel=False), target="ort-cuda")
    assert any(r.rule == "conv_relu" and "may run with integers" in r.reason for r in result.refused)
