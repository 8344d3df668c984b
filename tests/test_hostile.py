"""Files that were made to hurt, and accidents: bounded work, one line, nothing left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import onnx
import pytest
from onnx import helper
from support import graph

import onnxfuse
import onnxfuse.rules
from onnxfuse import ir, patterns, storage
from onnxfuse.errors import OnnxfuseError
from onnxfuse.facts import infer
from onnxfuse.model import Model
from onnxfuse.patterns import look
from onnxfuse.storage import parts, tensors, wire
from onnxfuse.verification import Reference, Subject, Verdict

RESNET = Path(__file__).parent.parent / "models" / "small_resnet.onnx"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "onnxfuse", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_shape_of_billions_of_axes_is_unknown() -> None:
    doubled = " ".join(f"p{i + 1} = Concat <axis = 0> (p{i}, p{i})" for i in range(40))
    model = graph(f"p0 = Shape(x) {doubled} y = Reshape(x, p40)", inputs="float[N] x", outputs="float[M] y")
    assert infer(ir.read(model))["y"].shape is None
    body = "n = Constant <value_ints = [8589934592]> () s = ConstantOfShape(n) y = Reshape(x, s)"
    assert infer(ir.read(graph(body, inputs="float[N] x", outputs="float[M] y")))["y"].shape is None


def test_functions_that_call_each_other_twice_end() -> None:
    """30 levels would be 2^30 calls."""
    functions = [
        helper.make_function(
            "loc", f"F{i}", ["a"], ["c"],
            [helper.make_node(f"F{i + 1}" if i < 29 else "Relu", [x], [y], domain="loc" if i < 29 else "")
             for x, y in (("a", "b"), ("b", "c"))],
            [helper.make_opsetid("", 17), helper.make_opsetid("loc", 1)],
        )
        for i in range(30)
    ]  # fmt: skip
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("F0", ["x"], ["y"], domain="loc")],
            "g",
            [helper.make_tensor_value_info("x", 1, [4])],
            [helper.make_tensor_value_info("y", 1, [4])],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("loc", 1)],
        functions=functions,
        ir_version=8,
    )
    report = onnxfuse.analyze(model)
    assert not report.nodes[0].known and report.totals.unknown == ("loc::F0",)  # a lower bound, too much to know


@pytest.mark.parametrize("where", ["graph", "branch", "function"])
def test_warnings_of_the_checker_stay_out_of_the_results(where: str, tmp_path: Path) -> None:
    """onnx's checker prints about experimental operators to the standard output, from C++."""
    affine = helper.make_node("Affine", ["x"], ["y"], alpha=1.0, beta=0.0)
    x, y = (helper.make_tensor_value_info(name, 1, [4]) for name in "xy")
    functions, nodes = [], [affine]
    opsets = [helper.make_opsetid("", 9), helper.make_opsetid("loc", 1)]
    if where == "function":
        functions = [helper.make_function("loc", "F", ["x"], ["y"], [affine], opsets[:1])]
        nodes = [helper.make_node("F", ["x"], ["y"], domain="loc")]
    if where == "branch":
        affine.output[0] = "b"
        body = helper.make_graph([affine], "b", [], [helper.make_tensor_value_info("b", 1, [4])])
        nodes = [
            helper.make_node("Constant", [], ["c"], value=helper.make_tensor("c", onnx.TensorProto.BOOL, [], [True])),
            helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body),
        ]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets, functions=functions, ir_version=8
    )
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    done = run("analyze", tmp_path / "m.onnx", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["nodes"]) == len(nodes)


@pytest.mark.parametrize("dtype", [77, 999])
def test_unknown_dtypes_are_one_line(dtype: int, tmp_path: Path) -> None:
    model = graph("y = Relu(x)", inputs="float[4] x", outputs="float[4] y")
    model.graph.input[0].type.tensor_type.elem_type = dtype
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    done = run("analyze", tmp_path / "m.onnx")
    assert done.returncode == 2 and f"unknown dtype {dtype}" in done.stderr and len(done.stderr.splitlines()) == 1


def test_text_that_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    data = RESNET.read_bytes().replace(b"conv_0", b"con\xff_0")
    (tmp_path / "m.onnx").write_bytes(data)
    done = run("optimize", tmp_path / "m.onnx", tmp_path / "o.onnx", "--json")
    assert done.returncode == 2 and "internal" not in done.stderr and len(done.stderr.splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_a_stride_of_zero_is_refused() -> None:
    model = graph(
        "t = Relu(x) y = MaxPool <kernel_shape = [2, 2], strides = [0, 1]> (t)",
        inputs="float[1,1,4,4] x",
        outputs="float[1,1,a,b] y",
    )
    assert not onnxfuse.optimize(model, verify=False).fusions


def test_inputs_of_a_size_that_no_machine_has_are_refused_before_anything_runs() -> None:
    huge = 2**40
    inputs, outputs = f"float[1,1,{huge},4] x, float[1,1,1,1] w", f"float[1,1,{huge},4] y"
    model = graph("t = Conv(x, w) y = Relu(t)", inputs=inputs, outputs=outputs)
    with pytest.raises(onnxfuse.OutOfMemory, match="not enough memory to verify"):
        onnxfuse.optimize(model)


RECURSIVE = """<ir_version: 8, opset_import: ["" : 17, "loc" : 1]> g (float[4] x) => (float[4] y) { y = loc.F(x) }
<domain: "loc", opset_import: ["" : 17, "loc" : 1]> F (a) => (c) { b = Relu(a) c = loc.G(b) }
<domain: "loc", opset_import: ["" : 17, "loc" : 1]> G (a) => (c) { b = Relu(a) c = loc.F(b) }"""


@pytest.mark.parametrize("command", ["analyze", "optimize"])
def test_functions_that_call_themselves_are_refused(command: str, tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(RECURSIVE), tmp_path / "m.onnx")
    done = run(command, tmp_path / "m.onnx", *([tmp_path / "o.onnx"] if command == "optimize" else []))
    assert done.returncode == 2 and "recursive" in done.stderr and len(done.stderr.splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_a_thousand_opset_entries() -> None:
    model = graph("t = Relu(x) y = Relu(t)", inputs="float[4] x", outputs="float[4] y")
    for i in range(1000):
        model.opset_import.add(domain=f"d{i}", version=1)
    assert onnxfuse.analyze(model).totals.flops == 8
    assert len(onnxfuse.optimize(model, verify=False).model.opset_import) == 1001


def part(number: int, data: bytes) -> bytes:
    """A protobuf field of that number."""
    size, length = bytearray(), len(data)
    while length > 127:
        size.append(length & 127 | 128)
        length >>= 7
    return bytes((number << 3 | 2, *size, length)) + data


HEAD = b"\x08\x08" + part(8, b"\x10\x11")  # ir_version 8, opset 17


def nested(depth: int) -> bytes:
    """A graph in an attribute of a node of a graph …"""
    graph = b""
    for _ in range(depth):
        graph = part(1, part(5, part(6, graph)))
    return graph


BOMBS = {
    "nested": (HEAD + part(7, nested(5000)), "not an ONNX model"),
    "nodes of two bytes": (HEAD + part(7, b"\x0a\x00" * 2_100_000), "more than 2,000,000 nodes"),
    "dims of one byte": (HEAD + part(7, part(5, part(1, b"\x01" * 300_000))), "not a valid ONNX model"),
    "a length beyond the file": (HEAD + b"\x3a\xff\xff\xff\xff\x7f", "damaged"),
}


def tensor(data: bytes) -> bytes:
    return part(7, part(5, data))


# Files that the parser would take, had it the memory, and whose every few bytes were once a step of a loop in Python.
ENDLESS = {
    "zeros": lambda n: bytes(n),
    "unknown fields": lambda n: HEAD + b"\xa0\x06\x01" * (n // 3),
    "metadata": lambda n: HEAD + b"\x72\x00" * (n // 2),
    "functions": lambda n: HEAD + b"\xca\x01\x00" * (n // 3),
    "graphs": lambda n: HEAD + b"\x3a\x00" * (n // 2),
    "dims of a weight": lambda n: HEAD + tensor(b"\x08\x01" * (n // 2)),
    "metadata of a weight": lambda n: HEAD + tensor(b"\x82\x01\x00" * (n // 3)),
    "dims of many weights": lambda n: HEAD + part(7, part(5, b"\x08\x01" * 600) * (n // 1203)),
    "attributes": lambda n: HEAD + part(7, part(1, b"\x2a\x00" * (n // 2))),
    "attributes of many nodes": lambda n: HEAD + part(7, part(1, b"\x2a\x00" * 1000) * (n // 2003)),
    "attributes behind a group": lambda n: HEAD + part(7, part(1, b"\xfb\x3f\xfc\x3f" + b"\x2a\x00" * (n // 2))),
    "nodes of a body": lambda n: HEAD + part(7, part(1, part(5, part(6, b"\x0a\x00" * (n // 2))))),
    "dims of an input": lambda n: HEAD + part(7, part(11, part(2, part(1, part(2, b"\x0a\x00" * (n // 2)))))),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_the_steps_before_a_refusal_do_not_grow_with_the_file(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fields that are looked at one by one, in Python, are counted, at limits of a thousandth of the real ones."""
    seen = 0
    fields = wire.fields

    def counted(*arguments: object) -> Iterator[tuple[int, int, int, int, int]]:
        nonlocal seen
        for field in fields(*arguments):
            seen += 1
            yield field

    monkeypatch.setattr(wire, "fields", counted)
    monkeypatch.setattr(wire, "MOST_PARTS", 2000)
    monkeypatch.setattr(parts, "MOST_MESSAGES", 5000)
    monkeypatch.setattr(parts, "MOST_FIELDS", 20_000)
    steps = []
    for size in (100_000, 1_000_000):
        (tmp_path / "m.onnx").write_bytes(ENDLESS[kind](size))
        seen = 0
        with pytest.raises(onnxfuse.ModelError, match=r"split it|not an ONNX model"):
            onnxfuse.analyze(tmp_path / "m.onnx")
        steps.append(seen)
    assert steps[1] < 120_000 and steps[1] <= steps[0] + 64 * 1_000_000 // wire.SMALL


def test_a_product_of_a_million_dims_is_not_computed() -> None:
    """It would be a number of a megabyte, made in a million steps: hours."""
    weight = onnx.TensorProto(data_type=onnx.TensorProto.FLOAT, dims=[127] * 1_000_000)
    assert tensors.nbytes(weight) is None


@pytest.mark.parametrize(
    ("dims", "count"),
    [
        ([], 1), ([2, 3], 6), ([0, 1 << 62, 4], 0), ([(1 << 63) - 1], (1 << 63) - 1),
        ([4, 1 << 61], None), ([2, -1], None), ([0, -1], None), ([-2, -3], None),
    ],
)  # fmt: skip
def test_elements_are_counted_up_to_64_bits(dims: list[int], count: int | None) -> None:
    assert tensors.elements(dims) == count


def test_a_weight_with_many_metadata_is_kept_as_it_is(tmp_path: Path) -> None:
    """More fields than are hopped over: it stays in the skeleton, and comes out byte for byte."""
    model = graph("y = Add(x, w)", inputs="float[600] x, float[600] w", outputs="float[600] y")
    del model.graph.input[1]
    weight = helper.make_tensor("w", onnx.TensorProto.FLOAT, [600], bytes(2400), raw=True)
    for i in range(100):
        weight.metadata_props.add(key=f"k{i}", value="v")
    model.graph.initializer.append(weight)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    stored = storage.read(tmp_path / "m.onnx")
    assert stored.proto == model
    storage.write(stored, tmp_path / "o.onnx")
    assert (tmp_path / "o.onnx").read_bytes() == (tmp_path / "m.onnx").read_bytes()


@pytest.mark.parametrize("kind", BOMBS)
def test_small_files_that_would_be_large_models(kind: str, tmp_path: Path) -> None:
    data, text = BOMBS[kind]
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(onnxfuse.ModelError, match=text):
        onnxfuse.optimize(tmp_path / "m.onnx", tmp_path / "o.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


def test_an_input_of_more_elements_than_can_be_counted() -> None:
    model = graph("y = Relu(x)", inputs="float[4] x", outputs="float[N] y")
    for _ in range(100):
        model.graph.input[0].type.tensor_type.shape.dim.add(dim_value=1 << 62)
    for call in (onnxfuse.analyze, onnxfuse.optimize):
        with pytest.raises(onnxfuse.ModelError, match="'x' has more elements"):
            call(model)


def test_an_input_of_a_million_dims_is_refused_at_once() -> None:
    """Their product would be a number of a megabyte."""
    model = graph("y = Relu(x)", inputs="float[4] x", outputs="float[N] y")
    for _ in range(200_000):
        model.graph.input[0].type.tensor_type.shape.dim.add(dim_value=127)
    with pytest.raises(onnxfuse.ModelError, match="'x' has more elements"):
        onnxfuse.analyze(model)


def test_a_value_of_more_elements_than_can_be_counted_is_unknown() -> None:
    body = "s = Constant <value_ints = [4611686018427387904, 4611686018427387904]> () t = Expand(x, s) y = Relu(t)"
    report = onnxfuse.analyze(graph(body, inputs="float[1,1] x", outputs="float[M,N] y"))
    assert report.nodes[-1].flops is None


def test_a_sparse_weight_of_a_shape_that_cannot_be() -> None:
    model = graph("y = Add(x, w)", inputs="float[4] x, float[4] w", outputs="float[N] y")
    values = helper.make_tensor("w", onnx.TensorProto.FLOAT, [1], [1.0])
    indices = helper.make_tensor("i", onnx.TensorProto.INT64, [1], [0])
    del model.graph.input[1]
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [1 << 62, 1 << 62]))
    with pytest.raises(onnxfuse.ModelError):
        Model.load(model).array("w")


def test_an_attribute_of_a_function_outside_of_one() -> None:
    model = graph("y = LeakyRelu <alpha = 0.5> (x)", inputs="float[4] x", outputs="float[4] y")
    model.graph.node[0].attribute[0].ref_attr_name = "alpha"
    for call in (onnxfuse.analyze, onnxfuse.optimize):
        with pytest.raises(onnxfuse.ModelError, match="from a function"):
            call(model)


def not_utf8(where: str) -> bytes:
    """A model with one text that is not UTF-8."""
    model = onnx.parser.parse_model(RECURSIVE.replace("c = loc.F(b)", "c = Relu(b)"))
    owner = {"function": model.functions[0], "node": model.functions[1].node[0], "value": model.graph.input[0],
             "comment": model.graph}[where]  # fmt: skip
    setattr(owner, "doc_string" if where == "comment" else "name", "ABCDE")
    return model.SerializeToString().replace(b"ABCDE", b"AB\xffDE")


@pytest.mark.parametrize("where", ["function", "node", "value"])
def test_text_that_is_not_utf8_anywhere(where: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(not_utf8(where))
    with pytest.raises(onnxfuse.ModelError, match="UTF-8"):
        onnxfuse.analyze(tmp_path / "m.onnx")


def test_a_comment_that_is_not_utf8_is_nobodys_business(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(not_utf8("comment"))
    assert len(onnxfuse.analyze(tmp_path / "m.onnx").nodes) == 1
    onnxfuse.optimize(tmp_path / "m.onnx", tmp_path / "o.onnx")
    assert b"AB\xffDE" in (tmp_path / "o.onnx").read_bytes()


def test_names_do_not_steer_the_terminal() -> None:
    model = graph("y = Relu(x)", inputs="float[4] x", outputs="float[4] y")
    model.graph.node[0].input[0] = "a\x1b[2Jb\nc" + "d" * 5000
    with pytest.raises(onnxfuse.ModelError) as raised:
        onnxfuse.analyze(model)
    text = str(raised.value)
    assert text.isprintable() and "a?[2Jb c" in text and len(text) < 1100


def test_a_model_without_outputs_keeps_its_nodes() -> None:
    model = graph("y = Relu(x) z = Relu(y)", inputs="float[4] x", outputs="float[4] z")
    del model.graph.output[:]
    assert onnxfuse.optimize(model).model == model


def test_a_node_that_does_not_fit_is_no_reason_to_stop() -> None:
    """The checker knows nothing of pads that are none."""
    model = graph(
        "t = Conv <pads = [0, 0, 0, 0]> (x, w) u = Conv(x, w) y = Add(t, u)",
        inputs="float[1,2,4,4] x, float[2,2,1,1] w",
        outputs="float[1,2,4,4] y",
    )
    del model.graph.node[0].attribute[0].ints[:]
    onnxfuse.optimize(model, verify=False)


def failing(*_: object) -> None:
    raise IndexError("list index out of range")


def test_a_rule_that_fails_is_seen_in_tests() -> None:
    rule = replace(onnxfuse.rules.all_rules()["conv_relu"], match=failing)
    with pytest.raises(IndexError):
        look(rule, SimpleNamespace(), None)  # type: ignore[arg-type]


def test_a_rule_that_fails_costs_a_user_one_rewrite_and_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All other rules go on, the log names the rule once, and the refusals say what it was."""
    model = onnx.load(RESNET)
    broken = replace(onnxfuse.rules.all_rules()["conv_relu"], match=failing)
    rules = {**onnxfuse.rules.all_rules(), "conv_relu": broken}
    monkeypatch.setattr(onnxfuse.rules, "all_rules", lambda: rules)
    monkeypatch.setattr(patterns, "survive_errors", True)
    monkeypatch.setattr(patterns, "_reported", set())
    result = onnxfuse.optimize(model, target="ort-cuda", verify=False)
    assert {f.rule for f in result.fusions} == {"conv_add_relu", "relu_maxpool"}
    reasons = {r.reason for r in result.refused if r.rule == "conv_relu"}
    assert reasons == {"internal error of this rule (IndexError: list index out of range)"}
    (line,) = [r for r in caplog.records if r.levelname == "WARNING"]
    assert "rule conv_relu" in line.getMessage() and "please report it" in line.getMessage()


@pytest.mark.parametrize("error", [MemoryError(), OnnxfuseError("the weights cannot be read")])
def test_what_is_no_fault_of_a_rule_is_not_survived(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(patterns, "survive_errors", True)
    rule = replace(onnxfuse.rules.all_rules()["conv_relu"], match=fails)
    with pytest.raises(type(error)):
        look(rule, SimpleNamespace(), None)  # type: ignore[arg-type]


def test_an_overridable_weight_with_a_free_dim_of_its_own_is_verified() -> None:
    model = graph("t = Relu(x) u = Relu(t) y = Add(u, w)", inputs="float[2,4] x, float[M,4] w", outputs="float[2,4] y")
    model.graph.initializer.append(helper.make_tensor("w", onnx.TensorProto.FLOAT, [2, 4], [1.0] * 8))
    result = onnxfuse.optimize(model, target="ort-cpu")
    assert result.fusions and result.verdict is not None and result.verdict.ok


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "onnxfuse", "devices", "--json"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2 and "No space left" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_name_that_is_too_long_is_one_line(tmp_path: Path) -> None:
    done = run("optimize", RESNET, tmp_path / ("x" * 300))
    assert done.returncode == 2 and "too long" in done.stderr and list(tmp_path.iterdir()) == []


def test_verification_gives_no_second_name_to_a_data_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnx refuses a model whose data file has several names; a killed run would leave the user with one."""
    onnx.save(onnx.load(RESNET), tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    seen = []
    right = Reference.judge

    def watched(self: Reference, changed: Subject, **options: Any) -> Verdict:
        folders = {
            path.parent for subject in (self._original.subject, changed) for path in (subject.plain, subject.shown)
        }
        seen.append(((tmp_path / "m.data").stat().st_nlink, folders))
        onnx.checker.check_model(tmp_path / "m.onnx")
        return right(self, changed, **options)

    monkeypatch.setattr(Reference, "judge", watched)
    (tmp_path / "out").mkdir()
    result = onnxfuse.optimize(tmp_path / "m.onnx", tmp_path / "out" / "o.onnx")
    assert len(result.fusions) == 9 and seen == [(1, {tmp_path})]
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["m.data", "m.data", "m.onnx", "o.onnx", "out"]
    onnx.checker.check_model(tmp_path / "out" / "o.onnx")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_data_is_not_written_through_symlinks(kind: str, tmp_path: Path) -> None:
    source, out, victim = tmp_path / "in", tmp_path / "out", tmp_path / "victim"
    for folder in (source / "sub", out, victim):
        folder.mkdir(parents=True)
    model = onnx.load(RESNET)
    onnx.save(model, source / "m.onnx", save_as_external_data=True, location="sub/w.data", size_threshold=0)
    if kind == "folder":
        (out / "sub").symlink_to(victim)
    else:
        (out / "sub").mkdir()
        (out / "sub" / "w.data").symlink_to(victim / "w.data")
    with pytest.raises(onnxfuse.OutputError, match="symlink"):
        onnxfuse.optimize(source / "m.onnx", out / "o.onnx", verify=False)
    assert list(victim.iterdir()) == [] and not (out / "o.onnx").exists()


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "Mean", "Concat"])
@pytest.mark.parametrize("inside", [False, True])
def test_an_absent_input_among_many_is_refused(op: str, inside: bool) -> None:
    """onnx's checker takes it, and onnxruntime ends the process."""
    node = helper.make_node(op, ["x", ""], ["y"], **({"axis": 0} if op == "Concat" else {}))
    model = graph("y = Relu(x)", inputs="float[4] x", outputs="float[N] y")
    model.graph.node[0].CopyFrom(node)
    if inside:
        body = helper.make_graph([helper.make_node("Abs", ["x"], ["z"]), node], "b", [], [model.graph.output[0]])
        model.graph.node[0].CopyFrom(helper.make_node("If", ["c"], ["r"], then_branch=body, else_branch=body))
        model.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
        model.graph.output[0].name = "r"
    for call in (onnxfuse.analyze, onnxfuse.optimize, lambda m: onnxfuse.verify(m, m)):
        with pytest.raises(onnxfuse.ModelError, match=f"{op} '' lacks an input"):
            call(model)


def test_what_the_checker_says_in_another_error_is_one_line() -> None:
    """onnx's checker evaluates some constants, and complains of those as its shape inference does."""
    model = graph("y = Relu(x)", inputs="float[2] x", outputs="float[2] y")
    for error in (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        with mock.patch.object(onnx.checker, "check_model", side_effect=error("no size\nfits")):
            with pytest.raises(onnxfuse.ModelError, match="is not a valid ONNX model: no size fits") as caught:
                onnxfuse.analyze(model)
            assert len(str(caught.value).splitlines()) == 1
