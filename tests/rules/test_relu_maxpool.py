"""Relu + MaxPool: the windows that must not exist, and every way to write a pool."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import defs, helper
from support import assert_same, graph, ops, optimized, random_feeds

from onnxfuse.rules._pool import _covered

FUSED = "onnxfuse::ReluMaxPool"


def pool(attributes: str, shape: str = "1,2,9,9", dtype: str = "float", **options: object) -> onnx.ModelProto:
    rank = shape.count(",") + 1
    free = ",".join(f"d{i}" for i in range(rank))
    return graph(
        f"t = Relu(x) y = MaxPool <{attributes}> (t)",
        inputs=f"{dtype}[{shape}] x",
        outputs=f"{dtype}[{free}] y",
        **options,
    )


@pytest.mark.parametrize(
    ("attributes", "shape"),
    [
        ("kernel_shape = [2, 2], strides = [2, 2]", "1,2,9,9"),
        ("kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]", "1,2,9,9"),
        ("kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]", "N,2,H,W"),
        ("kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 1", "1,2,9,9"),
        ('kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_UPPER"', "1,2,9,9"),
        ('kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_LOWER"', "1,2,8,8"),
        ('kernel_shape = [3, 3], auto_pad = "VALID"', "1,2,9,9"),
        ("kernel_shape = [3, 3], dilations = [2, 2]", "1,2,9,9"),
        ("kernel_shape = [2, 2], dilations = [3, 3], pads = [1, 1, 1, 1]", "1,2,9,9"),
        ("kernel_shape = [3], strides = [2]", "2,3,11"),
        ("kernel_shape = [2, 2, 2], strides = [2, 2, 2]", "1,2,6,5,4"),
        ("kernel_shape = [2, 2], storage_order = 1", "1,2,9,9"),
    ],
)
@pytest.mark.parametrize("target", ["ort-cuda", "portable", "ort-cpu"])
def test_every_way_to_write_a_pool(attributes: str, shape: str, target: str) -> None:
    model = pool(attributes, shape)
    result = optimized(model, target=target, rules=["relu_maxpool"])
    feeds = random_feeds(model, dims={"N": 2, "H": 9, "W": 12})
    feeds["x"] -= 1  # mostly negative: whole windows are, too
    assert_same(model, result.model, feeds)
    if "strides" in attributes or target == "portable":  # without a stride the pool makes nothing smaller: no gain
        assert ops(result.model) == [FUSED + "AutoPad" * ("SAME" in attributes)]


@pytest.mark.parametrize("dtype", ["float16", "float"])
def test_every_dtype(dtype: str) -> None:
    model = pool("kernel_shape = [2, 2], strides = [2, 2]", dtype=dtype)
    result = optimized(model)
    assert ops(result.model) == [FUSED]
    assert_same(model, result.model, random_feeds(model))


def test_double_stays() -> None:
    """onnxruntime refuses to load a Clip in double behind a Relu, which it makes one of."""
    model = pool("kernel_shape = [2, 2], strides = [2, 2]", dtype="double")
    assert ops(optimized(model).model) == ["Relu", "MaxPool"]


@pytest.mark.parametrize("opset", [7, 8, 9, 10, 11, 12, 17, 22])
@pytest.mark.parametrize("ir", [3, 8])
def test_every_opset(opset: int, ir: int) -> None:
    model = pool("kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]", opset=opset, ir=ir)
    result = optimized(model)
    assert ops(result.model) == [FUSED] and result.model.ir_version == ir
    names = {a.name for a in result.model.graph.node[0].attribute}
    schema = defs.get_schema("MaxPool", opset)
    assert names <= set(schema.attributes)
    onnx.checker.check_model(result.model)
    assert_same(model, result.model, random_feeds(model))


@pytest.mark.parametrize(
    ("attributes", "shape"),
    [
        # the last window starts behind the input: 4 + 2·2 long, window 2, stride 2: starts at -2, 0, 2, 4
        ("kernel_shape = [2, 2], strides = [2, 2], pads = [0, 0, 2, 2]", "1,1,4,4"),
        ("kernel_shape = [2, 2], strides = [2, 2], pads = [2, 2, 0, 0]", "1,1,4,4"),
        # taps at -1 and 1 of an input that is one element long miss it
        ("kernel_shape = [2, 2], dilations = [2, 2], pads = [1, 1, 1, 1]", "1,1,1,1"),
        # SAME with a dilation, or a stride beyond the kernel: runtimes disagree about the pads
        ('kernel_shape = [2, 2], dilations = [2, 1], strides = [2, 2], auto_pad = "SAME_LOWER"', "1,4,1,8"),
        ('kernel_shape = [2, 2], strides = [3, 3], auto_pad = "SAME_UPPER"', "1,4,9,8"),
        # unknown length, dilated: it may be one
        ("kernel_shape = [2, 2], dilations = [2, 2], pads = [1, 1, 1, 1]", "1,1,H,W"),
        ("kernel_shape = [2, 2], strides = [3, 3], pads = [0, 0, 1, 1], ceil_mode = 1", "1,1,H,W"),
    ],
)
def test_a_window_that_may_lie_in_padding_is_refused(attributes: str, shape: str) -> None:
    # Not run: onnxruntime refuses to load a pad as large as the kernel. The answer must be no all the same.
    result = optimized(pool(attributes, shape), target="portable", verify=False)
    assert not result.fusions and any("padding" in r.reason or "do not fit" in r.reason for r in result.refused)


def windows(size: int, k: int, stride: int, dilation: int, before: int, after: int) -> list[int]:
    """How many taps of each window fall on the input, by the definition of the operator (floor mode)."""
    padded = np.zeros(before + size + after, int)
    padded[before : before + size] = 1
    extent = (k - 1) * dilation + 1
    return [int(padded[s : s + extent : dilation].sum()) for s in range(0, len(padded) - extent + 1, stride)]


def test_the_window_check_against_the_definition() -> None:
    rng = np.random.default_rng(0)
    seen = {True: 0, False: 0}
    for _ in range(2000):
        size, k, stride, dilation = (int(rng.integers(1, n)) for n in (9, 4, 4, 4))
        before, after = (int(v) for v in rng.integers(0, 4, 2))
        counts = windows(size, k, stride, dilation, before, after)
        attrs = {"kernel_shape": [k], "strides": [stride], "dilations": [dilation], "pads": [before, after]}
        expected = all(counts)
        if not counts:
            continue  # the window does not fit: no output at all
        seen[expected] += 1
        assert _covered(0, size, attrs) is expected, (size, attrs)
        if _covered(0, None, attrs):
            assert expected, "an unknown length must not be judged more kindly than a known one"
    assert min(seen.values()) > 100


def test_indices_are_refused() -> None:
    model = graph(
        "t = Relu(x) y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (t)",
        inputs="float[1,2,8,8] x",
        outputs="float[1,2,4,4] y, int64[1,2,4,4] i",
    )
    result = optimized(model)
    assert not result.fusions and "Indices" in result.refused[0].reason


def test_an_activation_that_may_decrease_is_left() -> None:
    model = graph(
        "t = LeakyRelu <alpha = -1.0> (x) y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (t)",
        inputs="float[1,2,8,8] x",
        outputs="float[1,2,4,4] y",
    )
    assert not optimized(model).fusions


def test_the_cpu_runtime_keeps_the_relu_at_its_convolution() -> None:
    body = "c = Conv(x, w) t = Relu(c) y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (t)"
    model = graph(body, inputs="float[1,8,66,66] x, float[8,8,3,3] w", outputs="float[1,8,32,32] y")
    result = optimized(model, target="ort-cpu")
    assert not result.fusions and "no gain" in result.refused[-1].reason


def test_every_attribute_stands_on_the_node() -> None:
    node = optimized(pool("kernel_shape = [2, 2], strides = [2, 2]")).model.graph.node[0]
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    assert attributes == {
        "ceil_mode": 0, "dilations": [1, 1], "kernel_shape": [2, 2], "pads": [0] * 4, "strides": [2, 2],
    }  # fmt: skip
