"""A convolution of two concatenated values: where it becomes a sum, and what stays."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import examples
import onnx
import pytest
from support import graph, ops, optimized, with_weights
from test_executed_graph import executed

FRONT = "a = Conv <pads = [1,1,1,1]> (x, u) b = Conv (x, v)"
WEIGHTS = "float[16,3,3,3] u, float[32,3,1,1] v, float[8,48,3,3] w, float[8] k"
SUM = ["Conv", "Conv", "Conv", "Conv", "Add"]


def network(tail: str, weights: str = WEIGHTS, out: str = "N,8,P,Q") -> onnx.ModelProto:
    return with_weights(graph(f"{FRONT} {tail}", inputs=f"float[N,3,64,64] x, {weights}", outputs=f"float[{out}] y"))


made = partial(examples.made, rule="conv_of_concat")


@pytest.mark.parametrize("axis", [1, -3])
@pytest.mark.parametrize("attrs", ["", "<pads = [1,1,1,1], strides = [2,2]>", '<auto_pad = "SAME_UPPER">'])
def test_a_sum_of_two(axis: int, attrs: str) -> None:
    assert made(network(f"c = Concat <axis = {axis}> (a, b) y = Conv {attrs} (c, w, k)")) == SUM


def test_the_order_of_the_channels_counts() -> None:
    assert made(network("c = Concat <axis = 1> (b, a) y = Conv (c, w)")) == SUM


def test_one_value_in_the_layout_is_enough() -> None:
    text = "t = Tanh (b) e = Exp (t) c = Concat <axis = 1> (a, e) y = Conv (c, w)"
    assert made(network(text)) == ["Conv", "Conv", "Tanh", "Exp", "Conv", "Conv", "Add"]


@pytest.mark.parametrize(
    ("tail", "weights", "out"),
    [
        ("c = Concat <axis = 1> (a, b) z = Relu (c) y0 = Conv (c, w) z0 = ReduceMax (z) y = Add (y0, z0)", WEIGHTS,
         "N,8,P,Q"),
        ("c = Concat <axis = 1> (a, b, a) y = Conv (c, w)", WEIGHTS.replace("8,48", "8,64"), "N,8,P,Q"),
        ("c = Concat <axis = 1> (a, b) y = Conv <group = 2> (c, w)", WEIGHTS.replace("8,48", "8,24"), "N,8,P,Q"),
        ("c = Concat <axis = 1> (a, b) y = Conv (c, w)", WEIGHTS.replace("16,3,3,3", "20,3,3,3").replace("48", "52"),
         "N,8,P,Q"),
        ("c = Concat <axis = 0> (b, b) y = Conv (c, w)", WEIGHTS.replace("8,48", "8,32"), "M,8,P,Q"),
    ],
    ids=["another reader", "three", "groups", "no whole blocks", "batch"],
)  # fmt: skip
def test_what_stays(tail: str, weights: str, out: str) -> None:
    model = network(tail, weights, out)
    assert made(model) == ops(model)


def test_weights_that_a_caller_may_change_stay() -> None:
    model = network("c = Concat <axis = 1> (a, b) y = Conv (c, w)")
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, [8, 48, 3, 3]))
    assert made(model) == ops(model)


def test_images_of_unknown_size_stay() -> None:
    model = network("c = Concat <axis = 1> (a, b) y = Conv (c, w)")
    model.graph.input[0].type.tensor_type.shape.dim[3].dim_param = "W"
    result = optimized(model, rules=["conv_of_concat"], target="ort-cpu")
    assert ops(result.model) == ops(model)


JOINED = "c = Concat <axis = 1> (a, e) d = Conv (c, w) y = Relu (d)"


@pytest.mark.parametrize(
    ("way", "one"),
    [
        ("q = Softplus (b) p = Add (q, n) e = Pad (p, none)", False),
        ("r = Reshape (b, rows) e = Relu (r)", True),
        ("p = MaxPool <kernel_shape = [2,2], strides = [2,2]> (b) r = Resize (p, , twice) e = Relu (r)", True),
    ],
    ids=["handed on", "Reshape", "Resize"],
)
@pytest.mark.parametrize("batch", ["N", "3"])
def test_a_free_batch_keeps_its_name(way: str, one: bool, batch: str, tmp_path: Path) -> None:
    """Behind an operator that the runtime does not see through, it adds with four nodes more; it knows numbers."""
    weights = f"{WEIGHTS}, float[32,1,1] n, int64[8] none, int64[4] rows, float[4] twice"
    inputs = f"float[{batch},3,64,64] x, {weights}"
    model = with_weights(graph(f"{FRONT} {way} {JOINED}", inputs=inputs, outputs=f"float[{batch},8,P,Q] y"))
    for tensor in model.graph.initializer:
        for name, numbers in (("none", [0] * 8), ("rows", [-1, 32, 64, 64]), ("twice", [1, 1, 2, 2])):
            if tensor.name == name:
                tensor.CopyFrom(onnx.helper.make_tensor(name, tensor.data_type, tensor.dims, numbers))
    stays = one and batch == "N"
    assert made(model, dims=({"N": 1}, {"N": 2})).count("Concat") == stays
    check_executed(model, tmp_path)


def check_executed(model: onnx.ModelProto, folder: Path) -> None:
    """Fails where the runtime executes more nodes with the rule than without."""
    onnx.save(model, folder / "before.onnx")
    onnx.save(optimized(model, rules=["conv_of_concat"], target="ort-cpu").model, folder / "after.onnx")
    assert executed(folder / "after.onnx") <= executed(folder / "before.onnx")


def test_inputs_whose_batches_have_two_names_or_none_stay() -> None:
    text = "a = Conv (x, v) b = Conv (x2, v) c = Concat <axis = 1> (a, b) y = Conv (c, w)"
    for names in (("N", "N"), ("N", "M"), (None, None)):
        inputs = "float[N,3,64,64] x, float[M,3,64,64] x2, float[32,3,1,1] v, float[8,64,3,3] w"
        model = with_weights(graph(text, inputs=inputs, outputs="float[A,8,P,Q] y"))
        for info, name in zip(model.graph.input, names, strict=True):
            info.type.tensor_type.shape.dim[0].ClearField("dim_param")
            if name:
                info.type.tensor_type.shape.dim[0].dim_param = name
        assert made(model) == (SUM if names == ("N", "N") else ops(model))


@pytest.mark.parametrize(
    ("behind", "stays"),
    [
        ("y = LeakyRelu (d)", True),
        ("y = Clip (d, zero, six)", True),
        ("y = BatchNormalization (d, k, k, k, vk)", True),
        ("y = Mul (d, f)", True),
        ("y = Add (d, f)", True),
        ("r = Conv (x, z) y = Add (d, r)", True),
        ("r = Conv (x, z) s = Sum (r, d) y = Relu (s)", True),
        ("y = Relu (d)", False),
        ("y = HardSwish (d)", False),
        ("s = Sigmoid (d) y = Mul (d, s)", False),
        ("r = Conv (x, z) y = Mul (d, r)", False),
        ("s = LeakyRelu (d) y = Max (d, s)", False),
    ],
)
def test_what_the_runtime_executes_in_a_convolution_keeps_it(behind: str, stays: bool, tmp_path: Path) -> None:
    weights = WEIGHTS.replace("[8,48,3,3]", "[16,48,1,1]").replace("[8] k", "[16] k, float[16] vk, float[16,1,1] f")
    weights += ", float[16,3,1,1] z, float zero, float six"
    model = network(f"c = Concat <axis = 1> (a, b) d = Conv (c, w) {behind}", weights, out="N,16,P,Q")
    assert ("Concat" in made(model)) is stays
    check_executed(model, tmp_path)


@pytest.mark.parametrize("behind", ["LeakyRelu (d)", "Clip (d, zero, six)", "Add (d, f)"])
def test_with_a_value_from_outside_of_the_layout_it_is_made_all_the_same(behind: str) -> None:
    text = f"e = Softplus (b) c = Concat <axis = 1> (a, e) d = Conv (c, w) y = {behind}"
    assert "Concat" not in made(network(text, f"{WEIGHTS}, float zero, float six, float[8,1,1] f"))


@pytest.mark.parametrize("target", ["ort-cuda", "portable"])
def test_elsewhere_the_sum_is_a_kernel_of_its_own(target: str) -> None:
    model = network("c = Concat <axis = 1> (a, b) y = Conv (c, w)")
    assert made(model, target) == ops(model)
