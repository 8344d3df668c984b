from __future__ import annotations

import onnx.parser

from onnxfuse import ir
from onnxfuse.cost import Cost, costs
from onnxfuse.facts import evaluate, infer


def priced(text: str, dims: dict[str, int] | None = None) -> tuple[Cost, ...]:
    return costs(infer(ir.read(onnx.parser.parse_model(text)), dims))


HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'


def test_if_is_its_larger_branch():
    # then: two Relu of 6 = 12 FLOPs, 48 + 48 bytes; else: one Sigmoid, no FLOPs, 24 + 24 bytes
    text = HEAD + (
        "m (bool c, float[2,3] x) => (float[2,3] y) { y = If (c) <"
        "then_branch = t () => (float[2,3] a) { r = Relu(x) a = Relu(r) },"
        "else_branch = e () => (float[2,3] b) { b = Sigmoid(x) }> }"
    )
    assert priced(text) == (Cost(0, 12, 0, 48, 48),)


def test_if_is_its_larger_branch_wherever_it_stands():
    text = HEAD + (
        "m (bool c, float[2,3] x) => (float[2,3] y) { y = If (c) <"
        "then_branch = t () => (float[2,3] a) { a = Sigmoid(x) },"
        "else_branch = e () => (float[2,3] b) { r = Relu(x) b = Relu(r) }> }"
    )
    assert priced(text) == (Cost(0, 12, 0, 48, 48),)


IF = (
    "m (bool c, float[N] x, float[M] z) => (float[K] y) { y = If (c) <"
    "then_branch = t () => (float[N] a) { a = Relu(x) },"
    "else_branch = e () => (float[M] b) { %s }> }"
)


def test_if_with_symbols_is_its_larger_branch_where_that_is_decided():
    (cost,) = priced(HEAD + IF % "b = Sigmoid(z)")  # N FLOPs against none, whatever the sizes
    assert [str(n) for n in (cost.arith, cost.transcendentals, cost.bytes_read)] == ["N", "0", "4·N"]
    for sizes in ({"N": 5, "M": 7}, {"N": 9, "M": 7}):
        assert priced(HEAD + IF % "b = Sigmoid(z)", sizes) == (Cost(0, sizes["N"], 0, *(4 * sizes["N"],) * 2),)


def test_if_with_symbols_that_decide_is_the_maximum():
    (cost,) = priced(HEAD + IF % "b = Neg(z)")  # N FLOPs or M, and eight bytes for each
    for n, m in ((5, 7), (9, 7), (7, 7)):
        most = max(n, m)
        assert [evaluate(k, {"N": n, "M": m}) for k in (cost.arith, cost.bytes_read)] == [most, 4 * most]
        assert priced(HEAD + IF % "b = Neg(z)", {"N": n, "M": m}) == (Cost(0, most, 0, 4 * most, 4 * most),)


def test_if_whose_counts_do_not_follow_the_larger_branch_is_unknown_there():
    """N FLOPs, or M and M sigmoids: those run only if M ≥ N, so neither 0 nor M is right for all sizes."""
    (cost,) = priced(HEAD + IF % "u = Neg(z) b = Sigmoid(u)")
    assert evaluate(cost.arith, {"N": 9, "M": 7}) == 9 and evaluate(cost.arith, {"N": 5, "M": 7}) == 7
    assert cost.transcendentals is None and cost.bytes_read is None
    assert cost.why == "the sizes decide which branch is the larger one"


def test_if_with_a_known_condition_is_the_taken_branch():
    text = HEAD + (
        "m (float[2,3] x) => (float[2,3] y) <bool c = {0}> { y = If (c) <"
        "then_branch = t () => (float[2,3] a) { r = Relu(x) a = Relu(r) },"
        "else_branch = e () => (float[2,3] b) { b = Sigmoid(x) }> }"
    )
    assert priced(text) == (Cost(0, 0, 6, 24, 24),)


def test_if_with_an_unknown_operator_is_unknown():
    text = HEAD + (
        "m (bool c, float[2,3] x) => (float[2,3] y) { y = If (c) <"
        "then_branch = t () => (float[2,3] a) { a = my.domain.Op(x) },"
        "else_branch = e () => (float[2,3] b) { b = Relu(x) }> }"
    )
    (cost,) = priced(text)
    assert (cost.macs, cost.flops) == (None, None)
    assert cost.why == "holds Op: has no cost formula"


LOOP = (
    "m (float[2,3] x) => (float[2,3] y) <int64 n = {5}> { y = Loop (n, , x) <"
    "body = b (int64 i, bool k, float[2,3] s) => (bool k2, float[2,3] t) { k2 = Identity(k) t = Relu(s) }> }"
)


def test_loop_is_trips_times_body():
    # 5 Relu of 6 elements: 30 FLOPs, 120 + 120 bytes; the state goes in and out once: 24 + 24
    assert priced(HEAD + LOOP) == (Cost(0, 30, 0, 144, 144),)


def test_loop_with_an_unknown_trip_count_is_unknown():
    text = HEAD + LOOP.replace("(float[2,3] x)", "(float[2,3] x, int64 n)", 1).replace("<int64 n = {5}> ", "")
    (cost,) = priced(text)
    assert (cost.macs, cost.arith, cost.flops, cost.bytes) == (0, None, None, None)


def test_scan_runs_over_its_axis():
    # 7 steps of Add on 3 elements: 21 FLOPs, 7·24 bytes read, 7·12 written; the state of 12 bytes in and out once
    text = HEAD + (
        "m (float[3] h, float[7,3] x) => (float[3] h2, float[7,3] y) { h2, y = Scan <num_scan_inputs = 1,"
        "body = b (float[3] s, float[3] e) => (float[3] t, float[3] u) { t = Add(s, e) u = Identity(t) }> (h, x) }"
    )
    assert priced(text) == (Cost(0, 21, 0, 168 + 12, 84 + 12),)


def test_scan_over_a_symbolic_axis():
    text = HEAD + (
        "m (float[3] h, float[T,3] x) => (float[3] h2, float[T,3] y) { h2, y = Scan <num_scan_inputs = 1,"
        "body = b (float[3] s, float[3] e) => (float[3] t, float[3] u) { t = Add(s, e) u = Identity(t) }> (h, x) }"
    )
    assert [str(c.arith) for c in priced(text)] == ["3·T"]


FUNCTION = (
    '<ir_version: 8, opset_import: ["": 17, "onnxfuse": 1]>\n'
    "m (float[1,3,8,8] x, float[4,3,3,3] w) => (float[1,4,8,8] y) { y = onnxfuse.ConvRelu <pads = [1,1,1,1]> (x, w) }\n"
    '<domain: "onnxfuse", opset_import: ["": 17]>\n'
    "ConvRelu <pads> (x, w) => (y) { c = Conv <pads: ints = @pads> (x, w) y = Relu(c) }"
)


def test_fused_node_does_its_body_and_moves_its_boundary():
    # Conv 256 · 27 MACs and Relu 256 FLOPs; x 768 + w 432 read, y 1024 written: the value between does not move
    program = ir.read(onnx.parser.parse_model(FUNCTION))
    facts = infer(program)
    assert costs(facts) == (Cost(6912, 256, 0, 1200, 1024),)


def test_captured_value_is_charged_to_the_body():
    # the If itself reads nothing but what its branch reads: x, 24 bytes
    text = HEAD + (
        "m (bool c, float[2,3] x) => (float[2,3] y) { y = If (c) <"
        "then_branch = t () => (float[2,3] a) { a = Relu(x) },"
        "else_branch = e () => (float[2,3] b) { b = Relu(x) }> }"
    )
    assert priced(text) == (Cost(0, 6, 0, 24, 24),)
