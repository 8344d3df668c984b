"""analyze() and optimize() as library calls: every kind of source, nothing changed that was given, the same bytes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from support import LIGHT_ZOO, assert_same, graph, ops, parse, random_feeds

import onnxfuse
from onnxfuse import UsageError

MODELS = Path(__file__).parent.parent / "models"
RESNET = MODELS / "small_resnet.onnx"

SOURCES: dict[str, Callable[[], Any]] = {
    "path": lambda: RESNET,
    "text": lambda: str(RESNET),
    "proto": lambda: onnx.load(RESNET),
    "gs.Graph": lambda: gs.import_onnx(onnx.load(RESNET)),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source(kind: str) -> None:
    source = SOURCES[kind]()
    report, result = onnxfuse.analyze(source), onnxfuse.optimize(source)
    assert report.at_dims.totals.macs == result.before.macs == result.after.macs
    assert report.totals.coverage == 1.0 and len(report.nodes) == 27
    assert len(result.fusions) == 9 and result.verdict is not None and result.verdict.ok
    assert_same(onnx.load(RESNET), result.model, random_feeds(onnx.load(RESNET)))


def test_what_is_given_is_not_changed() -> None:
    proto = onnx.load(RESNET)
    before = proto.SerializeToString()
    onnxfuse.optimize(proto)
    onnxfuse.analyze(proto)
    assert proto.SerializeToString() == before
    view = gs.import_onnx(proto)
    exported = gs.export_onnx(view).SerializeToString()
    onnxfuse.optimize(view)
    assert gs.export_onnx(view).SerializeToString() == exported
    assert onnx.load(RESNET) == onnx.load(RESNET) and RESNET.read_bytes() == before


def test_the_interface_and_what_is_not_rewritten_stay() -> None:
    source, result = onnx.load(RESNET), onnxfuse.optimize(RESNET).model
    assert result.graph.input == source.graph.input and result.graph.output == source.graph.output
    assert result.graph.initializer == source.graph.initializer
    untouched = [n for n in source.graph.node if n.op_type in ("MaxPool", "GlobalAveragePool", "Flatten", "Gemm")]
    kept = [n.SerializeToString() for n in result.graph.node]
    assert len(untouched) == 4 and all(n.SerializeToString() in kept for n in untouched)
    assert {o.domain: o.version for o in result.opset_import} == {"": 17, "com.microsoft": 1}


def test_the_same_input_gives_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    written = []
    for seed in ("0", "1", "random"):
        out = tmp_path / f"{seed}.onnx"
        for target in ("ort-cuda", "portable"):
            code = f"import onnxfuse; onnxfuse.optimize({str(RESNET)!r}, {str(out)!r}, target={target!r})"
            subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, **_environment()}, check=True)
            written.append((target, out.read_bytes()))
    assert len(set(written)) == 2


def _environment() -> dict[str, str]:
    import os

    return {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"}


def test_output_onto_input(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(RESNET.read_bytes())
    assert len(onnxfuse.optimize(path, path).fusions) == 9
    assert "com.microsoft::FusedConv" in ops(onnx.load(path))
    assert onnxfuse.optimize(path, path).fusions == ()


def test_free_dims_are_assumed_and_named() -> None:
    report = onnxfuse.analyze(RESNET)
    assert report.dims == {"N": 1} and report.assumed == ("N",)
    bound = onnxfuse.analyze(RESNET, dims={"N": 4})
    assert bound.assumed == () and bound.totals.macs == 4 * report.at_dims.totals.macs  # type: ignore[operator]
    assert onnxfuse.analyze(RESNET, dims={"x.0": 4}).totals.macs == bound.totals.macs
    with pytest.raises(UsageError, match="K"):
        onnxfuse.analyze(RESNET, dims={"K": 4})


def test_anonymous_dims_are_named_by_input_and_axis() -> None:
    model = graph("y = Relu(x)", inputs="float[2,3,4] x", outputs="float[2,3,4] y")
    for dim, text in zip(model.graph.input[0].type.tensor_type.shape.dim, ("?", "", "T"), strict=True):
        dim.dim_param = text
    report = onnxfuse.analyze(model, dims={"x.0": 5, "x.1": 7, "T": 2})
    assert report.nodes[0].flops == 70 and report.assumed == ()
    assert set(onnxfuse.analyze(model).dims) == {"x.0", "x.1", "T"}


@pytest.mark.parametrize("path", LIGHT_ZOO, ids=lambda p: p.stem)
def test_the_light_zoo_is_costed_completely(path: Path) -> None:
    report = onnxfuse.analyze(path)
    assert report.totals.coverage == 1.0 and report.totals.unknown == ()
    assert report.totals.macs > 1e8  # type: ignore[operator]
    assert report.to_json()["totals"]["coverage"] == 1.0


@pytest.mark.parametrize(("target", "before", "after"), [("ort-cuda", 3, 2), ("ort-cpu", 2, 2), ("portable", 3, 2)])
def test_the_kernels_that_a_target_launches(target: str, before: int, after: int) -> None:
    # Conv + Relu is one on the CPU by itself, a Reshape renames memory, the Softmax is one more.
    body = "c = Conv(x, w) r = Relu(c) v = Reshape(r, s) y = Softmax(v)"
    model = parse(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,8,8] x) => (float[1,128] y) '
        f"<float[2,2,1,1] w = {{1, 2, 3, 4}}, int64[2] s = {{1, -1}}> {{ {body} }}"
    )
    result = onnxfuse.optimize(model, target=target)
    assert (result.before.kernels, result.after.kernels) == (before, after)
    assert result.to_json()["after"]["kernels"] == after


@pytest.mark.parametrize("target", ["ort-cuda", "ort-cpu", "portable"])
def test_a_light_network_is_optimized_and_verified(target: str) -> None:
    path = next(p for p in LIGHT_ZOO if "squeezenet" in p.name)
    result = onnxfuse.optimize(path, target=target)
    made = {"ort-cuda": ["conv_relu"] * 26, "ort-cpu": [], "portable": ["conv_relu"] * 26}[target]
    assert [f.rule for f in result.fusions if f.rule == "conv_relu"] == made
    assert result.after.bytes <= result.before.bytes  # type: ignore[operator]


def test_local_functions_of_the_model_are_costed() -> None:
    extra = '<domain: "loc", opset_import: ["" : 17]> Twice (a) => (b) { c = Relu(a) b = Neg(c) }'
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "loc" : 1]> g (float[10] x) => (float[10] y) { y = loc.Twice(x) } '
        + extra
    )
    (row,) = onnxfuse.analyze(model).nodes
    assert (row.flops, row.bytes) == (20, 80)  # its body's operations, its boundary's bytes


def test_unknown_operators_are_named_and_not_zero() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "my" : 1]>
        g (float[10] x) => (float[10] y) { t = my.Op(x) y = Relu(t) }
    """)
    report = onnxfuse.analyze(model)
    assert report.nodes[0].flops is None and report.totals.unknown[0] == "my::Op" and report.totals.coverage < 1
    assert report.to_json()["nodes"][0]["flops"] is None


def test_a_custom_operator_can_be_taught() -> None:
    from onnxfuse.cost import Cost
    from onnxfuse.cost.registry import FORMULAS

    onnxfuse.cost.register("taught", "Op")(lambda call: Cost(0, 7, 0, call.read(), call.read()))
    try:
        model = onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["taught" : 1]> g (float[10] x) => (float[10] y) { y = taught.Op(x) }'
        )
        assert onnxfuse.analyze(model).nodes[0].flops == 7
    finally:
        del FORMULAS["taught", "Op"]


def test_weights_stay_where_they_are(tmp_path: Path) -> None:
    model = onnx.load(RESNET)
    onnx.save(model, tmp_path / "in.onnx", save_as_external_data=True, location="in.bin", size_threshold=0)
    (tmp_path / "elsewhere").mkdir()
    for out in (tmp_path / "out.onnx", tmp_path / "elsewhere" / "out.onnx"):
        assert len(onnxfuse.optimize(tmp_path / "in.onnx", out).fusions) == 9
        assert out.stat().st_size < 20_000
        original = onnx.load(RESNET)  # `model` was changed by saving it with external data
        assert_same(original, onnx.load(out), random_feeds(original))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["elsewhere", "in.bin", "in.onnx", "out.onnx"]


def overridable(body: str, *, inputs: str, outputs: str, defaults: dict[str, np.ndarray]) -> onnx.ModelProto:
    model = graph(body, inputs=inputs, outputs=outputs)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in defaults.items())
    return model


OVERRIDABLE = {
    "expand": (
        "t = Conv(x, w) r = Expand(q, s) u = Add(t, r) y = Relu(u)",
        "float[1,3,8,8] x, float[4,3,3,3] w, float[1,4,1,1] q, int64[4] s",
        {"s": np.array([1, 4, 6, 6])},
    ),
    "slice": (
        "a = Slice(x, b, s) r = Relu(a) "
        "y = MaxPool <kernel_shape = [2, 2], dilations = [3, 3], pads = [1, 1, 1, 1]> (r)",
        "float[8,8,8,8] x, int64[4] b, int64[4] s",
        {"b": np.array([0, 0, 0, 0]), "s": np.array([8, 8, 8, 8])},
    ),
}


@pytest.mark.parametrize("name", OVERRIDABLE)
@pytest.mark.parametrize("target", ["ort-cuda", "portable", "ort-cpu"])
def test_legality_does_not_trust_a_default_that_callers_may_override(name: str, target: str) -> None:
    """With the default the rewrite would be right; with another value it would not."""
    body, inputs, defaults = OVERRIDABLE[name]
    model = overridable(body, inputs=inputs, outputs="float[a,b,c,d] y", defaults=defaults)
    rule = "conv_add_relu" if name == "expand" else "relu_maxpool"
    assert not onnxfuse.optimize(model, target=target, rules=[rule]).fusions
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    kept = [i for i in model.graph.input if i.name not in defaults]
    del fixed.graph.input[:]
    fixed.graph.input.extend(kept)
    if target == "ort-cuda" or (name == "slice" and target == "portable"):
        assert onnxfuse.optimize(fixed, target=target, rules=[rule]).fusions  # a constant may be trusted


@pytest.mark.parametrize("kind", SOURCES)
def test_sizes_follow_from_the_given_inputs(kind: str) -> None:
    given = {"x": np.ones((6, 3, 112, 112), np.float32)}
    report = onnxfuse.analyze(SOURCES[kind](), inputs=given)
    assert report.dims == {"N": 6} and report.assumed == ()
    assert report.totals.macs == onnxfuse.analyze(RESNET, dims={"N": 6}).totals.macs
    with pytest.raises(UsageError, match="has the size 6, which does not fit N=2"):
        onnxfuse.analyze(SOURCES[kind](), inputs=given, dims={"N": 2})
    executed = onnxfuse.analyze(RESNET, inputs=given, as_executed=True)
    assert executed.dims == {"N": 6} and executed.assumed == ()


def test_a_cache_of_the_given_inputs_may_be_empty() -> None:
    model = graph("y = Concat <axis = 0> (p, x)", inputs="float[P,4] p, float[S,4] x", outputs="float[Q,4] y")
    given = {"p": np.ones((0, 4), np.float32), "x": np.ones((2, 4), np.float32)}
    report = onnxfuse.analyze(model, inputs=given)
    assert report.dims == {"P": 0, "S": 2} and report.totals.bytes == 2 * 4 * 4 * 2  # read and written
    with pytest.raises(UsageError, match="dimension 'P' is 0; give a whole number from 1"):
        onnxfuse.analyze(model, dims={"P": 0})
