from __future__ import annotations

import onnx.defs
import onnx.parser
import pytest

from onnxfuse import ir
from onnxfuse.cost import Call, Cost, costs, has_formula, kind, op, register
from onnxfuse.cost.registry import FORMULAS
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


# operators of the ONNX standard that have no formula, by reason; a new one in a new onnx must come here or get its own
STRINGS_AND_MAPS = {
    "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer", "CastMap", "CategoryMapper",
    "DictVectorizer", "ZipMap",
}  # fmt: skip
DEPENDS_ON_DATA = {"ImageDecoder", "MaxRoiPool"}  # a compressed image; the areas of boxes
SEQUENCES = {"SequenceErase", "SequenceInsert"}  # the tensors of a sequence have no known sizes
NOT_COUNTED = {"Gradient", "MelWeightMatrix", "TreeEnsemble"}  # a graph by name; triangles; tensors as attributes


def test_every_standard_operator_has_a_formula_or_a_reason():
    without = {s.name for s in onnx.defs.get_all_schemas() if not has_formula(s.domain, s.name)}
    assert without == STRINGS_AND_MAPS | DEPENDS_ON_DATA | SEQUENCES | NOT_COUNTED


def test_every_kernel_that_fusion_emits_has_a_formula():
    for name in ("FusedConv", "FusedMatMul", "FusedGemm", "QuickGelu", "Gelu", "FastGelu", "BiasGelu"):
        assert has_formula("com.microsoft", name)
    for name in ("SkipLayerNormalization", "MultiHeadAttention"):
        assert has_formula("com.microsoft", name)
