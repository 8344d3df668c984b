"""Gather and Slice in front of the work that they take a part of: every operator, every axis, and what stays."""

from __future__ import annotations

import onnx
import pytest
from support import assert_same, graph, ops, optimized, random_feeds, with_weights

FIRST = "i = Constant <value = int64 {0}> () y = Gather <axis = 1> (e, i)"


def made(model: onnx.ModelProto) -> list[str]:
    free = {d.dim_param for i in model.graph.input for d in i.type.tensor_type.shape.dim}
    sizes = {name: size for name, size in (("N", 1), ("T", 64)) if name in free}
    result = optimized(model, rules=["pick_first"], target="ort-cpu", dims=sizes)
    for size in (3, 9):
        assert_same(model, result.model, random_feeds(model, dims={"N": 2, "T": size, "A": 2, "B": 8}))
    return [op for op in ops(result.model) if op != "Constant"]


def tokens(body: str, weights: str = "", out: str = "N,16", opset: int = 17, x: str = "N,T,16") -> onnx.ModelProto:
    return with_weights(graph(body, inputs=f"float[{x}] x{weights}", outputs=f"float[{out}] y", opset=opset))


@pytest.mark.parametrize(
    ("work", "weights", "expected"),
    [
        ("e = Relu (x)", "", ["Gather", "Relu"]),
        ("e = Add (x, b)", ", float[16] b", ["Gather", "Add"]),
        ("e = Add (b, x)", ", float[1,1,16] b", ["Gather", "Add"]),
        ("e = Sub (x, x2)", ", float[N,T,16] x2", ["Gather", "Gather", "Sub"]),
        ("e = Sub (x2, x)", ", float[N,1,16] x2", ["Gather", "Sub"]),
        ("e = Sub (x2, x)", ", float[T,16] x2", ["Gather", "Gather", "Sub"]),
        ("e = LayerNormalization (x, b, c)", ", float[16] b, float[16] c", ["Gather", "LayerNormalization"]),
        ("e = Softmax (x)", "", ["Gather", "Softmax"]),
        ("e = MatMul (x, w)", ", float[16,16] w", ["Gather", "MatMul"]),
        ("e = MatMul (x, x2)", ", float[N,16,16] x2", ["Gather", "MatMul"]),
        ("e = MatMul (x, w) ", ", float[1,16,16] w", ["Gather", "MatMul"]),
        ("t = Transpose <perm = [1, 0, 2]> (x) u = Relu (t) e = Transpose <perm = [1, 0, 2]> (u)", "",
         ["Gather", "Transpose", "Relu", "Transpose"]),
        ("a = Relu (x) b = Tanh (a) c = Add (a, b) d = Sigmoid (c) e = Mul (d, c)", "",
         ["Gather", "Relu", "Tanh", "Add", "Sigmoid", "Mul"]),
        ("s = Constant <value = int64[3] {0, -1, 16}> () a = Tanh (x) e = Reshape (a, s)", "",
         ["Gather", "Tanh", "Reshape"]),
    ],
)  # fmt: skip
def test_only_the_first_token(work: str, weights: str, expected: list[str]) -> None:
    wide = [text.replace("16", "4096") for text in (work, weights, "N,16", "N,T,16")]  # of a small one it does not pay
    assert made(tokens(f"{wide[0]} {FIRST}", wide[1], wide[2], x=wide[3])) == [*expected, "Squeeze"]


@pytest.mark.parametrize("opset", [11, 13, 18, 21])
@pytest.mark.parametrize(
    ("pick", "out"),
    [
        ("i = Constant <value = int64 {-1}> () y = Gather <axis = -2> (e, i)", "N,16"),
        ("i = Constant <value = int64[2] {0, 2}> () y = Gather <axis = 1> (e, i)", "N,2,16"),
        ("a = Constant <value = int64[1] {0}> () b = Constant <value = int64[1] {2}> () "
         "c = Constant <value = int64[1] {1}> () y = Slice (e, a, b, c)", "N,2,16"),
        ("a = Constant <value = int64[1] {-3}> () b = Constant <value = int64[1] {9223372036854775807}> () "
         "c = Constant <value = int64[1] {-2}> () d = Constant <value = int64[1] {2}> () y = Slice (e, a, b, c, d)",
         "N,2,16"),
        ("a = Constant <value = int64[1] {0}> () b = Constant <value = int64[1] {4}> () "
         "c = Constant <value = int64[1] {2}> () y = Slice (e, a, b, c)", "N,T,4"),
    ],
)  # fmt: skip
def test_every_way_to_take_a_part(pick: str, out: str, opset: int) -> None:
    kind = "Gather" if "Gather" in pick else "Slice"
    names = made(tokens(f"a0 = Tanh (x) e = Mul (a0, b0) {pick}", ", float[16] b0", out, opset))
    assert names[:3] == [kind, "Tanh", "Mul"]


def test_columns_that_nobody_reads_are_not_multiplied() -> None:
    body = (
        "e = MatMul (x, w) a = Constant <value = int64[1] {0}> () b = Constant <value = int64[1] {4}> () "
        "c = Constant <value = int64[1] {2}> () y = Slice (e, a, b, c)"
    )
    model = tokens(body, ", float[16,16] w", "N,T,4")
    assert made(model) == ["MatMul"]


@pytest.mark.parametrize("bias", ["", ", b"])
@pytest.mark.parametrize("trans", [0, 1])
def test_a_gemm_between_reshapes(bias: str, trans: int) -> None:
    body = (
        "r = Relu (x) s = Constant <value = int64[2] {-1, 16}> () f = Reshape (r, s) "
        f"m = Gemm <transB = {trans}> (f, w{bias}) "
        f"t = Constant <value = int64[3] {{-1, 8, 16}}> () e = Reshape (m, t) {FIRST}"
    )
    model = tokens(body, ", float[16,16] w, float[16] b", x="N,8,16")
    assert made(model) == ["Gather", "Relu", "Reshape", "Gemm", "Reshape", "Squeeze"]


def test_rows_of_a_gemm_that_are_two_places_stay() -> None:
    body = (
        "s = Constant <value = int64[2] {3, 16}> () f = Reshape (x, s) m = Gemm (f, w) "
        f"t = Constant <value = int64[3] {{2, 3, 2}}> () e = Reshape (m, t) {FIRST}"
    )
    model = tokens(body, ", float[16,4] w", "2,2", x="2,3,8")
    assert made(model) == ["Reshape", "Gemm", "Reshape", "Gather"]


def test_rows_of_a_gemm() -> None:
    body = "e = Gemm (x, w, x2) i = Constant <value = int64[1] {1}> () y = Gather (e, i)"
    model = tokens(body, ", float[64,64] w, float[T,64] x2", "1,64", x="T,64")
    assert made(model) == ["Gather", "Gather", "Gemm"]
    model = tokens(body, ", float[64,64] w, float[64] x2", "1,64", x="T,64")
    assert made(model) == ["Gather", "Gemm"]


@pytest.mark.parametrize(
    ("work", "weights"),
    [
        ("e = Softmax <axis = 1> (x)", ""),
        ("e = LayerNormalization <axis = 1> (x, w)", ", float[16] w"),
        ("e = CumSum (x, k)", ""),
        ("e = MatMul (x2, x)", ", float[N,T,T] x2"),
        ("e = Relu (x) z = Tanh (e)", ""),
        ("s = Constant <value = int64[3] {-1, 2, 16}> () a = Relu (x) e = Reshape (a, s)", ""),
    ],
)
def test_work_that_looks_along_the_axis_or_is_needed_whole_stays(work: str, weights: str) -> None:
    model = tokens(f"k = Constant <value = int64 {{1}}> () {work} {FIRST}", weights, x="N,T,16")
    if "z = " in work:
        model.graph.output.append(onnx.helper.make_tensor_value_info("z", 1, ["N", "T", 16]))
    if "MatMul" in work:  # rows of the left operand are taken, the right one is needed whole
        assert made(model) == ["Gather", "MatMul", "Squeeze"]
    elif "-1, 2" in work:  # the axis was merged and split: only T = 2 keeps it
        assert_same(model, optimized(model, rules=["pick_first"]).model, random_feeds(model, dims={"T": 4}))
    else:
        assert made(model) == [op for op in ops(model) if op != "Constant"]


def test_a_normalization_in_pieces_stays_one() -> None:
    """Runtimes know the pieces; to take a part between them leaves an Add and a Mul that belong to nothing."""
    norm = (
        "m = ReduceMean <axes = [-1]> (x) d = Sub (x, m) two = Constant <value = float {2}> () p = Pow (d, two) "
        "v = ReduceMean <axes = [-1]> (p) eps = Constant <value = float {0.001}> () a = Add (v, eps) r = Sqrt (a) "
        "q = Div (d, r) s = Mul (q, w) e = Add (s, b)"
    )
    for axis, out in ((1, "N,16"), (2, "N,T")):
        pick = f"k = Constant <value = int64 {{1}}> () y = Gather <axis = {axis}> (e, k)"
        model = tokens(f"{norm} {pick}", ", float[16] w, float[16] b", out, opset=13)
        assert made(model) == [op for op in ops(model) if op != "Constant"]


@pytest.mark.parametrize("dims", ["N,T", "N,1"])
def test_an_operand_of_unknown_size_along_the_axis_stays(dims: str) -> None:
    model = tokens(f"e = Add (x, x2) {FIRST}", f", float[{dims.replace('T', 'U')},16] x2")
    names = [op for op in ops(optimized(model, rules=["pick_first"]).model) if op != "Constant"]
    assert names == (["Add", "Gather"] if "T" in dims else ["Gather", "Add", "Squeeze"])


def test_an_index_that_is_not_known_stays() -> None:
    body = "k = Constant <value = int64 {1}> () e = Relu (x) s = Shape (x) i = Gather (s, k) j = Sub (i, k) "
    model = tokens(body + "y = Gather <axis = 1> (e, j)")
    assert made(model) == [op for op in ops(model) if op != "Constant"]


def test_equal_takes_become_one() -> None:
    body = "a = Relu (x) b = Tanh (a) c = Add (a, b) i = Constant <value = int64 {0}> () y = Gather <axis = 1> (c, i)"
    assert made(tokens(body)).count("Gather") == 1
    takes = "p = Gather <axis = 1> (r, i) q = Gather <axis = 1> (r, i) y = Mul (p, q)"
    model = tokens(f"r = Relu (x) i = Constant <value = int64 {{0}}> () {takes}")
    assert made(model) == ["Gather", "Relu", "Squeeze", "Mul"]


def test_the_last_block_of_a_classifier_works_on_one_token() -> None:
    body = (
        "n = LayerNormalization (x, g) q = MatMul (n, wq) k = MatMul (n, wk) z = MatMul (n, wz) "
        "kt = Transpose <perm = [0, 2, 1]> (k) s = MatMul (q, kt) p = Softmax (s) a = MatMul (p, z) o = MatMul (a, wo) "
        "h = Add (x, o) n2 = LayerNormalization (h, g) u = MatMul (n2, wu) ur = Relu (u) d = MatMul (ur, wd) "
        f"e0 = Add (h, d) e = LayerNormalization (e0, g) {FIRST}"
    )
    square = "".join(f", float[256,256] {name}" for name in ("wq", "wk", "wz", "wo"))
    weights = f", float[256] g{square}, float[256,512] wu, float[512,256] wd"
    model = tokens(body, weights, "N,256", x="N,T,256")
    result = optimized(model, rules=["pick_first"], target="ort-cpu", dims={"N": 1, "T": 64})
    feeds = random_feeds(model, dims={"N": 2, "T": 5})
    assert_same(model, result.model, feeds)
    names = [op for op in ops(result.model) if op != "Constant"]
    assert names.count("Gather") == 2 and names.count("MatMul") == 8  # of x for the shortcut, and of n for q
    shapes = {v.name: v for v in onnx.shape_inference.infer_shapes(result.model).graph.value_info}
    wide = [n for n in result.model.graph.node if n.op_type == "MatMul" and n.input[1] == "wu"]
    assert shapes[wide[0].output[0]].type.tensor_type.shape.dim[1].dim_value == 1


@pytest.mark.parametrize("dtype", ["FLOAT8E4M3FN", "FLOAT8E5M2", "INT4", "UINT4"])
@pytest.mark.parametrize("opset", [19, 21, 23])
def test_no_slice_of_what_slice_does_not_take(dtype: str, opset: int) -> None:
    if "INT4" in dtype and opset < 21:
        pytest.skip("there is no 4-bit integer before opset 21")
    kind = onnx.TensorProto.DataType.Value(dtype)
    m = graph(
        f"""q = Cast <to = {kind}> (x) c = Cast <to = 1> (q) d = Exp(c)
        s = Constant <value_ints = [0]> () e = Constant <value_ints = [1]> () y = Slice(d, s, e)""",
        inputs="float[8,3] x", outputs="float[1,3] y", opset=opset, ir=10,
    )  # fmt: skip
    result = optimized(m, target="ort-cpu", verify=False)
    onnx.checker.check_model(result.model, full_check=True)
    assert_same(m, result.model, random_feeds(m))
