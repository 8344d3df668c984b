"""Builds the models of this folder: small networks with seeded random weights, the same bytes every time.

python models/build.py [FOLDER]
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Network:
    """A graph under construction; every method adds a node and returns the name of its output."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def weight(self, name: str, *shape: int, scale: float | None = None) -> str:
        fan_in = math.prod(shape[1:]) if len(shape) > 1 else 1
        # Multiples of 2^-10: exact in float32, so the file does not depend on how a platform rounds.
        values = np.rint(self.rng.uniform(-1, 1, shape) * (scale or math.sqrt(3 / fan_in)) * 1024) / 1024
        self.weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def conv(self, x: str, channels: tuple[int, int], kernel: int, stride: int = 1) -> str:
        k = len(self.nodes)
        w = self.weight(f"w{k}", channels[1], channels[0], kernel, kernel)
        b = self.weight(f"b{k}", channels[1], scale=0.1)
        pad = kernel // 2
        return self.add("Conv", x, w, b, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def model(self, x: list[int | str], y: str, shape: list[int | str]) -> onnx.ModelProto:
        self.nodes[-1].output[0] = y
        graph = helper.make_graph(
            self.nodes,
            "onnxfuse example",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, shape)],
            self.weights,
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="onnxfuse models/build.py"
        )


def conv_relu_maxpool_conv() -> onnx.ModelProto:
    """The example of the source text: Conv → Relu → MaxPool → Conv, where two fusions want the one Relu."""
    net = Network(1)
    x = net.add("Relu", net.conv("x", (3, 16), 3))
    x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    net.conv(x, (16, 32), 3)
    return net.model([1, 3, 64, 64], "y", [1, 32, 32, 32])


def small_resnet() -> onnx.ModelProto:
    """A residual network with a free batch: a stem, four basic blocks, a classifier."""
    net = Network(2)
    x = net.add("Relu", net.conv("x", (3, 16), 7, stride=2))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for cin, cout, stride in ((16, 16, 1), (16, 16, 1), (16, 32, 2), (32, 32, 1)):
        skip = x if stride == 1 and cin == cout else net.conv(x, (cin, cout), 1, stride)
        y = net.add("Relu", net.conv(x, (cin, cout), 3, stride))
        x = net.add("Relu", net.add("Add", net.conv(y, (cout, cout), 3), skip))
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    net.add("Gemm", x, net.weight("fc", 10, 32), net.weight("fc_b", 10, scale=0.1), transB=1)
    return net.model(["N", 3, 112, 112], "y", ["N", 10])


def preactivation() -> onnx.ModelProto:
    """Relu → MaxPool without a convolution before it: batch normalization first, as in pre-activation networks."""
    net = Network(3)
    x = net.conv("x", (3, 16), 3)
    for name in ("scale", "shift", "mean"):
        net.weight(name, 16, scale=0.5)
    net.weights.append(numpy_helper.from_array(np.full(16, 0.75, np.float32), "variance"))
    x = net.add("Relu", net.add("BatchNormalization", x, "scale", "shift", "mean", "variance"))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    net.conv(x, (16, 16), 3)
    return net.model(["N", 3, 64, 64], "y", ["N", 16, 32, 32])


MODELS = (conv_relu_maxpool_conv, small_resnet, preactivation)


def build(folder: Path) -> list[Path]:
    """Write every model into the folder."""
    paths = []
    for make in MODELS:
        model = make()
        onnx.checker.check_model(model, full_check=True)
        paths.append(folder / f"{make.__name__}.onnx")
        paths[-1].write_bytes(model.SerializeToString(deterministic=True))
    return paths


if __name__ == "__main__":
    for path in build(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent):
        print(f"{path} {path.stat().st_size:,} bytes")
