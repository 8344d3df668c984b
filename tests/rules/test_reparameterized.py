"""RepVGG and MobileOne: their training forms become the forms that their authors deploy, to the integer.

RepVGG-A0 (Ding et al. 2021, arXiv:2101.03697) and MobileOne-S0 (Vasu et al. 2023, arXiv:2206.04040), as the authors'
code builds them: a block is the sum of convolutions with BatchNormalization, and of a BatchNormalization of its input
where that has the shape of its output; Relu follows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import optimized

import onnxfuse


class Network:
    """A training form in the making, with random weights."""

    def __init__(self) -> None:
        self.rng, self.value, self.channels = np.random.default_rng(0), "x", 3
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, op: str, *inputs: str, **attrs: object) -> str:
        name = f"{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attrs))
        return name

    def weight(self, low: float, high: float, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(self.rng.uniform(low, high, shape).astype(np.float32), name))
        return name

    def norm(self, x: str, channels: int) -> str:
        ranges = ((0.5, 1.5), (-0.1, 0.1), (-0.1, 0.1), (0.5, 1.5))
        return self.add("BatchNormalization", x, *(self.weight(*r, channels) for r in ranges))

    def conv(self, out: int, kernel: int, stride: int, group: int) -> str:
        scale = (6 * group / self.channels) ** 0.5 / kernel
        weight = self.weight(-scale, scale, out, self.channels // group, kernel, kernel)
        window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        return self.norm(self.add("Conv", self.value, weight, group=group, **window), out)

    def block(self, out: int, kernels: list[int], stride: int = 1, group: int = 1) -> None:
        branches = [self.conv(out, kernel, stride, group) for kernel in kernels]
        if out == self.channels and stride == 1:
            branches.append(self.norm(self.value, out))
        total = branches[0]
        for branch in branches[1:]:
            total = self.add("Add", total, branch)
        self.value, self.channels = self.add("Relu", total), out

    def classifier(self) -> onnx.ModelProto:
        flat = self.add("Flatten", self.add("GlobalAveragePool", self.value))
        weights = (self.weight(-0.05, 0.05, 1000, self.channels), self.weight(-0.1, 0.1, 1000))
        y = self.add("Gemm", flat, *weights, transB=1)
        ends = (("x", ["N", 3, 224, 224]), (y, ["N", 1000]))
        x, out = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends)
        graph = helper.make_graph(self.nodes, "g", [x], [out], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def repvgg_a0() -> onnx.ModelProto:
    net = Network()
    for width, depth in ((48, 1), (48, 2), (96, 4), (192, 14), (1280, 1)):
        for i in range(depth):
            net.block(width, [3, 1], stride=1 if i else 2)
    return net.classifier()


def mobileone_s0() -> onnx.ModelProto:
    net = Network()
    net.block(48, [3, 1], stride=2)
    for width, depth in ((48, 2), (128, 8), (256, 10), (1024, 1)):
        for i in range(depth):
            net.block(net.channels, [3, 3, 3, 3, 1], stride=1 if i else 2, group=net.channels)
            net.block(width, [1, 1, 1, 1])
    return net.classifier()


@pytest.mark.parametrize(
    ("make", "macs", "params"), [(repvgg_a0, 1_361_451_008, 8_309_384), (mobileone_s0, 275_110_400, 2_078_504)]
)
@pytest.mark.parametrize("target", ["ort-cuda", "ort-cpu", "portable"])
def test_the_deployed_form(make: Callable[[], onnx.ModelProto], macs: int, params: int, target: str) -> None:
    after = onnxfuse.analyze(optimized(make(), target=target, verify=False).model, dims={"N": 1}).totals
    assert (after.macs, after.params) == (macs, params)


def test_it_computes_the_same() -> None:
    result = optimized(mobileone_s0(), target="ort-cpu")
    assert result.verdict is not None and result.verdict.ok
    assert {f.rule for f in result.fusions} >= {"parallel_convs"}
