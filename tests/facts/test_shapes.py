"""Shapes worked by hand, family by family, old and new forms of an operator, with numbers and with symbols."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto as T
from onnx import parser

from onnxfuse import facts, ir
from onnxfuse.facts import Value

F32 = "float[{}]"


def last(
    body: str, *, opset: int = 17, extra: dict[str, int] | None = None, outputs: str = "y", **inputs: str
) -> list[Value]:
    """Facts of the outputs; an input is dims for float ("N, 3") or a whole type ("int64[2]")."""
    types = ", ".join(f"{t if '[' in t else F32.format(t)} {name}" for name, t in inputs.items())
    imports = ", ".join(f'"{d}" : {v}' for d, v in {"": opset, **(extra or {})}.items())
    results = ", ".join(f"float {o}" for o in outputs.split())
    text = f"<ir_version: 8, opset_import: [{imports}]> g ({types}) => ({results}) {{ {body} }}"
    model: onnx.ModelProto = parser.parse_model(text)
    found = facts.infer(ir.read(model))
    return [found[o] for o in outputs.split()]


def shape(body: str, **kwargs: object) -> str:
    """Shape of `y` as text."""
    (value,) = last(body, **kwargs)  # type: ignore[arg-type]
    return "?" if value.shape is None else ", ".join(map(str, value.shape))


@pytest.mark.parametrize(
    ("body", "inputs", "expected"),
    [
        # element-wise
        ("y = Add(a, b)", {"a": "N, 1, 4", "b": "3, 1"}, "N, 3, 4"),
        ("y = Mul(a, b)", {"a": "N, 4", "b": "M, 4"}, "max(M, N), 4"),  # one of them is 1, or they are equal
        ("y = Sub(a, b)", {"a": "N, 4", "b": "5, 4"}, "5, 4"),  # N is 1 or 5
        ("y = Add(a, b)", {"a": "3", "b": "4"}, "?"),
        ("y = Where(c, a, b)", {"c": "bool[2, 1]", "a": "1, 3", "b": "4, 1, 1"}, "4, 2, 3"),
        ("y = Sum(a, b, c)", {"a": "2, 1", "b": "3", "c": "1"}, "2, 3"),
        ("y = PRelu(a, b)", {"a": "N, 3, 5", "b": "3, 1"}, "N, 3, 5"),
        ("y = Clip(a)", {"a": "N, 3"}, "N, 3"),
        # convolution, 7x7 stride 2: (224 + 6 - 7)/2 + 1 = 112
        ("y = Conv <strides=[2,2], pads=[3,3,3,3]> (a, w)", {"a": "N, 3, 224, 224", "w": "64, 3, 7, 7"},
         "N, 64, 112, 112"),
        ("y = Conv <strides=[2,2], pads=[1,1,1,1]> (a, w)", {"a": "N, 3, H, W", "w": "8, 3, 3, 3"},
         "N, 8, (H + 1)//2, (W + 1)//2"),
        # dilation 2: a 3-tap kernel spans 5
        ("y = Conv <dilations=[2]> (a, w)", {"a": "1, 4, L", "w": "6, 2, 3"}, "1, 6, L - 4"),
        ('y = Conv <auto_pad="SAME_UPPER", strides=[3]> (a, w)', {"a": "1, 4, 10", "w": "6, 4, 5"}, "1, 6, 4"),
        ('y = Conv <auto_pad="VALID", strides=[3]> (a, w)', {"a": "1, 4, 10", "w": "6, 4, 5"}, "1, 6, 2"),
        ("y = Conv(a, w)", {"a": "1, 4, 2", "w": "6, 4, 5"}, "?"),  # the kernel does not fit
        # 2·(H - 1) + 2
        ("y = ConvTranspose <strides=[2,2]> (a, w)", {"a": "N, 8, H, W", "w": "8, 4, 2, 2"}, "N, 4, 2·H, 2·W"),
        ("y = ConvTranspose <group=2, strides=[2], output_padding=[1], pads=[1,1]> (a, w)",
         {"a": "N, 8, 5", "w": "8, 3, 3"}, "N, 6, 10"),  # 2·4 + 1 + 3 - 2
        # pooling
        ("y = MaxPool <kernel_shape=[3,3], strides=[2,2]> (a)", {"a": "N, 8, 112, 112"}, "N, 8, 55, 55"),
        ("y = MaxPool <kernel_shape=[3,3], strides=[2,2], ceil_mode=1> (a)", {"a": "N, 8, 112, 112"}, "N, 8, 56, 56"),
        # ceil((5 + 2 - 2)/4) + 1 = 3, but a third window would begin at 8 >= 5 + 1
        ("y = AveragePool <kernel_shape=[2], strides=[4], pads=[1,1], ceil_mode=1> (a)", {"a": "1, 1, 5"}, "1, 1, 2"),
        ("y = GlobalAveragePool(a)", {"a": "N, 8, H, W"}, "N, 8, 1, 1"),
        # matrix products
        ("y = MatMul(a, b)", {"a": "N, 1, 5, 3", "b": "7, 3, 4"}, "N, 7, 5, 4"),
        ("y = MatMul(a, b)", {"a": "3", "b": "3"}, ""),
        ("y = MatMul(a, b)", {"a": "2, 5, 3", "b": "3"}, "2, 5"),
        ("y = MatMul(a, b)", {"a": "3", "b": "2, 3, 4"}, "2, 4"),
        ("y = MatMul(a, b)", {"a": "5, 3", "b": "4, 2"}, "?"),
        ("y = Gemm <transA=1, transB=1> (a, b)", {"a": "8, N", "b": "10, 8"}, "N, 10"),
        ('y = Einsum <equation="bhqd,bhkd->bhqk"> (a, b)', {"a": "B, 8, Q, 64", "b": "B, 8, K, 64"}, "B, 8, Q, K"),
        ('y = Einsum <equation="...ij,...jk"> (a, b)', {"a": "5, 2, 3", "b": "1, 3, 4"}, "5, 2, 4"),
        # reductions
        ("y = ReduceMean <axes=[2,3]> (a)", {"a": "N, 8, H, W"}, "N, 8, 1, 1"),
        ("y = ReduceMax <axes=[-1], keepdims=0> (a)", {"a": "N, 8, H"}, "N, 8"),
        ("y = ReduceSum <keepdims=0> (a)", {"a": "N, 8"}, ""),
        ("y = ArgMax <axis=1, keepdims=0> (a)", {"a": "N, 8, H"}, "N, H"),
        # rearranging
        ("y = Transpose <perm=[2,0,1]> (a)", {"a": "N, C, L"}, "L, N, C"),
        ("y = Transpose(a)", {"a": "N, C, L"}, "L, C, N"),
        ("y = Flatten(a)", {"a": "N, C, 2, 3"}, "N, 6·C"),
        ("y = Flatten <axis=0> (a)", {"a": "N, 2"}, "1, 2·N"),
        ("s = Constant <value_ints=[0, -1, 2]>() y = Reshape(a, s)", {"a": "N, 4, H"}, "N, 2·H, 2"),
        ("s = Constant <value_ints=[-1, 5]>() y = Reshape(a, s)", {"a": "4, 3"}, "?"),  # 12 is no multiple of 5
        ("s = Constant <value_ints=[5, 2]>() y = Reshape(a, s)", {"a": "4, 3"}, "?"),
        ("y = Reshape(a, s)", {"a": "4, 3", "s": "int64[2]"}, "y.0, y.1"),
        ("y = Concat <axis=1> (a, b)", {"a": "N, C, 4", "b": "N, 3, 4"}, "N, C + 3, 4"),
        ("y = Concat <axis=0> (a, b)", {"a": "2, 3", "b": "2, 4"}, "?"),
        ("y = DepthToSpace <blocksize=2> (a)", {"a": "N, 16, H, 5"}, "N, 4, 2·H, 10"),
        ("y = SpaceToDepth <blocksize=2> (a)", {"a": "N, 4, 6, 10"}, "N, 16, 3, 5"),
        ("i = Constant <value_ints=[3, -1]>() y = Gather <axis=1> (a, i)", {"a": "N, 9, H"}, "N, 2, H"),
        ("y = GatherND <batch_dims=1> (a, i)", {"a": "2, 3, 4, 5", "i": "int64[2, 7, 1]"}, "2, 7, 4, 5"),
        ("y = NonZero(a)", {"a": "3, 4"}, "2, y.1"),
        ("k = Constant <value_ints=[5]>() y, i = TopK(a, k)", {"a": "N, 100"}, "N, 5"),
        ("d = Constant <value_int=7>() v = Constant <value_floats=[0.0, 1.0]>() y = OneHot <axis=1> (i, d, v)",
         {"i": "int64[N, 3]"}, "N, 7, 3"),
        # recurrent and normalisation
        ("y = LSTM <hidden_size=16, direction=\"bidirectional\"> (a, w, r)",
         {"a": "S, B, 8", "w": "2, 64, 8", "r": "2, 64, 16"}, "S, 2, B, 16"),
        ("y = GRU <layout=1> (a, w, r)", {"a": "B, S, 8", "w": "1, 48, 8", "r": "1, 48, 16"}, "B, S, 1, 16"),
        ("y = LayerNormalization(a, g)", {"a": "N, 5, 8", "g": "8"}, "N, 5, 8"),
    ],
)  # fmt: skip
def test_shape(body: str, inputs: dict[str, str], expected: str) -> None:
    assert shape(body, **inputs) == expected


@pytest.mark.parametrize(
    ("old", "old_opset", "new"),
    [
        ("y = Squeeze <axes=[0, -1]> (a)", 11, "x = Constant <value_ints=[0, -1]>() y = Squeeze(a, x)"),
        ("y = Unsqueeze <axes=[0, 4]> (a)", 11, "x = Constant <value_ints=[0, -1]>() y = Unsqueeze(a, x)"),
        ("y = ReduceSum <axes=[1]> (a)", 11, "x = Constant <value_ints=[1]>() y = ReduceSum(a, x)"),
        ("y = Slice <axes=[1], starts=[1], ends=[-1]> (a)", 9,
         "s = Constant <value_ints=[1]>() e = Constant <value_ints=[-1]>() y = Slice(a, s, e, s)"),
        ("y = Pad <pads=[0,1,0,0,2,0]> (a)", 2, "p = Constant <value_ints=[0,1,0,0,2,0]>() y = Pad(a, p)"),
        ("y, z = Split <axis=1, split=[2,6]> (a)", 11,
         "p = Constant <value_ints=[2,6]>() y, z = Split <axis=1> (a, p)"),
        ("y = Upsample <scales=[1.0,2.0,1.0]> (a)", 7,
         "s = Constant <value_floats=[1.0,2.0,1.0]>() y = Resize(a, , s)"),
        ("y, z = TopK <k=3, axis=1> (a)", 9, "k = Constant <value_ints=[3]>() y, z = TopK <axis=1> (a, k)"),
        ("y = Clip <min=0.0> (a)", 6, "l = Constant <value_float=0.0>() y = Clip(a, l)"),
        ("y = Reshape <shape=[4,2,-1]> (a)", 1, "s = Constant <value_ints=[4,2,-1]>() y = Reshape(a, s)"),
    ],
)  # fmt: skip
def test_attribute_and_input_forms_agree(old: str, old_opset: int, new: str) -> None:
    before, after = shape(old, opset=old_opset, a="1, 8, 1"), shape(new, opset=18, a="1, 8, 1")
    assert before == after != "?"


def test_old_broadcast_stretches_the_second_operand() -> None:
    assert shape("y = Add <broadcast=1, axis=1> (a, b)", opset=6, a="N, 3, 5", b="3") == "N, 3, 5"


def test_split_of_a_symbolic_dimension() -> None:
    parts = last("y, z = Split <axis=1> (a)", outputs="y z", a="N, C, 4")
    assert [str(v.shape[1]) for v in parts] == ["C//2", "C//2"]  # before opset 18 the parts are even
    parts = last("y, z = Split <axis=1, num_outputs=2> (a)", opset=18, outputs="y z", a="N, C, 4")
    assert [str(v.shape[1]) for v in parts] == ["(C + 1)//2", "-((C + 1)//2) + C"]


def test_broadcast_of_dimensions_that_may_be_zero() -> None:
    pooled = "p = AveragePool <kernel_shape=[2], strides=[2]> (a) q = AveragePool <kernel_shape=[3], strides=[3]> (a)"
    (value,) = last(f"{pooled} y = Add(p, q)", a="1, 1, L")
    dim = value.shape[2]
    # L = 3: both are 1; L = 1: no window fits, both are 0; L = 2: 1 and 0 broadcast to 0.
    assert [facts.evaluate(dim, {"L": n}) for n in (1, 2, 3)] == [0, 0, 1]


def test_squeeze_without_axes_does_not_guess_that_a_symbol_is_not_one() -> None:
    assert shape("y = Squeeze(a)", a="1, 3, 1") == "3"
    assert shape("y = Squeeze(a)", a="1, N, 1") == "?"


@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [
        (0, 2**63 - 1, 1, "N"),
        (1, 2**31 - 1, 1, "N - 1"),
        (-1, 2**63 - 1, 1, "1"),
        (0, -1, 1, "N - 1"),
        (-3, 2**63 - 1, 1, "N - max(0, N - 3)"),  # the last three, or all there are
        (0, 5, 1, "min(5, N)"),
        (0, 2**63 - 1, 2, "(N + 1)//2"),
        (1, 2**63 - 1, 2, "N//2"),
        (-1, -(2**63), -1, "N"),
    ],
)
def test_slice_of_a_symbolic_dimension(start: int, end: int, step: int, expected: str) -> None:
    constants = {"s": start, "e": end, "x": 0, "t": step}
    body = " ".join(f"{n} = Constant <value_ints=[{v}]>()" for n, v in constants.items())
    assert shape(f"{body} y = Slice(a, s, e, x, t)", a="N") == expected


@pytest.mark.parametrize("size", ["N", "N + 1", "8·((N + 4)//8)", "4·(N//4)", "2·(N//2)"])
@pytest.mark.parametrize(("start", "end"), [(0, -4), (-4, 0), (-6, -4), (-3, 5)])
def test_a_slice_to_a_place_counted_from_the_end_in_symbols(size: str, start: int, end: int) -> None:
    """Bounds that are computed as size − c, as a roll does, below 0 for a small size: as Python slices a list."""
    computed = {  # from s = [N]
        "N": "n = Identity(s)",
        "N + 1": "n = Add(s, one)",
        "8·((N + 4)//8)": "p = Add(s, four) q = Div(p, eight) n = Mul(q, eight)",
        "4·(N//4)": "q = Div(s, four) n = Mul(q, four)",
        "2·(N//2)": "q = Div(s, two) n = Mul(q, two)",
    }[size]
    constants = {"zero": 0, "one": 1, "two": 2, "four": 4, "eight": 8, "down": abs(start), "up": abs(end)}
    body = " ".join(f"{n} = Constant <value_ints=[{v}]>()" for n, v in constants.items())
    body += f" s = Shape(a) {computed} x = ConstantOfShape(n) b = {{}} e = {{}} y = Slice(x, b, e)"
    body = body.format(*("Identity(zero)" if k == 0 else f"Sub(n, {n})" for k, n in ((start, "down"), (end, "up"))))
    if end > 0:
        body = body.replace("Sub(n, up)", "Identity(up)")
    x, y = last(body, outputs="x y", a="N")
    assert x.shape is not None and y.shape is not None and str(x.shape[0]) == size
    for n in range(1, 20):
        count = facts.evaluate(x.shape[0], {"N": n})
        first, stop = count + start if start else 0, end if end > 0 else count + end if end else 0
        assert facts.evaluate(y.shape[0], {"N": n}) == len(list(range(count))[first:stop]), (n, str(y.shape[0]))


def test_resize_with_symbols() -> None:
    scales = "s = Constant <value_floats=[1.0, 1.0, 2.0, 0.5]>()"
    assert shape(f"{scales} y = Resize(a, , s)", a="N, 3, H, W") == "N, 3, 2·H, W//2"
    # floats give ⌊17·W/10⌋ for 1.7, and 7 of 10 for 0.7, whose float32 is smaller
    assert shape("s = Constant <value_floats=[1.7]>() y = Resize(a, , s)", a="W") == "((7·W)//10) + W"
    assert shape("s = Constant <value_floats=[0.7]>() y = Resize(a, , s)", a="W") == "(7·W)//10"
    assert shape("s = Constant <value_floats=[0.7]>() y = Resize(a, , s)", a="10") == "7"
    # 0.3333 stands for no short fraction: rounding decides, so the dimension stays open.
    assert shape("s = Constant <value_floats=[0.3333]>() y = Resize(a, , s)", a="W") == "y.0"
    assert shape("s = Constant <value_floats=[0.3333]>() y = Resize(a, , s)", a="10") == "3"


def test_a_broadcast_of_dims_that_some_sizes_make_negative() -> None:
    """Windows of 5 and of 3 in steps of 2: ⌊(H − 3)/2⌋ and ⌊(W − 1)/2⌋, which are equal or one of them is 1."""
    pools = "p = MaxPool <kernel_shape=[5], strides=[2]> (a) q = MaxPool <kernel_shape=[3], strides=[2]> (b)"
    (x,) = last(f"{pools} y = Add(p, q)", a="1, 1, H", b="1, 1, W")
    assert x.shape is not None
    for h, w, size in ((9, 7, 3), (5, 9, 4), (9, 3, 3)):
        assert facts.evaluate(x.shape[2], {"H": h, "W": w}) == size


def test_types() -> None:
    def dtypes(body: str, outputs: str = "y", **kwargs: object) -> list[int]:
        return [v.dtype for v in last(body, outputs=outputs, **kwargs)]  # type: ignore[arg-type]

    assert dtypes("y = Cast <to=10> (a)", a="3") == [T.FLOAT16]
    assert dtypes("y = Less(a, a)", a="3") == [T.BOOL]
    assert dtypes("y = Shape(a)", a="3") == [T.INT64]
    assert dtypes("y, m = Dropout(a)", "y m", a="3") == [T.FLOAT, T.BOOL]
    assert dtypes("y, i = MaxPool <kernel_shape=[1]> (a)", "y i", a="1, 1, 3") == [T.FLOAT, T.INT64]
    assert dtypes("y, s, z = DynamicQuantizeLinear(a)", "y s z", a="3") == [T.UINT8, T.FLOAT, T.UINT8]
    assert dtypes("y = QuantizeLinear(a, b, z)", a="3", b="float[]", z="int8[]") == [T.INT8]
    assert dtypes("y = Where(c, a, a)", c="bool[3]", a="double[3]") == [T.DOUBLE]
    assert dtypes("y = ConstantOfShape(a)", a="int64[2]") == [T.FLOAT]
    assert dtypes("y = Range(a, a, a)", a="int32[]") == [T.INT32]


@pytest.mark.parametrize(
    ("body", "inputs", "expected"),
    [
        ("y = com.microsoft.FusedConv <strides=[2], activation=\"Relu\"> (a, w)", {"a": "N, 3, 9", "w": "4, 3, 3"},
         "N, 4, 4"),
        ("y = com.microsoft.FusedMatMul <transB=1> (a, b)", {"a": "N, 5, 3", "b": "4, 3"}, "N, 5, 4"),
        ("y = com.microsoft.FusedGemm <activation=\"Relu\"> (a, b)", {"a": "N, 3", "b": "3, 4"}, "N, 4"),
        ("y = com.microsoft.QuickGelu(a)", {"a": "N, 3"}, "N, 3"),
        ("y = com.microsoft.BiasGelu(a, b)", {"a": "N, 3", "b": "3"}, "N, 3"),
        ("y, m, v, s = com.microsoft.SkipLayerNormalization(a, a, g)", {"a": "N, 5, 8", "g": "8"}, "N, 5, 8"),
    ],
)  # fmt: skip
def test_operators_of_onnxruntime(body: str, inputs: dict[str, str], expected: str) -> None:
    assert shape(body, extra={"com.microsoft": 1}, **inputs) == expected


def test_a_pooling_that_ends_below_zero_is_unknown() -> None:
    assert shape("y = AveragePool <kernel_shape=[9]> (a)", a="1, 1, 3") == "?"
