"""The graph that onnxruntime executes: nodes as onnxruntime is known to run them, costs by hand, its own profile."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper
from protodiff import diff
from support import LIGHT_ZOO, graph

import onnxfuse
from onnxfuse import interface, runtime
from onnxfuse.cost import costs
from onnxfuse.errors import Finding, UsageError
from onnxfuse.executed import executed
from onnxfuse.facts import infer
from onnxfuse.model import Model

MODELS = os.environ.get("ONNXFUSE_MODELS")
NETWORK = """
    c = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (x, w, b)
    r = Relu (c)
    y = MaxPool <kernel_shape = [2,2], strides = [2,2]> (r)
"""


def network(body: str = NETWORK, channels: int = 32, inputs: int = 3) -> onnx.ModelProto:
    head = '<ir_version: 8, opset_import: ["" : 17]>'
    model = onnx.parser.parse_model(f"{head} g (float[N,{inputs},8,8] x) => (float[N,{channels},4,4] y) {{ {body} }}")
    rng = np.random.default_rng(0)
    for name, shape in (("w", (channels, inputs, 3, 3)), ("b", (channels,))):
        model.graph.initializer.append(numpy_helper.from_array(rng.random(shape, np.float32), name))
    return model


def blocked(model: Model) -> bool:
    return any(node.domain == "com.microsoft.nchwc" for node in model.program.graph.nodes)


def profiled(path: Path, model: Model, folder: Path) -> Counter[tuple[int, str]]:
    """(node_index, name) of every kernel in onnxruntime's profile of the file, run as it stands."""
    options = runtime.options("disabled")
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    runtime.find_feeds(partial(runtime.run, session), interface.of(model.proto), {}, 0, typical=True)
    events = json.loads(Path(session.end_profiling()).read_bytes())
    kernels = [e for e in events if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]
    return Counter((int(e["args"]["node_index"]), e["name"].removesuffix("_kernel_time")) for e in kernels)


def test_convolution_and_relu_run_as_one_kernel_on_blocks_of_channels() -> None:
    """32 channels are whole blocks of 8 and of 16: 2·8·8·32 outputs x 3·3·3 taps, no more MACs than the original."""
    with executed(network()) as model:
        if not blocked(model):
            pytest.skip("onnxruntime has no NCHWc kernels for this CPU")
        facts = infer(model.program, {"N": 2})
        assert {n.domain for n in facts.nodes} == {"com.microsoft.nchwc"}
        assert [n.op_type for n in facts.nodes] == ["Conv", "MaxPool", "ReorderOutput"]
        conv, pool, reorder = costs(facts)
    n = 2 * 32 * 8 * 8
    assert (conv.macs, conv.arith) == (n * 27, 2 * n)  # bias and Relu
    assert conv.bytes_read == 4 * (2 * 3 * 64 + 32 * 27 + 32)
    assert (conv.bytes_written, pool.bytes_read) == (4 * n, 4 * n)
    assert (pool.arith, pool.bytes_written, reorder.bytes) == (3 * n // 4, n, 2 * n)


def test_channels_are_rounded_up_to_whole_blocks() -> None:
    """10 channels are computed as 16, in one block of 16 or two of 8; the 3 of the input stay."""
    with executed(network(channels=10)) as model:
        if not blocked(model):
            pytest.skip("onnxruntime has no NCHWc kernels for this CPU")
        facts = infer(model.program, {"N": 1})
        assert costs(facts)[0].macs == 16 * 8 * 8 * 27


def test_levels() -> None:
    """A constant that is computed is folded from "basic" on; Conv and Relu become one from "extended" on."""
    body = f"half = Constant <value_float = 0.5> () k = Mul (b0, half) {NETWORK.replace('(x, w, b)', '(x, w, k)')}"
    model = network(body)
    model.graph.initializer[-1].name = "b0"

    def operators(level: str) -> list[str]:
        with executed(model, level) as found:
            return [node.op_type for node in found.program.graph.nodes]

    assert operators("disabled") == ["Mul", "Conv", "Relu", "MaxPool"]  # a Constant node is a weight at every level
    assert operators("basic") == ["Conv", "Relu", "MaxPool"]
    assert operators("extended") == ["FusedConv", "MaxPool"]
    with pytest.raises(UsageError, match="unknown level 'most'"):
        operators("most")


def test_local_functions_are_inlined() -> None:
    text = """
    <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float[4] x) => (float[4] y) { y = local.Twice (x) }
    <domain: "local", opset_import: ["" : 17]> Twice (p) => (q) { t = Exp (p) q = Neg (t) }
    """
    with executed(onnx.parser.parse_model(text), "disabled") as model:
        assert [node.op_type for node in model.program.graph.nodes] == ["Exp", "Neg"]


def test_the_source_is_left_alone_and_free_dims_stay_free(tmp_path: Path) -> None:
    source = network()
    kept = source.SerializeToString()
    onnx.save(source, tmp_path / "m.onnx")
    before = sorted(p.name for p in tmp_path.iterdir())
    with executed(tmp_path / "m.onnx") as model:
        assert model.name == str(tmp_path / "m.onnx")
        assert model.program.graph.inputs["x"].dims == ("N", 3, 8, 8)
        saved = model.path
    assert saved is not None
    assert not saved.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    with executed(source) as model:
        assert model.name is None
    assert source.SerializeToString() == kept


def test_external_data_stays_external(tmp_path: Path) -> None:
    source = network()
    bias = numpy_helper.to_array(source.graph.initializer[1]).copy()
    onnx.save(source, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    with executed(tmp_path / "m.onnx") as model:
        assert model.external
        assert np.array_equal(model.array("b"), bias)


def test_what_onnxruntime_refuses_is_one_line(tmp_path: Path) -> None:
    model = graph("y = Relu (x)", inputs="float[2] x", outputs="float[2] y")
    model.graph.node[0].op_type, model.graph.node[0].domain = "Odd", "nobody.knows"
    model.opset_import.add(domain="nobody.knows", version=1)
    onnx.save(model, tmp_path / "odd.onnx")
    with (
        pytest.raises(Finding, match=r"odd\.onnx: onnxruntime does not load it: .*Odd") as caught,
        executed(tmp_path / "odd.onnx"),
    ):
        pass
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("named", [True, False])
def test_the_saved_graph_and_its_profile_name_the_same_nodes(named: bool, tmp_path: Path) -> None:
    source = network()
    for i, node in enumerate(source.graph.node):
        node.name = f"node{i}" if named else ""
    with executed(source) as model:
        assert model.path is not None
        found = profiled(model.path, model, tmp_path)
        nodes = model.program.graph.nodes
    assert set(found) == {(i, node.name or f"{node.op_type}_{i}") for i, node in enumerate(nodes)}


QUICK = [path for path in LIGHT_ZOO if not re.search("vgg|zfnet|alexnet", path.stem)]  # those fold half a GB of weights


@pytest.mark.parametrize("path", QUICK, ids=lambda p: p.stem)
def test_every_cost_is_known_in_the_light_zoo(path: Path) -> None:
    with executed(path) as model:
        facts = infer(model.program, {}, model.array)
        assert [n.op_type for n, cost in zip(facts.nodes, costs(facts), strict=True) if not cost.known] == []


@pytest.mark.slow
@pytest.mark.skipif(not MODELS, reason="set ONNXFUSE_MODELS to a folder of models")
@pytest.mark.parametrize("path", sorted(Path(MODELS or ".").glob("*.onnx")), ids=lambda p: p.stem)
def test_real_models(path: Path, tmp_path: Path) -> None:
    report = onnxfuse.analyze(path, as_executed=True)
    assert (report.at_dims.totals.coverage, report.target, report.model) == (1.0, "ort-cpu", str(path))
    with executed(path) as model:
        assert model.path is not None
        found = profiled(model.path, model, tmp_path)
        names = {node.name or f"{node.op_type}_{i}" for i, node in enumerate(model.program.graph.nodes)}
    assert names <= {name for _, name in found}
    assert len(report.nodes) == len(model.program.graph.nodes)


def test_analyze_as_executed() -> None:
    source = network()
    before = source.SerializeToString()
    report = onnxfuse.analyze(source, as_executed=True, dims={"N": 2})
    assert (report.as_executed, report.target, report.model, report.totals.coverage) == (True, "ort-cpu", None, 1.0)
    conv = next(row for row in report.nodes if row.macs)
    assert conv.fused == ("Relu",)
    assert conv.macs == 2 * 32 * 64 * 27
    with pytest.raises(onnxfuse.UsageError, match="target ort-cpu, not portable"):
        onnxfuse.analyze(source, as_executed=True, target="portable")
    plain = onnxfuse.analyze(source, dims={"N": 2})
    assert (plain.as_executed, plain.target, plain.totals.macs) == (False, "ort-cuda", conv.macs)
    # Conv writes c and Relu reads it: that is gone
    if all(row.op_type != "ReorderOutput" for row in report.nodes):
        pytest.skip("onnxruntime has no NCHWc kernels for this CPU")
    reordered = 2 * 4 * 2 * 32 * 16
    assert plain.totals.bytes - report.totals.bytes == 2 * 4 * 2 * 32 * 64 - reordered
    assert source.SerializeToString() == before


def test_annotate_writes_the_executed_graph(tmp_path: Path) -> None:
    source = network()
    report = onnxfuse.analyze(source, as_executed=True, annotate=tmp_path / "noted.onnx")
    with executed(source) as model:
        bare = model.to_proto()
    noted = onnx.load(tmp_path / "noted.onnx")
    assert len(noted.graph.node) == len(report.nodes)
    assert all(any(e.key == "onnxfuse.macs" for e in node.metadata_props) for node in noted.graph.node)
    for node in noted.graph.node:
        kept = [e for e in node.metadata_props if not e.key.startswith("onnxfuse.")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    assert diff(bare, noted) == []
