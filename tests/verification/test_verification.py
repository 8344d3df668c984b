"""Wrong models are found and named, right ones pass, and what cannot be judged is said to be so."""

from __future__ import annotations

import sys
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from onnxfuse import runtime
from onnxfuse.errors import Finding, MissingDependency, ModelError, OutOfMemory, UsageError
from onnxfuse.verification import Reference, Subject, Unjudged, Verdict, compare, reference, verify


@pytest.fixture
def judge(tmp_path):
    """compare(a, b) of two models given as ONNX text bodies or protos."""

    def run(a, b, **options) -> Verdict:
        paths = []
        for name, model in (("a.onnx", a), ("b.onnx", b)):
            paths.append(tmp_path / name)
            onnx.save(model if isinstance(model, onnx.ModelProto) else text(model), paths[-1])
        return compare(*paths, **options)

    return run


def text(body: str, opset: int = 20, ir: int = 9) -> onnx.ModelProto:
    imports = f'"" : {opset}, "ai.onnx.ml" : 3, "com.microsoft" : 1'
    return parser.parse_model(f"<ir_version: {ir}, opset_import: [{imports}]> g {body}")


RELU = "(float[N,4] x) => (float[N,4] y) { y = Relu(x) }"


def test_the_same_model_is_ok(judge):
    verdict = judge(RELU, RELU)
    assert verdict.ok
    assert verdict.reason is None
    assert verdict.max_error == 0
    assert verdict.cases >= 2
    assert [(o.name, o.dtype, o.tolerance) for o in verdict.outputs] == [("y", "float32", 1e-5)]
    assert verdict.to_json()["outputs"][0]["name"] == "y"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("y = Relu(x)", "y = Identity(x)"),  # data must be negative too
        ("r = Relu(x) y = Add(r, x)", "r = Relu(x) y = Add(r, r)"),  # the residual of another value
        ("y = Clip(x)", "c = Constant<value_float = 6.0>() y = Min(x, c)"),  # data must reach beyond 6
        ("y = Exp(x)", "z = Exp(x) c = Constant<value_float = 1.00003>() y = Mul(z, c)"),  # 3e-5 is not rounding
    ],
)
def test_a_wrong_value_is_found(judge, right, wrong):
    frame = "(float[N,64] x) => (float[N,64] y) {{ {} }}"
    verdict = judge(frame.format(right), frame.format(wrong))
    assert not verdict.ok
    assert verdict.max_error > 1e-5
    assert verdict.outputs[0].cause == "value"
    assert verdict.reason.startswith("output 'y' is off by")


def test_rounding_of_another_order_is_no_error(judge):
    frame = "(float[N,64] x) => (float[N,64] y) <float a = {{0.3}}, float b = {{0.7}}> {{ {} }}"
    verdict = judge(frame.format("z = Mul(x, a) y = Mul(z, b)"), frame.format("z = Mul(a, b) y = Mul(x, z)"))
    assert verdict.ok
    assert 0 < verdict.max_error < 2e-7


def test_an_error_at_larger_batches_is_found(judge):
    """The first row, spread over the batch, is right at batch 1."""
    spread = """(float[N,4] x) => (float[N,4] y) {
        zero = Constant<value_ints = [0]>() one = Constant<value_ints = [1]>()
        row = Slice(x, zero, one) shape = Shape(x) z = Expand(row, shape) y = Relu(z) }"""
    verdict = judge(RELU, spread)
    assert not verdict.ok
    assert "N=3" in verdict.reason
    assert judge(RELU, spread, dims={"N": 1}).ok


def test_a_batch_cut_at_two_is_found(judge):
    body = "a = Constant<value_ints = [0]>() b = Constant<value_ints = [2]>() z = Slice(x, a, b) y = Relu(z)"
    assert not judge(RELU, f"(float[N,4] x) => (float[M,4] y) {{ {body} }}".replace("M", "N")).ok


def test_other_channels_and_scalars_are_tried(judge):
    frame = "(float[1,C,8,8] x) => (float[1,D,8,8] y) {{ {} }}"
    cut = "a = Constant<value_ints = [0]>() b = Constant<value_ints = [3]>() c = Constant<value_ints = [1]>() "
    assert not judge(frame.format("y = Relu(x)"), frame.format(cut + "z = Slice(x, a, b, c) y = Relu(z)")).ok
    scalar = "(float[4] x, int64 k) => (float[4] y) {{ {} }}"
    used = scalar.format("f = Cast<to = 1>(k) y = Mul(x, f)")
    assert not judge(used, scalar.format("z = Neg(x) y = Neg(z)")).ok


def test_negative_integers_and_wide_data_are_tried(judge):
    whole = "(int32[N,8] x) => (int32[N,8] y) {{ y = {}(x) }}"
    assert not judge(whole.format("Abs"), whole.format("Identity")).ok
    bounds = "l = Constant<value_float = -60.0>() h = Constant<value_float = 60.0>() y = Clip(x, l, h)"
    frame = "(float[N,64] x) => (float[N,64] y) {{ {} }}"
    assert not judge(frame.format("y = Identity(x)"), frame.format(bounds)).ok


def test_one_huge_number_does_not_hide_the_others(judge):
    lowest = "m = Constant<value_floats = [-3.4e38, 0.0, 0.0, 0.0]>() z = {}(x) y = Add(z, m)"
    frame = f"(float[N,4] x) => (float[N,4] y) {{{{ {lowest} }}}}"
    assert not judge(frame.format("Identity"), frame.format("Neg")).ok
    assert judge(frame.format("Identity"), frame.format("Identity")).ok


def test_an_error_where_height_differs_from_width_is_found(judge):
    frame = "(float[1,3,H,W] x) => (float[1,3,A,B] y) {{ {} }}"
    right = "y = Transpose<perm = [0,1,3,2]>(x)"
    wrong = "s = Shape(x) t = Transpose<perm = [0,1,3,2]>(x) y = Reshape(t, s)"  # right for squares
    assert "output 'y' has another shape" in judge(frame.format(right), frame.format(wrong)).reason


def test_nan_and_inf_must_sit_at_equal_places(judge):
    frame = "(float[8,8] x) => (float[8,8] y) {{ {} }}"
    assert judge(frame.format("y = Sqrt(x)"), frame.format("y = Sqrt(x)")).ok
    verdict = judge(frame.format("y = Sqrt(x)"), frame.format("r = Relu(x) y = Sqrt(r)"))
    assert verdict.outputs[0].cause == "places"
    assert verdict.to_json()["max_error"] is None
    zeros = "z = Sub(x, x) {} y = Div(x, d)"
    signs = judge(frame.format(zeros.format("d = Relu(z)")), frame.format(zeros.format("r = Relu(z) d = Neg(r)")))
    assert signs.outputs[0].cause == "places"  # Inf against -Inf


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        ("(float[N,4] z) => (float[N,4] y) { y = Relu(z) }", "interface differs: inputs are z; were x"),
        ("(float[N,4] x) => (float[N,4] z) { z = Relu(x) }", "interface differs: outputs are z; were y"),
        ("(float[N,4] x) => () { y = Relu(x) }", "interface differs: outputs are none; were y"),
        ("(float[N,4] x, float[1] w) => (float[N,4] y) { y = Relu(x) }", "interface differs: inputs are x, w; were x"),
        (
            "(float[N,4] x) => (float16[N,4] y) { z = Relu(x) y = Cast<to = 10>(z) }",
            "interface differs: output 'y' is float16[N,4], was float[N,4]",
        ),
        (
            "(float[M,4] x) => (float[N,4] y) { y = Relu(x) }",
            "interface differs: input 'x' is float[M,4], was float[N,4]",
        ),
        (
            "(float[2,4] x) => (float[N,4] y) { y = Relu(x) }",
            "interface differs: input 'x' is float[2,4], was float[N,4]",
        ),
    ],
)
def test_a_changed_interface_is_found(judge, frame, reason):
    assert judge(RELU, frame).reason == reason


def test_a_lost_default_value_is_found(judge):
    a = "(float[N,4] x, float[4] w) => (float[N,4] y) <float[4] w = {1,2,3,4}> { y = Mul(x, w) }"
    b = "(float[N,4] x, float[4] w) => (float[N,4] y) { y = Mul(x, w) }"
    assert judge(a, b).reason == "interface differs: input 'w' is without a default value, was with"


def test_a_folded_overridable_initializer_is_found(judge):
    """Right as long as nobody feeds `w`."""
    frame = (
        "(float[N,2] x, float[2] w) => (float[N,2] y) <float[2] w = {{1,2}}, float[2] k = {{1,2}}> {{ y = Mul(x, {}) }}"
    )
    assert not judge(frame.format("w"), frame.format("k")).ok
    constant = [text(frame.format(name), opset=8, ir=3) for name in "wk"]  # before IR 4 nobody can
    for model in constant:
        model.graph.input.append(helper.make_tensor_value_info("k", TensorProto.FLOAT, [2]))
    assert judge(*constant).ok


@pytest.mark.parametrize(("dtype", "fine", "bad"), [("double", 1 + 1e-13, 1 + 1e-10), ("float16", 1.004, 1.02)])
def test_the_tolerance_follows_the_dtype(judge, dtype, fine, bad):
    def scaled(factor: float) -> onnx.ModelProto:
        model = text(f"({dtype}[N,64] x) => ({dtype}[N,64] y) {{ z = Tanh(x) y = Mul(z, k) }}")
        kind = model.graph.input[0].type.tensor_type.elem_type
        model.graph.initializer.append(helper.make_tensor("k", kind, [], [factor]))
        return model

    assert judge(scaled(1.0), scaled(fine)).ok
    assert not judge(scaled(1.0), scaled(bad)).ok


def test_float16_inside_counts_for_float_outputs(judge):
    frame = "(float[N,64] x) => (float[N,64] y) {{ h = Cast<to = 10>(x) t = {}(h) y = Cast<to = 1>(t) }}"
    wide = "(float[N,64] x) => (float[N,64] y) { h = Cast<to = 10>(x) f = Cast<to = 1>(h) y = Tanh(f) }"
    verdict = judge(frame.format("Tanh"), wide)  # not rounded to float16 at the end
    assert verdict.ok
    assert 1e-5 < verdict.max_error < verdict.outputs[0].tolerance == 8 * 2.0**-10


def test_an_unrelated_float16_loosens_nothing(judge):
    frame = """(float[N,64] x) => (float[N,64] y, float[N,64] z) {{
        h = Cast<to = 10>(x) z = Cast<to = 1>(h) c = Constant<value_float = {}>() y = Mul(x, c) }}"""
    assert not judge(frame.format("1.0"), frame.format("1.004")).ok


def test_the_cases_do_not_depend_on_the_clock(judge, monkeypatch):
    cases = judge(RELU, RELU).cases
    slow = runtime.run

    def slower(session, feeds, without=()):
        time.sleep(0.2)
        return slow(session, feeds, without)

    monkeypatch.setattr(runtime, "run", slower)
    assert judge(RELU, RELU).cases == cases


def test_bfloat16_inputs_and_outputs_run(judge):
    frame = "(bfloat16[N,64] x) => (bfloat16[N,64] y) {{ f = Cast<to = 1>(x) t = {}(f) y = Cast<to = 16>(t) }}"
    same = judge(frame.format("Tanh"), frame.format("Tanh"))
    assert same.ok
    assert same.outputs[0].dtype == "bfloat16"
    assert not judge(frame.format("Tanh"), frame.format("Identity")).ok


def test_a_given_tolerance_replaces_it(judge):
    scaled = "(float[N,4] x) => (float[N,4] y) { r = Relu(x) c = Constant<value_float = 1.001>() y = Mul(r, c) }"
    assert not judge(RELU, scaled).ok
    assert judge(RELU, scaled, tolerance=2e-3).ok


def test_integer_outputs_must_be_equal(judge):
    frame = "(float[N,64] x) => (int64[N,1] y) {{ y = ArgMax<axis = 1 {}>({}) }}"
    plain = frame.format("", "x")
    assert judge(plain, frame.format(", select_last_index = 1", "x")).ok  # no ties in random data
    other = judge(plain, "(float[N,64] x) => (int64[N,1] y) { y = ArgMin<axis = 1>(x) }")
    assert not other.ok
    assert "differs in" in other.reason


def test_an_index_that_ties_decide_counts_as_different(judge):
    frame = "(float[N,64] x) => (int64[N,1] y) {{ z = Sub(x, x) y = ArgMax<axis = 1 {}>(z) }}"
    assert not judge(frame.format(""), frame.format(", select_last_index = 1")).ok


def test_a_few_flips_at_a_threshold_are_allowed(judge):
    """x * 1e4 is cut to integers: about one of 1000 elements lies within an ulp of the cut, in the original as well."""
    frame = "(float[64,64] x) => (int64[64,64] y) {{ {} y = Cast<to = 7>(z) }}"
    once = "k = Constant<value_float = 10000.0>() z = Mul(x, k)"
    twice = "k = Constant<value_float = 100.0>() h = Mul(x, k) z = Mul(h, k)"
    verdict = judge(frame.format(once), frame.format(twice))
    assert verdict.ok
    assert 0 < verdict.max_error < 0.01
    off = judge(frame.format(once), frame.format(once.replace("10000.0", "10100.0")))
    assert not off.ok


def test_an_output_that_only_amplifies_rounding_is_not_called_verified(judge):
    frame = "(float[8,8] x) => (float[8,8] y) {{ {} y = Sin(z) }}"
    once = "k = Constant<value_float = 1e8>() z = Mul(x, k)"
    twice = "k = Constant<value_float = 1e4>() h = Mul(x, k) z = Mul(h, k)"
    verdict = judge(frame.format(once), frame.format(twice))
    assert not verdict.ok and not verdict.judged
    assert verdict.cases == 0
    assert "cannot be judged" in verdict.reason


def test_a_gross_error_counts_where_rounding_is_amplified(judge):
    frame = "(float[8,8] x) => (float[8,8] y) <float k = {{10000}}> {{ z = Mul(x, k) w = Sin(z) y = {} }}"
    verdict = judge(frame.format("Identity(w)"), frame.format("Add(w, w)"))
    assert "is off by" in verdict.reason and verdict.judged


def test_an_output_of_zeros_has_an_absolute_bar(judge):
    frame = "(float[4] x) => (float[4] y) {{ z = Sub(x, x) c = Constant<value_float = {}>() y = Add(z, c) }}"
    assert not judge(frame.format("0.0"), frame.format("1e-9")).ok
    assert judge(frame.format("0.0"), frame.format("1e-12")).ok


def test_outputs_that_are_never_finite_prove_nothing(judge):
    nan = "(float[4] x) => (float[4] y) { z = Sub(x, x) y = Div(z, z) }"
    verdict = judge(nan, nan)
    assert verdict.reason == "output 'y' cannot be judged: it is NaN or infinite throughout in every case"
    assert not verdict.judged


def test_a_random_output_is_named_and_the_others_are_judged(judge):
    frame = "(float[4] x) => (float[4] r, float[4] y) {{ {} r = RandomNormalLike(x) }}"
    verdict = judge(frame.format("y = Relu(x)"), frame.format("z = Relu(x) y = Relu(z)"))
    assert verdict.ok and verdict.judged and [o.name for o in verdict.outputs] == ["y"]
    assert verdict.unjudged == (Unjudged("r", "it differs between two runs of the original on the same inputs"),)
    assert verdict.to_json()["unjudged"][0]["name"] == "r"
    wrong = judge(frame.format("y = Relu(x)"), frame.format("y = Neg(x)"))
    assert not wrong.ok and "'y'" in wrong.reason
    alone = "(float[4] x) => (float[4] r) {{ {} r = RandomNormalLike(x) }}"
    refused = judge(alone.format(""), alone.format("z = RandomNormalLike(x)"))
    assert not refused.ok and not refused.judged
    assert (
        refused.reason == "output 'r' cannot be judged: it differs between two runs of the original on the same inputs"
    )


def test_one_output_that_cannot_be_judged_leaves_the_others(judge):
    nan = "(float[8] x) => (float[8] n, float[8] y) {{ z = Sub(x, x) n = Div(z, z) y = {}(x) }}"
    verdict = judge(nan.format("Relu"), nan.format("Relu"))
    assert verdict.ok and [u.name for u in verdict.unjudged] == ["n"]
    assert "NaN or infinite" in verdict.unjudged[0].reason
    assert not judge(nan.format("Relu"), nan.format("Tanh")).ok
    rough = "(float[8,8] x) => (float[8,8] s, float[8,8] y) {{ {} s = Sin(z) y = Relu(x) }}"
    once = "k = Constant<value_float = 1e8>() z = Mul(x, k)"
    twice = "k = Constant<value_float = 1e4>() h = Mul(x, k) z = Mul(h, k)"
    verdict = judge(rough.format(once), rough.format(twice))
    assert verdict.ok and verdict.cases > 2
    assert [(u.name, u.reason) for u in verdict.unjudged] == [("s", "rounding of the inputs alone moves it too far")]
    filled = "(float[8] x) => (float[8] n, float[8] y) { z = Sub(x, x) n = Relu(z) y = Relu(x) }"
    other = judge(nan.format("Relu"), filled)  # NaN became numbers: that is a difference, not a thing that nobody knows
    assert not other.ok and other.judged


def test_dims_without_a_name(judge):
    model = text("(float[a,b] x) => (float[c,d] y) { y = Relu(x) }")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "?"
        value.type.tensor_type.shape.dim[1].dim_value = -1
    assert judge(model, model).ok
    wrong = onnx.ModelProto.FromString(model.SerializeToString())
    wrong.graph.node[0].op_type = "Identity"
    assert "(x.0=1, x.1=16, normal data)" in judge(model, wrong).reason
    assert "x.1=7" in judge(model, wrong, dims={"x.1": 7}).reason


def test_strings(judge):
    encode = 'ai.onnx.ml.LabelEncoder<keys_strings = ["0","1"], values_int64s = {}>(x)'
    frame = f"(string[N] x) => (int64[N] y) {{{{ y = {encode} }}}}"
    assert judge(frame.format("[5,6]"), frame.format("[5,6]")).ok
    assert "differs in" in judge(frame.format("[5,6]"), frame.format("[6,5]")).reason
    back = "(string[N] x) => (string[N] y) { y = Identity(x) }"
    assert judge(back, back).outputs[0].dtype == "object"


def test_sequences_and_maps(judge):
    split = "(float[N,4] x) => (seq(float[N,2]) y) {{ {} y = SplitToSequence<axis = 1>(z) }}"
    same = judge(split.format("z = Relu(x)"), split.format("z = Relu(x)"))
    assert same.ok
    assert "y[0]" in {o.name for o in same.outputs}
    assert not judge(split.format("z = Relu(x)"), split.format("z = Identity(x)")).ok
    join = "(seq(float[N,4]) x) => (float[M,4] y) {{ {} }}"
    right = join.format("z = ConcatFromSequence<axis = 0>(x) y = Relu(z)")
    assert judge(right, right).ok
    assert not judge(right, join.format("y = ConcatFromSequence<axis = 0>(x)")).ok


def test_maps(judge):
    model = text(
        "(float[N,2] x) => (seq(map(int64, float)) y) { y = ai.onnx.ml.ZipMap<classlabels_int64s = [3, 9]>(x) }"
    )
    other = text(
        "(float[N,2] x) => (seq(map(int64, float)) y) { y = ai.onnx.ml.ZipMap<classlabels_int64s = [3, 8]>(x) }"
    )
    verdict = judge(model, model)
    assert verdict.ok
    assert "y[0][9]" in {o.name for o in verdict.outputs}
    assert judge(model, other).reason.startswith("output 'y[0][9]' is missing")


def test_fused_operators_of_onnxruntime_and_local_functions_run(judge):
    frame = "(float[N,3,8,8] x) => (float[N,4,6,6] y) {{ {} }}"
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 3, 3, 3], np.linspace(-1, 1, 108))

    def weighted(body: str) -> onnx.ModelProto:
        model = text(frame.format(body))
        model.graph.initializer.append(weight)
        return model

    plain = weighted("c = Conv(x, w) y = Relu(c)")
    assert judge(plain, weighted('y = com.microsoft.FusedConv<activation = "Relu">(x, w)')).ok
    assert not judge(plain, weighted('y = com.microsoft.FusedConv<activation = "Tanh">(x, w)')).ok
    body = "c = Conv(x, w) y = {}(c)"
    for op, right in (("Relu", True), ("Tanh", False)):
        model = parser.parse_model(
            '<ir_version: 9, opset_import: ["" : 20, "fused" : 1]> g '
            + frame.format("y = fused.ConvRelu(x, w)")
            + f'<domain: "fused", opset_import: ["" : 20]> ConvRelu (x, w) => (y) {{ {body.format(op)} }}'
        )
        model.graph.initializer.append(weight)
        assert judge(plain, model).ok is right


def test_what_does_not_load_is_told(judge):
    verdict = judge(RELU, "(float[N,4] x) => (float[N,4] y) { y = com.microsoft.NoSuchOp(x) }")
    assert verdict.reason.startswith("optimized model does not load: ")
    assert "\n" not in verdict.reason and verdict.judged
    custom = "(float[N,4] x) => (float[N,4] y) { y = com.microsoft.NoSuchOp(x) }"
    unknown = judge(custom, custom)
    assert unknown.reason.startswith("onnxruntime does not load the original: ") and not unknown.judged


def test_what_does_not_run_is_told(judge):
    fixed = "(float[N,4] x) => (float[N,4] y) { s = Constant<value_ints = [1,4]>() z = Reshape(x, s) y = Relu(z) }"
    reason = judge(RELU, fixed).reason
    assert reason.startswith("optimized model does not run (N=3")


def test_an_invalid_model_is_told(judge):
    broken = text(RELU)
    broken.graph.node[0].attribute.append(helper.make_attribute("no_such_attribute", 1))
    assert judge(RELU, broken).reason.startswith("optimized model is invalid: ")


def test_no_inputs_found_names_the_dims(judge):
    stuck = "(float[N,K] x) => (float[A,B] y) { s = Constant<value_ints = [7,11,13]>() y = Reshape(x, s) }"
    verdict = judge(stuck, stuck)
    reason = verdict.reason
    assert not verdict.judged
    assert reason.startswith("could not generate valid inputs (115 attempts). Pass real ones with --inputs data.npz")
    assert "or give sizes with --dim N=… --dim K=…. onnxruntime said: " in reason
    assert judge(stuck, stuck, dims={"N": 77, "K": 13}).ok


def test_bad_files_and_dims_are_errors(judge, tmp_path):
    with pytest.raises(UsageError, match="no input has a free dimension 'M'; free dimensions: N"):
        judge(RELU, RELU, dims={"M": 1})
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    with pytest.raises(ModelError, match="junk"):
        compare(tmp_path / "a.onnx", tmp_path / "junk.onnx")
    with pytest.raises(ModelError, match="absent"):
        compare(tmp_path / "absent.onnx", tmp_path / "a.onnx")


def test_a_model_without_inputs(judge):
    frame = "() => (float[2] y) {{ y = Constant<value_floats = [1.0, {}]>() }}"
    assert judge(frame.format(2.0), frame.format(2.0)).ok
    assert not judge(frame.format(2.0), frame.format(3.0)).ok


def test_a_reference_judges_many(tmp_path):
    paths = [tmp_path / f"{i}.onnx" for i in range(3)]
    for path, op in zip(paths, ("Relu", "Relu", "Tanh"), strict=True):
        onnx.save(text(RELU.replace("Relu", op)), path)
    subjects = [Subject.of(path) for path in paths]
    reference = Reference(subjects[0], lambda name: tmp_path / name)
    assert [reference.judge(s).ok for s in subjects] == [True, True, False]
    assert reference.judge(subjects[2]) == compare(paths[0], paths[2])  # the same feeds each time
    quick = reference.judge(subjects[2], quick=True)
    assert not quick.ok and quick.cases < reference.judge(subjects[2]).cases
    assert reference.judge(subjects[1], quick=True) == reference.judge(subjects[1])


def test_a_reference_that_cannot_run_is_a_finding(tmp_path):
    path = tmp_path / "a.onnx"
    onnx.save(text("(float[N,4] x) => (float[N,4] y) { y = com.microsoft.NoSuchOp(x) }"), path)
    with pytest.raises(Finding, match="does not load the original"):
        Reference(Subject.of(path), lambda name: tmp_path / name)


def test_external_data_is_used(tmp_path):
    weight = helper.make_tensor("w", TensorProto.FLOAT, [64, 64], np.ones((64, 64), np.float32).tobytes(), raw=True)
    for name, scale in (("a", 1), ("b", 2)):
        model = text("(float[N,64] x) => (float[N,64] y) { y = MatMul(x, w) }")
        copy = model.graph.initializer.add()
        copy.CopyFrom(weight)
        copy.raw_data = (np.ones((64, 64), np.float32) * scale).tobytes()
        (tmp_path / name).mkdir()
        onnx.save(model, tmp_path / name / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    a, b = (tmp_path / name / "m.onnx" for name in "ab")
    assert compare(a, a).ok
    assert not compare(a, b).ok


def test_missing_onnxruntime_is_one_line(judge, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependency) as caught:
        judge(RELU, RELU)
    message = str(caught.value)
    assert 'pip install -e ".[cpu]"' in message
    assert "--no-verify" in message
    assert "\n" not in message


@pytest.mark.parametrize("dtype", ["float", "bfloat16"])
def test_a_model_that_never_ends_is_ended_once(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 comes out of onnxruntime by another call."""
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[N] x) => ({dtype}[N] y) <int64 most = {{9223372036854775807}}, bool yes = {{1}}> {{
          z = Loop (most, yes, x) <body = b (int64 i, bool c, float[N] v) => (bool more, float[N] w)
            {{ more = Identity (c) w = Sin (v) }}>
          y = Cast <to = {onnx.TensorProto.DataType.Value(dtype.upper())}> (z) }}"""
    )
    monkeypatch.setattr(runtime, "_SECONDS", 0.3)
    runs: list[object] = []
    real = runtime._within_limit
    monkeypatch.setattr(runtime, "_within_limit", lambda *given: runs.append(given) or real(*given))
    verdict = verify(model, model)
    assert not verdict.ok and "still ran after" in str(verdict.reason) and len(runs) == 1


def test_outputs_that_no_memory_compares(monkeypatch):
    def lacking(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(reference, "difference", lacking)
    with pytest.raises(OutOfMemory, match="not enough memory for this model"):
        verify(text(RELU), text(RELU))
