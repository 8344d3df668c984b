from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import graph, node_cases

from onnxfuse import storage
from onnxfuse.errors import ModelError, OutputError
from onnxfuse.model import Model

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
FILES = [
    p
    for part in ("pytorch-converted", "pytorch-operator", "simple", "light")
    for p in sorted((DATA / part).rglob("*.onnx"))
]


def example(ir_version: int = 8, elements: int = 1000) -> onnx.ModelProto:
    """y = relu(x + w); with a big weight, a small one that nothing uses, and metadata."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", elements])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", elements])
    w = numpy_helper.from_array(np.arange(elements, dtype=np.float32), "w")
    unused = numpy_helper.from_array(np.array([1, 2], np.int64), "unused")
    nodes = [helper.make_node("Add", ["x", "w"], ["s"], "add"), helper.make_node("Relu", ["s"], ["y"], "relu")]
    graph = helper.make_graph(nodes, "g", [x], [y], [w, unused])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir_version)
    helper.set_model_props(model, {"author": "tests"})
    return model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(example(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


# --- load and save ---


def wheel(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    for case in node_cases():
        (tmp_path / "in.onnx").unlink(missing_ok=True)  # much faster than to overwrite it
        (tmp_path / "in.onnx").write_bytes(case.model.SerializeToString())
        yield case.name, tmp_path / "in.onnx"
    for path in FILES:
        yield path.parent.name + "/" + path.name, path


def test_models_of_the_onnx_wheel_come_out_as_they_went_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaded and saved, written as a stream, put together in memory, and through the view without an edit."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)  # 2 x 2033 times
    out, seen = tmp_path / "out.onnx", 0
    for name, path in wheel(tmp_path):
        data = path.read_bytes()
        proto = onnx.ModelProto.FromString(data)
        model = Model.load(path)
        model.save(out)
        assert out.read_bytes() == data, name
        out.unlink()  # much faster than to overwrite it
        storage.write(model._stored, out)
        assert out.read_bytes() == proto.SerializeToString(), name
        out.unlink()
        assert model.to_proto() == proto, name
        assert model.graph is model.graph
        model.apply()
        assert not model.changed, name
        seen += 1
    assert len(FILES) > 140 and seen == len(node_cases()) + len(FILES) > 2000


def test_load_from_a_path_and_a_proto(path: Path) -> None:
    proto = onnx.load(path)
    before = proto.SerializeToString()
    for source, name, folder in (
        (path, str(path), path.parent),
        (str(path), str(path), path.parent),
        (proto, None, None),
    ):
        model = Model.load(source)
        assert (model.name, model.base_dir, model.opsets) == (name, folder, {"": 17})
        assert model.array("w").tolist() == list(range(1000))
        assert model.proto.ByteSize() < 600 and model.to_proto() == proto
        model.graph.nodes[0].name = "renamed"
        model.apply()
        model.proto.graph.initializer[1].name = "also renamed"
        assert model.changed and proto.SerializeToString() == before


def test_load_from_graphsurgeon(path: Path) -> None:
    graph = gs.import_onnx(onnx.load(path))
    exported = gs.export_onnx(graph)
    graph.nodes[0].domain = "com.microsoft"  # an import that the exporter would add to the graph's own list
    graph.nodes[0].op = "Gelu"
    graph.nodes[0].inputs.pop()
    imports = list(graph.import_domains)
    model = Model.load(graph)
    assert list(graph.import_domains) == imports
    assert [n.op_type for n in model.proto.graph.node] == ["Gelu", "Relu"] and model.path is None
    assert gs.export_onnx(gs.import_onnx(exported)) == exported
    graph.outputs[0].name = ""
    with pytest.raises(ModelError, match="not a valid ONNX model"):
        Model.load(graph)
    graph.nodes[0].attrs["axes"] = []
    with pytest.raises(ModelError, match="cannot be exported by graphsurgeon"):
        Model.load(graph)


@pytest.mark.parametrize("source", [None, 3, b"bytes", {}], ids=repr)
def test_other_sources_are_refused(source: Any) -> None:
    with pytest.raises(ModelError, match="give a path"):
        Model.load(source)


def test_import_does_not_need_graphsurgeon_or_onnxruntime(path: Path) -> None:
    code = (
        "import sys; from onnxfuse.model import Model; m = Model.load(sys.argv[1]); m.program; m.array('w');"
        "m.save(sys.argv[1]); assert not {'onnx_graphsurgeon', 'onnxruntime'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


def changed(edit: Callable[[onnx.ModelProto], Any]) -> onnx.ModelProto:
    model = example()
    edit(model)
    return model


def relu(source: str, result: str) -> onnx.NodeProto:
    return helper.make_node("Relu", [source], [result])


def add_captured_bad_body(m: onnx.ModelProto) -> None:
    body = helper.make_graph([], "b", [], [helper.make_tensor_value_info("s", 1, None)])
    m.graph.node.append(helper.make_node("If", ["unused"], ["z"], then_branch=body, else_branch=body))


INVALID: dict[str, tuple[Callable[[onnx.ModelProto], Any], str]] = {
    "no graph": (lambda m: m.ClearField("graph"), "no graph"),
    "no ir_version": (lambda m: m.ClearField("ir_version"), "no ir_version"),
    "no opset": (lambda m: m.ClearField("opset_import"), "no opset"),
    "opset too new": (lambda m: setattr(m.opset_import[0], "version", 99), "upgrade onnx"),
    "IR too new": (lambda m: setattr(m, "ir_version", 99), "upgrade onnx"),
    "unknown operator": (lambda m: setattr(m.graph.node[1], "op_type", "Zelu"), "Zelu"),
    "unknown attribute": (lambda m: m.graph.node[1].attribute.append(helper.make_attribute("zz", 1)), "zz"),
    "custom domain not imported": (lambda m: setattr(m.graph.node[1], "domain", "my.own"), "my.own"),
    "defined twice": (lambda m: m.graph.node.append(relu("s", "y")), "single static assignment"),
    "undefined input": (lambda m: m.graph.node.append(relu("nowhere", "z")), "nowhere"),
    "in a cycle": (lambda m: m.graph.node.extend([relu("a", "b"), relu("b", "a")]), "form a cycle"),
    "initializer twice": (lambda m: m.graph.initializer.append(m.graph.initializer[0]), "not unique"),
    "untyped input": (lambda m: m.graph.input[0].ClearField("type"), "type"),
    "too short weight": (lambda m: m.graph.initializer[0].dims.append(2), "too small"),
    "weight without data": (lambda m: m.graph.initializer[0].ClearField("raw_data"), "value field"),
    "body returns an outer value": (add_captured_bad_body, "s"),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_models_are_refused(tmp_path: Path, case: str) -> None:
    edit, text = INVALID[case]
    proto = changed(edit)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    for source, name in ((proto, "the model"), (tmp_path / "m.onnx", str(tmp_path / "m.onnx"))):
        with pytest.raises(ModelError, match=text) as raised:
            Model.load(source)
        assert str(raised.value).startswith(name) and "\n" not in str(raised.value)


def microsoft_gelu(m: onnx.ModelProto) -> None:
    m.graph.node[1].op_type, m.graph.node[1].domain = "Gelu", "com.microsoft"


def experimental(m: onnx.ModelProto) -> None:
    m.opset_import[0].version = 9
    m.graph.node[1].op_type = "Affine"


def of_ir(m: onnx.ModelProto, version: int) -> None:
    m.ir_version = version
    del m.graph.initializer[1]  # onnxruntime takes only those that are used


def unknown_ranks(m: onnx.ModelProto) -> None:
    for value in (m.graph.input[0], m.graph.output[0]):
        value.type.tensor_type.ClearField("shape")


HARMLESS: dict[str, Callable[[onnx.ModelProto], Any]] = {
    "graph without a name": lambda m: m.graph.ClearField("name"),
    "doubled metadata": lambda m: m.metadata_props.append(m.metadata_props[0]),
    "untyped output": lambda m: m.graph.output[0].ClearField("type"),
    "IR 3, initializers are no inputs": lambda m: of_ir(m, 3),
    "IR 2 with an opset": lambda m: of_ir(m, 2),
    "unknown ranks": unknown_ranks,
    "onnxruntime's domain not imported": microsoft_gelu,
    "experimental operator": experimental,
    "unused import": lambda m: m.opset_import.add(domain="my.own", version=3),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_what_onnxruntime_takes_is_taken(tmp_path: Path, case: str, capfd: pytest.CaptureFixture[str]) -> None:
    import onnxruntime

    proto = changed(HARMLESS[case])
    onnx.save(proto, tmp_path / "m.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    onnxruntime.InferenceSession(tmp_path / "m.onnx", options, providers=["CPUExecutionProvider"])
    capfd.readouterr()
    model = Model.load(tmp_path / "m.onnx")
    model.save(tmp_path / "n.onnx")
    assert (tmp_path / "n.onnx").read_bytes() == (tmp_path / "m.onnx").read_bytes()
    assert capfd.readouterr() == ("", "")  # the checker prints a warning about some models; stdout is for results


def test_load_reports_files(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("no model\n" * 99)
    for name, text in (("none.onnx", "No such file"), ("", "is a directory"), ("text.onnx", "not an ONNX model")):
        with pytest.raises(ModelError, match=text):
            Model.load(tmp_path / name)


def test_external_data_is_checked_and_need_not_be_near_the_working_folder(tmp_path: Path) -> None:
    onnx.save(example(), tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=100)
    model = Model.load(tmp_path / "m.onnx")
    assert model.array("w").tolist() == list(range(1000)) and model.array("unused").tolist() == [1, 2]
    (tmp_path / "n").mkdir()
    model.proto.graph.node[0].name = "renamed"
    model.save(tmp_path / "n" / "n.onnx")
    assert numpy_helper.to_array(onnx.load(tmp_path / "n" / "n.onnx").graph.initializer[0]).sum() == 499500
    (tmp_path / "m.data").unlink()
    with pytest.raises(ModelError, match=r"tensor 'w': external data 'm\.data' cannot be read"):
        Model.load(tmp_path / "m.onnx")


# --- reading ---


def test_array_of_names_tensors_and_constants(path: Path) -> None:
    model = Model.load(path)
    w = next(t for t in model.graph.nodes[0].inputs if t.name == "w")
    held = w._values
    for key in ("w", model.proto.graph.initializer[0], w):
        assert model.array(key).tolist() == list(range(1000))
    assert w._values is held and not model.changed
    assert model.array(gs.Constant("new", np.array([3.0]))).tolist() == [3]
    with pytest.raises(ModelError, match="no initializer 's'"):
        model.array("s")


def test_weight_bytes_by_hand() -> None:
    proto = example()  # 4000 + 16
    proto.graph.node.append(helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", 22, [3], [1, 2, 3])))
    assert Model.load(proto).weight_bytes() == 4000 + 16 + 2  # three int4 in two bytes


def test_program_follows_the_edits(path: Path) -> None:
    model = Model.load(path)
    first = model.program
    assert first is model.program and [n.name for n in first.graph.nodes] == ["add", "relu"]
    assert first.base_dir == path.parent
    model.graph.nodes[0].name = "renamed"
    assert model.program is first
    model.apply()
    assert [n.name for n in model.program.graph.nodes] == ["renamed", "relu"]
    model.require_opset("com.microsoft", 1)
    assert model.program.opsets == {"": 17, "com.microsoft": 1}


# --- editing ---


def test_an_edit_writes_just_itself(path: Path, tmp_path: Path) -> None:
    model = Model.load(path)
    model.graph.nodes[1].op = "Abs"
    model.apply()
    assert model.changed
    model.save(tmp_path / "n.onnx")
    expected = example()
    expected.graph.node[1].op_type = "Abs"
    assert (tmp_path / "n.onnx").read_bytes() == expected.SerializeToString()
    assert model.to_proto() == expected


def test_a_new_and_a_dropped_weight(path: Path, tmp_path: Path) -> None:
    model = Model.load(path)
    old = model.graph.nodes[0].inputs[1]
    model.graph.nodes[0].inputs[1] = gs.Constant("v", model.array(old) + np.float32(1))
    model.apply()
    model.save(path)  # onto the file that the other weights are in
    saved = onnx.load(path)
    assert {t.name for t in saved.graph.initializer} == {"unused", "v"}
    assert model.array("v").tolist() == list(range(1, 1001))
    onnx.checker.check_model(saved, full_check=True)


def test_restore_takes_everything_back(path: Path) -> None:
    model = Model.load(path)
    loaded = model.proto.SerializeToString()
    proto = model.proto
    model.graph.nodes[0].inputs[1] = gs.Constant("v", np.ones(1000, np.float32))
    model.apply()
    model.require_opset("d", 1)
    model.add_function(function("d", "F", "Relu"))
    model.annotate([{"a": "1"}, {}])
    assert model.changed
    model.restore()
    assert model.proto is proto and proto.SerializeToString() == loaded and not model.changed
    assert model.array("w").tolist() == list(range(1000)) and model.opsets == {"": 17}
    assert [t.name for t in model.graph.nodes[0].inputs] == ["x", "w"] and not model.program.functions
    model.graph.nodes[1].op = "Abs"  # and it can be edited again
    model.apply()
    assert [n.op_type for n in model.to_proto().graph.node] == ["Add", "Abs"]


def function(domain: str, name: str, op: str, overload: str = "") -> onnx.FunctionProto:
    node = helper.make_node(op, ["a"], ["b"])
    return helper.make_function(domain, name, ["a"], ["b"], [node], [helper.make_opsetid("", 17)], overload=overload)


def test_functions_are_added_once() -> None:
    model = Model.load(example())
    model.add_function(function("d", "F", "Relu"))
    model.add_function(function("d", "F", "Relu"))
    model.add_function(function("d", "F", "Abs", overload="other"))
    assert [f.node[0].op_type for f in model.proto.functions] == ["Relu", "Abs"]
    assert set(model.program.functions) == {("d", "F", ""), ("d", "F", "other")}
    with pytest.raises(ModelError, match="another function 'd::F'"):
        model.add_function(function("d", "F", "Abs"))


def test_an_imported_opset_stays() -> None:
    model = Model.load(example())
    model.require_opset("", 21)
    model.require_opset("ai.onnx", 21)
    assert not model.changed
    model.require_opset("d", 2)
    model.require_opset("d", 3)
    assert model.opsets == {"": 17, "d": 2}


def test_annotations_are_metadata_of_the_nodes() -> None:
    proto = example()
    proto.graph.node[0].metadata_props.add(key="old", value="stays")
    proto.graph.node[0].metadata_props.add(key="flops", value="?")
    model = Model.load(proto)
    model.annotate([{"flops": "1000", "bound": "memory"}, {}])
    props = [{e.key: e.value for e in n.metadata_props} for n in model.to_proto().graph.node]
    assert props == [{"old": "stays", "flops": "1000", "bound": "memory"}, {}]
    with pytest.raises(ValueError, match="shorter"):
        model.annotate([{}])


def test_a_failed_save_keeps_the_old_file(path: Path) -> None:
    model = Model.load(path)
    model.graph.nodes[1].op = "Abs"
    model.apply()
    (path.parent / "out.onnx").mkdir()
    with pytest.raises(OutputError, match=r"out\.onnx: is a folder"):
        model.save(path.parent / "out.onnx")
    assert path.read_bytes() == example().SerializeToString()


EDIT = """
import sys
import onnx_graphsurgeon
from onnxfuse.model import Model

def peak():
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM")) * 1024

def edit(source, out):
    model = Model.load(source)
    model.graph.nodes[1].op = "Abs"
    model.apply()
    model.save(out)

edit(sys.argv[1], sys.argv[2])  # a small one first: imports, schemas
before = peak()
edit(sys.argv[3], sys.argv[2])
print(peak() - before)
"""


def test_an_edit_of_a_big_model_takes_little_memory(path: Path, tmp_path: Path) -> None:
    big = example(elements=24_000_000)  # 96 MB
    onnx.save(big, tmp_path / "big.onnx")
    command = [sys.executable, "-c", EDIT, str(path), str(tmp_path / "out.onnx"), str(tmp_path / "big.onnx")]
    growth = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert growth < 10e6
    big.graph.node[1].op_type = "Abs"
    assert (tmp_path / "out.onnx").read_bytes() == big.SerializeToString()
    for name in ("big.onnx", "out.onnx"):
        (tmp_path / name).unlink()  # pytest keeps the folders of its last runs


@pytest.mark.parametrize("size", [4 * 99 * 100, 4 * 5000])
def test_a_weight_of_a_size_that_its_shape_does_not_have_is_refused(size: int) -> None:
    """Large weights are not copied for the check; those that do not fit their shape are."""
    model = graph("y = MatMul(x, w)", inputs="float[N,100] x, float[100,100] w", outputs="float[N,100] y")
    del model.graph.input[1]
    model.graph.initializer.append(TensorProto(name="w", data_type=1, dims=[100, 100], raw_data=bytes(4 * 100 * 100)))
    Model.load(model)
    model.graph.initializer[0].raw_data = bytes(size)
    with pytest.raises(ModelError, match="raw_data"):
        Model.load(model)
