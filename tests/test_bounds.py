"""Bounds that a graph shows are found, whatever lies between an input and its use, and the data made of them runs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from onnxfuse import bounds, interface, runtime
from onnxfuse import feeds as fd
from onnxfuse.bounds import Range

HEAD = '<ir_version: 9, opset_import: ["" : 20, "com.microsoft" : 1, "l" : 1, "ai.onnx.ml" : 1]> g '


def model(text: str, **weights: tuple[int, ...] | np.ndarray) -> onnx.ModelProto:
    """A model of text; weights: arrays, or shapes of float32 constants."""
    made = parser.parse_model(HEAD + text)
    for name, weight in weights.items():
        array = weight if isinstance(weight, np.ndarray) else np.ones(weight, np.float32)
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    return made


def runs(made: onnx.ModelProto) -> fd.Feeds:
    """Data under which the model runs in onnxruntime, found without a try that fails."""
    session = runtime.cpu_session(made.SerializeToString(), "disabled")
    face = interface.of(made)
    feeds = fd.make(face, next(fd.candidates(face, {})), fd.NORMAL)
    outputs = runtime.run(session, feeds)
    assert all(array.size for array in outputs.values())
    return feeds


# What lies between the input and the Gather → rows of the table, and where the input's values may lie.
WAYS = {
    "directly": ("y = Gather(t, i)", 5, (-5, 5)),
    "through a cast and views": (
        "z = Constant<value_ints = [0]>() a = Cast<to = 6>(i) b = Unsqueeze(a, z) c = Squeeze(b, z) y = Gather(t, c)",
        5,
        (-5, 5),
    ),
    "through a part": ("z = Constant<value_int = 0>() a = Gather(i, z) y = Gather(t, a)", 5, (-5, 5)),
    "plus a constant": ("k = Constant<value_int = 2>() a = Add(k, i) y = Gather(t, a)", 5, (-7, 3)),
    "minus a constant": ("k = Constant<value_int = 7>() a = Sub(i, k) y = Gather(t, a)", 5, (2, 12)),
    "plus one offset a column": ("k = Constant<value_ints = [0, 4, 6]>() a = Add(i, k) y = Gather(t, a)", 8, (-8, 2)),
    "joined with others": ("a = Concat<axis = 0>(i, i) y = Gather(t, a)", 5, (-5, 5)),
    "counted from the end where below 0": (
        "z = Constant<value_int = 0>() n = Constant<value_int = 5>() l = Less(i, z) s = Add(i, n)"
        "a = Where(l, s, i) y = Gather(t, a)",
        5,
        (-5, 5),
    ),
    "in a branch": (
        "c = Constant<value = bool {1}>() y = If(c) <then_branch = a () => (p) { p = Gather(t, i) },"
        "else_branch = b () => (q) { r = Gather(t, i) q = Neg(r) }>",
        5,
        (-5, 5),
    ),
    "in a loop, carried": (
        "m = Constant<value_int = 2>() c = Constant<value = bool {1}>() j, y = Loop(m, c, i) <body = b (int64 k,"
        "bool d, int64[3] v) => (bool e, int64[3] w, float[3,4] o) { e = Identity(d)"
        "w = Identity(v) o = Gather(t, v) }>",
        5,
        (-5, 5),
    ),
    "in a scan": (
        "y = Scan<num_scan_inputs = 1, body = b (int64 v) => (float[4] o) { o = Gather(t, v) }>(i)",
        5,
        (-5, 5),
    ),
    "of a table stored the other way": ("u = Transpose(t) y = Gather<axis = 1>(u, i)", 5, (-5, 5)),
}


@pytest.mark.parametrize("way", WAYS)
def test_indices_into_the_rows_of_a_table(way: str) -> None:
    body, rows, (low, high) = WAYS[way]
    made = model(f"(int64[3] i) => (y) {{ {body} }}", t=(rows, 4))
    (uses,) = interface.of(made).bounds.values()
    assert uses == ((Range(low, high),),)
    values = [runs(made)["i"]]
    face = interface.of(made)
    values += [fd.make(face, {}, fd.NORMAL, seed)["i"] for seed in range(60)]
    seen = set(np.unique(values))
    assert seen == set(range(max(low, 0), high))  # all that are not counted from the end


def test_in_a_local_function_with_the_attribute_of_its_call() -> None:
    text = "(int64[3] i) => (y) { y = l.outer <along = 1> (t, i) }"
    functions = """
    <domain: "l", opset_import: ["" : 20, "l" : 1]>
    outer <along> (t, i) => (o) { o = l.inner <axis: int = @along> (t, i) }
    <domain: "l", opset_import: ["" : 20]> inner <axis> (t, i) => (o) { o = Gather <axis: int = @axis> (t, i) }
    """
    made = model(f"{text} {functions}", t=(2, 6))
    assert interface.of(made).bounds == {"i": ((Range(-6, 6),),)}
    runs(made)


def test_several_uses_are_all_met() -> None:
    made = model("(int64[9] i) => (y) { a = Gather(t, i) b = Gather(u, i) y = Add(a, b) }", t=(7, 4), u=(1, 4))
    assert set(runs(made)["i"]) == {0}


def test_a_bound_of_a_free_dimension() -> None:
    made = model("(float[N,S,8] x, int64[N] last) => (y) { y = Gather<axis = 1>(x, last) }")
    assert interface.of(made).bounds == {"last": ((Range(0, 0, high_of="S"),),)}
    face = interface.of(made)
    values = fd.make(face, {"N": 500, "S": 6}, fd.NORMAL)["last"]
    assert set(values) == set(range(6))
    assert set(fd.make(face, {"N": 500, "S": 1}, fd.NORMAL)["last"]) == {0}


def test_dims_that_the_file_declares_inside_count_as_far_as_they_have_a_size() -> None:
    made = model("(float[N,S] x, int64[N] i) => (y) { a = Exp(x) y = Gather<axis = 1>(a, i) }")
    for dims, expected in (
        (["N", "S"], ((Range(0, 0, high_of="S"),),)),
        (["N", 4], ((Range(-4, 4),),)),
        (["N", "unk__7"], None),
        (["N", "S + other"], None),
        (None, None),
    ):
        del made.graph.value_info[:]
        made.graph.value_info.append(helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, dims))
        assert interface.of(made).bounds.get("i") == expected
        runs(made)


# Inputs, body and weights of a model whose integer inputs → ranges that the operators' definitions give.
OPERATORS = {
    "GatherElements": ("float[4,3] x, int64[4,2] i", "y = GatherElements<axis = 1>(x, i)", {}, [(-3, 3)]),
    "GatherND": ("int64[5,2] i", "y = GatherND(t, i)", {"t": (2, 9)}, [(-2, 2)]),
    "ScatterElements": ("float[4,3] x, int64[1,3] i, float[1,3] u", "y = ScatterElements(x, i, u)", {}, [(-4, 4)]),
    "ScatterND": ("float[4,3] x, int64[2,1] i, float[2,3] u", "y = ScatterND(x, i, u)", {}, [(-4, 4)]),
    "OneHot": (
        "int64[4] i",
        "d = Constant<value_int = 9>() v = Constant<value_floats = [0.0, 1.0]>() y = OneHot(i, d, v)",
        {},
        [(-9, 9)],
    ),
    "LSTM": (
        "float[5,2,3] x, int32[2] lens",
        "y = LSTM<hidden_size = 4>(x, w, r, , lens)",
        {"w": (1, 16, 3), "r": (1, 16, 4)},
        [(1, 6)],
    ),
    "ReverseSequence": ("float[5,2] x, int64[2] lens", "y = ReverseSequence(x, lens)", {}, [(1, 6)]),
    "TopK": ("float[3,4] x, int64[1] k", "y, j = TopK(x, k)", {}, [(1, 5)]),
    "Split": ("float[7,3] x, int64[2] s", "y, z = Split(x, s)", {}, [(3, 4), (4, 5)]),
    "Resize": (
        "float[1,3,8,6] x, int64[4] s",
        'y = Resize<mode = "linear">(x, , , s)',
        {},
        [(1, 2), (3, 4), (8, 17), (6, 13)],
    ),
    "Resize, scales": (
        "float[1,3,8,6] x, float[4] s",
        'y = Resize<mode = "linear">(x, , s)',
        {},
        [(1, 2), (1, 2), (1, 3), (1, 3)],
    ),
    "OneHot, depth": (
        "int64[4] i, float d",
        "v = Constant<value_floats = [0.0, 1.0]>() y = OneHot(i, d, v)",
        {},
        [(1, 9)],
    ),
    "Gather, ids as floats": ("float[4] i", "a = Cast<to = 7>(i) y = Gather(t, a)", {"t": (3, 2)}, [(-3, 3)]),
    "Reshape": ("float[2,3,4] x, int64[2] s", "y = Reshape(x, s)", {}, [(0, 1), (-1, 0)]),
    "Expand": ("float[3,1] x, int64[3] s", "y = Expand(x, s)", {}, [(1, 2), (1, 2), (1, 4)]),
    "Slice": (
        "float[5,6] x, int64[1] e",
        "s = Constant<value_ints = [4]>() a = Constant<value_ints = [1]>() y = Slice(x, s, e, a)",
        {},
        [(5, 7)],
    ),
    "Unsqueeze": ("float[3,4] x, int64[2] a", "y = Unsqueeze(x, a)", {}, [(0, 1), (1, 2)]),
    "Squeeze": ("float[3,1,4,1] x, int64[2] a", "y = Squeeze(x, a)", {}, [(1, 2), (3, 4)]),
    "ReduceSum": ("float[3,4,5] x, int64[2] a", "y = ReduceSum(x, a)", {}, [(0, 1), (1, 2)]),
    "CumSum": ("float[3,4] x, int64 a", "y = CumSum(x, a)", {}, [(-2, 2)]),
    "Div": ("int64[5] x, int64[5] d", "y = Div(x, d)", {}, [(1, 9)]),
    "NegativeLogLikelihoodLoss": ("float[4,3] x, int64[4] c", "y = NegativeLogLikelihoodLoss(x, c)", {}, [(0, 3)]),
    "RoiAlign": ("float[2,1,8,8] x, float[3,4] r, int64[3] b", "y = RoiAlign(x, r, b)", {}, [(0, 2)]),
    "ArrayFeatureExtractor": ("float[2,3] x, int64[4] i", "y = ai.onnx.ml.ArrayFeatureExtractor(x, i)", {}, [(0, 3)]),
    "GatherBlockQuantized": (
        "int64[4] i",
        "y = com.microsoft.GatherBlockQuantized<block_size = 16, bits = 8>(q, i, s)",
        {"q": np.ones((3, 32), np.uint8), "s": (3, 2)},
        [(-3, 3)],
    ),
}


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_an_operator_asks(operator: str) -> None:
    inputs, body, weights, expected = OPERATORS[operator]
    made = model(f"({inputs}) => (y) {{ {body} }}", **weights)
    ((uses,),) = interface.of(made).bounds.values()
    assert [(r.low, r.high) for r in uses] == expected
    runs(made)


def test_embeddings_of_words_positions_and_segments() -> None:
    made = model(
        "(int32[N,S] words, int32[N,S] segments, int32[N,S] places) => (y) { "
        "y, m = com.microsoft.EmbedLayerNormalization(words, segments, w, p, s, g, b, , places) }",
        w=(40, 8), p=(16, 8), s=(1, 8), g=(8,), b=(8,),
    )  # fmt: skip
    found = interface.of(made).bounds
    assert found == {"words": ((Range(0, 40),),), "segments": ((Range(0, 1),),), "places": ((Range(0, 16),),)}
    assert runs(made)["words"].max() > 7


def test_starts_ends_axes_and_steps_that_leave_something() -> None:
    made = model("(float[5,6,7] x, int64[2] s, int64[2] e, int64[2] a, int64[2] p) => (y) { y = Slice(x, s, e, a, p) }")
    assert runs(made)["a"].tolist() == [0, 1]


def test_floats_that_are_no_sizes_are_not_bounded() -> None:
    made = model(
        "(float[4] x, float d) => (y) { a = Div(x, d) b = Add(a, t) y = Expand(b, k) }", t=(4,), k=np.array([2, 4])
    )
    assert interface.of(made).bounds == {}


def test_a_mode_of_training_stays_off() -> None:
    made = model("(float[4] x, bool on) => (y) { r = Constant<value = float {0.5}>() y = Dropout(x, r, on) }")
    assert not runs(made)["on"]
    assert list(fd.switched(interface.of(made), {})) == []


def test_what_is_not_understood_bounds_nothing() -> None:
    made = model("(int64[3] i) => (y) { a = Gather(i, k) b = Mul(a, i) y = Gather(t, b) }", k=np.array(2), t=(5, 4))
    assert interface.of(made).bounds == {}


def test_functions_that_call_each_other_end() -> None:
    calls = [helper.make_node("f", ["a"], ["b"], domain="l"), helper.make_node("f", ["a"], ["c"], domain="l")]
    function = helper.make_function("l", "f", ["a"], ["b"], calls, [helper.make_opsetid("l", 1)])
    made = model("(int64[2] x) => (y) { y = l.f(x) }")
    made.functions.append(function)
    assert bounds.of(made, [("x", (2,), onnx.TensorProto.INT64)]) == {}


def test_numbers_beyond_the_dtype_are_cut() -> None:
    huge = "k = Constant<value_int = -9223372036854775807>() a = Add(i, k) b = Add(a, k) y = Gather(t, b)"
    made = model(f"(int64[3] i) => (y) {{ {huge} }}", t=(5, 4))
    assert (fd.make(interface.of(made), {}, fd.NORMAL)["i"] == 2**31).all()
    small = model("(uint8[3] i) => (y) { a = Cast<to = 7>(i) y = Gather(t, a) }", t=(5, 4))
    assert fd.make(interface.of(small), {}, fd.SIGNED)["i"].max() < 5
