"""Facts across If, Loop, Scan and local functions."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper, parser

from onnxfuse import facts, ir
from onnxfuse.facts import Facts, Value


def infer(
    text: str, dims: dict[str, int] | None = None, *, opset: int = 17, domain: str = "local", general: bool = False
) -> Facts:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}, "{domain}" : 1]> {text}')
    return facts.infer(ir.read(model), dims, general=general)


def shape(value: Value) -> str:
    return "?" if value.shape is None else ", ".join(map(str, value.shape))


BRANCHES = """
then_branch = t () => (float p) { p = Relu(a) },
else_branch = e () => (float q) { axes = Constant <value_ints=[0]>() q = Unsqueeze(a, axes) }
"""


def test_if_with_a_known_condition_is_that_branch() -> None:
    found = infer(
        f"""g (float[N, 3] a) => (float y) {{
            s = Shape(a) zero = Constant <value_ints=[0]>() n = Gather(s, zero) c = Equal(n, zero)
            y = If (c) <{BRANCHES}> }}"""
    )
    assert found["c"].data.tolist() == [False]  # N is never 0
    assert shape(found["y"]) == "1, N, 3"
    branch = found.bodies[4, "then_branch"]
    assert shape(branch["p"]) == "N, 3"
    assert shape(branch["a"]) == "N, 3"  # from the enclosing scope
    assert branch.outer is found


TWO = """g (float[%s, 3] a, float[%s, 3] b, bool c) => (float y) { y = If (c) <
    then_branch = t () => (float p) { p = Relu(a) },
    else_branch = e () => (float q) { %s }> }"""


def test_if_with_an_unknown_condition_keeps_what_both_branches_have() -> None:
    found = infer(f"g (float[N, 3] a, bool c) => (float y) {{ y = If (c) <{BRANCHES}> }}", general=True)
    assert shape(found["y"]) == "?"  # rank 2 or 3
    for first, second in (("N", "M"), ("5", "7")):
        found = infer(TWO % (first, second, "q = Relu(b)"), general=True)
        assert shape(found["y"]) == "y.0, 3" and not found.assumed
        assert found["y"].dtype == T.FLOAT


@pytest.mark.parametrize(
    ("first", "second", "other", "taken"),
    [
        ("N", "M", "q = Relu(b)", "max(M, N), 3"),
        ("5", "7", "q = Relu(b)", "7, 3"),
        ("7", "5", "q = Relu(b)", "7, 3"),
        ("5", "7", "q = ReduceSum <keepdims = 0> (b)", "5, 3"),
        ("5", "7", "ax = Constant <value_ints = [0]> () q = Unsqueeze(b, ax)", "1, 7, 3"),
        ("N", "M", "ax = Constant <value_ints = [0]> () q = Unsqueeze(b, ax)", "?"),  # N or M may be the larger one
        ("5", "7", "q = local.Op(b)", "5, 3"),
    ],
)
def test_a_cost_takes_the_larger_branch(first: str, second: str, other: str, taken: str) -> None:
    found = infer(TWO % (first, second, other))
    assert shape(found["y"]) == taken and found.assumed
    if taken != "?":
        assert found["y"].dtype == T.FLOAT


def test_a_cost_takes_the_longer_sequence() -> None:
    found = infer("""g (float[4, 3] a, float[5, 3] b, bool c) => (float y, float z)
        <int64 last = {1}, int64 first = {0}>
        { s = If (c) <then_branch = t () => (seq(float) p) { p = SequenceConstruct(b, a) },
                      else_branch = e () => (seq(float) q) { q = SequenceConstruct(a) }>
          y = SequenceAt(s, first) z = SequenceAt(s, last) }""")
    assert (shape(found["y"]), shape(found["z"]), found.assumed) == ("5, 3", "4, 3", True)


def test_equal_branches_assume_nothing() -> None:
    found = infer(TWO % ("5", "5", "q = Relu(b)"))
    assert shape(found["y"]) == "5, 3" and not found.assumed


def loop(body: str, *, outputs: str = "y") -> Facts:
    """At most five rounds that carry x."""
    return infer(
        f"""g (float[N, 3] x) => (float y) {{
            m = Constant <value = int64[1] {{5}}>() go = Constant <value = bool {{1}}>()
            {outputs} = Loop (m, go, x) <body = b {body}> }}"""
    )


def test_loop_with_a_trip_count() -> None:
    found = loop(
        """(int64 i, bool c, float s) => (bool d, float t, float u) {
            d = Identity(c) t = Relu(s) u = ReduceSum <keepdims=0> (s) }""",
        outputs="z, y",
    )
    assert found.trips == {2: 5}
    assert shape(found["z"]) == "N, 3"
    assert shape(found["y"]) == "5"  # one scalar an iteration
    assert shape(found.bodies[2, "body"]["t"]) == "N, 3"


def test_loop_whose_state_grows() -> None:
    found = loop(
        "(int64 i, bool c, float s) => (bool d, float t) { d = Identity(c) t = Concat <axis=0> (s, x) }",
    )
    body = found.bodies[2, "body"]
    assert shape(body["s"]) == "s.0, 3"
    assert shape(body["t"]) == "N + s.0, 3"  # N rows more in every iteration
    # After five rounds: what the last iteration made of its input.
    assert shape(found["y"]) == "N + s.0, 3"


def test_loop_with_a_condition_of_its_own_has_no_trip_count() -> None:
    found = loop(
        """(int64 i, bool c, float s) => (bool d, float t, float u) {
            k = Constant <value = int64 {3}>() d = Less(i, k) t = Relu(s) u = Neg(s) }""",
        outputs="z, y",
    )
    assert found.trips == {}
    assert shape(found["z"]) == "N, 3"
    assert shape(found["y"]) == "y.0, N, 3"


def test_loop_keeps_the_contents_of_what_it_does_not_change() -> None:
    found = infer(
        """g (float[N, 3] x) => (float y) {
            m = Constant <value = int64[1] {5}>() k = Constant <value_ints=[3, -1]>()
            kk, y = Loop (m, , k, x) <body = b (int64 i, bool c, int64 r, float s) => (bool d, int64 q, float t) {
                d = Identity(c) q = Identity(r) t = Reshape(x, r) }> }"""
    )
    assert found.trips == {2: 5}
    assert found["kk"].data.tolist() == [3, -1]
    assert shape(found["y"]) == "3, N"


def test_scan_stacks_along_its_axes() -> None:
    found = infer(
        """g (float[B, H] h, float[S, B, 4] x, float[H, 4] w) => (float y, float z) {
            y, z = Scan <num_scan_inputs=1, scan_output_axes=[1], body = b (float hi, float xi) => (float ho, float o) {
                wt = Transpose(w) p = MatMul(xi, wt) ho = Add(hi, p) o = Identity(xi) }> (h, x) }"""
    )
    assert found.trips == {0: facts.symbol("S")}
    assert shape(found["y"]) == "B, H"
    assert shape(found["z"]) == "B, S, 4"
    assert shape(found.bodies[0, "body"]["p"]) == "B, H"


# Local functions -----------------------------------------------------------------------------------------------------

FUNCTION = """
<domain: "local", opset_import: ["" : 17]> pooled <kernel: ints, mode: int = 0> (v) => (w) {
    u = MaxPool <kernel_shape: ints = @kernel, ceil_mode: int = @mode> (v)
    w = Relu(u)
}
"""


def test_a_function_is_its_body_with_the_calls_attributes() -> None:
    found = infer(
        """g (float[N, 3, 8, 8] a) => (float y, float z) {
            y = local.pooled <kernel=[2, 2]> (a)
            z = local.pooled <kernel=[3, 3]> (a) }"""
        + FUNCTION
    )
    assert shape(found["y"]) == "N, 3, 7, 7"
    assert shape(found["z"]) == "N, 3, 6, 6"
    first, second = found.bodies[0, ""], found.bodies[1, ""]
    assert first.nodes[0].attrs == {"kernel_shape": (2, 2), "ceil_mode": 0}
    assert second.nodes[0].attrs["kernel_shape"] == (3, 3)
    assert shape(second["u"]) == "N, 3, 6, 6"
    assert first.outer is None


def test_dimensions_that_depend_on_data_differ_between_two_calls() -> None:
    found = infer(
        """g (float[3] a, float[3] b) => (float y) { p = local.picked(a) q = local.picked(b) y = Add(p, q) }
        <domain: "local", opset_import: ["" : 17]> picked (v) => (w) { w = NonZero(v) }"""
    )
    assert not facts.provably_equal(found["p"].shape[1], found["q"].shape[1])


def test_a_function_that_calls_itself_is_unknown() -> None:
    found = infer(
        """g (float[3] a) => (float y) { y = local.again(a) }
        <domain: "local", opset_import: ["" : 17, "local" : 1]> again (v) => (w) { w = local.again(v) }"""
    )
    assert found["y"].shape is None


def test_a_function_replaces_an_operator_of_that_name() -> None:
    found = infer(
        """g (float[N, 4] a) => (float y) { y = custom.Thing(a) }
        <domain: "custom", opset_import: ["" : 17]> Thing (v) => (w) { w = Transpose(v) }""",
        domain="custom",
    )
    assert shape(found["y"]) == "4, N"


# Broken ones ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["If", "Loop", "Scan"])
def test_a_node_without_its_body_is_unknown(op: str) -> None:
    a = helper.make_tensor_value_info("a", T.FLOAT, [2])
    y = helper.make_tensor_value_info("y", T.FLOAT, None)
    t = numpy_helper.from_array(np.array(3), "t")
    graph = helper.make_graph([helper.make_node(op, ["t", "", "a"], ["y"])], "g", [a], [y], [t])
    assert facts.infer(ir.read(helper.make_model(graph)))["y"].shape is None
