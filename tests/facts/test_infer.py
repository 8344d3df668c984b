"""The pass as a whole: free dimensions, contents that decide shapes, what is believed, and broken models."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper, parser

from onnxfuse import facts, ir
from onnxfuse.errors import ModelError, UsageError
from onnxfuse.facts import UNKNOWN, Facts, free_dims, infer
from onnxfuse.facts.call import RULES
from onnxfuse.facts.scope import CONTROL


def program(body: str, inputs: str, *, outputs: str = "float y") -> ir.Program:
    text = f'<ir_version: 8, opset_import: ["" : 17, "custom" : 1]> g ({inputs}) => ({outputs}) {{ {body} }}'
    return ir.read(parser.parse_model(text))


def shape(found: Facts, name: str = "y") -> str:
    value = found[name]
    return "?" if value.shape is None else ", ".join(map(str, value.shape))


# Free dimensions -----------------------------------------------------------------------------------------------------


def test_free_dims_and_their_binding() -> None:
    p = program("y = Add(a, b)", "float[N, 3, H] a, float[N, 1, H] b")
    assert facts.free_dims(p) == {"N": [("a", 0), ("b", 0)], "H": [("a", 2), ("b", 2)]}
    assert shape(facts.infer(p)) == "N, 3, H"
    assert shape(facts.infer(p, {"N": 2})) == "2, 3, H"
    assert shape(facts.infer(p, {"N": 2, "a.2": 7})) == "2, 3, 7"


def renamed(p: onnx.ModelProto, *names: tuple[str, int, str]) -> ir.Program:
    """The model with other names of dimensions, which ONNX text cannot say."""
    inputs = {value.name: value for value in p.graph.input}
    for name, axis, text in names:
        inputs[name].type.tensor_type.shape.dim[axis].dim_param = text
    return ir.read(p)


def model(body: str, inputs: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g ({inputs}) => (float y) {{ {body} }}')


def test_a_name_that_is_a_sum() -> None:
    """The mask of a decoder is as long as what Concat makes of cache and new tokens."""
    text = "k = Concat <axis=0> (past, new) y = Add(k, mask)"
    p = renamed(model(text, "float[P] past, float[S] new, float[M] mask"), ("mask", 0, "P + S"))
    assert list(facts.free_dims(p)) == ["P", "S"] and shape(facts.infer(p)) == "P + S"
    assert shape(facts.infer(p, {"P": 7, "S": 3})) == "10"
    for name in ("P + S", "mask.0"):
        with pytest.raises(UsageError, match="the model's are: P, S"):
            facts.infer(p, {name: 10})


@pytest.mark.parametrize(
    ("name", "free", "general", "sized"),
    [
        ("N + 1", ["N"], "N + 1", "6"), ("a+b", ["a", "b"], "a + b", "10"), ("2", ["2"], "'2'", "5"),
        ("1+1", ["1+1"], "'1+1'", "5"), ("１", ["１"], "'１'", "5"), ("-1", ["-1"], "'-1'", "5"),
        ("a+", ["a+"], "'a+'", "5"), ("2*a", ["2*a"], "'2*a'", "5"), ("=", ["="], "'='", "5"),
        ("N+N", ["N"], "2·N", "10"),
    ],
)  # fmt: skip
def test_names_of_dimensions(name: str, free: list[str], general: str, sized: str) -> None:
    p = renamed(model("y = Relu(x)", "float[M] x"), ("x", 0, name))
    assert list(facts.free_dims(p)) == free and shape(facts.infer(p)) == general
    assert shape(facts.infer(p, dict.fromkeys(free, 5))) == sized


def test_a_symbol_that_is_called_as_another_axis() -> None:
    p = renamed(model("y = Add(a, b)", "float[?, 4] a, float[K, 4] b"), ("b", 0, "a.0"))
    assert list(facts.free_dims(p)) == ["a.0#", "a.0"]
    assert shape(facts.infer(p, {"a.0": 3, "a.0#": 1})) == "3, 4"


def test_an_unnamed_axis_is_a_symbol_of_the_input() -> None:
    a = helper.make_tensor_value_info("a", T.FLOAT, [None, "?", -1, 4])
    y = helper.make_tensor_value_info("y", T.FLOAT, None)
    p = ir.read(helper.make_model(helper.make_graph([helper.make_node("Relu", ["a"], ["y"])], "g", [a], [y])))
    assert facts.free_dims(p) == {"a.0": [("a", 0)], "a.1": [("a", 1)], "a.2": [("a", 2)]}
    assert shape(facts.infer(p, {"a.1": 5})) == "a.0, 5, a.2, 4"


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ({"M": 2}, "unknown dimension 'M'; the model's are: N, H"),
        ({"a.1": 2}, "unknown dimension 'a.1'; the model's are: N, H"),
        ({"N": -1}, "dimension 'N' is -1; give a whole number of 0 or more"),
        ({"N": 2.5}, "dimension 'N' is 2.5; give a whole number of 0 or more"),
        ({"N": True}, "dimension 'N' is True; give a whole number of 0 or more"),
        ({"N": 2, "a.0": 3}, "dimension 'N' is given twice, as 2 and as 3"),
    ],
)
def test_wrong_dims_are_a_usage_error(dims: dict[str, int], message: str) -> None:
    p = program("y = Relu(a)", "float[N, 3, H] a")
    with pytest.raises(UsageError) as error:
        facts.infer(p, dims)
    assert str(error.value) == message


# Contents that decide shapes -----------------------------------------------------------------------------------------


def test_the_pattern_of_a_flatten_by_shape() -> None:
    p = program(
        """s = Shape(a) zero = Constant <value_int=0>() n = Gather(s, zero) axes = Constant <value_ints=[0]>()
           n1 = Unsqueeze(n, axes) rest = Constant <value_ints=[-1]>() t = Concat <axis=0> (n1, rest)
           y = Reshape(a, t)""",
        "float[N, 3, H, W] a",
    )
    found = facts.infer(p)
    assert shape(found) == "N, 3·H·W"
    assert [str(d) for d in found["t"].data] == ["N", "-1"]


def test_the_pattern_of_an_expand_to_shape() -> None:
    p = program(
        """s = Shape(a) r = Shape(s) ones = ConstantOfShape <value = int64[1] {1}> (r)
           m = Constant <value_int=-1>() mm = Mul(ones, m) free = Equal(s, mm) t = Where(free, ones, s)
           y = Expand(b, t)""",
        "float[N, 1, H] a, float[5, 1] b",
    )
    found = facts.infer(p)
    assert found["free"].data.tolist() == [False, False, False]  # a dimension is never −1
    assert shape(found) == "N, 5, H"


def test_a_shape_in_floats() -> None:
    p = program(
        """s = Shape <start=2> (a) f = Cast <to=1> (s) two = Constant <value_floats=[2.0]>() g = Mul(f, two)
           h = Floor(g) i = Cast <to=7> (h) nc = Shape <end=2> (a) t = Concat <axis=0> (nc, i)
           y = Resize(a, , , t)""",
        "float[N, 3, H, W] a",
    )
    assert shape(facts.infer(p)) == "N, 3, 2·H, 2·W"
    assert shape(facts.infer(p, {"N": 1, "H": 5, "W": 7})) == "1, 3, 10, 14"


def test_a_count_in_floats() -> None:
    """Anchor points of detectors: Range(0.0, float(H), 1.0), and every other one; in steps of 0.5 it stays unknown."""
    p = program(
        """s = Shape <start=2> (a) f = Cast <to=1> (s) axes = Constant <value_ints=[0]>() h = Squeeze(f, axes)
           zero = Constant <value_float=0.0>() one = Constant <value_float=1.0>() two = Constant <value_float=2.0>()
           half = Constant <value_float=0.5>() y = Range(zero, h, one) z = Range(one, h, two) w = Range(zero, h, half)
           three = Constant <value_float=3.0>() v = Range(zero, three, half)""",
        "float[N, 3, H] a",
        outputs="float y, float z, float w, float v",
    )
    found = facts.infer(p)
    assert [shape(found, name) for name in "yzwv"] == ["H", "H//2", "w.0", "6"]  # ⌈(H − 1)/2⌉
    assert found["v"].data.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]


@pytest.mark.parametrize("op", ["Max", "Min", "Greater", "Less", "Equal", "GreaterOrEqual"])
def test_a_symbol_beside_a_fraction_is_unknown(op: str) -> None:
    p = program(
        f"""s = Shape(a) f = Cast <to=1> (s) half = Constant <value_floats=[0.5]>()
           whole = Constant <value_floats=[2.0]>() y = {op}(f, half) z = {op}(f, whole)""",
        "float[N, N, N] a",
        outputs="float y, float z",
    )
    found = facts.infer(p)
    assert found["y"].data is None
    assert (shape(found), shape(found, "z")) == ("3", "3")


def test_the_largest_image_of_a_batch_in_floats() -> None:
    """As torchvision's detectors pad: 32·⌈max(70, 65)/32⌉, exact in floats, as a sum of whole numbers is."""
    p = program(
        """s = Shape <start=1> (a) f = Cast <to=1> (s) axes = Constant <value_ints=[0]>()
           k = Constant <value_float=32.0>() m = ReduceMax <keepdims=0> (f) d = Div(m, k) u = Ceil(d) v = Mul(u, k)
           i = Cast <to=7> (v) t = Unsqueeze(i, axes) y = ConstantOfShape(t)
           l = ReduceMin <keepdims=0> (f) w = ReduceSum <keepdims=0> (f)""",
        "float[1, H, W] a",
        outputs="float y",
    )
    found = facts.infer(p, {"H": 70, "W": 65})
    assert shape(found) == "96"
    assert found["l"].data == 65 and found["l"].data.dtype == np.float32
    assert found["w"].data == 135


def test_the_larger_of_a_symbol_and_a_whole_float() -> None:
    p = program(
        """s = Shape(a) f = Cast <to=1> (s) k = Constant <value_floats=[7.0]>() m = Max(f, k) i = Cast <to=7> (m)
           y = ConstantOfShape(i)""",
        "float[N] a",
    )
    assert shape(facts.infer(p)) == "max(7, N)"


def test_arithmetic_truncates_toward_zero() -> None:
    p = program(
        """a = Constant <value_ints=[-7, 7, -7]>() b = Constant <value_ints=[2, -2, -2]>() q = Div(a, b)
           f = Constant <value_floats=[-1.5, 2.5]>() i = Cast <to=7> (f) m = Mod(a, b) y = Identity(x)""",
        "float[1] x",
    )
    found = facts.infer(p)
    assert found["q"].data.tolist() == [-3, -3, 3]
    assert found["i"].data.tolist() == [-1, 2]
    assert found["m"].data.tolist() == [1, -1, -1]


def test_an_overflow_is_unknown() -> None:
    p = program(
        """a = Constant <value_ints=[9223372036854775807]>() b = Add(a, a) n = Constant <value_int=300>()
           c = Cast <to=3> (n) y = Identity(x)""",
        "float[1] x",
    )
    found = facts.infer(p)
    assert found["b"].data is None
    assert found["c"].data is None


def test_an_unknown_element_among_known_ones_does_not_hide_them() -> None:
    p = program(
        """k = Constant <value_ints=[64]>() t = Concat <axis=0> (n, k) y = Expand(a, t) z = Reshape(a, t)""",
        "float[1, 64] a, int64[1] n",
        outputs="float y, float z",
    )
    found = facts.infer(p)
    assert [str(d) for d in found["t"].data] == ["'n[0]'", "64"]
    assert shape(found) == "y.0, 64"
    assert shape(found, "z") == "z.0, z.1"  # n may be −1 or 0


def test_constant_means_that_no_caller_can_change_it() -> None:
    w, v = (numpy_helper.from_array(np.ones(2, np.float32), n) for n in "wv")
    nodes = [
        helper.make_node("Add", ["w", "w"], ["ww"]),
        helper.make_node("Add", ["w", "v"], ["wv"]),
        helper.make_node("Shape", ["a"], ["s"]),
        helper.make_node("RandomNormalLike", ["w"], ["r"]),
    ]
    infos = {n: helper.make_tensor_value_info(n, T.FLOAT, [2]) for n in ("a", "v", "r")}
    proto = helper.make_model(helper.make_graph(nodes, "g", [infos["a"], infos["v"]], [infos["r"]], [w, v]))
    found = facts.infer(ir.read(proto))
    assert {n: found[n].constant for n in ("w", "v", "a", "ww", "wv", "s", "r")} == {
        "w": True, "v": False, "a": False, "ww": True, "wv": False, "s": False, "r": False,
    }  # fmt: skip
    assert found["ww"].data.tolist() == [2.0, 2.0]
    assert found["s"].data.tolist() == [2]


# Reading -------------------------------------------------------------------------------------------------------------


def model_with(tensor: onnx.TensorProto) -> onnx.ModelProto:
    a = helper.make_tensor_value_info("a", T.FLOAT, [2, 6])
    y = helper.make_tensor_value_info("y", T.FLOAT, None)
    node = helper.make_node("Reshape", ["a", tensor.name], ["y"])
    return helper.make_model(helper.make_graph([node], "g", [a], [y], [tensor]))


def test_a_skeleton_is_read_by_the_callers_reader() -> None:
    bare = T(name="t", data_type=T.INT64, dims=[2])
    p = ir.read(model_with(bare))
    assert shape(facts.infer(p)) == "y.0, y.1"
    assert shape(facts.infer(p, read=lambda _: np.array([3, 4]))) == "3, 4"


def test_large_tensors_are_not_read() -> None:
    def read(tensor: onnx.TensorProto) -> np.ndarray:
        raise AssertionError(f"{tensor.name} was read")

    p = ir.read(model_with(T(name="t", data_type=T.INT64, dims=[1025])))
    assert facts.infer(p, read=read)["t"].shape == (1025,)


def external(location: str) -> onnx.TensorProto:
    tensor = T(name="t", data_type=T.INT64, dims=[2], data_location=T.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def test_external_data_is_read_from_the_models_folder(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.array([4, 3], "<i8").tobytes())
    assert shape(facts.infer(ir.read(model_with(external("w.bin")), tmp_path))) == "4, 3"
    with pytest.raises(ModelError, match="initializer 't' cannot be read"):
        facts.infer(ir.read(model_with(external("gone.bin")), tmp_path))


def test_a_sparse_initializer_has_its_dense_shape() -> None:
    values = numpy_helper.from_array(np.ones(2, np.float32), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1, 4])), [3, 5])
    y = helper.make_tensor_value_info("y", T.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Relu", ["w"], ["y"])], "g", [], [y], sparse_initializer=[sparse])
    assert shape(facts.infer(ir.read(helper.make_model(graph)))) == "3, 5"


# What is believed ----------------------------------------------------------------------------------------------------


def test_a_declared_shape_never_overrides_a_computed_one() -> None:
    p = program("b = Relu(a) y = Neg(b)", "float[2, 3] a", outputs="int64[9] y")
    assert shape(facts.infer(p)) == "2, 3"
    assert facts.infer(p)["y"].dtype == T.FLOAT


def test_a_declared_shape_is_a_hint_for_what_an_unknown_operator_gives() -> None:
    p = program("y = custom.Thing(a)", "float[N, 3] a", outputs="float16[N, 8] y")
    found = facts.infer(p)
    assert found["y"].dtype == T.FLOAT16
    assert shape(found) == "y.0, 8"  # that this N is the input's N is not believed


def test_names() -> None:
    found = facts.infer(program("y = Relu(a)", "float[2] a"))
    assert found["nothing"] is UNKNOWN
    assert found[""] is UNKNOWN
    assert [n.op_type for n in found.nodes] == ["Relu"]


# Broken models -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": ()},
        {"inputs": ("a", "a", "a", "a", "a")},
        {"inputs": ("nope", "")},
        {"attrs": {}},
        {"attrs": {"axis": "text", "perm": (5,), "kernel_shape": 3, "to": b"\xff", "equation": 1, "axes": (None,)}},
        {"attrs": {"axis": 1 << 40, "kernel_shape": (1 << 40,), "perm": (-1, 0), "num_outputs": 1 << 40}},
    ],
    ids=["no inputs", "too many inputs", "unknown inputs", "no attributes", "odd attributes", "huge attributes"],
)
def test_a_broken_node_is_unknown_and_stops_nothing(change: dict[str, object]) -> None:
    names = {f"{s.domain}:{s.name}".lstrip(":") for s in onnx.defs.get_all_schemas()} | RULES.keys() | CONTROL.keys()
    for name in sorted(names - {"function"}):
        domain, _, op = name.rpartition(":")
        node = ir.Node(op, domain, "", ("a", "a"), ("b", "c"), {"axis": 0})
        p = program("y = Relu(a)", "float[2, 3] a")
        nodes = (dataclasses.replace(node, **change), *p.graph.nodes)  # type: ignore[arg-type]
        found = facts.infer(dataclasses.replace(p, graph=dataclasses.replace(p.graph, nodes=nodes)))
        assert shape(found) == "2, 3"
        assert found["b"].shape is None or all(not isinstance(d, int) or d >= 0 for d in found["b"].shape)


# Size ----------------------------------------------------------------------------------------------------------------


def test_a_long_chain_needs_no_recursion() -> None:
    count = 5_000
    nodes = [helper.make_node("Relu", ["a" if i == 0 else f"v{i - 1}"], [f"v{i}"]) for i in range(count)]
    a = helper.make_tensor_value_info("a", T.FLOAT, ["N", 8])
    y = helper.make_tensor_value_info(f"v{count - 1}", T.FLOAT, None)
    p = ir.read(helper.make_model(helper.make_graph(nodes, "g", [a], [y])))
    assert shape(facts.infer(p), f"v{count - 1}") == "N, 8"


def test_expressions_do_not_grow_without_end() -> None:
    # Every round adds another minimum that cannot be decided.
    lines, previous = [], "a"
    for i in range(150):
        lines.append(
            f"e{i} = Constant <value_ints=[{1000 + i}]>() s{i} = Shape(b{i}) h{i} = Constant <value_ints=[0]>()"
        )
        lines.append(f"t{i} = Slice({previous}, h{i}, s{i}) u{i} = Concat <axis=0> (t{i}, b{i})")
        previous = f"u{i}"
    inputs = "float[N] a, " + ", ".join(f"float[M{i}] b{i}" for i in range(150))
    found = facts.infer(program(" ".join(lines) + f" y = Relu({previous})", inputs))
    (dim,) = found["y"].shape
    assert isinstance(dim, facts.Expr)
    assert len(str(dim)) < 1200


def test_a_very_long_sum_is_one_symbol() -> None:
    """Arithmetic with all its terms takes the square of their number."""
    for count, symbols in ((16, 16), (17, 1), (20_000, 1)):
        head = '<ir_version: 8, opset_import: ["" : 17]>'
        model = parser.parse_model(f"{head} g (float[N] x) => (float[M] y) {{ y = Relu(x) }}")
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = " + ".join(f"a{i}" for i in range(count))
        assert len(free_dims(ir.read(model))) == symbols


def test_a_slice_of_more_axes_than_there_are_is_unknown() -> None:
    """Its starts are an input, whose declared size may be anything."""
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4,5] x, int64[100000000000] s, int64[100000000000] e)
    => (float[a,b] y) { z = Slice(x, s, e)  y = Relu(z) }"""
    facts = infer(ir.read(parser.parse_model(text)))
    assert not any(isinstance(d, int) for d in facts["z"].shape or ())
