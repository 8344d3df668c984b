"""Convolution of convolution: windows, strides, pads, groups, biases; and where two stay two."""

from __future__ import annotations

from functools import partial

import examples
import onnx
import pytest
from support import graph, ops, optimized, with_weights

RULE = "conv_of_conv"


def model(
    first: str, then: str, *, ins: int = 8, first_attrs: str = "", then_attrs: str = "", dtype: str = "float"
) -> onnx.ModelProto:
    """Two convolutions; `first` and `then` are the shapes of their weights, with "+" in front where a bias is added."""
    shapes = [s.lstrip("+") for s in (first, then)]
    biases = ["b", "c"]
    given = ["", ""]
    weights = [f"{dtype}[{shapes[0]}] w", f"{dtype}[{shapes[1]}] v"]
    for i, spec in enumerate((first, then)):
        if spec.startswith("+"):
            weights.append(f"{dtype}[{shapes[i].split(',')[0]}] {biases[i]}")
            given[i] = f", {biases[i]}"
    return with_weights(
        graph(
            f"m = Conv {first_attrs} (x, w{given[0]}) y = Conv {then_attrs} (m, v{given[1]})",
            inputs=f"{dtype}[N,{ins},9,8] x, {', '.join(weights)}",
            outputs=f"{dtype}[N,M,H,W] y",
        )
    )


made = partial(examples.made, rule=RULE, dims=[{"N": 1}, {"N": 2}])


@pytest.mark.parametrize("first", ["8,8,1,1", "+8,8,1,1"])
@pytest.mark.parametrize("then", ["8,8,1,1", "+4,8,3,3", "+4,8,1,3", "2,8,4,2"])
def test_a_pointwise_one_goes_into_the_next(first: str, then: str) -> None:
    assert made(model(first, then)) == ["Conv"]


@pytest.mark.parametrize("target", ["ort-cpu", "ort-cuda", "portable"])
def test_on_every_target(target: str) -> None:
    assert made(model("8,8,1,1", "8,8,1,1"), target) == ["Conv"]


@pytest.mark.parametrize(
    ("first_attrs", "then_attrs"),
    [
        ("<pads = [1, 1, 1, 1]>", ""),
        ("<pads = [0, 1, 2, 1]>", "<strides = [2, 1]>"),
        ("<strides = [2, 1]>", "<strides = [1, 2]>"),
        ("<dilations = [2, 1]>", "<strides = [2, 2]>"),
        ('<auto_pad = "SAME_UPPER">', ""),
    ],
)
def test_a_pointwise_one_behind_another(first_attrs: str, then_attrs: str) -> None:
    m = model("+16,2,3,3", "+4,16,1,1", ins=2, first_attrs=first_attrs, then_attrs=then_attrs)
    assert made(m) == ["Conv"]


@pytest.mark.parametrize(
    ("first_attrs", "then_attrs"),
    [
        ("", "<strides = [2, 2], dilations = [2, 1]>"),
        ("<strides = [2, 2]>", "<strides = [1, 2]>"),
        ("<strides = [2, 1]>", "<dilations = [1, 3]>"),
    ],
)
def test_strides_and_dilations_of_both(first_attrs: str, then_attrs: str) -> None:
    assert made(model("+8,4,1,1", "+2,8,2,2", ins=4, first_attrs=first_attrs, then_attrs=then_attrs)) == ["Conv"]


def test_windows_along_different_axes() -> None:
    assert made(model("+16,1,3,1", "+1,16,1,3", ins=1)) == ["Conv"]


@pytest.mark.parametrize("pads", ["<pads = [1, 1, 1, 1]>", "<pads = [0, 2, 1, 0]>", '<auto_pad = "SAME_LOWER">'])
def test_pads_of_the_second_where_the_first_gives_0_there(pads: str) -> None:
    assert made(model("8,8,1,1", "+8,8,3,3", then_attrs=pads)) == ["Conv"]


@pytest.mark.parametrize(
    ("first", "then", "groups"),
    [
        ("+8,4,1,1", "+8,4,1,1", (2, 2)),
        ("8,2,1,1", "+8,4,1,1", (4, 2)),
        ("+8,4,1,1", "8,2,1,1", (2, 4)),
        ("+8,1,1,1", "+4,8,1,1", (8, 1)),
        ("8,8,1,1", "8,1,1,1", (1, 8)),
        ("+8,1,3,3", "+8,1,1,1", (8, 8)),
    ],
)
def test_groups(first: str, then: str, groups: tuple[int, int]) -> None:
    m = model(first, then, first_attrs=f"<group = {groups[0]}>", then_attrs=f"<group = {groups[1]}>")
    assert made(m) == ["Conv"]
    (attrs,) = [{a.name: a for a in n.attribute} for n in optimized(m, rules=[RULE], target="ort-cpu").model.graph.node]
    assert attrs["group"].i == min(groups)


def test_three_become_one() -> None:
    m = with_weights(
        graph(
            "m = Conv(x, w) n = Conv(m, v, b) y = Conv(n, u)",
            inputs="float[N,4,5] x, float[4,4,1] w, float[4,4,3] v, float[4] b, float[2,4,1] u",
            outputs="float[N,2,3] y",
        )
    )
    assert made(m) == ["Conv"]


@pytest.mark.parametrize(
    ("first", "then", "first_attrs", "then_attrs"),
    [
        ("+8,8,1,1", "8,8,3,3", "", "<pads = [1, 1, 1, 1]>"),
        ("8,8,1,1", "8,8,3,3", "<strides = [2, 2]>", "<pads = [1, 1, 1, 1]>"),
        ("8,8,1,1", "8,8,3,3", "<pads = [1, 1, 1, 1]>", "<pads = [1, 1, 1, 1]>"),
        ("8,8,3,3", "8,8,1,1", "", "<pads = [1, 1, 1, 1]>"),
        ("8,8,2,2", "8,8,2,2", "", ""),
        ("2,8,1,1", "8,2,1,1", "", ""),
        ("8,1,3,3", "8,8,1,1", "<group = 8>", ""),
        ("8,8,1,1", "8,1,3,3", "", "<group = 8>"),
        ("24,1,1,1", "6,4,1,1", "<group = 8>", "<group = 6>"),  # each output reads 2 of 8 channels; as one, 4
    ],
)
def test_near_misses_stay(first: str, then: str, first_attrs: str, then_attrs: str) -> None:
    m = model(first, then, first_attrs=first_attrs, then_attrs=then_attrs)
    assert made(m) == ["Conv", "Conv"]


def test_float16_stays() -> None:
    assert made(model("8,8,1,1", "8,8,1,1", dtype="float16")) == ["Conv", "Conv"]


def test_other_readers_and_other_weights_stay() -> None:
    for body in ("m = Conv(x, w) y = Conv(m, v) z = Relu(m)", "m = Conv(x, w) y = Conv(m, xv) z = Relu(y)"):
        weight = "xv" if "xv" in body else "v"
        m = with_weights(
            graph(
                body,
                inputs=f"float[N,8,4,4] x, float[8,8,1,1] w, float[8,8,1,1] {weight}",
                outputs="float[N,8,4,4] y, float[N,8,4,4] z",
            )
        )
        assert made(m) == ops(m)


def test_weights_that_overflow_stay() -> None:
    m = model("8,8,1,1", "8,8,1,1")
    for weight in m.graph.initializer:
        data = onnx.numpy_helper.to_array(weight) * 1e25
        weight.CopyFrom(onnx.numpy_helper.from_array(data, weight.name))
    assert ops(optimized(m, rules=[RULE], target="ort-cpu").model) == ["Conv", "Conv"]
