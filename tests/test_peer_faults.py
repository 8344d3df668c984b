"""Graphs on which other optimizers give wrong numbers; ours must not, whatever it makes of them.

Each test covers the kind of a fault: every shape of a constant against every axis, every pair of limits, every form of
a pool. Nothing is verified by the optimizer here: its rules alone must be right, on every target.
"""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import assert_optimizes, assert_same, graph, ops, optimized, parse, run

from onnxfuse import targets

RNG = np.random.default_rng(7)
ALL_SIZES_EQUAL = [
    (), (1,), (8,), (8, 1), (8, 8), (8, 1, 1), (1, 8, 1), (8, 1, 1, 1), (1, 8, 1, 1), (1, 1, 8, 1), (1, 1, 1, 8),
    (8, 8, 1, 1), (1, 8, 8, 8), (1, 1, 1, 1, 1), (1, 8, 1, 1, 1),
]  # fmt: skip


def constant(name: str, *shape: int, dtype: type = np.float32) -> onnx.TensorProto:
    data = np.asarray(RNG.standard_normal(shape) + np.sign(RNG.standard_normal(shape)))
    return numpy_helper.from_array(data.astype(dtype), name)


def value(name: str, *shape: int | str, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[str | onnx.ValueInfoProto],
    constants: list[onnx.TensorProto] = (),
    opset: int = 17,
) -> onnx.ModelProto:
    """A checked model; outputs given by name have the shapes that onnx infers."""
    infos = [onnx.ValueInfoProto(name=o) if isinstance(o, str) else o for o in outputs]
    made = helper.make_model(
        helper.make_graph(nodes, "g", inputs, [], list(constants)),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )
    made.graph.output.extend(infos)
    inferred = {v.name: v for v in onnx.shape_inference.infer_shapes(made, strict_mode=True).graph.output}
    for i, info in enumerate(infos):
        made.graph.output[i].CopyFrom(inferred[info.name])
    onnx.checker.check_model(made)
    return made


LINEAR = {
    "Conv": ((8, 8, 8, 8), (8, 8, 3, 3), {"pads": [1, 1, 1, 1]}),
    "one image": ((1, 8, 8, 8), (8, 8, 1, 1), {}),
    "depthwise": ((8, 8, 8, 8), (8, 1, 1, 1), {"group": 8}),
    "Conv 1-D": ((8, 8, 8), (8, 8, 3), {"pads": [1, 1]}),
    "ConvTranspose": ((8, 8, 8, 8), (8, 4, 1, 1), {"group": 2}),
    "MatMul": ((8, 8, 8), (8, 8), {}),
    "MatMul 1-D": ((8,), (8, 8), {}),
    "batched": ((8, 8, 8), (8, 8, 8), {}),
    "Gemm": ((8, 8), (8, 8), {"alpha": 0.5, "transB": 1}),
}


def linear_node(kind: str, x: str, w: str, y: str) -> onnx.NodeProto:
    op = {"one image": "Conv", "depthwise": "Conv", "batched": "MatMul"}.get(kind, kind.split()[0])
    return helper.make_node(op, [x, w], [y], **LINEAR[kind][2])


@pytest.mark.parametrize("kind", LINEAR)
@pytest.mark.parametrize("op", ["Mul", "Add", "Div", "Sub", "Sub from"])
def test_a_constant_behind_a_linear_operator_in_every_shape(kind: str, op: str) -> None:
    """OnnxSlim: Conv · const[8] over the width, and · const[8,1,1,1] over the batch, scale the channels."""
    given, weight, _ = LINEAR[kind]
    for shape in ALL_SIZES_EQUAL:
        if kind == "Gemm" and len(shape) > 4:
            continue
        inputs = ["c", "t"] if op == "Sub from" else ["t", "c"]
        nodes = [linear_node(kind, "x", "w", "t"), helper.make_node(op.split()[0], inputs, ["y"])]
        m = model(nodes, [value("x", *given)], ["y"], [constant("w", *weight), constant("c", *shape)])
        assert_optimizes(m)


@pytest.mark.parametrize("kind", LINEAR)
@pytest.mark.parametrize("op", ["Mul", "Add", "Div", "Sub", "Sub from"])
def test_a_constant_in_front_of_a_linear_operator_in_every_shape(kind: str, op: str) -> None:
    given, weight, _ = LINEAR[kind]
    for shape in ALL_SIZES_EQUAL:
        if len(shape) > len(given):
            continue
        inputs = ["c", "x"] if op == "Sub from" else ["x", "c"]
        nodes = [helper.make_node(op.split()[0], inputs, ["t"]), linear_node(kind, "t", "w", "y")]
        m = model(nodes, [value("x", *given)], ["y"], [constant("w", *weight), constant("c", *shape)])
        assert_optimizes(m)


@pytest.mark.parametrize("kind", LINEAR)
@pytest.mark.parametrize("opset", [8, 9, 15, 17])
def test_a_norm_on_both_sides_of_a_linear_operator(kind: str, opset: int) -> None:
    """onnxoptimizer: ConvTranspose takes the layout of Conv; eight nodes at run time for one."""
    given, weight, _ = LINEAR[kind]
    if kind == "MatMul 1-D" or (kind == "Gemm" and opset < 11):
        pytest.skip("it has no channels, or an input more")
    norm = [constant("s", 8), constant("b", 8), constant("m", 8)]
    norm.append(numpy_helper.from_array(np.abs(RNG.standard_normal(8)).astype(np.float32), "v"))
    first = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["t"], epsilon=0.01)
    then = helper.make_node("BatchNormalization", ["u", "s", "b", "m", "v"], ["y"])
    constants = [constant("w", *weight), *norm]
    for nodes in ([linear_node(kind, "x", "w", "u"), then], [first, linear_node(kind, "t", "w", "y")]):
        m = model(nodes, [value("x", *given)], ["y"], constants, opset)
        for result in assert_optimizes(m).values():
            assert len(result.model.graph.node) <= 2
            assert result.model.ByteSize() < m.ByteSize() + 1024


MIDDLES = [
    helper.make_node("Reshape", ["t", "s"], ["u"]),
    helper.make_node("Transpose", ["t"], ["u"], perm=[0, 2, 3, 1]),
    helper.make_node("Transpose", ["t"], ["u"], perm=[1, 0, 2, 3]),
    helper.make_node("Flatten", ["t"], ["u"], axis=2),
    helper.make_node("Relu", ["t"], ["u"]),
    helper.make_node("Abs", ["t"], ["u"]),
    helper.make_node("PRelu", ["t", "p"], ["u"]),
    helper.make_node("LeakyRelu", ["t"], ["u"], alpha=-0.5),
    helper.make_node("MaxPool", ["t"], ["u"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    helper.make_node("AveragePool", ["t"], ["u"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    helper.make_node("AveragePool", ["t"], ["u"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    helper.make_node("AveragePool", ["t"], ["u"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    helper.make_node("GlobalAveragePool", ["t"], ["u"]),
]


@pytest.mark.parametrize("middle", MIDDLES, ids=lambda n: f"{n.op_type} {len(n.attribute)}")
def test_a_constant_behind_what_moves_elements(middle: onnx.NodeProto) -> None:
    """Where the sizes agree, they do not say which axis the channels have become."""
    weights = [
        constant("w", 8, 8, 3, 3), constant("p", 8, 1, 1), numpy_helper.from_array(np.array([8, 8, 64]), "s")
    ]  # fmt: skip
    conv = helper.make_node("Conv", ["x", "w"], ["t"], pads=[1, 1, 1, 1])
    first = model([conv, middle], [value("x", 8, 8, 8, 8)], ["u"], weights)
    result = [d.dim_value for d in first.graph.output[0].type.tensor_type.shape.dim]
    for wanted in ALL_SIZES_EQUAL:
        if len(wanted) > len(result):
            continue
        shape = [1 if d == 1 else r for d, r in zip(wanted, result[len(result) - len(wanted) :], strict=True)]
        more = [helper.make_node("Mul", ["u", "c"], ["v"]), helper.make_node("Add", ["d", "v"], ["y"])]
        constants = [*weights, constant("c", *shape), constant("d", *shape)]
        assert_optimizes(model([conv, middle, *more], [value("x", 8, 8, 8, 8)], ["y"], constants))


@pytest.mark.parametrize("bias", [None, (), (1,), (4,), (1, 4), (6, 1), (6, 4), (1, 1)])
@pytest.mark.parametrize(("trans", "alpha", "beta"), [((0, 0), 1.0, 2.0), ((0, 1), 0.5, 1.0), ((1, 0), 2.0, 0.0)])
@pytest.mark.parametrize("op", ["BatchNormalization", "Mul", "Add"])
def test_gemm_with_every_bias_and_factor(bias: tuple[int, ...] | None, trans: tuple[int, int], alpha: float,
                                         beta: float, op: str) -> None:  # fmt: skip
    """onnxscript: Gemm(beta = 2) and BatchNormalization scale the bias twice."""
    w = constant("w", *((4, 5) if trans[1] else (5, 4)))
    names = ["x", "w", *(["b"] if bias is not None else [])]
    gemm = helper.make_node("Gemm", names, ["t"], transA=trans[0], transB=trans[1], alpha=alpha, beta=beta)
    positive = numpy_helper.from_array(np.abs(RNG.standard_normal(4)).astype(np.float32), "v")
    constants = [w, constant("s", 4), constant("o", 4), constant("m", 4), positive]
    constants += [constant("b", *bias)] if bias is not None else []
    inputs = ["t", "s", "o", "m", "v"] if op == "BatchNormalization" else ["s", "t"]
    nodes = [gemm, helper.make_node(op, inputs, ["y"])]
    x = value("x", *((5, 6) if trans[0] else (6, 5)))
    assert_optimizes(model(nodes, [x], ["y"], constants))
    before = [
        helper.make_node(op, ["x", *inputs[1:]] if op == "BatchNormalization" else ["s", "x"], ["u"]),
        helper.make_node(
            "Gemm", ["u", *names[1:]], ["y"], **{a.name: helper.get_attribute_value(a) for a in gemm.attribute}
        ),
    ]
    if trans == (0, 1):  # u [6,4] times w [4,5]ᵀ …
        constants[0] = constant("w", 4, 4)
        assert_optimizes(model(before, [value("x", 6, 4)], ["y"], constants))


LIMITS = {
    "Relu": ("Relu", None, None), "Clip(-3,-1)": ("Clip", -3.0, -1.0), "Clip(-1,0)": ("Clip", -1.0, 0.0),
    "Clip(1,2)": ("Clip", 1.0, 2.0), "Clip(0,6)": ("Clip", 0.0, 6.0), "Clip(-1,)": ("Clip", -1.0, None),
    "Clip(,1)": ("Clip", None, 1.0), "Clip(2,1)": ("Clip", 2.0, 1.0), "Min(0.5)": ("Min", 0.5, None),
    "Max(-0.5)": ("Max", -0.5, None), "Max(0)": ("Max", 0.0, None),
}  # fmt: skip


def limit_nodes(kinds: tuple[str, ...], opset: int) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    nodes, constants = [], []
    for i, kind in enumerate(kinds):
        op, low, high = LIMITS[kind]
        x, y = "x" if i == 0 else f"t{i - 1}", "y" if i == len(kinds) - 1 else f"t{i}"
        names = [f"low{i}" if low is not None else "", f"high{i}" if high is not None else ""]
        if op == "Clip" and opset < 11:
            bounds = {k: v for k, v in (("min", low), ("max", high)) if v is not None}
            nodes.append(helper.make_node(op, [x], [y], **bounds))
            continue
        for name, number in zip(names, (low, high), strict=True):
            if number is not None:
                constants.append(numpy_helper.from_array(np.array(number, np.float32), name))
        nodes.append(helper.make_node(op, [x] if op == "Relu" else [x, *names] if op == "Clip" else [x, names[0]], [y]))
    return nodes, constants


@pytest.mark.parametrize("opset", [9, 17])
@pytest.mark.parametrize("length", [2, 3])
def test_limits_of_limits_in_every_order(opset: int, length: int) -> None:
    """onnxscript: Clip(-3,-1) and Relu become Clip(0,-1); Clip(-1,0) and Clip(1,2) become Clip(1,0)."""
    x = np.array([-np.inf, -4, -3, -2, -1, -0.75, -0.5, 0, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 6, 7, np.inf, np.nan] * 3)
    known = [k for k in LIMITS if opset >= 11 or k != "Clip(2,1)"]  # which onnxruntime refuses as attributes
    chains = list(itertools.product(known, repeat=length))
    for kinds in chains if length == 2 else chains[:: len(chains) // 150]:
        nodes, constants = limit_nodes(kinds, opset)
        m = model(nodes, [value("x", x.size)], ["y"], constants, opset)
        for target in targets.names():
            got = optimized(m, target=target, verify=False).model
            feeds = {"x": x.astype(np.float32)}
            np.testing.assert_array_equal(run(got, feeds)[0], run(m, feeds)[0], err_msg=f"{kinds} {ops(got)}")


@pytest.mark.parametrize("number", [0.0, -1.0, 0.5])
@pytest.mark.parametrize("pool", [
    {"op": "MaxPool", "kernel_shape": [3, 3]},
    {"op": "MaxPool", "kernel_shape": [3, 3], "strides": [2, 2]},
    {"op": "MaxPool", "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    {"op": "AveragePool", "kernel_shape": [3, 3]},
    {"op": "AveragePool", "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 0},
    {"op": "AveragePool", "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
])  # fmt: skip
def test_pad_in_front_of_a_pool(number: float, pool: dict[str, object]) -> None:
    """onnxruntime 1.31 and onnxoptimizer: zeros of a Pad become the lowest numbers, or are not counted."""
    attrs = {k: v for k, v in pool.items() if k != "op"}
    constants = [
        numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "pads"),
        numpy_helper.from_array(np.array(number, np.float32), "number"),
    ]
    pad = helper.make_node("Pad", ["x", "pads", "number"], ["p"])
    for outputs in [["y"], ["y", "i"]] if pool["op"] == "MaxPool" else [["y"]]:
        m = model(
            [pad, helper.make_node(pool["op"], ["p"], outputs, **attrs)], [value("x", 1, 2, 6, 6)], outputs, constants
        )
        feeds = {"x": -1 - np.abs(RNG.standard_normal((1, 2, 6, 6))).astype(np.float32)}
        for target in targets.names():
            assert_same(m, optimized(m, target=target, verify=False).model, feeds)


ACTIVATIONS = [
    ("Relu", {}), ("LeakyRelu", {"alpha": -0.5}), ("LeakyRelu", {"alpha": 0.1}), ("Sigmoid", {}), ("Neg", {}),
    ("Abs", {}), ("Elu", {"alpha": -1.0}), ("Sin", {}), ("Softplus", {}), ("HardSigmoid", {"alpha": -0.2}),
    ("ThresholdedRelu", {}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attrs"), ACTIVATIONS)
@pytest.mark.parametrize("conv", [False, True])
def test_an_activation_in_front_of_maxpool(op: str, attrs: dict[str, float], conv: bool) -> None:
    """Only a non-decreasing one commutes with the maximum, and never with Indices or a window of padding alone."""
    first = [helper.make_node("Conv", ["x", "w"], ["c"])] if conv else []
    act = helper.make_node(op, ["c" if conv else "x"], ["a"], **attrs)
    for more in (
        {"kernel_shape": [2, 2], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "pads": [2, 2, 2, 2], "strides": [1, 1]},
        {"kernel_shape": [2, 2], "dilations": [3, 3], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"},
    ):
        for outputs in (["y"], ["y", "i"]):
            pool = helper.make_node("MaxPool", ["a"], outputs, **more)
            m = model([*first, act, pool], [value("x", 1, 3, 7, 7)], outputs, [constant("w", 4, 3, 1, 1)])
            assert_optimizes(m)


@pytest.mark.parametrize("residual", [
    (1, 8, 6, 6), (1, 8, 1, 1), (8, 1, 1), (1, 1, 6, 6), (2, 8, 6, 6), (1, 1, 1, 1, 1), (), (6,), (1, 8, 6, 1),
])  # fmt: skip
@pytest.mark.parametrize("op", ["Add", "Sum"])
@pytest.mark.parametrize("order", [["t", "r"], ["r", "t"]])
def test_a_residual_that_broadcasts_is_not_fused(residual: tuple[int, ...], op: str, order: list[str]) -> None:
    """onnxruntime issues 12321 and 14561."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["t"]),
        helper.make_node(op, order, ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    m = model(nodes, [value("x", 1, 3, 8, 8), value("r", *residual)], ["y"], [constant("w", 8, 3, 3, 3)])
    results = assert_optimizes(m)
    fused = "com.microsoft::FusedConv" in ops(results["ort-cuda"].model)
    assert fused == (residual == (1, 8, 6, 6))


@pytest.mark.parametrize("dims", [("N", "N"), ("N", "M"), (1, "N"), ("N", 1)])
def test_a_residual_of_another_free_dim(dims: tuple[object, object]) -> None:
    m = graph(
        "t = Conv(x, w)  s = Add(t, r)  y = Relu(s)",
        inputs=f"float[{dims[0]},3,4,4] x, float[5,3,1,1] w, float[{dims[1]},5,4,4] r",
        outputs=f"float[{dims[0] if dims[0] != 1 else dims[1]},5,4,4] y",
    )
    results = assert_optimizes(m, dims=[{"N": 2, "M": 2}, {"N": 1, "M": 1}, {"N": 3, "M": 1}])
    assert ("com.microsoft::FusedConv" in ops(results["ort-cuda"].model)) == (dims == ("N", "N"))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("act", ["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish"])
def test_a_fused_kernel_only_where_there_is_one(dtype: type, act: str) -> None:
    """onnxruntime issue 12045: a FusedConv of float16."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node("Conv", ["x", "w"], ["t"]), helper.make_node(act, ["t"], ["y"])]
    m = model(nodes, [value("x", 1, 3, 5, 5, dtype=kind)], ["y"], [constant("w", 4, 3, 3, 3, dtype=dtype)])
    for target in targets.names():
        assert not any("com.microsoft" in op for op in ops(optimized(m, target=target, verify=False).model))


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_a_value_with_itself(op: str) -> None:
    for nodes in (
        f"t = Conv(x, w)  s = {op}(t, t)  y = Relu(s)",
        f"u = Mul(x, c)  s = {op}(u, u)  y = Conv(s, w)",
        f"t = Conv(x, w)  u = Conv(x, w)  s = {op}(t, u)  y = Relu(s)",
    ):
        m = graph(nodes, inputs="float[1,4,5,5] x, float[4,4,1,1] w, float[4,1,1] c", outputs="float[1,4,5,5] y")
        for name in ("w", "c"):
            info = next(i for i in m.graph.input if i.name == name)
            m.graph.initializer.append(constant(name, *(d.dim_value for d in info.type.tensor_type.shape.dim)))
            m.graph.input.remove(info)
        assert_optimizes(m)


@pytest.mark.parametrize("pool", ["AveragePool", "MaxPool"])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("biased", [False, True])
def test_every_form_of_a_pool_behind_a_convolution(pool: str, group: int, biased: bool) -> None:
    """What is averaged at a border depends on pads, ceil_mode and whether padding counts."""
    names = ["x", "w", *(["b"] if biased else [])]
    conv = helper.make_node("Conv", names, ["t"], group=group)
    for kernel, stride, pads, ceil, count in itertools.product(
        (2, 3), (1, 2, 3), ((0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 1, 0)), (0, 1), (0, 1)
    ):
        if pool == "MaxPool" and count:
            continue
        attrs = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": list(pads), "ceil_mode": ceil}
        attrs |= {"count_include_pad": 1} if count else {}
        nodes = [
            conv,
            helper.make_node(pool, ["t"], ["p"], **attrs),
            helper.make_node("Mul", ["p", "c"], ["q"]),
            helper.make_node("Add", ["q", "c"], ["y"]),
        ]
        constants = [constant("w", 4, 4 // group, 1, 1), constant("b", 4), constant("c", 4, 1, 1)]
        assert_optimizes(model(nodes, [value("x", 1, 4, 6, 7)], ["y"], constants))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_are_not_regrouped(dtype: type) -> None:
    """x/2·2 of integers is not x, and a MatMul and Add of int32 have no Gemm kernel."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    constants = [numpy_helper.from_array(np.array(2, dtype), "two")]
    constants += [numpy_helper.from_array(np.arange(n).reshape(s).astype(dtype), k) for k, n, s in
                  (("w", 12, (3, 4)), ("v", 4, (4,)))]  # fmt: skip
    steps = (("Div", "x", "two"), ("Mul", "t0", "two"), ("Add", "t1", "two"), ("Sub", "t2", "two"))
    nodes = [helper.make_node(op, [a, b], [f"t{i}"]) for i, (op, a, b) in enumerate(steps)]
    nodes += [helper.make_node("MatMul", ["t3", "w"], ["m"]), helper.make_node("Add", ["m", "v"], ["y"])]
    m = model(nodes, [value("x", 5, 3, dtype=kind)], ["y"], constants)
    feeds = {"x": np.arange(-7, 8).reshape(5, 3).astype(dtype)}
    for target in targets.names():
        assert_same(m, optimized(m, target=target, verify=False).model, feeds)


@pytest.mark.parametrize("between", ["FLOAT16", "INT32", "DOUBLE", "BFLOAT16", "BOOL"])
def test_casts_that_round_stay(between: str) -> None:
    there = getattr(TensorProto, between)
    nodes = [helper.make_node("Cast", ["x"], ["t"], to=there), helper.make_node("Cast", ["t"], ["y"], to=1)]
    m = model(nodes, [value("x", 50)], ["y"])
    feeds = {"x": np.linspace(-70, 70, 50).astype(np.float32) / 3}
    for target in targets.names():
        assert_same(m, optimized(m, target=target, verify=False).model, feeds)


def test_shared_weights_and_norms() -> None:
    """One weight of two convolutions with norms of their own, equal norms, and weights behind Identity and Cast."""
    constants = [constant("w", 4, 4, 1, 1), constant("w16", 4, 4, 1, 1, dtype=np.float16)]
    for i in range(3):
        constants += [constant(f"{k}{i}", 4) for k in "sbm"]
        constants.append(numpy_helper.from_array(np.full(4, (1e-13, 1.0, 4.0)[i], np.float32), f"v{i}"))
    nodes = [
        helper.make_node("Identity", ["w"], ["same"]),
        helper.make_node("Cast", ["w16"], ["cast"], to=1),
    ]
    outputs = []
    for i, w in enumerate(["w", "w", "same", "cast"]):
        k = min(i, 2)
        nodes.append(helper.make_node("Conv", [f"x{i}", w], [f"c{i}"]))
        nodes.append(helper.make_node("BatchNormalization", [f"c{i}", *(f"{p}{k}" for p in "sbmv")], [f"y{i}"]))
        outputs.append(f"y{i}")
    results = assert_optimizes(
        model(nodes, [value(f"x{i}", 1, 4, 3, 3) for i in range(4)], outputs, constants), seeds=2
    )
    assert "BatchNormalization" not in ops(results["ort-cpu"].model)


def test_layer_norm_over_another_axis_and_an_odd_gelu() -> None:
    """onnxruntime's transformer tool takes axis 1 for the last one where the scale fits it."""
    nodes = (
        "a = ReduceMean <axes = [1]> (x)  d = Sub(x, a)  q = Mul(d, d)  v = ReduceMean <axes = [1]> (q)"
        "  e = Add(v, eps)  r = Sqrt(e)  n = Div(d, r)  s = Mul(n, g)  t = Add(s, h)"
        "  i = Div(t, c)  j = Erf(i)  k = Add(j, one)  l = Mul(t, k)  y = Mul(l, half)"
    )
    m = parse(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2,16,16] x, float[16] g, float[16] h) => '
        "(float[2,16,16] y) <float eps = {0.00001}, float c = {1.5}, float one = {1}, float half = {0.5}> "
        f"{{ {nodes} }}"
    )
    for name in ("g", "h"):
        m.graph.input.pop()
        m.graph.initializer.append(constant(name, 16))
    assert_optimizes(m, seeds=2)


DYNAMIC = {
    "Clip": "a = Clip(x, low, high)  b = Relu(a)  y = Clip(b, zero, six)",
    "Min and Max": "a = Max(x, low)  b = Min(a, high)  c = Max(b, zero)  y = Min(c, six)",
    "hard sigmoid": "a = Add(x, three)  b = Clip(a, low, six)  m = Mul(x, b)  y = Div(m, six)",
    "hard swish": "a = Add(x, three)  b = Clip(a, zero, six)  m = Mul(x, b)  y = Div(m, high)",
    "PRelu": "a = Conv(x, w)  b = PRelu(a, low)  y = Conv(b, w)",
    "leaky": "a = Mul(x, high)  y = Max(x, a)",
    "scale": "a = Conv(x, w)  b = Mul(a, high)  c = Mul(b, three)  y = Add(c, low)",
    "one of them": "a = Mul(x, high)  b = Mul(a, three)  c = Add(b, low)  y = Add(c, six)",
}  # fmt: skip


@pytest.mark.parametrize("kind", DYNAMIC)
def test_bounds_and_factors_that_are_inputs(kind: str) -> None:
    m = parse(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,3,3] x, float low, float high) => (float[1,2,3,3] y) '
        "<float zero = {0}, float six = {6}, float three = {3}, float[2,2,1,1] w = {1, -2, 3, -4}> "
        f"{{ {DYNAMIC[kind]} }}"
    )
    results = [optimized(m, target=target, verify=False).model for target in targets.names()]
    x = 4 * RNG.standard_normal((1, 2, 3, 3)).astype(np.float32)
    for low, high in ((-1, 2), (0, 6), (0.5, 0.25), (-3, -1)):
        feeds = {"x": x, "low": np.array(low, np.float32), "high": np.array(high, np.float32)}
        for made in results:
            assert_same(m, made, feeds)
