"""Edits of a view: the answers, gs's lists afterwards, the order of nodes, and that models still compute the same."""

from __future__ import annotations

import random
import time

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh
from support import graph as model_of
from support import ops, parse, run

from onnxfuse import bridge
from onnxfuse.graph import Editor


def opened(model: onnx.ModelProto) -> tuple[gs.Graph, Editor]:
    graph = bridge.view(model)
    return graph, Editor(graph)


def done(model: onnx.ModelProto, graph: gs.Graph, editor: Editor) -> None:
    """Finishes, checks gs's lists against a count from scratch, splices, runs the checker."""
    editor.finish()
    assert_consistent(graph, editor)
    bridge.splice(graph, model)
    onnx.checker.check_model(model, full_check=True)


def assert_consistent(graph: gs.Graph, editor: Editor) -> None:
    reads: dict[int, list[int]] = {}
    makes: dict[int, list[int]] = {}
    tensors = {}
    for g in bridge.walk(graph):
        for node in g.nodes:
            assert editor.owner(node) is g
            for t in node.inputs:
                reads.setdefault(id(t), []).append(id(node))
            for t in node.outputs:
                makes.setdefault(id(t), []).append(id(node))
            tensors.update((id(t), t) for t in (*node.inputs, *node.outputs))
    for i, t in tensors.items():
        assert sorted(map(id, t.outputs)) == sorted(reads.get(i, []))
        assert list(map(id, t.inputs)) == makes.get(i, [])
        assert sorted(id(n) for n, _ in editor.uses(t)) == sorted(reads.get(i, []))
        assert all(n.inputs[k] is t for n, k in editor.uses(t))


def chain(body: str, outputs: str = "float[2] y") -> onnx.ModelProto:
    return model_of(body, inputs="float[2] x, float[2] z", outputs=outputs)


IF = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x, bool c) => (float[2] y) <float[2] w = {3, 5}> {
a = Abs(x)
b = Neg(a)
y = If (c) <then_branch = t () => (float[2] p) { h = Add(a, w)  p = Neg(h) },
            else_branch = e () => (float[2] r) { h = Mul(b, w)  r = Relu(h) }>
}
"""


# --- questions ---


def test_producer_uses_and_outputs():
    graph, editor = opened(chain("t = Add(x, x)  u = Mul(t, x)  y = Sub(u, t)"))
    add, mul, sub = graph.nodes
    x, z = graph.inputs
    assert editor.producer(x) is None
    assert editor.producer(add.outputs[0]) is add
    assert [(n.op, i) for n, i in editor.uses(x)] == [("Add", 0), ("Add", 1), ("Mul", 1)]
    assert [(n.op, i) for n, i in editor.uses(add.outputs[0])] == [("Mul", 0), ("Sub", 1)]
    assert editor.uses(z) == []
    assert editor.is_output(sub.outputs[0])
    assert not editor.is_output(mul.outputs[0])
    assert editor.owner(mul) is graph
    with pytest.raises(KeyError):
        editor.owner(editor.node("Relu", [x], []))


def test_only_use():
    graph, editor = opened(chain("t = Abs(x)  u = Mul(t, t)  v = Neg(u)  y = Exp(v)", "float[2] v, float[2] y"))
    square, neg = graph.nodes[1], graph.nodes[2]
    assert editor.only_use(square.outputs[0]) is neg
    assert editor.only_use(graph.nodes[0].outputs[0]) is None  # twice by one node
    assert editor.only_use(neg.outputs[0]) is None  # an output as well
    assert editor.only_use(graph.inputs[0]) is None  # an input has no producer
    graph, editor = opened(parse(IF))
    a, b, _ = graph.nodes
    assert editor.only_use(a.outputs[0]) is None
    assert editor.only_use(b.outputs[0]) is None  # its only reader is in a branch
    assert [(n.op, i) for n, i in editor.uses(b.outputs[0])] == [("Mul", 0)]


def test_outputs_of_bodies_are_outputs():
    graph, editor = opened(parse(IF))
    for body in bridge.bodies(graph.nodes[2]):
        assert editor.is_output(body.outputs[0])
        assert [editor.owner(n) for n in body.nodes] == [body, body]


# --- edits ---


def test_replace_puts_the_new_where_the_last_old_one_stood():
    model = chain("t = Abs(x)  s = Exp(z)  u = Neg(t)  v = Log(s)  y = Add(u, v)")
    graph, editor = opened(model)
    absolute, neg = graph.nodes[0], graph.nodes[2]
    new = editor.node(
        "Foo", absolute.inputs, neg.outputs, attrs={"k": 1}, name="fused", domain="d", metadata={"a": "b"}
    )
    assert editor.uses(graph.inputs[0]) == [(absolute, 0)]  # a new node counts when it is put in
    editor.replace([absolute, neg], [new])
    assert editor.uses(graph.inputs[0]) == [(new, 0)]
    assert editor.producer(neg.outputs[0]) is new
    assert editor.owner(new) is graph
    with pytest.raises(KeyError):
        editor.owner(neg)
    model.opset_import.append(h.make_opsetid("d", 1))
    editor.finish()
    assert_consistent(graph, editor)
    bridge.splice(graph, model)
    assert ops(model) == ["Exp", "d::Foo", "Log", "Add"]
    expected = h.make_node("Foo", ["x"], ["u"], name="fused", domain="d", k=1)
    expected.metadata_props.add(key="a", value="b")
    assert model.graph.node[1] == expected


def test_a_new_node_may_be_replaced_and_stood_before_at_once():
    model = chain("t = Abs(x)  y = Neg(t)")
    graph, editor = opened(model)
    absolute, neg = graph.nodes
    one, two, mid = editor.value("one"), editor.value("two"), editor.value("mid")
    first, second = editor.node("Exp", absolute.inputs, [one]), editor.node("Log", [one], neg.outputs)
    editor.replace([absolute, neg], [first, second])
    third, fourth = editor.node("Sin", absolute.inputs, [two]), editor.node("Cos", [two], [one])
    editor.replace([first], [third, fourth])
    editor.insert([editor.node("Tan", [one], [mid])], before=second)
    editor.set_input(second, 0, mid)
    done(model, graph, editor)
    assert ops(model) == ["Sin", "Cos", "Tan", "Log"]


def test_a_node_in_old_and_new_stays():
    model = chain("t = Abs(x)  y = Neg(t)")
    graph, editor = opened(model)
    absolute, neg = graph.nodes
    out = editor.value("out")
    editor.replace([absolute, neg], [absolute, editor.node("Exp", absolute.outputs, [out]),
                                     editor.node("Log", [out], neg.outputs)])  # fmt: skip
    done(model, graph, editor)
    assert ops(model) == ["Abs", "Exp", "Log"]


def test_misuse_is_named():
    graph, editor = opened(chain("t = Abs(x)  y = Neg(t)"))
    absolute, neg = graph.nodes
    stray = editor.node("Exp", absolute.inputs, [editor.value("v")], name="stray")
    with pytest.raises(ValueError, match="node 'stray' is not in the graph"):
        editor.insert([], before=stray)
    editor.insert([stray], before=neg)
    with pytest.raises(ValueError, match="node 'stray' is or was in the graph already"):
        editor.insert([stray], before=neg)
    editor.replace([stray], [])
    with pytest.raises(ValueError, match="node 'stray' is or was in the graph already"):
        editor.insert([stray], before=neg)
    editor.finish()
    editor.insert([stray], before=neg)
    editor.finish()
    assert [n.op for n in graph.nodes] == ["Abs", "Exp", "Neg"]


def test_rewire_leaves_outputs():
    model = chain(
        "t = Abs(x)  u = Abs(x)  v = Add(t, u)  y = Mul(u, u)", "float[2] t, float[2] u, float[2] v, float[2] y"
    )
    graph, editor = opened(model)
    first, second = graph.nodes[0].outputs[0], graph.nodes[1].outputs[0]
    editor.rewire(second, first)
    assert editor.uses(second) == []
    assert len(editor.uses(first)) == 4
    done(model, graph, editor)
    assert [list(n.input) for n in model.graph.node] == [["x"], ["x"], ["t", "t"], ["t", "t"]]
    assert [o.name for o in model.graph.output] == ["t", "u", "v", "y"]


def test_names_are_fresh_in_every_scope():
    model = parse(IF)
    model.graph.value_info.append(h.make_tensor_value_info("ghost", T.FLOAT, [2]))
    model.graph.initializer.append(nh.from_array(np.float32([0]), "unused"))
    model.graph.node[0].name = "n"
    editor = opened(model)[1]
    assert [editor.value(n).name for n in ("h", "h", "p", "w", "ghost", "new", "new")] == [
        "h_1", "h_2", "p_1", "w_1", "ghost_1", "new", "new_1",
    ]  # fmt: skip
    assert editor.constant("unused", np.float32([1])).name == "unused_1"
    assert [editor.node("Abs", [], [], name=n).name for n in ("n", "n", "")] == ["n_1", "n_2", "Abs"]


# --- order ---


def test_only_what_must_move_moves():
    model = chain("a = Abs(x)  b = Neg(x)  c = Exp(z)  d = Log(c)  e = Add(a, b)  y = Add(e, d)")
    graph, editor = opened(model)
    editor.set_input(graph.nodes[0], 0, graph.nodes[3].outputs[0])  # Abs now reads Log's result
    done(model, graph, editor)
    assert ops(model) == ["Exp", "Log", "Abs", "Neg", "Add", "Add"]


def test_what_a_branch_captures_orders_the_outer_nodes():
    model = parse(IF)
    late = model.graph.node.add()
    late.CopyFrom(h.make_node("Sqrt", ["x"], ["late"]))
    graph, editor = opened(model)
    body = bridge.bodies(graph.nodes[2])[0]
    editor.set_input(body.nodes[0], 0, graph.nodes[3].outputs[0])
    done(model, graph, editor)
    assert ops(model) == ["Abs", "Neg", "Sqrt", "If"]


def test_a_body_that_moved_still_orders_the_outer_nodes():
    model = parse(IF)
    model.graph.node.append(h.make_node("Sqrt", ["x"], ["late"]))
    model.graph.node.append(h.make_node("Tan", ["x"], ["later"]))
    graph, editor = opened(model)
    _, _, choice, late, later = graph.nodes
    editor.replace([choice], [editor.node("If", choice.inputs, choice.outputs, attrs=choice.attrs)])
    editor.finish()
    add = bridge.bodies(graph.nodes[2])[0].nodes[0]
    editor.set_input(add, 0, late.outputs[0])
    editor.set_input(add, 1, later.outputs[0])
    done(model, graph, editor)
    assert ops(model) == ["Abs", "Neg", "Sqrt", "Tan", "If"]


def test_an_if_that_sinks_into_a_branch_orders_the_nodes_there():
    model = parse("""
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x, bool c) => (float[2] y) {
    a = If (c) <then_branch = t () => (float[2] p) { p = Neg(x) }, else_branch = e () => (float[2] r) { r = Abs(x) }>
    y = If (c) <then_branch = u () => (float[2] s) { s = Exp(a)  k = Log(x) },
                else_branch = f () => (float[2] q) { q = Sin(x) }>
    }""")
    graph, editor = opened(model)
    first, second = graph.nodes
    body = bridge.bodies(second)[0]
    exp, log = body.nodes
    editor.replace([first], [])
    editor.insert([editor.node("If", first.inputs, first.outputs, attrs=first.attrs)], before=exp)
    editor.finish()
    editor.set_input(bridge.bodies(body.nodes[0])[0].nodes[0], 0, log.outputs[0])
    done(model, graph, editor)
    assert [n.op for n in body.nodes] == ["Log", "If", "Exp"]


def test_a_cycle_is_refused():
    graph, editor = opened(chain("a = Abs(x)  b = Neg(a)  y = Exp(b)"))
    editor.set_input(graph.nodes[0], 0, graph.nodes[1].outputs[0])
    with pytest.raises(ValueError, match="an edit made a cycle"):
        editor.finish()


# --- bodies ---


def test_a_removed_if_no_longer_uses_what_its_branches_captured():
    model = parse(IF)
    graph, editor = opened(model)
    a, b, choice = graph.nodes
    weight = bridge.bodies(choice)[0].nodes[0].inputs[1]
    assert len(editor.uses(weight)) == 2
    editor.replace([choice], [editor.node("Identity", b.outputs, choice.outputs)])
    assert editor.uses(weight) == []
    assert editor.only_use(a.outputs[0]) is b
    done(model, graph, editor)
    assert ops(model) == ["Abs", "Neg", "Identity"]
    assert len(model.graph.initializer) == 0


def test_edits_pending_in_a_body_come_along_when_it_moves():
    model = parse(IF)
    graph, editor = opened(model)
    choice = graph.nodes[2]
    add = bridge.bodies(choice)[0].nodes[0]
    editor.replace([add], [editor.node("Sub", add.inputs, add.outputs)])
    editor.replace([choice], [editor.node("If", choice.inputs, choice.outputs, attrs=choice.attrs)])
    done(model, graph, editor)
    assert run(model, {"x": np.float32([-1, 2]), "c": np.array(True)})[0].tolist() == [2, 3]  # -(|x| - w)


def test_an_edited_body_may_be_removed():
    model = parse(IF)
    graph, editor = opened(model)
    _, b, choice = graph.nodes
    mul = bridge.bodies(choice)[1].nodes[0]
    editor.replace([mul], [editor.node("Add", mul.inputs, mul.outputs)])
    editor.replace([choice], [editor.node("Exp", b.outputs, choice.outputs)])
    done(model, graph, editor)
    assert ops(model) == ["Abs", "Neg", "Exp"]


def test_a_place_in_a_body_that_moved_is_gone():
    graph, editor = opened(parse(IF))
    choice = graph.nodes[2]
    add = bridge.bodies(choice)[0].nodes[0]
    editor.replace([add], [editor.node("Sub", add.inputs, add.outputs)])
    editor.replace([choice], [editor.node("If", choice.inputs, choice.outputs, attrs=choice.attrs)])
    editor.insert([editor.node("Exp", add.inputs[:1], [editor.value("v")])], before=add)
    with pytest.raises(ValueError, match="a body that moved"):
        editor.finish()


# --- size ---


def test_a_hub_of_20000_readers():
    n = 20_000
    nodes = [h.make_node("Abs", ["x"], ["hub"])]
    nodes += [h.make_node("Neg", ["hub"], [f"v{i}"]) for i in range(n)]
    nodes.append(h.make_node("Sum", [f"v{i}" for i in range(n)], ["y"]))
    info = [h.make_tensor_value_info(k, T.FLOAT, [2]) for k in "xy"]
    model = h.make_model(h.make_graph(nodes, "g", info[:1], info[1:]), opset_imports=[h.make_opsetid("", 17)])
    graph, editor = opened(model)
    start = time.process_time()
    for node in graph.nodes[1:-1]:
        editor.replace([node], [editor.node("Exp", node.inputs, node.outputs)])
    spare = editor.value("spare")
    editor.insert([editor.node("Relu", [graph.inputs[0]], [spare])], before=graph.nodes[0])
    editor.rewire(graph.nodes[0].outputs[0], spare)
    editor.finish()
    assert time.process_time() - start < 20  # by gs's own lists it would be half an hour
    bridge.splice(graph, model)
    assert [n.op_type for n in model.graph.node] == ["Relu", "Abs", *["Exp"] * n, "Sum"]
    assert {n.input[0] for n in model.graph.node[2:-1]} == {"spare"}
    assert model.graph.node[1].input == ["x"]


def test_a_chain_of_100000_nodes():
    n = 100_000
    graph_proto = onnx.GraphProto(name="g")
    for i in range(n):
        graph_proto.node.add(op_type=("Abs", "Neg")[i % 2], input=[f"v{i}"], output=[f"v{i + 1}"])
    graph_proto.input.append(h.make_tensor_value_info("v0", T.FLOAT, [2]))
    graph_proto.output.append(h.make_tensor_value_info(f"v{n}", T.FLOAT, [2]))
    model = h.make_model(graph_proto, opset_imports=[h.make_opsetid("", 17)])
    graph, editor = opened(model)
    pairs = list(zip(graph.nodes[::2], graph.nodes[1::2], strict=True))
    for first, second in pairs[1::10]:
        editor.replace([first, second], [editor.node("Foo", first.inputs, second.outputs, name="f")])
    # an Identity at the far end that the whole chain hangs on: finish has to pull it to the front
    copy = editor.value("copy")
    editor.insert([editor.node("Identity", [graph.inputs[0]], [copy])], before=pairs[-1][1])
    editor.set_input(pairs[0][0], 0, copy)
    editor.finish()
    bridge.splice(graph, model)
    assert [x.op_type for x in model.graph.node[:4]] == ["Identity", "Abs", "Neg", "Foo"]
    assert len(model.graph.node) == n + 1 - n // 20
    value = "v0"
    for node in model.graph.node:
        assert list(node.input) == [value]
        value = node.output[0]
    assert value == f"v{n}"


# --- any sequence of edits keeps the results ---

UNARY = ("Neg", "Abs", "Relu", "Identity")
BINARY = ("Add", "Sub", "Mul")


def random_body(rng: random.Random, seen: list[str], prefix: str, depth: int) -> tuple[list[onnx.NodeProto], list[str]]:
    """A few nodes over the values in `seen`; the names that they make."""
    nodes, made = [], []
    for i in range(rng.randint(2, 5)):
        out = f"{prefix}{i}"
        at = [rng.choice(seen + made) for _ in range(2)]
        if depth and rng.random() < 0.3:
            bodies = {}
            for key in ("then_branch", "else_branch"):
                inner, names = random_body(rng, seen + made, f"{out}_{key[0]}", depth - 1)
                weight = nh.from_array(np.float32([rng.randint(-3, 3), 1]), f"{out}_{key[0]}_w")
                inner.append(h.make_node("Mul", [names[-1], weight.name], [f"{out}_{key[0]}_out"]))
                output = h.make_tensor_value_info(f"{out}_{key[0]}_out", T.FLOAT, [2])
                bodies[key] = h.make_graph(inner, key, [], [output], [weight])
            nodes.append(h.make_node("If", [rng.choice(["c", "d"])], [out], **bodies))
        elif depth and rng.random() < 0.2:
            inner, names = random_body(rng, [*seen, *made, f"{out}_s"], f"{out}_l", depth - 1)
            inner.append(h.make_node("Identity", [f"{out}_go"], [f"{out}_go2"]))
            body = h.make_graph(
                inner,
                "body",
                [
                    h.make_tensor_value_info(f"{out}_i", T.INT64, []),
                    h.make_tensor_value_info(f"{out}_go", T.BOOL, []),
                    h.make_tensor_value_info(f"{out}_s", T.FLOAT, [2]),
                ],
                [
                    h.make_tensor_value_info(f"{out}_go2", T.BOOL, []),
                    h.make_tensor_value_info(names[-1], T.FLOAT, [2]),
                ],
            )
            nodes.append(h.make_node("Loop", ["trips", "", at[0]], [out], body=body))
        elif rng.random() < 0.5:
            nodes.append(h.make_node(rng.choice(UNARY), at[:1], [out]))
        else:
            nodes.append(h.make_node(rng.choice(BINARY), at, [out]))
        made.append(out)
    return nodes, made


def random_model(rng: random.Random) -> onnx.ModelProto:
    weights = [nh.from_array(np.float32([rng.randint(-2, 2), 0.5]), f"w{i}") for i in range(2)]
    nodes, made = random_body(rng, ["x", "z", "w0", "w1"], "v", 2)
    outputs = {made[-1], rng.choice(made)}
    model = h.make_model(
        h.make_graph(
            nodes,
            "g",
            [h.make_tensor_value_info(n, T.FLOAT, [2]) for n in "xz"]
            + [h.make_tensor_value_info(n, T.BOOL, []) for n in "cd"],
            [h.make_tensor_value_info(n, T.FLOAT, [2]) for n in sorted(outputs)],
            [*weights, nh.from_array(np.array(2), "trips")],
        ),
        opset_imports=[h.make_opsetid("", 17)],
        ir_version=8,
    )
    return onnx.shape_inference.infer_shapes(model)


def random_edit(rng: random.Random, graph: gs.Graph, editor: Editor, model: onnx.ModelProto) -> None:
    """One edit that keeps the results, at a node of any scope as the view stood at the last `finish`."""
    nodes = [n for g in bridge.walk(graph) for n in g.nodes]
    nodes = [n for n in nodes if id(n) in editor._owner and n.op in UNARY + BINARY]
    if not nodes:
        return
    node = rng.choice(nodes)
    if node.outputs[0].dtype == T.BOOL:
        return
    index = rng.randrange(len(node.inputs))
    tensor = node.inputs[index]
    kind = rng.randrange(7)
    if kind == 0:  # an Identity on one use
        between = editor.value("between", T.FLOAT, (2,))
        editor.insert([editor.node("Identity", [tensor], [between])], before=node)
        editor.set_input(node, index, between)
    elif kind == 1:  # an equal pair for a node
        middle = editor.value("middle")
        if node.op == "Sub":
            pair = [editor.node("Neg", node.inputs[1:], [middle]),
                    editor.node("Add", [node.inputs[0], middle], node.outputs)]  # fmt: skip
        else:
            pair = [editor.node(node.op, node.inputs, [middle]), editor.node("Identity", [middle], node.outputs)]
        editor.replace([node], pair)
    elif kind == 2 and node.op == "Identity":  # an Identity less
        editor.rewire(node.outputs[0], tensor)
        if not editor.is_output(node.outputs[0]):
            editor.replace([node], [])
    elif kind == 3:  # all readers of a result read a copy of it, which is made too late on purpose
        result = node.outputs[0]
        readers = editor.uses(result)
        copy = editor.value("copy")
        anchor = rng.choice([n for n in editor.owner(node).nodes if id(n) in editor._owner])
        editor.rewire(result, copy)
        editor.insert([editor.node("Identity", [result], [copy])], before=anchor)
        assert editor.uses(result)[-1][0].outputs[0] is copy
        assert len(editor.uses(copy)) == len(readers)
    elif kind == 4 and isinstance(tensor, gs.Constant):  # one use of a weight gets its own copy
        message = bridge.stored(tensor)
        array = tensor._values if message is None else nh.to_array(message)
        editor.set_input(node, index, editor.constant(tensor.name, array.copy()))
    elif kind == 5:  # of two equal nodes, one result serves both
        for other in nodes:
            if (
                other is not node
                and other.op == node.op
                and id(other) in editor._owner
                and editor.owner(other) is editor.owner(node)
                and [id(t) for t in other.inputs] == [id(t) for t in node.inputs]
            ):
                editor.rewire(other.outputs[0], node.outputs[0])
    elif kind == 6 and node.op in ("Add", "Mul"):
        editor.replace([node], [editor.node(node.op, node.inputs[::-1], node.outputs, metadata={"swapped": "yes"})])


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_any_sequence_of_edits_keeps_the_results(rng):
    model = random_model(rng)
    original = onnx.ModelProto()
    original.CopyFrom(model)
    graph, editor = opened(model)
    for _ in range(rng.randint(1, 3)):
        for _ in range(rng.randint(1, 8)):
            random_edit(rng, graph, editor, model)
        done(model, graph, editor)
        assert (model.graph.input, model.graph.output) == (original.graph.input, original.graph.output)
    again = bridge.view(model)
    before = model.SerializeToString(deterministic=True)
    bridge.splice(again, model)
    assert model.SerializeToString(deterministic=True) == before
    feeds = {"x": np.float32([-1.5, 2]), "z": np.float32([0.25, -3])}
    for c, d in ((True, False), (False, True)):
        feeds |= {"c": np.array(c), "d": np.array(d)}
        for left, right in zip(run(original, feeds), run(model, feeds), strict=True):
            np.testing.assert_array_equal(left, right)
