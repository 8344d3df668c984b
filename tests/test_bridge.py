"""The bridge: what is not edited is not changed, and an edit changes what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from fidelity import CASES
from onnx import AttributeProto as A
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh
from protodiff import diff
from support import graph as model_of
from support import node_cases, parse, random_feeds, run

from onnxfuse import bridge
from onnxfuse.errors import ModelError
from onnxfuse.graph import Editor


def raw(message) -> bytes:
    return message.SerializeToString(deterministic=True)


def copy_of(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def wheel_models() -> list[onnx.ModelProto]:
    """The models that come with onnx: node tests, converted networks, zoo graphs."""
    models = [copy_of(case.model) for case in node_cases()]
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    files = [
        f for k in ("pytorch-converted", "pytorch-operator", "simple", "light") for f in data.glob(f"{k}/**/*.onnx")
    ]
    return models + [onnx.load(f, load_external_data=False) for f in sorted(files)]


def insert_identity(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """By hand on the protobuf: an Identity before the first node of the main graph that has an input."""
    expected = copy_of(model)
    for i, node in enumerate(expected.graph.node):
        if node.input and node.input[0]:
            expected.graph.node.insert(i, h.make_node("Identity", [node.input[0]], ["between"], name="inserted"))
            expected.graph.node[i + 1].input[0] = "between"
            return expected
    return None


def insert_identity_by_view(model: onnx.ModelProto) -> None:
    graph = bridge.view(model)
    editor = Editor(graph)
    node = next(n for n in graph.nodes if n.inputs and n.inputs[0].name)
    between = editor.value("between")
    editor.insert([editor.node("Identity", [node.inputs[0]], [between], name="inserted")], before=node)
    editor.set_input(node, 0, between)
    editor.finish()
    bridge.splice(graph, model)


@pytest.mark.parametrize("name", CASES)
def test_a_feature_survives(name):
    model = CASES[name]()
    before = raw(model)
    graph = bridge.view(model)
    assert raw(model) == before
    bridge.splice(graph, model)
    assert raw(model) == before


@pytest.mark.parametrize("name", CASES)
def test_only_the_edit_differs(name):
    model = CASES[name]()
    expected = insert_identity(model)
    if expected is None:
        assert not any(i for n in model.graph.node for i in n.input)
        return
    insert_identity_by_view(model)
    assert diff(expected, model) == []


def test_every_model_of_the_onnx_wheel_survives_and_takes_an_edit():
    models = wheel_models()
    assert len(models) > 1500
    edited = 0
    for model in models:
        before = raw(model)
        bridge.splice(bridge.view(model), model)
        assert raw(model) == before, model.graph.name
        expected = insert_identity(model)
        if expected is not None:
            insert_identity_by_view(model)
            assert raw(model) == raw(expected), diff(expected, model)
            edited += 1
    assert edited > 1400


def test_view_has_the_structure_that_graphsurgeon_imports():
    def structure(graph):
        return [
            (n.op, n.name, [t.name for t in n.inputs], [t.name for t in n.outputs], list(n.attrs))
            for n in graph.nodes
        ]  # fmt: skip

    data = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    for file in sorted(data.glob("*.onnx")):
        model = onnx.load(file)
        ours, theirs = bridge.view(model), gs.import_onnx(copy_of(model))
        assert structure(ours) == structure(theirs)
        assert [t.name for t in ours.inputs] == [t.name for t in theirs.inputs]
        assert [t.name for t in ours.outputs] == [t.name for t in theirs.outputs]
        tensors = ours.tensors()
        for name, t in theirs.tensors().items():
            mine = tensors[name]
            assert type(mine) is type(t)
            assert [n.name for n in mine.inputs] == [n.name for n in t.inputs]
            assert [n.name for n in mine.outputs] == [n.name for n in t.outputs]


@pytest.mark.parametrize(
    "made, fresh",
    [
        (lambda g: g.nodes[0], gs.Node("Relu")),
        (lambda g: g.outputs[0], gs.Variable("y")),
        (lambda g: g.nodes[0].inputs[1], gs.Constant("w", np.zeros(1))),
    ],
)
def test_objects_have_all_fields_that_graphsurgeon_sets(made, fresh):
    thing = made(bridge.view(CASES["initializer_doc_metadata"]()))
    assert vars(fresh).keys() <= vars(thing).keys()
    for name in ("inputs", "outputs"):
        assert vars(getattr(thing, name)).keys() == vars(getattr(fresh, name)).keys()
        assert getattr(thing, name).field_name == getattr(fresh, name).field_name
        assert getattr(thing, name).parent_obj is thing


def test_nothing_is_printed(capfd):
    graph = bridge.view(CASES["dtype_init_FLOAT8E4M3FNUZ"]())
    with pytest.raises(AttributeError):
        graph.no_such_function  # noqa: B018 - gs reports it on stdout
    assert capfd.readouterr() == ("", "")


def test_weights_are_neither_read_nor_copied():
    model = CASES["attr_all_scalar_kinds"]()
    model.graph.initializer.append(T(name="w", data_type=T.FLOAT, dims=[1 << 40]))  # no raw_data, as in a skeleton
    model.graph.node[0].input.append("w")
    weight, attribute = model.graph.initializer[0], model.graph.node[0].attribute[-1].t
    insert_identity_by_view(model)
    assert model.graph.initializer[0] is weight
    assert model.graph.node[1].attribute[-1].t is attribute
    constant = bridge.view(model).nodes[1].inputs[1]
    assert bridge.stored(constant) is weight
    assert (constant.shape, constant.dtype) == ((1 << 40,), T.FLOAT)
    with pytest.raises(TypeError, match=r"Model\.array"):
        constant.values  # noqa: B018


def test_types_are_onnx_numbers_and_dims():
    graph = bridge.view(CASES["value_info_symbolic"]())
    for tensor in (graph.inputs[0], graph.nodes[0].outputs[0], graph.outputs[0]):
        assert (tensor.dtype, tensor.shape) == (T.FLOAT, ("N", None, 4))
    scalar = bridge.view(CASES["if_captures_variable"]()).inputs[1]
    assert (scalar.dtype, scalar.shape) == (T.BOOL, ())
    unknown = bridge.view(CASES["optional_type"]()).inputs[0]
    assert (unknown.dtype, unknown.shape) == (None, None)


# --- attributes ---


@pytest.mark.parametrize(
    "op, value, kind",
    [
        ("LeakyRelu.alpha", 1, A.FLOAT),  # FLOAT by the operator's schema
        ("LSTM.activation_alpha", [1, 2], A.FLOATS),
        ("Conv.pads", [], A.INTS),
        ("LSTM.activations", [], A.STRINGS),
        ("LSTM.activation_alpha", (), A.FLOATS),
        ("Unknown.a", [], A.INTS),
        ("Unknown.a", 1, A.INT),
        ("Unknown.a", np.int64(1), A.INT),
        ("Unknown.a", np.float32(0.5), A.FLOAT),
        ("Unknown.a", [1, 2.5], A.FLOATS),
        ("Unknown.a", "text", A.STRING),
        ("Unknown.a", b"\xff\xfe", A.STRING),
        ("Unknown.a", ["a", b"\xff"], A.STRINGS),
    ],
)
def test_new_attributes_are_typed(op, value, kind):
    op_type, name = op.split(".")
    model = CASES["node_name"]()
    graph = bridge.view(model)
    editor = Editor(graph)
    old = graph.nodes[0]
    editor.replace([old], [editor.node(op_type, old.inputs, old.outputs, attrs={name: value})])
    editor.finish()
    bridge.splice(graph, model)
    attribute = model.graph.node[0].attribute[0]
    assert (attribute.name, attribute.type) == (name, kind)
    got = h.get_attribute_value(attribute)
    assert got == ([v.encode() if isinstance(v, str) else v for v in value] if isinstance(value, list | tuple)
                   else value.encode() if isinstance(value, str) else value)  # fmt: skip


def test_a_tensor_attribute_and_one_gs_has_no_form_for_move_to_a_new_node():
    model = CASES["attr_tensors_graphs_types_sparse"]()
    model.graph.node[0].attribute.append(h.make_attribute("t", nh.from_array(np.float32([1, 2]), "tt")))
    model.graph.node[0].attribute.append(A(name="blob", type=A.STRING, s=b"\xff\x00"))
    expected = copy_of(model)
    expected.graph.node[0].name = "new"
    expected.graph.node[0].attribute.append(h.make_attribute("extra", nh.from_array(np.int64([3]), "")))
    graph = bridge.view(model)
    editor = Editor(graph)
    old = graph.nodes[0]
    attrs = dict(old.attrs) | {"extra": np.int64([3])}
    editor.replace([old], [editor.node("Foo", old.inputs, old.outputs, attrs=attrs, name="new", domain="d")])
    editor.finish()
    bridge.splice(graph, model)
    assert diff(expected, model) == []
    bridge.splice(graph, model)
    assert diff(expected, model) == []


def test_a_changed_attribute_keeps_its_doc_string_and_type():
    model = CASES["attr_all_scalar_kinds"]()
    model.graph.node[0].attribute.append(h.make_attribute("nan", float("nan")))
    for a in model.graph.node[0].attribute:
        a.doc_string = f"about {a.name}"
    expected = copy_of(model)
    for a in expected.graph.node[0].attribute:
        if a.name == "f":
            a.f = 3.0
        elif a.name == "s":
            a.s = b"changed"
        elif a.name == "floats":
            a.floats[:] = [7.0]
        elif a.name == "strings":
            del a.strings[:]
    gone = next(a for a in expected.graph.node[0].attribute if a.name == "ints")
    expected.graph.node[0].attribute.remove(gone)
    graph = bridge.view(model)
    attrs = graph.nodes[0].attrs
    attrs["f"], attrs["s"], attrs["strings"] = 3, "changed", []
    attrs["floats"][:] = [7]
    del attrs["ints"]
    bridge.splice(graph, model)
    assert raw(model) == raw(expected)


def test_a_signalling_nan_is_not_touched():
    model = CASES["node_name"]()
    attribute = A.FromString(b"\x15\x01\x00\xa0\x7f")  # field 2, f, with the bits 0x7fa00001
    attribute.name, attribute.type = "nan", A.FLOAT
    model.graph.node[0].attribute.append(attribute)
    before = raw(model)
    bridge.splice(bridge.view(model), model)
    assert raw(model) == before


def test_a_renamed_value_is_renamed_at_every_use():
    model = CASES["value_info_symbolic"]()
    graph = bridge.view(model)
    graph.nodes[0].outputs[0].name = "renamed"
    bridge.splice(graph, model)
    assert [(list(n.input), list(n.output)) for n in model.graph.node] == [(["x"], ["renamed"]), (["renamed"], ["y"])]
    assert [v.name for v in model.graph.value_info] == []


def test_metadata_is_read_and_replaced():
    model = CASES["node_metadata_props"]()
    graph = bridge.view(model)
    node = graph.nodes[0]
    assert bridge.metadata(node) == {"k": "v"}
    node.metadata = bridge.metadata(node) | {"rule": "r"}
    assert bridge.metadata(node) == {"k": "v", "rule": "r"}
    bridge.splice(graph, model)
    assert [(e.key, e.value) for e in model.graph.node[0].metadata_props] == [("k", "v"), ("rule", "r")]


# --- constants and types ---


def edited(model: onnx.ModelProto, edit) -> onnx.ModelProto:
    """The model after `edit(graph, editor)`, spliced in place."""
    graph = bridge.view(model)
    editor = Editor(graph)
    edit(graph, editor)
    editor.finish()
    bridge.splice(graph, model)
    return model


def names(messages) -> list[str]:
    return [m.name for m in messages]


def scale_anew(graph, editor):
    """The second input of the first node becomes a new constant, [3, 4]."""
    editor.set_input(graph.nodes[0], 1, editor.constant("w", np.float32([3, 4])))


def test_a_new_constant_takes_the_place_of_one_that_lost_its_last_use():
    model = edited(CASES["initializer_with_value_info"](), scale_anew)
    assert names(model.graph.initializer) == ["w_1"]
    assert nh.to_array(model.graph.initializer[0]).tolist() == [3, 4]
    assert model.graph.value_info == []  # what was declared of w went with it
    onnx.checker.check_model(model, full_check=True)
    assert run(model, {"x": np.float32([1, 1])})[0].tolist() == [4, 5]


def test_before_ir_4_a_weight_and_its_input_entry_come_and_go_together():
    model = edited(CASES["initializer_is_input_ir3"](), scale_anew)
    assert names(model.graph.initializer) == ["w_1"]
    assert names(model.graph.input) == ["x", "w_1"]
    onnx.checker.check_model(model, full_check=True)
    assert run(model, {"x": np.float32([1, 1])})[0].tolist() == [4, 5]


@pytest.mark.parametrize("name", ["initializer_overridable_ir10", "initializer_is_output", "initializer_unused"])
def test_other_initializers_stay(name):
    model = CASES[name]()
    inputs, outputs = names(model.graph.input), names(model.graph.output)
    model.graph.node[0].op_type = "Add"
    if len(model.graph.node[0].input) < 2 and name != "initializer_unused":
        model.graph.node[0].input.append("w")
    elif name == "initializer_unused":
        model.graph.node[0].input.append("x")
    edited(model, scale_anew)
    assert names(model.graph.initializer) == ["w", "w_1"]
    assert (names(model.graph.input), names(model.graph.output)) == (inputs, outputs)
    onnx.checker.check_model(model, full_check=True)


def test_an_overridable_initializer_is_no_constant():
    graph = bridge.view(CASES["initializer_overridable_ir10"]())
    assert [type(t) for t in graph.nodes[0].inputs] == [gs.Variable, gs.Variable]
    assert type(bridge.view(CASES["initializer_is_input_ir3"]()).nodes[0].inputs[1]) is gs.Constant


def test_an_initializer_that_quantization_or_training_refers_to_stays():
    model = CASES["initializer_doc_metadata"]()
    annotation = model.graph.quantization_annotation.add(tensor_name="x")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    assert names(edited(model, scale_anew).graph.initializer) == ["w", "w_1"]
    model = CASES["initializer_doc_metadata"]()
    model.training_info.add().update_binding.add(key="w", value="w2")
    assert names(edited(model, scale_anew).graph.initializer) == ["w", "w_1"]


def test_a_sparse_initializer_goes_when_its_use_goes():
    model = edited(CASES["sparse_initializer"](), lambda g, e: e.set_input(g.nodes[0], 1, g.inputs[0]))
    assert len(model.graph.sparse_initializer) == 0


def test_new_values_in_place_are_refused():
    model = CASES["initializer_doc_metadata"]()
    graph = bridge.view(model)
    graph.nodes[0].inputs[1].values = np.float32([3, 4])
    with pytest.raises(ModelError, match="constant 'w' was given other values in place: make a new constant"):
        bridge.splice(graph, model)


def test_a_view_of_another_model_is_refused():
    model = CASES["node_name"]()
    graph = bridge.view(model)
    with pytest.raises(ModelError, match="view of another model"):
        bridge.splice(graph, copy_of(model))


def test_declared_types_follow_the_values():
    model = model_of("t = Relu(x)  u = Neg(t)  y = Abs(u)", inputs="float[2] x", outputs="float[2] y")
    for name in ("t", "u"):
        model.graph.value_info.append(h.make_tensor_value_info(name, T.FLOAT, [2]))
        model.graph.quantization_annotation.add(tensor_name=name)

    def edit(graph, editor):
        relu, neg, last = graph.nodes
        made = editor.value("made", T.FLOAT, ("N", None, 3))
        editor.replace([relu], [editor.node("Elu", relu.inputs, [made])])
        editor.set_input(neg, 0, made)
        neg.outputs[0].shape = ("M",)
        last.outputs[0].shape = (77,)  # an output: its declared type is the interface

    edited(model, edit)
    assert names(model.graph.value_info) == ["u", "made"]
    assert [q.tensor_name for q in model.graph.quantization_annotation] == ["u"]
    assert model.graph.value_info[0].type.tensor_type.shape.dim[0].dim_param == "M"
    assert model.graph.value_info[1] == h.make_tensor_value_info("made", T.FLOAT, ["N", None, 3])
    assert model.graph.output[0] == h.make_tensor_value_info("y", T.FLOAT, [2])

    def forget(graph, editor):
        graph.nodes[1].outputs[0].dtype = None

    assert names(edited(model, forget).graph.value_info) == ["made"]


# --- bodies ---

BRANCHES = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x, bool c) => (float[2] y) <float[2] w = {3, 5}> {
t = Abs(x)
y = If (c) <then_branch = a () => (float[2] p) <float[2] k = {1, 2}> { h = Add(t, k)  q = Mul(h, w)  p = Neg(q) },
            else_branch = b () => (float[2] r) { h = Mul(t, w)  r = Relu(h) }>
}
"""


def branches() -> onnx.ModelProto:
    model = parse(BRANCHES)
    for body in node_bodies(model.graph.node[1]):
        body.value_info.append(h.make_tensor_value_info("h", T.FLOAT, [2]))
    return model


def node_bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [a.g for a in node.attribute if a.type == A.GRAPH]


def results(model: onnx.ModelProto) -> list[list[float]]:
    """For x = [-1, 2]: c true, c false."""
    return [run(model, {"x": np.float32([-1, 2]), "c": np.array(c)})[0].tolist() for c in (True, False)]


def test_a_captured_value_is_the_same_object_and_a_name_may_be_used_in_both_branches():
    graph = bridge.view(branches())
    then, other = bridge.bodies(graph.nodes[1])
    assert then.nodes[0].inputs[0] is graph.nodes[0].outputs[0] is other.nodes[0].inputs[0]
    assert then.nodes[1].inputs[1] is other.nodes[0].inputs[1]
    assert then.nodes[0].outputs[0] is not other.nodes[0].outputs[0]
    assert next(bridge.walk(graph)) is graph
    assert {id(g) for g in bridge.walk(graph)} == {id(graph), id(then), id(other)}
    assert {"x", "c", "t", "y", "p", "k", "h", "q", "w", "r"} <= bridge.value_names(graph)


def test_edits_in_a_branch():
    model = branches()
    assert results(model) == [[-6, -20], [3, 10]]

    def edit(graph, editor):
        then, _ = bridge.bodies(graph.nodes[1])
        add = then.nodes[0]
        editor.replace([add], [editor.node("Sub", add.inputs, add.outputs)])  # t - k for t + k

    edited(model, edit)
    onnx.checker.check_model(model, full_check=True)
    assert results(model) == [[0, 0], [3, 10]]
    assert [names(b.value_info) for b in node_bodies(model.graph.node[1])] == [["h"], ["h"]]

    def drop_h(graph, editor):
        then, _ = bridge.bodies(graph.nodes[1])
        sub, mul, _ = then.nodes
        editor.replace([sub, mul], [editor.node("Identity", [mul.inputs[1]], mul.outputs)])

    edited(model, drop_h)
    assert results(model) == [[-3, -5], [3, 10]]
    then, other = node_bodies(model.graph.node[1])
    assert (names(then.value_info), names(other.value_info)) == ([], ["h"])
    assert (names(then.initializer), names(model.graph.initializer)) == ([], ["w"])


def test_a_weight_of_both_branches_is_stored_once():
    model = CASES["if_captures_initializer"]()
    size = model.ByteSize()
    insert_identity_by_view(model)
    assert names(model.graph.initializer) == ["w"]
    assert [len(b.initializer) for b in node_bodies(model.graph.node[-1])] == [0, 0]
    assert model.ByteSize() < size + 60

    def last_uses(graph, editor):
        for body in bridge.bodies(graph.nodes[-1]):
            editor.set_input(body.nodes[0], 1, graph.inputs[0])

    assert names(edited(model, last_uses).graph.initializer) == []


def test_bodies_move_to_another_node():
    model = branches()

    def swap(graph, editor):
        old = graph.nodes[1]
        then, other = bridge.bodies(old)
        negated = editor.value("negated")
        new = editor.node("If", [negated], old.outputs, attrs={"then_branch": other, "else_branch": then})
        editor.replace([old], [editor.node("Not", old.inputs, [negated]), new])
        editor.finish()
        # an edit in a body that has just moved
        relu = other.nodes[1]
        editor.replace([relu], [editor.node("Neg", relu.inputs, relu.outputs)])

    edited(model, swap)
    onnx.checker.check_model(model, full_check=True)
    assert results(model) == [[-6, -20], [-3, -10]]
    graph = bridge.view(model)
    bridge.splice(graph, model)
    assert results(model) == [[-6, -20], [-3, -10]]


def test_a_body_that_moved_can_be_edited_after_the_splice():
    model = branches()
    graph = bridge.view(model)
    editor = Editor(graph)
    old = graph.nodes[1]
    editor.replace([old], [editor.node("If", old.inputs, old.outputs, attrs=old.attrs)])
    editor.finish()
    bridge.splice(graph, model)
    then = bridge.bodies(graph.nodes[1])[0]
    add = then.nodes[0]
    editor.replace([add], [editor.node("Neg", add.inputs[:1], add.outputs)])
    editor.finish()
    bridge.splice(graph, model)
    assert results(model) == [[3, 10], [3, 10]]
    assert names(node_bodies(model.graph.node[1])[0].initializer) == []


def test_a_branch_is_taken_out_of_its_if():
    model = branches()
    then = node_bodies(model.graph.node[1])[0]
    then.node[0].metadata_props.add(key="k", value="v")
    then.node[0].doc_string = "about the sum"
    moved = [onnx.NodeProto() for _ in range(2)]
    for copy, node in zip(moved, then.node, strict=False):
        copy.CopyFrom(node)

    def inline(graph, editor):
        old = graph.nodes[1]
        then = bridge.bodies(old)[0]
        *first, last = then.nodes
        editor.replace([old], [])
        editor.insert([*first, editor.node("Neg", last.inputs, old.outputs)], before=old)

    edited(model, inline)
    onnx.checker.check_model(model, full_check=True)
    assert sorted(names(model.graph.initializer)) == ["k", "w"]
    assert list(model.graph.node[1:3]) == moved
    assert results(model) == [[-6, -20], [-6, -20]]


def test_a_name_of_a_body_hides_the_outer_one():
    model = CASES["shadowed_name_in_subgraph"]()
    model.graph.node.insert(0, model.graph.node.pop(1))  # the outer h comes first now
    model.graph.node[0].input[0] = "x"
    for body in node_bodies(model.graph.node[1]):
        body.node.add(op_type="Exp", input=["h"], output=["inner"])
        body.value_info.append(h.make_tensor_value_info("h", T.FLOAT, [2]))
        body.value_info.append(h.make_tensor_value_info("z", T.FLOAT, [2]))
    expected = copy_of(model)
    graph = bridge.view(model)
    outer = graph.nodes[0].outputs[0]
    for body in bridge.bodies(graph.nodes[1]):
        assert body.nodes[1].inputs[0] is body.nodes[0].outputs[0] is not outer
        assert body.outputs[0] is body.nodes[0].outputs[0]
    editor = Editor(graph)
    absolute, _, neg = graph.nodes
    editor.replace([absolute, neg], [editor.node("Neg", absolute.inputs, neg.outputs, name="n")])
    editor.finish()
    bridge.splice(graph, model)
    expected.graph.node[2].CopyFrom(h.make_node("Neg", ["x"], ["z"], name="n"))
    del expected.graph.node[0]
    assert diff(expected, model) == []  # the outer h is gone; what the bodies declare of their own h is not


def test_what_a_body_declares_of_an_outer_value_goes_with_it():
    model = CASES["if_captures_variable"]()
    for body in node_bodies(model.graph.node[1]):
        body.value_info.append(h.make_tensor_value_info("h", T.FLOAT, [2]))

    def bypass(graph, editor):
        absolute = graph.nodes[0]
        editor.rewire(absolute.outputs[0], absolute.inputs[0])
        editor.replace([absolute], [])

    edited(model, bypass)
    assert names(model.graph.value_info) == []
    assert [names(b.value_info) for b in node_bodies(model.graph.node[0])] == [[], []]
    onnx.checker.check_model(model, full_check=True)


def test_edits_in_loop_and_scan_bodies():
    body = "b (int64 i, bool go, float[2] s) => (bool go2, float[2] s2) { go2 = Identity(go)  s2 = Add(s, t) }"
    model = model_of(
        f"t = Abs(x)  y = Loop (n, c, x) <body = {body}>", inputs="float[2] x, int64 n, bool c", outputs="float[2] y"
    )
    feeds = {"x": np.float32([-1, 2]), "n": np.array(3), "c": np.array(True)}
    assert run(model, feeds)[0].tolist() == [2, 8]

    def subtract(graph, editor):
        add = bridge.bodies(graph.nodes[1])[0].nodes[1]
        doubled = editor.value("doubled")
        two = editor.constant("two", np.float32(2))
        editor.replace([add], [editor.node("Mul", [add.inputs[1], two], [doubled]),
                               editor.node("Sub", [add.inputs[0], doubled], add.outputs)])  # fmt: skip

    edited(model, subtract)
    onnx.checker.check_model(model, full_check=True)
    assert run(model, feeds)[0].tolist() == [-7, -10]

    body = "b (float[2] s, float[2] e) => (float[2] s2, float[2] o) { s2 = Add(s, e)  o = Neg(s2) }"
    model = model_of(
        f"last, y = Scan (x, xs) <num_scan_inputs = 1, body = {body}>",
        inputs="float[2] x, float[3,2] xs",
        outputs="float[2] last, float[3,2] y",
    )
    feeds = random_feeds(model)
    before = run(model, feeds)

    def double_negation(graph, editor):
        neg = bridge.bodies(graph.nodes[0])[0].nodes[1]
        a, b = editor.value("a", T.FLOAT, (2,)), editor.value("b")
        editor.replace([neg], [editor.node("Neg", neg.inputs, [a]), editor.node("Neg", [a], [b]),
                               editor.node("Neg", [b], neg.outputs)])  # fmt: skip

    edited(model, double_negation)
    onnx.checker.check_model(model, full_check=True)
    for left, right in zip(before, run(model, feeds), strict=True):
        assert np.array_equal(left, right)
