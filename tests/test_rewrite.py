"""What stands in the file beside the new nodes: declared types of the values that they make."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import helper
from support import graph, optimized

from onnxfuse import targets
from onnxfuse.rules import all_rules

ROOT = Path(__file__).parent.parent
FLOAT, DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
RESIDUAL = graph(
    "t = Conv (x, w) s = Add (t, r) a = Relu (s) m = MatMul (a, v) y = Relu (m)",
    inputs="float[N,4,8,8] x, float[4,4,3,3] w, float[N,4,6,6] r, float[6,5] v",
    outputs="float[N,4,6,5] y",
)


def declared(graph: onnx.GraphProto) -> dict[str, tuple[int, list[object]]]:
    """Dtype and dims (a number, a symbol, "" where nothing is said) of the values in value_info."""
    return {
        v.name: (
            v.type.tensor_type.elem_type,
            [d.dim_value if d.HasField("dim_value") else d.dim_param for d in v.type.tensor_type.shape.dim],
        )
        for v in graph.value_info
    }


def test_a_fused_node_declares_what_it_makes() -> None:
    result = optimized(RESIDUAL, target="ort-cuda", verify=False)
    assert result.model.graph.node[0].op_type == "FusedConv"
    assert declared(result.model.graph) == {"a": (FLOAT, ["N", 4, 6, 6])}
    inferred = onnx.shape_inference.infer_shapes(result.model, strict_mode=False)
    assert declared(inferred.graph)["m"] == (FLOAT, ["N", 4, 6, 5])


def test_the_node_of_a_local_function_declares_what_it_makes() -> None:
    model = graph(
        "r = Relu (x) p = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (r) y = Neg (p)",
        inputs="float[N,3,H,8] x", outputs="float[N,3,M,4] y",
    )  # fmt: skip
    result = optimized(model, target="ort-cuda", verify=False).model
    assert result.graph.node[0].domain == targets.ONNXFUSE
    assert declared(result.graph) == {"p": (FLOAT, ["N", 3, "", 4])}  # the height is no symbol of the model


@pytest.mark.parametrize(
    ("there", "then"),
    [
        ((FLOAT, ["N", 4, 6, 6]), (FLOAT, ["N", 4, 6, 6])),
        ((FLOAT, ["batch", None, 6, 6]), (FLOAT, ["batch", "", 6, 6])),  # not wrong
        ((FLOAT, None), (FLOAT, [])),
        ((DOUBLE, ["N", 4, 6, 6]), (FLOAT, ["N", 4, 6, 6])),
        ((FLOAT, ["N", 4, 7, 6]), (FLOAT, ["N", 4, 6, 6])),
        ((FLOAT, [4, 6, 6]), (FLOAT, ["N", 4, 6, 6])),
    ],
)
def test_what_is_declared_already_is_corrected_where_it_is_wrong(there: tuple, then: tuple) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(RESIDUAL)
    model.graph.value_info.append(helper.make_tensor_value_info("a", *there))
    model.graph.value_info.append(helper.make_tensor_value_info("unattached", DOUBLE, ["K"]))
    found = declared(optimized(model, target="ort-cuda", verify=False).model.graph)
    assert found == {"a": then, "unattached": (DOUBLE, ["K"])}


def test_in_a_body_the_body_declares_it() -> None:
    inner = helper.make_graph(list(RESIDUAL.graph.node), "body", [], [helper.make_tensor_value_info("y", FLOAT, None)])
    branch = helper.make_graph(
        [helper.make_node("MatMul", ["r", "v"], ["y2"])],
        "other",
        [],
        [helper.make_tensor_value_info("y2", FLOAT, None)],
    )
    model = onnx.ModelProto()
    model.CopyFrom(RESIDUAL)
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=inner, else_branch=branch))
    model.graph.output[0].name = "z"
    model.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    result = optimized(model, target="ort-cuda", verify=False).model
    bodies = {a.name: a.g for a in result.graph.node[0].attribute}
    assert declared(bodies["then_branch"]) == {"a": (FLOAT, ["N", 4, 6, 6])}
    assert not result.graph.value_info and not bodies["else_branch"].value_info


@pytest.mark.parametrize("target", targets.names())
@pytest.mark.parametrize("rule", all_rules())
def test_every_new_operator_outside_the_standard_is_declared(rule: str, target: str) -> None:
    from importlib import import_module

    from support import parse

    model = parse(str(import_module(f"onnxfuse.rules.{rule}").BEFORE))
    names = [output.name for output in model.graph.output]
    for i, name in enumerate(names):  # so that what was an output is a value between
        model.graph.node.append(helper.make_node("Identity", [name], [f"seen{i}"]))
        model.graph.output[i].name = f"seen{i}"
    result = optimized(model, target=target, rules=[rule], verify=False).model
    types = declared(result.graph)
    for node in result.graph.node:
        assert not node.domain or all(types[name][0] == FLOAT for name in node.output), node
