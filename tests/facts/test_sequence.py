"""Sequences whose tensors are known, optionals, and what happens where they are not."""

from __future__ import annotations

import pytest
from onnx import parser

from onnxfuse import ir
from onnxfuse.cost import Cost, costs
from onnxfuse.facts import Facts, infer

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g ({}) => (float[] y) {{ {} }}'


def run(body: str, inputs: str = "float[N, 6] x") -> Facts:
    return infer(ir.read(parser.parse_model(HEAD.format(inputs, body))))


def shape(body: str, inputs: str = "float[N, 6] x") -> str:
    value = run(body, inputs)["y"]
    return "?" if value.shape is None else ", ".join(map(str, value.shape))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # columns 0–3 and 4–5
        ("p = Constant<value_ints=[4,2]>() i = Constant<value_int=1>() s = SplitToSequence<axis=1>(x, p) "
         "y = SequenceAt(s, i)", "N, 2"),
        # parts of 4, the last of 2
        ("p = Constant<value_int=4>() i = Constant<value_int=-1>() s = SplitToSequence<axis=1>(x, p) "
         "y = SequenceAt(s, i)", "N, 2"),
        # one by one, with and without the axis
        ("i = Constant<value_int=0>() s = SplitToSequence<axis=1>(x) y = SequenceAt(s, i)", "N, 1"),
        ("i = Constant<value_int=0>() s = SplitToSequence<axis=1, keepdims=0>(x) y = SequenceAt(s, i)", "N"),
        ("s = SplitToSequence<axis=1, keepdims=0>(x) y = ConcatFromSequence<axis=-1, new_axis=1>(s)", "N, 6"),
        ("a = Relu(x) s = SequenceConstruct(x, a, x) y = ConcatFromSequence<axis=1>(s)", "N, 18"),
        ("e = SequenceEmpty() s = SequenceInsert(e, x) t = SequenceInsert(s, x) y = ConcatFromSequence<axis=0>(t)",
         "2·N, 6"),
        # inserted in front, the last erased
        ("a = Transpose(x) z = Constant<value_int=0>() s = SequenceConstruct(x) t = SequenceInsert(s, a, z) "
         "u = SequenceErase(t) y = SequenceAt(u, z)", "6, N"),
        ("o = Optional(x) y = OptionalGetElement(o)", "N, 6"),
    ],
)  # fmt: skip
def test_shapes(body, expected):
    assert shape(body) == expected


def test_a_position_that_is_not_known_leaves_what_all_tensors_share():
    body = "a = Concat<axis=0>(x, x) s = SequenceConstruct(x, a) y = SequenceAt(s, i)"
    assert shape(body, "float[N, 6] x, int64 i") == "y.0, 6"


def test_length():
    found = run("s = SequenceConstruct(x, x) n = SequenceLength(s) y = Relu(x)")
    assert found["n"].data.item() == 2


def test_a_sequence_that_grows_in_a_loop_has_no_list():
    body = (
        "n = Constant<value_int=3>() e = SequenceConstruct(x) "
        "s = Loop (n, , e) <body = b (int64 i, bool k, seq(float) q) => (bool k2, seq(float) r) "
        "{ k2 = Identity(k) r = SequenceInsert(q, x) }> y = ConcatFromSequence<axis=0>(s)"
    )
    found = run(body)
    assert found["s"].items is None
    assert found["y"].shape is None


def test_a_sequence_that_a_loop_only_passes_on_keeps_its_list():
    body = (
        "n = Constant<value_int=3>() e = SequenceConstruct(x, x) "
        "s = Loop (n, , e) <body = b (int64 i, bool k, seq(float) q) => (bool k2, seq(float) r) "
        "{ k2 = Identity(k) r = Identity(q) }> y = Relu(x)"
    )
    loop = next(i for i, node in enumerate(run(body).nodes) if node.op_type == "Loop")
    inner = run(body).bodies[loop, "body"]
    assert len(inner["q"].items) == 2


MAP = (
    "s = SequenceConstruct({}) t = SequenceMap (s) <body = b (float[A, B] e) => (float[A, B] f) "
    "{{ f = Relu(e) }}> y = ConcatFromSequence<axis=0>(t)"
)


def test_map_does_its_body_for_every_tensor():
    # two Relu of 3x6: 36 FLOPs, 144 bytes each way
    found = run(MAP.format("x, x"), "float[3, 6] x")
    assert found["y"].shape == (6, 6)
    cost = dict(zip([n.op_type for n in found.nodes], costs(found), strict=True))
    assert cost["SequenceMap"] == Cost(0, 36, 0, 144, 144)
    assert cost["SequenceConstruct"] == Cost(0, 0, 0, 144, 144)
    assert cost["ConcatFromSequence"] == Cost(0, 0, 0, 144, 144)


def test_map_over_tensors_of_several_shapes_is_unknown():
    found = run("a = Concat<axis=0>(x, x) " + MAP.format("x, a"), "float[3, 6] x")
    assert found["y"].shape is None
    assert costs(found)[2].flops is None
