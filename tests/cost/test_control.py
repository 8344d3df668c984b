from __future__ import annotations

import onnx.parser
import pytest

from onnxfuse import ir
from onnxfuse.cost import Cost, costs
from onnxfuse.facts import evaluate, infer


def priced(text: str, dims: dict[str, int] | None = None) -> tuple[Cost, ...]:
    return costs(infer(ir.read(onnx.parser.parse_model(text)), dims))


HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'


@pytest.mark.parametrize("swapped", [False, True])
def test_if_has_the_larger_count_of_both_branches(swapped):
    # two Relu of 6: 12 FLOPs, 48 + 48 bytes; one Sigmoid: no FLOPs, 6 sigmoids, 24 + 24 bytes
    bodies = ["{ r = Relu(x) y = Relu(r) }", "{ y = Sigmoid(x) }"]
    first, second = reversed(bodies) if swapped else bodies
    text = HEAD + (
        "m (bool c, float[2,3] x) => (float[2,3] y) { y = If (c) <"
        f"then_branch = t () => (float[2,3] y) {first}, else_branch = e () => (float[2,3] y) {second}> }}"
    )
    (cost,) = priced(text)
    assert cost == Cost(0, 12, 6, 48, 48) and cost.known
    parts = [Cost(0, 12, 0, 48, 48), Cost(0, 0, 6, 24, 24)]
    assert [branch.cost for branch in cost.branches] == (parts[::-1] if swapped else parts)
    assert [(branch.node, branch.name) for branch in cost.branches] == [("y", "then_branch"), ("y", "else_branch")]


def test_bytes_are_those_of_the_branch_that_moves_more():
    text = HEAD + (
        "m (bool c, float[6] x, float[6] v, float[6] z) => (float[6] y) { y = If (c) <"
        "then_branch = t () => (float[6] y) { y = Max(z, x, v) },"
        "else_branch = e () => (float[6] y) { a = Neg(z) b = Neg(a) d = Neg(b) y = Neg(d) }> }"
    )
    # Max of three: 72 read, 24 written, 12 FLOPs; four Neg: 96 read, 96 written, 24 FLOPs
    assert priced(text) == (Cost(0, 24, 0, 96, 96),)
    less = text.replace("b = Neg(a) d = Neg(b) y = Neg(d)", "y = Identity(a)")
    # one Neg: 24 read, 24 written; of 96 and 48 bytes, the larger count
    (cost,) = priced(less)
    assert (cost.bytes, cost.bytes_read) == (96, 72)


IF = (
    "m (bool c, float[N] x, float[M] z) => (float[K] y) { y = If (c) <"
    "then_branch = t () => (float[N] a) { a = Relu(x) },"
    "else_branch = e () => (float[M] b) { %s }> }"
)


def test_counts_of_one_branch_only_need_no_maximum():
    (cost,) = priced(HEAD + IF % "b = Sigmoid(z)")  # N FLOPs against none, whatever the sizes
    assert [str(n) for n in (cost.arith, cost.transcendentals, cost.bytes)] == ["N", "M", "max(8·M, 8·N)"]
    for n, m in ((5, 7), (9, 7)):
        assert priced(HEAD + IF % "b = Sigmoid(z)", {"N": n, "M": m}) == (Cost(0, n, m, *(4 * max(n, m),) * 2),)


def test_if_with_symbols_that_decide_is_the_maximum():
    (cost,) = priced(HEAD + IF % "b = Neg(z)")  # N FLOPs or M, and eight bytes for each
    for n, m in ((5, 7), (9, 7), (7, 7)):
        most = max(n, m)
        assert [evaluate(k, {"N": n, "M": m}) for k in (cost.arith, cost.bytes_read)] == [most, 4 * most]
        assert priced(HEAD + IF % "b = Neg(z)", {"N": n, "M": m}) == (Cost(0, most, 0, 4 * most, 4 * most),)


def test_a_formula_is_the_number_at_every_size():
    """N FLOPs, or M and M sigmoids, 8·N bytes or 16·M."""
    body = "u = Neg(z) b = Sigmoid(u)"
    (cost,) = priced(HEAD + IF % body)
    for n, m in ((5, 7), (9, 7), (30, 7)):
        sizes = {"N": n, "M": m}
        found = [evaluate(k, sizes) for k in (cost.flops, cost.transcendentals, cost.bytes)]
        assert found == [max(n, m), m, max(8 * n, 16 * m)]
        (number,) = priced(HEAD + IF % body, sizes)
        assert [number.flops, number.transcendentals, number.bytes] == found


def test_if_with_a_known_condition_is_the_taken_branch():
    text = HEAD + (
        "m (float[2,3] x) => (float[2,3] y) <bool c = {0}> { y = If (c) <"
        "then_branch = t () => (float[2,3] a) { r = Relu(x) a = Relu(r) },"
        "else_branch = e () => (float[2,3] b) { b = Sigmoid(x) }> }"
    )
    assert priced(text) == (Cost(0, 0, 6, 24, 24),)


UNKNOWN_BRANCH = (
    "If (c) <then_branch = t () => (float[2,3] a) { a = my.domain.Op(x) },"
    "else_branch = e () => (float[2,3] b) { b = Relu(x) }>"
)


def test_if_with_an_unknown_branch_is_at_least_the_other():
    (cost,) = priced(HEAD + f"m (bool c, float[2,3] x) => (float[2,3] y) {{ y = {UNKNOWN_BRANCH} }}")
    assert (cost.flops, cost.bytes, cost.least, cost.known) == (6, 48, True, False)
    assert cost.why == "holds Op: has no cost formula"
    unknown, known = (branch.cost for branch in cost.branches)
    assert unknown.flops is None and known.flops == 6


def test_if_of_which_nothing_is_known_is_unknown_and_not_0():
    text = HEAD + f"m (bool c, float[2,3] x) => (float[2,3] y) {{ y = {UNKNOWN_BRANCH} }}"
    (cost,) = priced(text.replace("b = Relu(x)", "b = my.domain.Other(x)"))
    assert (cost.macs, cost.flops, cost.transcendentals, cost.known) == (None, None, None, False)


def test_what_is_known_of_a_body_is_a_lower_bound():
    """Five rounds of an Exp and of a branch that is a Relu, or unknown; or of another If inside that one."""
    text = HEAD + (
        "m (bool c, float[2,3] x) => (float[2,3] y) <int64 n = {5}> { y = Loop (n, , x) <"
        "body = b (int64 i, bool k, float[2,3] s) => (bool k2, float[2,3] t) "
        f"{{ k2 = Identity(k) u = Exp(s) t = {UNKNOWN_BRANCH} }}> }}"
    )
    (cost,) = priced(text)
    # 5·(24 + 24) for each of Exp and Relu; the state of 24 bytes goes in and out once
    assert cost == Cost(0, 30, 30, 264, 264) and cost.least
    assert [branch.node for branch in cost.branches] == ["t", "t"]
    (nested,) = priced(text.replace("b = Relu(x)", f"b = {UNKNOWN_BRANCH}".replace("float[2,3] b", "float[2,3] b")))
    assert nested == cost and nested.least
    assert [(branch.node, branch.name) for branch in nested.branches] == [
        ("t", "then_branch"), ("t", "else_branch"), ("b", "then_branch"), ("b", "else_branch"),
    ]  # fmt: skip


def test_the_branch_that_is_not_taken_is_not_told():
    inner = UNKNOWN_BRANCH
    text = HEAD + (
        "m (bool c, float[2,3] x) => (float[2,3] y) <bool k = {0}> { y = If (k) <"
        f"then_branch = p () => (float[2,3] g) {{ g = {inner} }},"
        "else_branch = q () => (float[2,3] h) { h = Exp(x) }> }"
    )
    (cost,) = priced(text)
    assert cost == Cost(0, 0, 6, 24, 24) and cost.known and cost.branches == ()


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
