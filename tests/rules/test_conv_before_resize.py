"""1x1 convolutions behind a Resize: where they go before it, what they add up to then, and what stays."""

from __future__ import annotations

from functools import partial

import examples
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from examples import held
from support import ops, optimized, parse, random_feeds, run, with_weights

RULE = "conv_before_resize"
MOVED, STAYS = ["Conv", "Resize"], ["Resize", "Conv"]
X = "float[N,48,H,W] x"
WEIGHTS = "float[4,48,1,1] w, float[4] b"
DOUBLE = "float[4] s = {1, 1, 2, 2}"
DIMS = ({"N": 2, "H": 5, "W": 7}, {"N": 1, "H": 3, "W": 1})
made_whole = partial(examples.made, rule=RULE)
made = partial(made_whole, dims=DIMS, planned={"N": 1, "H": 32, "W": 32})


def network(
    body: str, constants: str = DOUBLE, weights: str = WEIGHTS, inputs: str = X, out: str = "N,4,P,Q", opset: int = 17
) -> onnx.ModelProto:
    """A model with these constants, and others drawn for the weights."""
    dtype = inputs.partition("[")[0]
    text = f"g ({inputs}, {weights}) => ({dtype}[{out}] y) <{constants}> {{ {body} }}"
    return with_weights(parse(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}'))


def scaled(
    attrs: str = "", tail: str = "y = Conv (r, w, b)", constants: str = DOUBLE, **more: object
) -> onnx.ModelProto:
    return network(f"r = Resize {attrs} (x, , s) {tail}", constants, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("opset", [9, 10, 11, 12, 13, 18, 19, 21])
def test_every_version(mode: str, opset: int) -> None:
    kind = "Upsample" if opset < 10 else "Resize"
    inputs = "x, s" if opset < 11 else "x, e, s" if opset < 13 else "x, , s"
    constants = f"{DOUBLE}, float[0] e = {{}}" if opset in (11, 12) else DOUBLE
    model = network(f'r = {kind} <mode = "{mode}"> ({inputs}) y = Conv (r, w, b)', constants, opset=opset)
    assert made(model) == ["Conv", kind]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
)
@pytest.mark.parametrize("scale", ["2, 2", "1.5, 3", "2.3, 1"])
def test_weights_that_sum_to_1(mode: str, coordinates: str, scale: str) -> None:
    attrs = f'<mode = "{mode}", coordinate_transformation_mode = "{coordinates}">'
    model = scaled(attrs, constants=f"float[4] s = {{1, 1, {scale}}}", opset=19)
    assert made(model) == MOVED


@pytest.mark.parametrize("nearest", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_a_copy_of_any_pixel(nearest: str) -> None:
    assert made(scaled(f'<nearest_mode = "{nearest}">')) == MOVED


def test_each_target() -> None:
    for target in ("ort-cpu", "ort-cuda", "portable"):
        assert made(scaled(), target) == MOVED


@pytest.mark.parametrize("size", [[48, 20, 14], [48, 6, 9]], ids=["with batch", "without"])
def test_the_channels_among_the_sizes_are_those_of_the_convolution(size: list[int]) -> None:
    inputs = "float[2,48,5,7] x"
    sizes = f"int64[4] s = {{2, {size[0]}, {size[1]}, {size[2]}}}"
    result = optimized(network("r = Resize (x, , , s) y = Conv (r, w, b)", sizes, inputs=inputs), rules=[RULE]).model
    assert ops(result) == MOVED
    assert [2, 4, *size[1:]] in held(result)
    assert made_whole(network("r = Resize (x, , , s) y = Conv (r, w, b)", sizes, inputs=inputs)) == MOVED


def test_sizes_that_follow_the_input() -> None:
    """As PyTorch writes them: batch and channels of the value, and sizes of another one."""
    body = "h = Shape <end = 2> (x) t = Concat <axis = 0> (h, p) r = Resize (x, , , t) y = Conv (r, w, b)"
    assert made(network(body, "int64[2] p = {40, 33}")) == ["Shape", "Concat", "Conv", "Add", "Resize"]
    same = network(body, "int64[2] p = {40, 33}", "float[48,48,1,1] w, float[48] b", out="N,48,P,Q")
    assert made(same) == ["Shape", "Concat", "Conv", "Resize"]


@pytest.mark.parametrize(
    ("attrs", "constants"),
    [
        ("axes = [2, 3]", "float[2] s = {2, 2}"),
        ("axes = [-1, 1]", "float[2] s = {3, 1}"),
        ("axes = [3]", "float[1] s = {3}"),
    ],
)
def test_axes(attrs: str, constants: str) -> None:
    assert made(scaled(f"<{attrs}>", constants=constants, opset=18)) == MOVED


def test_sizes_of_axes() -> None:
    body = 'r = Resize <axes = [3, 2], keep_aspect_ratio_policy = "not_smaller"> (x, , , s) y = Conv (r, w, b)'
    assert made(network(body, "int64[2] s = {30, 31}", opset=18)) == MOVED


def test_half_precision() -> None:
    assert made(scaled(inputs=X.replace("float", "float16"), weights=WEIGHTS.replace("float", "float16"))) == MOVED


def test_one_and_three_axes() -> None:
    line = scaled(constants="float[3] s = {1, 1, 4}", weights="float[4,48,1] w", inputs="float[N,48,W] x", out="N,4,P",
                  tail="y = Conv (r, w)")  # fmt: skip
    widths = [{"N": 2, "W": 5}, {"N": 1, "W": 1}]
    assert made_whole(line, dims=widths, planned={"N": 1, "W": 999}) == MOVED
    mean = scaled('<mode = "linear">', constants="float[3] s = {1, 1, 4}", weights="float[4,48,1] w",
                  inputs="float[N,48,W] x", out="N,4,P", tail="y = Conv (r, w)")  # fmt: skip
    assert made_whole(mean, dims=widths) == STAYS  # onnxruntime weighs the next channel there, too, with 0
    room = scaled('<mode = "linear">', constants="float[5] s = {1, 1, 2, 2, 2}", weights="float[4,48,1,1,1] w",
                  inputs="float[N,48,3,H,W] x", out="N,4,O,P,Q", tail="y = Conv (r, w)")  # fmt: skip
    assert made(room) == MOVED


@pytest.mark.parametrize(
    ("function", "constants"),
    [
        ("Relu (c)", ""),
        ("LeakyRelu <alpha = -0.5> (c)", ""),
        ("Sigmoid (c)", ""),
        ("HardSwish (c)", ""),
        ("Clip (c, l, h)", ", float l = {-1}, float h = {0.5}"),
    ],
)
def test_a_function_goes_along_with_copies_and_stays_behind_a_mean(function: str, constants: str) -> None:
    tail, kind = f"c = Conv (r, w, b) y = {function}", function.partition(" ")[0]
    assert made(scaled(tail=tail, constants=DOUBLE + constants)) == ["Conv", kind, "Resize"]
    assert made(scaled('<mode = "linear">', tail=tail, constants=DOUBLE + constants)) == ["Conv", "Resize", kind]


def test_a_function_over_channels_stays_behind() -> None:
    tail = "c = Conv (r, w, b) y = Softmax <axis = 1> (c)"
    assert made(scaled(tail=tail)) == ["Conv", "Resize", "Softmax"]
    seen = scaled(tail="y = Conv (r, w, b) z = Relu (y)")
    seen.graph.output.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["N", 4, "P", "Q"]))
    assert made(seen) == ["Conv", "Resize", "Relu"]


TWO = f"{X}, float[N,8,G,V] xb"
BESIDE = "float[4,56,1,1] w, float[4] b"
TWICE = ({"N": 2, "H": 5, "W": 7, "G": 10, "V": 14},)
LARGE = {"N": 1, "H": 32, "W": 32, "G": 64, "V": 64}
made_sum = partial(made_whole, dims=TWICE, planned=LARGE)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("axis", [1, -3])
@pytest.mark.parametrize("order", ["r, xb", "xb, r"])
def test_of_concatenated_values_a_sum(mode: str, axis: int, order: str) -> None:
    tail = f"k = Concat <axis = {axis}> ({order}) c = Conv (k, w, b) y = Relu (c)"
    model = scaled(f'<mode = "{mode}">', tail, weights=BESIDE, inputs=TWO)
    assert made_sum(model) == ["Conv", "Resize", "Conv", "Add", "Relu"]


def test_what_is_not_resized_stays_together() -> None:
    tail = "k = Concat <axis = 1> (xb, r, xb) y = Conv (k, w, b)"
    model = scaled(tail=tail, weights=BESIDE.replace("56", "64"), inputs=TWO)
    assert made_sum(model) == ["Conv", "Resize", "Concat", "Conv", "Add"]


def test_resizes_of_one_kind_are_one() -> None:
    tail = "v = Exp (x) q = Resize (v, , s) k = Concat <axis = 1> ({}) y = Conv (k, w, b)"
    alone = scaled(tail=tail.format("r, q"), weights="float[4,96,1,1] w, float[4] b")
    assert made(alone) == ["Exp", "Concat", "Conv", "Resize"]
    beside = scaled(tail=tail.format("r, xb, q"), weights="float[4,104,1,1] w, float[4] b", inputs=TWO)
    assert made_sum(beside) == ["Exp", "Concat", "Conv", "Resize", "Conv", "Add"]


def test_resizes_of_different_sizes_to_one_are_added() -> None:
    body = "r = Resize (x, , , s) q = Resize (xb, , , s) k = Concat <axis = 1> (r, q) y = Conv (k, w, b)"
    inputs, weights = "float[1,48,8,8] x, float[1,48,4,4] xb", "float[4,96,1,1] w, float[4] b"
    model = network(body, "int64[4] s = {1, 48, 16, 16}", weights, inputs)
    assert made_whole(model) == ["Conv", "Resize", "Conv", "Resize", "Add"]


def test_resizes_of_different_kinds_are_added() -> None:
    tail = 'q = Resize <mode = "linear"> (x, , s) k = Concat <axis = 1> (r, q) y = Conv (k, w, b)'
    model = scaled(tail=tail, weights="float[4,96,1,1] w, float[4] b")
    assert made(model) == ["Conv", "Resize", "Conv", "Resize", "Add"]


def test_one_that_cannot_move_stays_in_the_concatenation() -> None:
    tail = 'q = Resize <mode = "cubic", exclude_outside = 1> (x, , s) k = Concat <axis = 1> (r, q) y = Conv (k, w, b)'
    model = scaled(tail=tail, weights="float[4,96,1,1] w, float[4] b")
    assert sorted(made(model)) == ["Add", "Conv", "Conv", "Resize", "Resize"]


def test_weights_follow_their_channels() -> None:
    """By hand: 5 times the weights 1 … 32, 100 times 4, and 7 more are 2640 + 400 + 7."""
    weights = ", ".join(map(str, (4, *range(1, 33))))
    model = parse(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,32,4,4] x, float[1,1,16,16] z) => (float[1,1,16,16] y)'
        f" <float[4] s = {{1, 1, 4, 4}}, float[1,33,1,1] w = {{{weights}}}, float[1] b = {{7}}>"
        " { r = Resize (x, , s) k = Concat <axis = 1> (z, r) y = Conv (k, w, b) }"
    )
    result = optimized(model, rules=[RULE], target="ort-cpu").model
    assert ops(result) == ["Conv", "Resize", "Conv", "Add"]
    assert [[[[4.0]]]] in held(result) and [[[[float(i)]] for i in range(1, 33)]] in held(result)
    x, z = np.full((1, 32, 4, 4), 5, np.float32), np.full((1, 1, 16, 16), 100, np.float32)
    np.testing.assert_array_equal(run(result, {"x": x, "z": z})[0], np.full((1, 1, 16, 16), 3047, np.float32))


@pytest.mark.parametrize(
    ("attrs", "constants"),
    [
        ('<mode = "linear", antialias = 1>', DOUBLE),
        ('<mode = "cubic", exclude_outside = 1>', DOUBLE),
        ("", "float[4] s = {1, 1, 0.5, 0.5}"),
        ("", "float[4] s = {1, 1, 1, 1}"),
    ],
)  # fmt: skip
def test_what_mixes_otherwise_or_does_not_grow_stays(attrs: str, constants: str) -> None:
    model = scaled(attrs, constants=constants, opset=18)
    assert made(model, dims=[{"N": 1, "H": 8, "W": 8}]) == STAYS


def test_a_resize_of_the_channels_stays() -> None:
    model = scaled(constants="float[4] s = {1, 2, 2, 2}", inputs=X.replace("48", "24"))
    assert made(model) == STAYS
    assert made(scaled(constants="float[4] s = {1, 1.01, 2, 2}")) == STAYS  # 48 channels, too, but others
    tall = network(
        "r = Resize (x, , , s) y = Conv (r, w, b)", "int64[4] s = {2, 48, 16, 16}", inputs="float[2,24,8,8] x"
    )
    assert made_whole(tall) == STAYS
    free = network(
        "r = Resize (x, , , s) y = Conv (r, w, b)", "int64[4] s = {2, 48, 16, 16}", inputs="float[2,C,8,8] x"
    )
    assert made_whole(free, dims=[{"C": 24}], planned={"C": 48}) == STAYS


def test_extrapolation_and_another_center_stay() -> None:
    crop = 'r = Resize <coordinate_transformation_mode = "tf_crop_and_resize", extrapolation_value = 9.0> (x, a, s)'
    roi = f"{DOUBLE}, float[8] a = {{0, 0, -0.2, -0.2, 1, 1, 1.2, 1.2}}"
    assert made(network(f"{crop} y = Conv (r, w, b)", roi)) == STAYS
    center = '<coordinate_transformation_mode = "tf_half_pixel_for_nn"> (x, e, s)'
    moved = network(f"r = Resize {center} y = Conv (r, w, b)", f"{DOUBLE}, float[0] e = {{}}", opset=11)
    assert made(moved) == STAYS


@pytest.mark.parametrize(
    ("tail", "weights"),
    [
        ("y = Conv <strides = [2, 2]> (r, w, b)", WEIGHTS),
        ("y = Conv <pads = [1, 1, 1, 1]> (r, w, b)", WEIGHTS),
        ("y = Conv <pads = [1, 1, 1, 1]> (r, w, b)", WEIGHTS.replace("1,1]", "3,3]")),
        ("y = Conv <group = 2> (r, w, b)", WEIGHTS.replace("[4,48", "[4,24")),
        ("y0 = Conv (r, w, b) z = ReduceMax (r) y = Add (y0, z)", WEIGHTS),
        ("v = Exp (r) y = Conv (v, w, b)", WEIGHTS),
        ("k = Concat <axis = 1> (r, r) y = Conv (k, w, b)", WEIGHTS.replace("48", "96")),
        ("k = Concat <axis = 2> (r, r) y = Conv (k, w, b)", WEIGHTS),
        ("v = Exp (r) k = Concat <axis = 1> (v, v) y = Conv (k, w, b)", WEIGHTS.replace("48", "96")),
    ],
    ids=["strides", "pads", "3x3", "groups", "another reader", "between", "twice", "not channels", "none resized"],
)  # fmt: skip
def test_what_stays(tail: str, weights: str) -> None:
    model = scaled(tail=tail, weights=weights)
    assert made(model) == ops(model)


def test_more_channels_than_before_stay() -> None:
    for outs, moves in ((48, True), (49, False)):
        model = scaled(weights=f"float[{outs},48,1,1] w", tail="y = Conv (r, w)", out=f"N,{outs},P,Q")
        assert made(model) == (MOVED if moves else STAYS)


@pytest.mark.parametrize("name", ["w", "s"])
def test_what_a_caller_may_change_stays(name: str) -> None:
    model = scaled()
    tensor = next(t for t in model.graph.initializer if t.name == name)
    model.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
    assert made(model) == STAYS


def test_a_resize_that_is_an_output_stays() -> None:
    model = scaled()
    model.graph.output.append(onnx.helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, ["N", 48, "P", "Q"]))
    assert made(model) == STAYS


def test_half_precision_is_not_added() -> None:
    half = {"inputs": TWO.replace("float[", "float16["), "weights": BESIDE.replace("float[", "float16[")}
    model = scaled(tail="k = Concat <axis = 1> (r, xb) y = Conv (k, w, b)", **half)
    assert made_sum(model) == ["Resize", "Concat", "Conv"]


def test_little_work_is_no_reason_for_another_kernel_on_the_cpu() -> None:
    """24 multiplications a place: of 32 channels 3/4 are saved where the picture grows to four times its size."""
    for channels, moves in ((32, True), (31, False)):
        more = {"inputs": X.replace("48", str(channels)), "weights": WEIGHTS.replace("48", str(channels))}
        tail = "c = Conv (r, w, b) y = Relu (c)"
        assert made(scaled('<mode = "linear">', tail, **more)) == [*(MOVED if moves else STAYS), "Relu"]
        assert made(scaled('<mode = "linear">', **more)) == MOVED  # of one kernel, one
        assert made(scaled("", tail, **more)) == ["Conv", "Relu", "Resize"]
        beside = {"inputs": TWO.replace("48", str(channels)), "weights": BESIDE.replace("56", str(channels + 8))}
        apart = scaled(tail="k = Concat <axis = 1> (r, xb) y = Conv (k, w, b)", **beside)
        assert (made_sum(apart)[0] == "Conv") is moves


@pytest.mark.parametrize("target", ["ort-cuda", "portable"])
def test_elsewhere_half_the_channels_make_up_for_a_function_apart(target: str) -> None:
    """In bytes, of C channels and M made, with Relu as one kernel: 9·C + 4·M before, C + 14·M after."""
    for outs, moves in ((24, True), (25, False)):
        weights, out = f"float[{outs},48,1,1] w", f"N,{outs},P,Q"
        for tail in ("c = Conv (r, w) y = Relu (c)", "c = Conv (r, w) y = Add (c, c1)"):
            constants = f"{DOUBLE}, float c1 = {{3}}"
            model = scaled('<mode = "linear">', tail, constants, weights=weights, out=out)
            assert (made(model, target)[0] == "Conv") is moves
            assert made(scaled('<mode = "linear">', "y = Conv (r, w)", weights=weights, out=out), target) == MOVED


def test_special_values() -> None:
    """NaN stays NaN, what is finite stays so, and an infinity gives what it gave or NaN."""
    for mode in ("nearest", "linear"):
        for tail in ("y = Conv (r, w, b)", "k = Concat <axis = 1> (r, xb) y = Conv (k, w, b)"):
            more = {"inputs": TWO, "weights": BESIDE} if "k =" in tail else {}
            model = scaled(f'<mode = "{mode}">', tail, **more)
            dims = LARGE if more else {"N": 1, "H": 32, "W": 32}
            result = optimized(model, rules=[RULE], target="ort-cpu", dims=dims, verify=False)
            assert result.fusions
            for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
                options = ort.SessionOptions()
                options.graph_optimization_level = level
                first, second = (
                    ort.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
                    for m in (model, result.model)
                )
                for number in (np.nan, np.inf, -np.inf, 1e36, -0.0):
                    feeds = random_feeds(model, 0, {"N": 1, "H": 5, "W": 6, "G": 10, "V": 12})
                    feeds["x"][0, [3, 20], [1, 2], 2] = number
                    a, b = (s.run(None, feeds)[0] for s in (first, second))
                    assert not (np.isnan(a) & ~np.isnan(b)).any()
                    finite = np.isfinite(a)
                    assert np.isfinite(b[finite]).all()
                    both = finite | (np.isinf(a) & ~np.isnan(b))
                    np.testing.assert_allclose(b[both], a[both], rtol=1e-4, atol=1e-5 * np.abs(a[finite]).max())
