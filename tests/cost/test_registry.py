from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import onnx.defs
import onnx.parser
import pytest

from onnxfuse import ir
from onnxfuse.cost import Call, Cost, costs, has_formula, kind, op, reason, register
from onnxfuse.cost.reasons import REASONS
from onnxfuse.cost.registry import FORMULAS, Entry
from onnxfuse.errors import UsageError
from onnxfuse.facts import evaluate, infer


def test_derived_numbers():
    cost = Cost(macs=10, arith=5, transcendentals=1, bytes_read=6, bytes_written=4)
    assert (cost.flops, cost.bytes, cost.intensity) == (25, 10, 2.5)


def test_unknown_is_contagious():
    assert Cost(1, None, 0, 4, None) + Cost(1, 2, 3, 4, 5) == Cost(2, None, 3, 8, None)
    assert Cost(1, None, 0, 4, None).flops is None
    assert Cost(1, None, 0, 4, None).bytes is None
    assert Cost(1, None, 0, 4, None).intensity is None
    assert Cost(0, 0, 0, 0, 0).intensity is None


def test_scaled():
    assert Cost(1, 2, 3, 4, 5).scaled(3) == Cost(3, 6, 9, 12, 15)
    # nothing, however often, is nothing; something an unknown number of times is unknown
    assert Cost(0, 2, 0, 4, None).scaled(None) == Cost(0, None, 0, None, None)


def test_fusion_example_of_the_general_rule():
    # an element of conv 100 FLOPs, 12 bytes; of ReLU 1 FLOP, 8 bytes: 101/20 apart, 101/12 fused
    conv, relu = Cost(macs=50, bytes_read=8, bytes_written=4), Cost(arith=1, bytes_read=4, bytes_written=4)
    apart, fused = conv + relu, Cost(macs=50, arith=1, bytes_read=8, bytes_written=4)
    assert apart.intensity == pytest.approx(5.05)
    assert fused.intensity == pytest.approx(8.42, abs=0.005)


CUSTOM = (
    '<ir_version: 8, opset_import: ["": 17, "my.domain": 1]>\n'
    "m (float[2,3] x) => (float[2,3] y) { y = my.domain.Twice(x, x) }"
)


def test_operator_without_formula_is_unknown_but_its_inputs_are_not():
    facts = infer(ir.read(onnx.parser.parse_model(CUSTOM)))
    (cost,) = costs(facts)
    assert (cost.macs, cost.arith, cost.transcendentals, cost.flops) == (None, None, None, None)
    assert cost.bytes_read == 24  # x once
    assert kind(facts.nodes[0]) == "custom"
    assert not has_formula("my.domain", "Twice")


def test_register_a_custom_operator(monkeypatch):
    monkeypatch.delitem(FORMULAS, ("my.domain", "Twice"), raising=False)

    @register("my.domain", "Twice", kind="elementwise")
    def twice(call: Call) -> Cost:
        return call.cost(arith=2 * call.size(0), written=24)

    try:
        facts = infer(ir.read(onnx.parser.parse_model(CUSTOM)))
        assert costs(facts) == (Cost(0, 12, 0, 24, 24),)
        assert kind(facts.nodes[0]) == "elementwise"
        with pytest.raises(UsageError, match=r"my\.domain::Twice"):
            register("my.domain", "Twice")(twice)
    finally:
        del FORMULAS["my.domain", "Twice"]


def test_a_formula_that_gives_no_cost(monkeypatch):
    monkeypatch.setitem(FORMULAS, ("my.domain", "Twice"), Entry(lambda call: None, "custom"))
    with pytest.raises(UsageError, match=r"the cost formula of my\.domain::Twice returns NoneType, not a Cost"):
        costs(infer(ir.read(onnx.parser.parse_model(CUSTOM))))


def test_duplicate_of_a_standard_operator():
    with pytest.raises(UsageError, match=r"ai\.onnx::Add has a cost formula already"):
        op("Add", kind="elementwise")(lambda call: call.cost())
    with pytest.raises(UsageError, match=r"ai\.onnx::Add has a cost formula already"):
        register("ai.onnx", "Add")(lambda call: call.cost())


def test_unresolved_shape_is_unknown():
    text = (
        '<ir_version: 8, opset_import: ["": 17, "my.domain": 1]>\n'
        "m (float[2,3] x) => (float[2,3] y) { a = my.domain.Op(x) y = Relu(a) }"
    )
    _, relu = costs(infer(ir.read(onnx.parser.parse_model(text))))
    assert (relu.arith, relu.flops, relu.bytes_read) == (None, None, None)


NET = (
    '<ir_version: 8, opset_import: ["": 17]>\n'
    "m (float[N,3,H,W] x, float[4,3,3,3] w) => (float[N,4] y) {\n"
    "c = Conv <strides = [2,2], pads = [1,1,1,1]> (x, w)\n"
    "r = Relu(c)\n"
    "p = MaxPool <kernel_shape = [3,3], strides = [2,2]> (r)\n"
    "g = GlobalAveragePool(p)\n"
    "f = Flatten(g)\n"
    "y = Softmax(f) }"
)


@pytest.mark.parametrize("dims", [{"N": 1, "H": 224, "W": 224}, {"N": 3, "H": 17, "W": 32}])
def test_symbolic_cost_equals_the_bound_one(dims):
    program = ir.read(onnx.parser.parse_model(NET))
    free, bound = costs(infer(program)), costs(infer(program, dims))
    for a, b in zip(free, bound, strict=True):
        for name in ("macs", "arith", "transcendentals", "bytes_read", "bytes_written", "flops", "bytes"):
            assert evaluate(getattr(a, name), dims) == getattr(b, name)
    assert sum(c.macs for c in bound) > 0


def test_kind():
    def of(op_type: str, domain: str = "") -> str:
        return kind(ir.Node(op_type, domain, "", (), (), {}))

    assert [of(name) for name in ("Conv", "MatMul", "Relu", "Reshape", "Transpose", "Gather", "If")] == [
        "conv", "matmul", "elementwise", "view", "copy", "gather", "control",
    ]  # fmt: skip
    assert of("FusedConv", "com.microsoft") == "conv"
    assert of("FusedConv") == "custom"
    assert has_formula("ai.onnx", "Conv")


# A new operator of a later onnx or onnxruntime fails these until it has a formula or a reason.
STATE = "onnxruntime.capi.onnxruntime_pybind11_state"
BEYOND_THE_STANDARD = Path(__file__).with_name("onnxruntime_operators.txt").read_text("utf-8")


def undecided(names: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those with neither a formula nor a reason, or with both."""
    return {key for key in names if has_formula(*key) == (reason(*key) is not None)}


def test_every_standard_operator_has_a_formula_or_a_reason():
    schemas = onnx.defs.get_all_schemas_with_history()
    assert len({(s.domain, s.name) for s in schemas}) >= 227
    assert undecided((s.domain, s.name) for s in schemas) == set()


def test_every_operator_of_onnxruntime_has_a_formula_or_a_reason():
    lines = [line.split() for line in BEYOND_THE_STANDARD.splitlines() if not line.startswith("#")]
    listed = {("" if domain == "-" else domain, name) for domain, name in lines}
    installed = {(s.domain, s.name) for s in pytest.importorskip(STATE).get_all_operator_schema()} - {
        (s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history()
    }
    assert len(listed) == 193
    assert undecided(listed | installed) == set()


def test_no_reason_is_for_an_operator_that_nobody_has():
    names = {(s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history()}
    assert {key for key in REASONS if key[0] != "com.microsoft"} <= names
    assert all(f"com.microsoft {name}" in BEYOND_THE_STANDARD for domain, name in REASONS if domain == "com.microsoft")


def test_reason():
    assert reason("ai.onnx", "StringSplit") == "works on strings, whose lengths are not in the model"
    assert reason("", "Conv") is None


def test_every_kernel_that_fusion_emits_has_a_formula():
    for name in ("FusedConv", "FusedMatMul", "FusedGemm", "QuickGelu", "Gelu", "FastGelu", "BiasGelu"):
        assert has_formula("com.microsoft", name)
    for name in ("SkipLayerNormalization", "MultiHeadAttention"):
        assert has_formula("com.microsoft", name)


def weights(text: str) -> list[object]:
    """Bytes of weights that each node moves."""
    head = '<ir_version: 10, opset_import: ["" : 17, "local" : 1]>'
    facts = infer(ir.read(onnx.parser.parse_model(f"{head}\n{text}")))
    return [cost.weight_traffic for cost in costs(facts)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # two rows of 3 floats of the table; the indices are the caller's
        ("g (int64[2] i) => (float[2,3] y) <float[4,3] t = {1,2,3,4,5,6,7,8,9,10,11,12}> { y = Gather (t, i) }", [24]),
        # a table that is computed belongs to the activations, of which the Gather is taken to read first
        ("g (float[4,3] t) => (float[2,3] y) <int64[2] i = {0, 2}> { y = Gather (t, i) }", [0]),
        # w once, though on both sides; and w of the second, beside x
        ("g (float[4] x) => (float[4] y) <float[4] w = {1,2,3,4}> { a = Mul (w, w) y = Add (x, w) }", [32, 16]),
        # nothing of a view, nothing where nothing is constant
        ("g (float[4] x) => (float[2,2] y) <int64[2] s = {2, 2}> { a = Relu (x) y = Reshape (a, s) }", [0, 0]),
        # N·16 bytes stay activations
        ("g (float[N,4] x) => (float[N,4] y) <float[4] w = {1,2,3,4}> { y = Add (x, w) }", [16]),
        # a function moves its boundary; the larger branch, 3 reads of w; a loop of 5
        (
            """g (float[4] x) => (float[4] y) <float[4] w = {1,2,3,4}> { y = local.F (x, w) }
            <domain: "local", opset_import: ["" : 17]> F (a, b) => (c) { d = Add (a, b) c = Add (d, b) }""",
            [16],
        ),
        (
            """g (float[4] x, bool c) => (float[4] y) <float[4] w = {1,2,3,4}> {
              y = If (c) <
                then_branch = t () => (float[4] p) { q = Add (x, w) r = Add (q, w) p = Add (r, w) },
                else_branch = e () => (float[4] u) { u = Add (x, w) }
              >
            }""",
            [48],
        ),
        (
            """g (float[4] x) => (float[4] y) <int64 n = {5}, bool on = {1}, float[4] w = {1,2,3,4}> {
              y = Loop (n, on, x) <body = b (int64 i, bool go, float[4] s) => (bool go2, float[4] z)
                { go2 = Identity (go) z = Add (s, w) }>
            }""",
            [80],
        ),
    ],
)
def test_weight_traffic(text, expected):
    assert weights(text) == expected


def test_equality_is_of_the_counts_and_not_of_what_the_bytes_are():
    assert Cost(1, 2, 3, 4, 5, weight_traffic=4) == Cost(1, 2, 3, 4, 5)
