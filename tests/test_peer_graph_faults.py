"""Graphs that other optimizers make invalid, larger or another interface of; see test_peer_faults.py for numbers."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import assert_optimizes, assert_same, graph, ops, optimized, parse, random_feeds, run

from onnxfuse import targets
from onnxfuse.errors import ModelError

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g '


def everywhere(model: onnx.ModelProto) -> list[onnx.ModelProto]:
    """The model as every target has it, unverified."""
    return [optimized(model, target=target, verify=False).model for target in targets.names()]


GROWING = [
    "(float[512,512] x) => (float[512,512] y) <int64[2] s = {512, 512}> { c = ConstantOfShape(s)  y = Add(x, c) }",
    "(float[512,512] x) => (float[512,512] y) <float[1,2] a = {1, 2}, int64[2] s = {512, 256}>"
    " { c = Tile(a, s)  y = Add(x, c) }",
    "(float[512,512] x) => (float[512,512] y) <float a = {2}, int64[2] s = {512, 512}>"
    " { c = Expand(a, s)  d = Sqrt(c)  y = Add(x, d) }",
    "(float[2,512,512] x) => (float[2,512,512] y) <int64 z = {0}, int64 n = {512}, int64 o = {1}, int64[1] axis = {1}>"
    " { r = Range(z, n, o)  q = Unsqueeze(r, axis)  l = Less(r, q)  c = Cast <to = 1> (l)  y = Add(x, c) }",
    "(float[2,512,512] x) => (float[2,512,512] y) <int64[2] s = {512, 512}, float one = {1}>"
    " { c = ConstantOfShape <value: tensor = float[1] {3}> (s)  t = Trilu(c)  d = Mul(t, one)  y = Add(x, d) }",
]


@pytest.mark.parametrize("text", GROWING)
def test_the_file_does_not_grow(text: str) -> None:
    """onnxsim: 181 bytes become 41 MB."""
    model = parse(HEAD + text)
    for result in assert_optimizes(model).values():
        assert result.model.ByteSize() < model.ByteSize() + 8192


def test_a_shared_initializer_is_stored_once() -> None:
    """OnnxSlim issue 190: a decoder of 500 MB becomes 2.5 GB, as what was shared is no more."""
    nodes = "".join(f"c{i} = Conv(x, w)  m{i} = Mul(c{i}, s{i})  y{i} = Relu(m{i})  " for i in range(6))
    inputs = "float[1,64,4,4] x, float[64,64,1,1] w, " + ", ".join(f"float[64,1,1] s{i}" for i in range(6))
    outputs = ", ".join(f"float[1,64,4,4] y{i}" for i in range(6))
    model = graph(nodes, inputs=inputs, outputs=outputs)
    rng = np.random.default_rng(0)
    for info in list(model.graph.input)[1:]:
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        model.graph.initializer.append(
            numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), info.name)
        )
        model.graph.input.remove(info)
    for result in assert_optimizes(model).values():
        assert result.model.ByteSize() < model.ByteSize() + 8192


RANDOM = {
    "RandomUniform": "a = RandomUniform <shape = [2, 3]> ()  b = RandomUniform <shape = [2, 3]> ()",
    "RandomNormal": "a = RandomNormal <shape = [2, 3]> ()  b = RandomNormal <shape = [2, 3]> ()",
    "RandomNormalLike": "a = RandomNormalLike(c)  b = RandomNormalLike(c)",
    "RandomUniformLike": "a = RandomUniformLike(c)  b = RandomUniformLike(c)",
    "Bernoulli": "a = Bernoulli(h)  b = Bernoulli(h)",
    "Multinomial": "i = Multinomial <sample_size = 3> (h)  j = Multinomial <sample_size = 3> (h)"
    "  a = Cast <to = 1> (i)  b = Cast <to = 1> (j)",
    "Dropout": "a = Dropout(c, r, t)  b = Dropout(c, r, t)",
}


@pytest.mark.parametrize("op", RANDOM)
def test_random_numbers_stay_random(op: str) -> None:
    """OnnxSlim and graphsurgeon store what the first run gave; two generators are not one either."""
    model = parse(
        HEAD + "(float[2,3] x) => (float[2,3] y) <float[2,3] c = {1, 2, 3, 4, 5, 6}, bool t = {1}, float r = {0.5}, "
        f"float[2,3] h = {{0.5, 0.5, 0.5, 0.5, 0.5, 0.5}}> {{ {RANDOM[op]}  d = Sub(a, b)  y = Add(x, d) }}"
    )
    for made in everywhere(model):
        assert ops(made).count(op) == 2


SHAPES = {
    "a later start": "s = Shape <start = 2> (x)  y = Slice(z, zeros, s, axes)",
    "an end": "s = Shape <start = -3, end = -1> (x)  y = Slice(z, zeros, s, axes)",
    "an empty range": "s = Shape <start = 3, end = 1> (x)  c = Concat <axis = 0> (s, two)"
    "  y = Slice(z, zeros, c, axes)",
    "a negative index": "t = Shape(x)  s = Gather(t, minus)  y = Slice(z, zeros, s, axes)",
}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("dims", ["2,3,4,5", "N,3,4,5", "N,C,H,W"])
def test_parts_of_a_shape(kind: str, dims: str) -> None:
    """OnnxSlim and graphsurgeon take the whole shape; onnxoptimizer fails on negative indices."""
    model = parse(
        HEAD
        + f"(float[{dims}] x, float[9,9] z) => (float[a,b] y) <int64[2] zeros = {{0, 0}}, int64[2] axes = {{0, 1}}, "
        f"int64[2] two = {{2, 7}}, int64[2] minus = {{-1, -3}}> {{ {SHAPES[kind]} }}"
    )
    assert_optimizes(model, dims=[{"N": 2, "C": 3, "H": 4, "W": 5}, {"N": 4, "C": 1, "H": 7, "W": 3}])


def test_an_index_outside_of_a_shape_still_fails() -> None:
    model = parse(
        HEAD + "(float[2,3] x) => (float[2,3] y) <int64 i = {5}>"
        " { s = Shape(x)  g = Gather(s, i)  c = Cast <to = 1> (g)  y = Add(x, c) }"
    )
    for made in everywhere(model):
        with pytest.raises(Exception, match=r"(?i)index|out of"):
            run(made, random_feeds(model))


def test_inputs_that_nothing_needs_any_more_stay() -> None:
    """OnnxSlim: the Shape of an input becomes a constant, the input disappears, and its callers fail."""
    model = graph(
        "s = Shape(x)  c = Cast <to = 1> (s)  d = ReduceSum(c)  y = Add(z, d)",
        inputs="float[2,3] x, float[4] z", outputs="float[4] y",
    )  # fmt: skip
    for result in assert_optimizes(model).values():
        assert [i.name for i in result.model.graph.input] == ["x", "z"]


@pytest.mark.parametrize("given", ["6,2,2", "24", "4,6", "N,4,6", "N,24", "3,N,4", "N,M,4", "2,3,4"])
def test_reshapes_behind_one_another(given: str) -> None:
    """onnxoptimizer: Reshape([6,2,2]) before Reshape([0,-1]) goes, and 0 copies another dimension."""
    middles = [[6, 2, 2], [0, -1], [-1], [-1, 6], [-1, 4], [4, -1], [0, 2, -1], [0, 0, -1], [2, -1, 3], [-1, 2, 3]]
    tested = 0
    for first, second in itertools.product(middles, repeat=2):
        model = helper.make_model(
            helper.make_graph(
                [helper.make_node("Reshape", ["x", "s"], ["t"]), helper.make_node("Reshape", ["t", "r"], ["y"]),
                 helper.make_node("Neg", ["y"], ["z"])],
                "g",
                [helper.make_tensor_value_info("x", 1, [d if d.isalpha() else int(d) for d in given.split(",")])],
                [helper.make_tensor_value_info("z", 1, [f"o{i}" for i in range(len(second))])],
                [numpy_helper.from_array(np.array(v), n) for n, v in (("s", first), ("r", second))],
            ), opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
        )  # fmt: skip
        made = optimized(model, target="ort-cpu", verify=False).model
        for dims in ({"N": 2, "M": 3}, {"N": 6, "M": 1}, {"N": 1, "M": 6}):
            feeds = random_feeds(model, 0, dims)
            try:
                run(model, feeds)
            except Exception:  # noqa: BLE001 - these sizes do not fit
                continue
            tested += 1
            assert_same(model, made, feeds)
    assert tested > 10


def test_two_chains_with_one_shape_constant() -> None:
    """onnxscript issue 2945: the second rewrite changes the first one's constant."""
    model = parse(
        HEAD
        + "(float[2,6] x, float[3,2,8] z) => (float[3,4] y, float[12,4] w) <int64[2] s = {-1, 4}, int64[1] f = {-1}>"
        " { a = Reshape(x, f)  b = Reshape(a, s)  y = Neg(b)  c = Reshape(z, f)  d = Reshape(c, s)  w = Neg(d) }"
    )
    assert_optimizes(model)


STARTS, ENDS, STEPS = (0, 1, -3, -100, 4), (3, -1, 100, 2**63 - 1), (1, 2, 3)


@pytest.mark.parametrize("axes", [(1, 1), (1, -2), (0, 1), (2, 1)])
@pytest.mark.parametrize("given", ["4,10,5", "N,10,5", "N,L,5"])
def test_slices_of_slices(axes: tuple[int, int], given: str) -> None:
    """OnnxSlim issue 277: two that follow one another are merged wrongly."""
    cuts = list(itertools.product(STARTS, ENDS, STEPS))
    rng = np.random.default_rng(10 + sum(axes))
    pairs = [(cuts[i], cuts[j]) for i, j in rng.integers(0, len(cuts), (24, 2))] + [((-2, -9, -2), (1, 3, 1))]
    for first, second in pairs:
        constants = {}
        for i, (cut, axis) in enumerate(zip((first, second), axes, strict=True)):
            constants |= {f"{k}{i}": np.array([v]) for k, v in zip("sepa", (*cut, axis), strict=True)}
        model = helper.make_model(
            helper.make_graph(
                [helper.make_node("Slice", ["x", "s0", "e0", "a0", "p0"], ["t"]),
                 helper.make_node("Slice", ["t", "s1", "e1", "a1", "p1"], ["u"]),
                 helper.make_node("Neg", ["u"], ["y"])],
                "g",
                [helper.make_tensor_value_info("x", 1, [d if d.isalpha() else int(d) for d in given.split(",")])],
                [helper.make_tensor_value_info("y", 1, ["a", "b", "c"])],
                [numpy_helper.from_array(v, k) for k, v in constants.items()],
            ), opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
        )  # fmt: skip
        for dims in ({"N": 4, "L": 10}, {"N": 1, "L": 3}):
            for made in everywhere(model):
                assert_same(model, made, random_feeds(model, 0, dims))


INTERFACES = {
    "an input that is an output": ("(float[2] x) => (float[2] x, float[2] y) { t = Identity(x)  y = Relu(t) }"),
    "two outputs of one value": "(float[2] x) => (float[2] y, float[2] z)"
    " { t = Relu(x)  y = Identity(t)  z = Identity(t) }",
    "equal nodes that are outputs": "(float[2] x) => (float[2] y, float[2] z, float[2] w)"
    " { y = Relu(x)  z = Relu(x)  t = Relu(x)  w = Neg(t) }",
    "an output that others read": "(float[2] x) => (float[2] y, float[2] z)"
    " { y = Identity(x)  t = Transpose(y)  z = Relu(t) }",
    "a known output": "(float[2,3] x) => (int64[2] s, float[2,3] o)"
    " { s = Shape(x)  o = ConstantOfShape <value: tensor = float[1] {1}> (s) }",
    "a constant output": "(float[2] x) => (float[1] c, float[2] y)"
    " { c = Constant <value = float[1] {3}> ()  d = Identity(c)  y = Add(x, d) }",
    "an initializer as output": "(float[2] x) => (float[2] c, float[2] y) <float[2] c = {0, 0}> { y = Add(x, c) }",
    "nothing left": "(float[2] x) => (float[2] y) { t = Identity(x)  u = Dropout(t)  y = Identity(u) }",
    "an empty name": "(float[2,8] x, float[1] h) => (float[2,8] y)"
    ' { t = Clip(x, "", "")  u = Relu(t)  y = Neg(u) }',
    "a part of length zero": "(float[2,3] x) => (float[2,3] y) <float[2,0] e = {}> "
    "{ c = Concat <axis = 1> (e, x)  d = Concat <axis = 1> (c, e)  y = Relu(d) }",
    "a sequence": "(float[2,3] x) => (float[4,3] y) { a = Identity(x)  s = SequenceConstruct(a, x)"
    "  t = Identity(s)  y = ConcatFromSequence <axis = 0> (t) }",
}  # fmt: skip


@pytest.mark.parametrize("kind", INTERFACES)
def test_the_interface_stays(kind: str) -> None:
    """onnxscript renames an input that is an output; onnxsim issue 227: an output of several vanishes."""
    model = parse(HEAD + INTERFACES[kind])
    results = assert_optimizes(model)
    for result in results.values():
        onnx.checker.check_model(result.model, full_check=True)
        assert all(n.name == "" for n in result.model.graph.node if n.op_type == "Relu"), "nameless nodes stay nameless"


def test_free_dims_stay_free() -> None:
    """onnxsim issues 101, 117, 182: a symbolic batch becomes a number, or a Reshape fails for other sizes."""
    model = parse(
        HEAD + "(float[N,3,4,4] x) => (float[N,K] y) <int64 zero = {0}, int64[1] first = {0}, int64[1] rest = {-1}>"
        " { s = Shape(x)  n = Gather(s, zero)  u = Unsqueeze(n, first)  t = Concat <axis = 0> (u, rest)"
        "  r = Relu(x)  y = Reshape(r, t) }"
    )
    for result in assert_optimizes(model, dims=[{"N": n} for n in (1, 2, 3, 7)]).values():
        assert "Shape" not in ops(result.model)


@pytest.mark.parametrize("what", ["w", "s", "b", "v", "one", "perm"])
def test_a_default_that_callers_may_override_is_no_constant(what: str) -> None:
    """onnxsim, OnnxSlim and graphsurgeon take a weight that is an input too for a constant."""
    body = "c = Conv(x, w)  n = BatchNormalization(c, s, b, b, v)  m = Mul(n, one)  r = Reshape(m, perm)  y = Neg(r)"
    constants = {
        "w": np.arange(9.0, dtype=np.float32).reshape(3, 3, 1, 1), "s": np.ones(3, np.float32),
        "b": np.zeros(3, np.float32), "v": np.ones(3, np.float32), "one": np.ones((), np.float32),
        "perm": np.array([1, 3, 4, 4]),
    }  # fmt: skip
    shapes = {k: ",".join(map(str, v.shape)) for k, v in constants.items()}
    inputs = ", ".join(
        f"{'int64' if v.dtype == np.int64 else 'float'}{f'[{shapes[k]}]' if v.ndim else ''} {k}"
        for k, v in constants.items()
        if k == what
    )
    model = onnx.parser.parse_model(HEAD + f"(float[1,3,4,4] x, {inputs}) => (float[a,b,c,d] y) {{ {body} }}")
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in constants.items())
    onnx.checker.check_model(model)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 3, 4, 4)).astype(np.float32)
    other = constants[what] * 2 + 1 if what != "perm" else np.array([1, 3, 2, 8])
    for made in everywhere(model):
        assert list(made.graph.input) == list(model.graph.input)
        assert_same(model, made, {"x": x})
        assert_same(model, made, {"x": x, what: np.asarray(other, constants[what].dtype)})


def test_notes_and_names_stay() -> None:
    """onnxsim, OnnxSlim, onnxoptimizer and graphsurgeon lose doc strings or metadata of model, inputs or nodes."""
    model = parse(HEAD + "(float[2] x) => (float[2] y) { a = Relu(x)  b = Identity(a)  c = Sin(b)  y = Neg(c) }")
    model.doc_string, model.producer_name, model.producer_version = "what it is", "someone", "3"
    model.model_version, model.domain = 5, "org.example"
    helper.set_model_props(model, {"labels": "a,b"})
    model.graph.doc_string, model.graph.input[0].doc_string, model.graph.output[0].doc_string = "g", "in", "out"
    for node in model.graph.node:
        node.name, node.doc_string = f"the {node.op_type}", f"about {node.op_type}"
        node.metadata_props.add(key="source", value=f"layer {node.op_type}")
    for made in everywhere(model):
        assert ops(made) == ["Relu", "Sin", "Neg"]
        kept = {n.name: n for n in made.graph.node}
        for node in model.graph.node:
            if node.op_type in ("Sin", "Neg", "Relu"):
                same = kept[node.name]
                assert same.doc_string == node.doc_string and list(same.metadata_props) == list(node.metadata_props)
        for field in ("doc_string", "producer_name", "producer_version", "model_version", "domain", "metadata_props"):
            assert getattr(made, field) == getattr(model, field)
        assert made.graph.doc_string == "g"
        assert list(made.graph.input) + list(made.graph.output) == list(model.graph.input) + list(model.graph.output)


BRANCHES = {
    "constant condition": "(float[2] x) => (float[2] y) <bool flag = {{1}}> {{ b = If (flag) {0}  y = Add(x, b) }}",
    "outer condition": "(float[2] x, bool flag) => (float[2] y) {{ b = If (flag) {0}  y = Add(x, b) }}",
}  # fmt: skip
BODY = (
    "<then_branch = t () => (float[2] p) { p = Constant <value = float[2] {1, 2}> () },"
    " else_branch = e () => (float[2] q) { q = Constant <value = float[2] {3, 4}> () }>"
)


@pytest.mark.parametrize("kind", BRANCHES)
def test_branches_of_constants(kind: str) -> None:
    """onnxoptimizer crashes, onnxsim issue 452 did."""
    assert_optimizes(parse(HEAD + BRANCHES[kind].format(BODY)))


def test_a_value_that_only_a_body_reads() -> None:
    """The convolution's result is captured by both branches, and by nobody else."""
    model = parse(
        HEAD
        + "(float[1,2,3,3] x, bool flag) => (float[1,2,3,3] y) <float[2,2,1,1] w = {1, 2, 3, 4}, float[2] s = {2, 3},"
        " float[2] o = {0, 1}, float[2] v = {1, 1}> { c = Conv(x, w)  n = BatchNormalization(c, s, o, o, v)"
        "  y = If (flag) <then_branch = t () => (float[1,2,3,3] p) { p = Relu(n) },"
        " else_branch = e () => (float[1,2,3,3] q) { q = Add(c, n) }> }"
    )
    for flag in (True, False):
        for made in everywhere(model):
            assert_same(model, made, random_feeds(model) | {"flag": np.array(flag)})


def test_a_loop_that_captures_values() -> None:
    model = parse(
        HEAD + "(float[2,2] x) => (float[2,2] y) <int64 n = {3}, bool go = {1}, float[2,2] w = {1, 2, 3, 4},"
        " float s = {0.5}> { h = Mul(x, s)  y = Loop (n, go, x) <body = b (int64 i, bool c, float[2,2] a)"
        " => (bool d, float[2,2] r) { d = Identity(c)  m = MatMul(a, w)  k = Mul(m, s)  r = Add(k, h) }> }"
    )
    assert_optimizes(model, seeds=2)


def test_an_operator_of_ones_own_stays() -> None:
    """onnxruntime refuses to load the model; what is around the node is optimized all the same."""
    model = parse(
        '<ir_version: 8, opset_import: ["" : 17, "vendor" : 1]> g (float[2] x) => (float[2] y)'
        " { a = Identity(x)  b = vendor.Own <k = 2> (a)  c = Identity(b)  y = Relu(c) }"
    )
    for made in everywhere(model):
        assert ops(made) == ["vendor::Own", "Relu"]
        assert made.graph.node[0].attribute == model.graph.node[1].attribute


def test_nodes_that_are_not_in_order() -> None:
    """onnxoptimizer issue 18, TASO issue 76: an obscure message. onnxruntime runs such a model; it is sorted here."""
    model = parse(HEAD + "(float[2] x) => (float[2] y) { a = Relu(x)  b = Relu(x)  y = Add(a, b) }")
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    assert ops(optimized(model).model) == ["Relu", "Add"]
    model.graph.node[1].input[0] = "y"
    with pytest.raises(ModelError, match="the nodes form a cycle") as caught:
        optimized(model)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("opset", [1, 5, 6, 7, 9])
def test_old_opsets(opset: int) -> None:
    """OnnxSlim issue 320: a model of an opset below 7."""
    add = helper.make_node("Add", ["b", "c"], ["d"], **({"broadcast": 1} if opset < 7 else {}))
    nodes = [
        helper.make_node("Identity", ["x"], ["a"]),
        helper.make_node("Dropout", ["a"], ["b"], **({"is_test": 1} if opset < 7 else {})),
        add,
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy"]
    zero = numpy_helper.from_array(np.zeros(3, np.float32), "c")
    made = helper.make_graph(nodes, "g", info[:1], info[1:], [zero])
    made.input.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, [3]))
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)
    onnx.checker.check_model(model)
    for result in everywhere(model):
        assert [i.name for i in result.graph.input if i.name != "c"] == ["x"]  # weights are no interface before IR 4
        if opset >= 7:
            assert_same(model, result, random_feeds(model))


def test_three_products_of_one_input_that_are_outputs() -> None:
    """onnxoptimizer's fuse_qkv fails an assertion."""
    model = graph(
        "q = MatMul(x, a)  k = MatMul(x, b)  v = MatMul(x, c)",
        inputs="float[2,4,8] x, float[8,8] a, float[8,8] b, float[8,8] c",
        outputs="float[2,4,8] q, float[2,4,8] k, float[2,4,8] v",
    )
    assert_optimizes(model)


def test_a_convolution_in_the_middle_that_is_an_output() -> None:
    """onnxruntime issue 4110, TensorRT issue 305: a value inside a pattern is a graph output."""
    body = "c = Conv(x, w)  s = Add(c, r)  a = Relu(s)  y = MaxPool <kernel_shape = [2, 2]> (a)"
    shapes = {"c": "1,4,6,6", "s": "1,4,6,6", "a": "1,4,6,6", "y": "1,4,5,5"}
    for count in range(1, 5):
        for names in itertools.combinations(shapes, count):
            model = graph(
                body,
                inputs="float[1,3,6,6] x, float[4,3,1,1] w, float[1,4,6,6] r",
                outputs=", ".join(f"float[{shapes[n]}] {n}" for n in names),
            )
            assert_optimizes(model)


def test_two_convolutions_into_one_sum() -> None:
    """onnxruntime PR 20282: both claim the sum, and a value is lost."""
    for tail in ("y = Relu(s)", "t = Relu(s)  y = Add(t, c)", "t = Relu(s)  y = Mul(d, t)"):
        model = graph(
            f"c = Conv(x, w)  d = Conv(z, v)  s = Add(c, d)  {tail}",
            inputs="float[1,3,6,6] x, float[1,3,6,6] z, float[4,3,1,1] w, float[4,3,1,1] v",
            outputs="float[1,4,6,6] y",
        )
        assert_optimizes(model)


OMITTED = {
    "axes": 'y0 = Slice(x, a, b, "", c)  y = Slice(y0, a, d)',
    "steps": "y0 = Slice(x, a, b, e)  y = Slice(y0, a, d)",
    "nothing": "y0 = Slice(x, a, b, e, c)  y1 = Relu(y0)  y = Slice(y1, a, d, e, c)",
    "all of them": "y0 = Slice(x, a, b)  y1 = Relu(y0)  y = Slice(y1, a, d)",
    "of a constant": 'y0 = Slice(k, a, b, "", c)  y1 = Add(x, k)  y2 = Slice(y1, a, b)  y = Add(y0, y2)',
}


@pytest.mark.parametrize("kind", OMITTED)
@pytest.mark.parametrize("dims", ["5,6", "N,6", "N,M"])
def test_inputs_that_are_left_out(kind: str, dims: str) -> None:
    """graphsurgeon issues 3378 and 3380: an empty name is taken for a value."""
    numbers = ",".join(map(str, range(30)))
    model = parse(
        HEAD
        + f"(float[{dims}] x) => (float[p,q] y) <int64[2] a = {{1, 0}}, int64[2] b = {{4, 5}}, int64[2] c = {{1, 1}},"
        f" int64[2] d = {{3, 100}}, int64[2] e = {{0, 1}}, float[5,6] k = {{{numbers}}}> {{ {OMITTED[kind]} }}"
    )
    assert_optimizes(model, dims=[{"N": 5, "M": 6}])
