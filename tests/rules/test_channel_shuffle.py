"""Channel shuffles that are split: groups, axes, free dims, and what is no shuffle."""

from __future__ import annotations

import examples
import onnx
import pytest
from support import graph, ops

GATHERS = ["Gather", "Gather"]


def shuffle(shape: str, between: str, perm: str, back: str, axis: int = 1, opset: int = 17) -> onnx.ModelProto:
    ranks, sizes = back.count(",") + 1, between.count(",") + 1
    free = ",".join(f"d{i}" for i in range(ranks))
    return graph(
        f"a = Constant <value = int64[{sizes}] {{{between}}}> () b = Constant <value = int64[{ranks}] {{{back}}}> () "
        f"r = Reshape (x, a) t = Transpose <perm = [{perm}]> (r) u = Reshape (t, b) y, z = Split <axis = {axis}> (u)",
        inputs=f"float[{shape}] x",
        outputs=f"float[{free}] y, float[{free.replace('d', 'e')}] z",
        opset=opset,
    )


def made(m: onnx.ModelProto) -> list[str]:
    return [op for op in examples.made(m, rule="channel_shuffle", dims=[{"N": 3, "H": 5}]) if op != "Constant"]


@pytest.mark.parametrize("opset", [9, 13])
@pytest.mark.parametrize("groups", [2, 3, 4, 6])
def test_groups_and_opsets(groups: int, opset: int) -> None:
    each = 12 // groups
    assert made(shuffle("2,12,4,4", f"2,{groups},{each},4,4", "0,2,1,3,4", "2,12,4,4", opset=opset)) == GATHERS


def test_a_free_batch_other_axes_and_ranks() -> None:
    assert made(shuffle("N,12,4,4", "-1,2,6,4,4", "0,2,1,3,4", "-1,12,4,4")) == GATHERS
    assert made(shuffle("N,12,4,4", "-1,2,6,4,4", "0,2,1,3,4", "-1,12,4,4", axis=-3)) == GATHERS
    assert made(shuffle("N,4,4,12", "-1,4,4,2,6", "0,1,2,4,3", "-1,4,4,12", axis=3)) == GATHERS
    assert made(shuffle("2,12", "2,3,4", "0,2,1", "2,12")) == GATHERS


@pytest.mark.parametrize(
    ("shape", "between", "perm", "back", "axis"),
    [
        ("2,12,4,4", "2,2,6,4,4", "0,2,1,3,4", "2,12,4,4", 2),  # split along another axis
        ("2,12,4,4", "2,2,6,4,4", "0,2,1,4,3", "2,12,4,4", 1),
        ("2,12,4,4", "2,2,6,4,4", "0,1,2,4,3", "2,12,4,4", 1),
        ("2,12,4,4", "2,2,6,4,4", "0,2,1,3,4", "2,6,8,4", 1),
        ("2,12,4,4", "2,12,2,2,4", "0,2,1,3,4", "2,12,4,4", 1),
        ("2,12,4,4", "2,12,4,2,2", "0,1,2,4,3", "2,12,4,4", 1),
    ],
)
def test_what_is_no_shuffle_stays(shape: str, between: str, perm: str, back: str, axis: int) -> None:
    m = shuffle(shape, between, perm, back, axis)
    assert made(m) == [op for op in ops(m) if op != "Constant"]


def test_who_else_reads_the_shuffled_value() -> None:
    m = shuffle("2,12,4,4", "2,2,6,4,4", "0,2,1,3,4", "2,12,4,4")
    m.graph.output.append(onnx.helper.make_tensor_value_info("u", onnx.TensorProto.FLOAT, [2, 12, 4, 4]))
    assert made(m) == [op for op in ops(m) if op != "Constant"]


@pytest.mark.parametrize("opset", [9, 13])
@pytest.mark.parametrize("axis", [1, 2])
def test_slices_instead_of_a_split(axis: int, opset: int) -> None:
    ends = [
        f"{name} = Constant <value = int64[1] {{{value}}}> () "
        for name, value in zip("cdef", (0, 2, 9, axis), strict=True)
    ]
    new = "".join(ends) + "y = Slice (u, c, d, f) z = Slice (u, d, e, f)"
    old = " ".join(
        f"{name} = Slice <starts = [{a}], ends = [{b}], axes = [{axis}]> (u)"
        for name, a, b in (("y", 0, 2), ("z", 2, 9))
    )
    m = graph(
        "a = Constant <value = int64[5] {2, 2, 6, 4, 4}> () b = Constant <value = int64[4] {2, 12, 4, 4}> () "
        f"r = Reshape (x, a) t = Transpose <perm = [0, 2, 1, 3, 4]> (r) u = Reshape (t, b) {new if opset > 9 else old}",
        inputs="float[2,12,4,4] x",
        outputs="float[A,B,C,D] y, float[E,F,G,H] z",
        opset=opset,
    )
    assert made(m) == (GATHERS if axis == 1 else [op for op in ops(m) if op != "Constant"])
