"""What other tools make of a model can be optimized too: inlined, converted to other opsets, to float16, quantized."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.inliner
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper, version_converter
from support import assert_optimizes, assert_same, ops, optimized, parse, random_feeds, run, with_weights

from onnxfuse import targets

CNN = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[N,3,16,16] x, float[8,3,3,3] w0, float[8] s0, float[8] b0, float[8] m0, float[8] v0, float[8,1,3,3] w1,
     float[8] b1, float[8,8,1,1] w2, float[8,8,1,1] w3, float[8] s3, float[8] b3, float[8] m3, float[8] v3,
     float[4,8,1,1] w4, float[8,4,1,1] w5, float[8,1,1] c6, float[10,8] w7, float[10] b7) => (float[N,10] y)
<float three = {3}, float zero = {0}, float six = {6}, int64 first = {0}, int64[1] axis = {0}, int64[1] rest = {-1}>
{
  c0 = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w0)
  n0 = BatchNormalization(c0, s0, b0, m0, v0)
  a0 = Add(n0, three)  l0 = Clip(a0, zero, six)  p0 = Mul(n0, l0)  h0 = Div(p0, six)
  c1 = Conv <group = 8, pads = [1, 1, 1, 1]> (h0, w1, b1)  r1 = Relu(c1)
  c2 = Conv(r1, w2)  c3 = Conv(r1, w3)  n3 = BatchNormalization(c3, s3, b3, m3, v3)
  s = Add(c2, n3)  r3 = Relu(s)  q3 = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r3)
  g = GlobalAveragePool(q3)  c4 = Conv(g, w4)  r4 = Relu(c4)  c5 = Conv(r4, w5)  h5 = HardSigmoid(c5)
  e = Mul(q3, h5)  f = Add(q3, e)  k = Mul(f, c6)  z = GlobalAveragePool(k)
  shape = Shape(z)  n = Gather(shape, first)  u = Unsqueeze(n, axis)  t = Concat <axis = 0> (u, rest)
  flat = Reshape(z, t)
  y = Gemm <transB = 1> (flat, w7, b7)
}
"""
BLOCK = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[N,6,8] x, float[8] g, float[8] b, float[8,8] wq, float[8,8] wk, float[8,8] wv, float[8,16] w1, float[16] b1,
     float[16,8] w2, float[8] c) => (float[N,8] y)
<float eps = {0.00001}, float two = {2}, float scale = {0.35355338}, float half = {0.5}, float root = {1.4142135},
 float one = {1}, int64 first = {0}>
{
  m = ReduceMean <axes = [-1]> (x)  d = Sub(x, m)  p = Pow(d, two)  v = ReduceMean <axes = [-1]> (p)  e = Add(v, eps)
  r = Sqrt(e)  n = Div(d, r)  o = Mul(n, g)  h = Add(o, b)
  q = MatMul(h, wq)  k = MatMul(h, wk)  kt = Transpose <perm = [0, 2, 1]> (k)  l = MatMul(h, wv)
  a = MatMul(q, kt)  as = Mul(a, scale)  w = Softmax <axis = -1> (as)  t = MatMul(w, l)  u = Add(x, t)
  f = MatMul(u, w1)  fb = Add(f, b1)
  gd = Div(fb, root)  ge = Erf(gd)  gp = Add(ge, one)  gm = Mul(fb, gp)  gh = Mul(gm, half)
  i = MatMul(gh, w2)  ic = Mul(i, c)  id = Dropout(ic)  j = Add(u, id)  y = Gather <axis = 1> (j, first)
}
"""
NETS = {"cnn": CNN, "block": BLOCK}
DIMS = ({"N": 1}, {"N": 3})


def net(name: str, opset: int = 17) -> onnx.ModelProto:
    model = with_weights(parse(NETS[name].replace('"" : 17', f'"" : {opset}')))
    for tensor in model.graph.initializer:  # weights of such a size that values stay around 1
        data = numpy_helper.to_array(tensor)
        if data.ndim > 1 and data.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array((data / np.sqrt(data[0].size)).astype(np.float32), tensor.name))
    return model


def verified(model: onnx.ModelProto) -> dict[str, onnx.ModelProto]:
    """The model as every target has it, verified."""
    found = {}
    for target in targets.names():
        result = optimized(model, target=target)
        assert result.verdict is not None and result.verdict.ok and not result.rolled_back
        found[target] = result.model
    return found


@pytest.mark.parametrize("name", NETS)
def test_as_it_is(name: str) -> None:
    model = net(name)
    results = assert_optimizes(model, dims=DIMS)
    assert results["ort-cpu"].fusions
    verified(model)


@pytest.mark.parametrize("name", NETS)
def test_inlined(name: str) -> None:
    """A whole network as a function, before and after onnx's inliner; and our own functions, inlined again."""
    plain = net(name)
    weights = [t.name for t in plain.graph.initializer]
    body = helper.make_function(
        "own", "Net", ["x", *weights], ["y"], plain.graph.node, [helper.make_opsetid("", 17)]
    )  # fmt: skip
    call = helper.make_node("Net", ["x", *weights], ["y"], domain="own")
    graph = helper.make_graph([call], "g", plain.graph.input, plain.graph.output, plain.graph.initializer)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, functions=[body], opset_imports=imports, ir_version=8)
    onnx.checker.check_model(model)
    for made in verified(model).values():
        assert_same(plain, made, random_feeds(plain, 0, {"N": 2}))
    inlined = onnx.inliner.inline_local_functions(model)
    results = assert_optimizes(inlined, dims=DIMS)
    direct = assert_optimizes(plain, dims=DIMS)
    for target, result in results.items():
        assert sorted(ops(result.model)) == sorted(ops(direct[target].model))
        again = onnx.inliner.inline_local_functions(result.model)
        assert_same(plain, again, random_feeds(plain, 0, {"N": 2}))
        assert_optimizes(again, dims=DIMS)


@pytest.mark.parametrize("name", NETS)
def test_operators_written_as_their_functions(name: str) -> None:
    plain = net(name)
    for tensor in list(plain.graph.initializer):  # the inliner knows the types of values that nodes make
        plain.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))
        plain.graph.initializer.remove(tensor)
    plain = onnx.shape_inference.infer_shapes(plain)
    model = onnx.inliner.inline_selected_functions(plain, [], exclude=True, inline_schema_functions=True)
    assert len(model.graph.node) > len(plain.graph.node)
    assert_optimizes(plain, dims=DIMS)
    assert_optimizes(model, dims=DIMS)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("opsets", [(13, o) for o in (14, 15, 18)] + [(17, o) for o in range(18, 25)])
def test_converted_to_another_opset(name: str, opsets: tuple[int, int]) -> None:
    start, opset = opsets
    model = version_converter.convert_version(net(name, start), opset)
    results = assert_optimizes(model, dims=DIMS)
    assert results["ort-cpu"].fusions
    for result in results.values():
        assert result.model.opset_import[0].version == opset
        onnx.checker.check_model(result.model, full_check=True)


OLD = """
<ir_version: 4, opset_import: ["" : 9]>
net (float[N,3,8,8] x, float[4,3,3,3] w, float[4] s, float[4] b, float[4] m, float[4] v, float[4,1,1] c)
    => (float[N,4,1] y)
{
  a = Conv <pads = [1, 1, 1, 1]> (x, w)  n = BatchNormalization(a, s, b, m, v)  r = Clip <min = 0.0, max = 6.0> (n)
  d = Dropout(r)  e = Mul(d, c)  g = ReduceMean <axes = [2, 3], keepdims = 0> (e)  u = Unsqueeze <axes = [2]> (g)
  p = Slice <starts = [0], ends = [9223372036854775807], axes = [0]> (u)  y = Relu(p)
}
"""


@pytest.mark.parametrize("opset", [9, 10, 11, 12, 13, 15, 17, 18, 20, 22, 24])
def test_converted_from_an_old_opset(opset: int) -> None:
    model = with_weights(parse(OLD))
    results = assert_optimizes(version_converter.convert_version(model, opset), dims=DIMS)
    for result in results.values():
        assert {"BatchNormalization", "Dropout", "Slice"}.isdisjoint(ops(result.model))
        assert result.model.opset_import[0].version == opset
        for dims in DIMS:
            assert_same(model, result.model, random_feeds(model, 1, dims))


def in_half(model: onnx.ModelProto, dtype: int, ports: bool) -> onnx.ModelProto:
    """All of it in another float type; or all but inputs and outputs, with a Cast there."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.value_info[:]
    graph, to = made.graph, helper.tensor_dtype_to_np_dtype(dtype)
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(to), tensor.name))
    if ports:
        for info in [*graph.input, *graph.output]:
            info.type.tensor_type.elem_type = dtype
        return made
    nodes = [helper.make_node("Cast", [i.name], [f"{i.name}/half"], to=dtype) for i in graph.input]
    names = {i.name: f"{i.name}/half" for i in [*graph.input, *graph.output]}
    for node in graph.node:
        node.input[:] = [names.get(n, n) for n in node.input]
        node.output[:] = [names.get(n, n) for n in node.output]
    nodes += graph.node
    nodes += [helper.make_node("Cast", [f"{o.name}/half"], [o.name], to=TensorProto.FLOAT) for o in graph.output]
    del graph.node[:]
    graph.node.extend(nodes)
    return made


def assert_close(a: onnx.ModelProto, b: onnx.ModelProto, feeds: dict[str, np.ndarray], allowed: float) -> None:
    for x, y in zip(run(a, feeds), run(b, feeds), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        x, y = x.astype(np.float64), y.astype(np.float64)
        assert np.max(np.abs(x - y)) <= allowed * np.max(np.abs(x))


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("ports", [True, False])
def test_in_float16(name: str, ports: bool) -> None:
    """Numbers may differ by the rounding of float16 itself; no node may be one without a kernel for it."""
    exact = net(name)
    model = in_half(exact, TensorProto.FLOAT16, ports)
    onnx.checker.check_model(model, full_check=True)
    feeds = random_feeds(model, 0, {"N": 2})
    full = run(exact, {"x": feeds["x"].astype(np.float32)})[0].astype(np.float64)
    error = np.max(np.abs(run(model, feeds)[0] - full))
    for target in targets.names():
        result = optimized(model, target=target, verify=False)
        assert not any(op.startswith("com.microsoft") for op in ops(result.model))
        made = np.max(np.abs(run(result.model, feeds)[0].astype(np.float64) - full))
        assert made <= 2 * error + 1e-3 * np.max(np.abs(full)), "further from the exact result than before"
        assert not optimized(result.model, target=target, verify=False).fusions
    verified(model)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("dtype", [TensorProto.BFLOAT16, TensorProto.DOUBLE])
def test_in_other_float_types(name: str, dtype: int) -> None:
    model = in_half(version_converter.convert_version(net(name), 22), dtype, True)  # Conv takes bfloat16 from there on
    for target in targets.names():
        made = optimized(model, target=target, verify=False).model
        onnx.checker.check_model(made, full_check=True)
        weights = {t.name: t for t in made.graph.initializer}
        if dtype == TensorProto.BFLOAT16:  # nothing is folded where a weight's rounding is as large as its worth
            for tensor in model.graph.initializer:
                assert tensor.name not in weights or weights[tensor.name] == tensor
        else:
            feeds = random_feeds(model, 0, {"N": 2})
            try:
                run(model, feeds)
            except Exception:  # noqa: BLE001 - an operator without a kernel for double
                continue
            assert_same(model, made, feeds)


@pytest.mark.parametrize("between", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_mixed_precision_keeps_its_casts(between: int) -> None:
    model = parse("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[1,4,5,5] x, float[4,4,1,1] w, float[4] s) => (float[1,4,5,5] y) <float two = {2}>
        { a = Mul(x, two)  b = Identity(a)  c = Conv(b, w)  d = Mul(c, two)  y = Relu(d) }
    """)
    model = with_weights(model)
    model.graph.node[1].CopyFrom(helper.make_node("Cast", ["a"], ["h"], to=between))
    model.graph.node.insert(2, helper.make_node("Cast", ["h"], ["b"], to=TensorProto.FLOAT))
    for made in verified(model).values():
        assert ops(made).count("Cast") == 2
        assert_close(model, made, random_feeds(model), 1e-5)


def quantized(model: onnx.ModelProto, per_channel: bool, opset: int) -> onnx.ModelProto:
    """In QDQ form: int8 weights behind DequantizeLinear, uint8 values between Conv, Gemm and MatMul."""
    made = onnx.ModelProto()
    made.CopyFrom(version_converter.convert_version(model, opset) if opset != 17 else model)
    graph = made.graph
    stored = {t.name: t for t in graph.initializer}
    nodes, done = [], {}

    def add(name: str, array: np.ndarray) -> str:
        graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def weight(name: str, axis: int) -> str:
        data = numpy_helper.to_array(stored[name])
        axes = tuple(i for i in range(data.ndim) if i != axis) if per_channel else None
        wide = np.abs(data).max(axes, keepdims=True) / 127 + 1e-6
        scale = wide.reshape(-1 if per_channel else ())
        inputs = [
            add(f"{name}/q", np.round(data / wide).astype(np.int8)),
            add(f"{name}/s", np.asarray(scale, np.float32)),
            add(f"{name}/z", np.zeros(np.shape(scale), np.int8)),
        ]
        nodes.append(helper.make_node("DequantizeLinear", inputs, [f"{name}/d"], axis=axis))
        return f"{name}/d"

    def passed(name: str) -> str:
        scale = [add(f"{name}/s", np.array(0.05, np.float32)), add(f"{name}/z", np.array(128, np.uint8))]
        nodes.append(helper.make_node("QuantizeLinear", [name, *scale], [f"{name}/q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}/q", *scale], [f"{name}/d"]))
        return f"{name}/d"

    for node in list(graph.node):
        if node.op_type in ("Conv", "Gemm", "MatMul"):
            for i in (0, 1):
                name = node.input[i]
                if name not in done:
                    done[name] = weight(name, node.op_type == "MatMul") if name in stored else passed(name)
                node.input[i] = done[name]
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(made, full_check=True)
    return made


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("opset", [17, 21, 24])
def test_quantized(name: str, per_channel: bool, opset: int) -> None:
    """No rule folds through QuantizeLinear, or takes what DequantizeLinear makes for a constant."""
    model = quantized(net(name), per_channel, opset)
    int8 = {t.name: t for t in model.graph.initializer if t.data_type in (TensorProto.INT8, TensorProto.UINT8)}
    results = assert_optimizes(model, dims=DIMS)
    feeds = random_feeds(model, 0, {"N": 2})
    for result in results.values():
        kept = {t.name: t for t in result.model.graph.initializer if t.name in int8}
        assert kept == int8
        for op in ("QuantizeLinear", "DequantizeLinear"):
            assert ops(result.model).count(op) == ops(model).count(op)
        options = ort.SessionOptions()
        options.log_severity_level = 4
        a, b = (
            ort.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feeds)
            for m in (model, result.model)
        )  # as the runtime executes it, on integers: some may be rounded to the neighbouring one
        assert np.max(np.abs(a[0] - b[0])) <= 0.1 * np.max(np.abs(a[0]))
    verified(model)


AROUND = {
    "twice": "q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  e = QuantizeLinear(d, s, z)"
    "  y = DequantizeLinear(e, s, z)",
    "of other scales": "q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, t, z)  e = QuantizeLinear(d, s, z)"
    "  y = DequantizeLinear(e, t, z)",
    "scaled": "q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  m = Mul(d, t)  e = QuantizeLinear(m, s, z)"
    "  f = DequantizeLinear(e, s, z)  y = Mul(f, t)",
    "moved": "q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  a = Transpose <perm = [1, 0]> (d)"
    "  e = QuantizeLinear(a, s, z)  f = DequantizeLinear(e, s, z)  y = Transpose <perm = [1, 0]> (f)",
    "equal": "q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  e = DequantizeLinear(q, s, z)  y = Add(d, e)",
    "a constant": "q = QuantizeLinear(c, s, z)  d = DequantizeLinear(q, s, z)  m = Mul(d, t)  y = Add(x, m)",
    "weights": "d = DequantizeLinear(w, s, i)  v = Transpose <perm = [1, 0]> (d)  m = Mul(x, t)  p = MatMul(m, v)"
    "  y = Mul(p, t)",
    "dynamic": "q, k, o = DynamicQuantizeLinear(x)  d = DequantizeLinear(q, k, o)  m = Mul(d, t)  y = Add(m, t)",
    "clipped": "a = Relu(x)  b = Clip(a, zero, six)  q = QuantizeLinear(b, s, z)  d = DequantizeLinear(q, s, z)"
    "  y = Relu(d)",
}


@pytest.mark.parametrize("kind", AROUND)
def test_quantization_rounds(kind: str) -> None:
    model = parse(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[4,4] x) => (float[4,4] y) <float s = {0.25}, '
        "float t = {0.3}, float zero = {0}, float six = {6}, uint8 z = {100}, int8 i = {3}, float[4,4] c = "
        "{0.1,0.2,0.3,0.4,1,2,3,4,5,6,7,8,9,10,11,12}, int8[4,4] w = {1,2,3,4,5,6,7,8,-1,-2,-3,-4,-5,-6,-7,-8}> "
        f"{{ {AROUND[kind]} }}"
    )
    results = assert_optimizes(model, seeds=3)
    for result in results.values():
        assert ops(result.model).count("QuantizeLinear") == ops(model).count("QuantizeLinear")


@pytest.mark.parametrize("dtype", [TensorProto.INT4, TensorProto.UINT4, TensorProto.FLOAT8E4M3FN, TensorProto.INT16])
def test_weights_of_small_types(dtype: int) -> None:
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    data = (np.arange(64).reshape(8, 8) % 7).astype(np.float32).astype(kind)
    constants = [
        numpy_helper.from_array(data, "w"),
        numpy_helper.from_array(np.linspace(0.1, 1, 8, dtype=np.float32), "s"),
        numpy_helper.from_array(np.array(2, np.float32), "c"),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=1),
        helper.make_node("Mul", ["x", "c"], ["m"]),
        helper.make_node("MatMul", ["m", "d"], ["p"]),
        helper.make_node("Mul", ["p", "c"], ["q"]),
        helper.make_node("Identity", ["q"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 8]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    for result in assert_optimizes(model, dims=DIMS).values():
        assert "Identity" not in ops(result.model)
        assert next(t for t in result.model.graph.initializer if t.name == "w") == constants[0]
