"""The command line as a user meets it: one line and exit 2 for bad input, nothing touched, results on stdout."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, external_data_helper, numpy_helper
from support import graph

from onnxfuse.rules import all_rules

MODELS = Path(__file__).parent.parent / "models"
EXAMPLE = MODELS / "conv_relu_maxpool_conv.onnx"


def onnxfuse(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "onnxfuse", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=120, check=False)


def external(folder: Path, location: str, *, data: bytes | None = None) -> Path:
    """A model whose weight lies outside the file."""
    model = graph("y = Add(x, w)", inputs="float[4] x, float[4] w", outputs="float[4] y")
    del model.graph.input[1]
    weight = numpy_helper.from_array(np.ones(4, np.float32), "w")
    model.graph.initializer.append(weight)
    external_data_helper.set_external_data(model.graph.initializer[0], location, offset=0, length=16)
    model.graph.initializer[0].ClearField("raw_data")
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    if data is not None:
        (folder / location).write_bytes(data)
    return path


def newer_opset() -> bytes:
    model = graph("y = Relu(x)", inputs="float[4] x", outputs="float[4] y")
    model.opset_import[0].version = 9999
    return model.SerializeToString()


BAD_FILES = {
    "empty": b"",
    "text": b"this is not a model\n",
    "zip": b"PK\x03\x04" + bytes(100),
    "random": bytes(np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8)),
    "truncated": EXAMPLE.read_bytes()[:-1000],
    "cut in the graph": EXAMPLE.read_bytes()[:300],
    "newer opset": newer_opset(),
}


def assert_refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 2, result
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if "assumed" not in line]
    assert len(lines) == 1 and lines[0].startswith("onnxfuse: "), result.stderr
    for word in words:
        assert word in lines[0], lines[0]


@pytest.mark.parametrize("kind", BAD_FILES)
@pytest.mark.parametrize("command", ["analyze", "optimize", "verify", "benchmark"])
def test_a_file_that_is_no_model(kind: str, command: str, tmp_path: Path) -> None:
    bad, out = tmp_path / "bad.onnx", tmp_path / "out.onnx"
    bad.write_bytes(BAD_FILES[kind])
    arguments = {
        "analyze": [bad],
        "optimize": [bad, out],
        "verify": [bad, bad],
        "benchmark": [bad, "--provider", "cpu"],
    }[command]
    assert_refused(onnxfuse(command, *arguments), "bad.onnx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.onnx"]
    assert bad.read_bytes() == BAD_FILES[kind]


@pytest.mark.parametrize("command", ["analyze", "optimize"])
def test_files_and_folders_that_are_not_there(command: str, tmp_path: Path) -> None:
    out = [tmp_path / "out.onnx"] if command == "optimize" else []
    assert_refused(onnxfuse(command, tmp_path / "none.onnx", *out), "none.onnx")
    assert_refused(onnxfuse(command, tmp_path, *out), str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_outputs_that_cannot_be_written(tmp_path: Path) -> None:
    assert_refused(onnxfuse("optimize", EXAMPLE, tmp_path / "no" / "out.onnx"), "does not exist")
    assert_refused(onnxfuse("optimize", EXAMPLE, tmp_path), "folder")
    assert_refused(onnxfuse("analyze", EXAMPLE, "--annotate", tmp_path / "no" / "out.onnx"), "no")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["analyze", "optimize"])
def test_external_data(command: str, tmp_path: Path) -> None:
    out = [tmp_path / "out.onnx"] if command == "optimize" else []
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    for location, word in (
        ("missing.bin", "missing.bin"),
        ("../secret.bin", "secret.bin"),
        (str(tmp_path / "secret.bin"), "secret.bin"),
    ):
        assert_refused(onnxfuse(command, external(folder, location), *out), word)
    assert_refused(onnxfuse(command, external(folder, "short.bin", data=bytes(8)), *out), "short.bin")
    assert not (tmp_path / "out.onnx").exists()
    assert onnxfuse(command, external(folder, "w.bin", data=bytes(16)), *out).returncode == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--dim", "N=1", "--dim", "N=2"], ["N", "twice"]),
        (["--dim", "N=1", "--dim", "x.0=2"], ["N", "twice"]),
        (["--dim", "N=99999999999999999999"], ["2147483647"]),
        (["--dim", "N"], ["NAME=SIZE"]),
        (["--dim", "N=0"], ["from 1"]),
        (["--dim", "N=x"], ["NAME=SIZE"]),
        (["--dim", "batch=2"], ["batch"]),
        (["--target", "tpu"], ["tpu", "ort-cuda"]),
        (["--device", "tpu"], ["tpu", "h200"]),
        (["--device", "none.toml"], ["none.toml"]),
        (["--no-such-option"], ["no-such-option"]),
        (["--max-intensity", "0"], ["max-intensity"]),
        (["--max-intensity", "nan"], ["max_intensity"]),
    ],
)
@pytest.mark.parametrize("command", ["analyze", "optimize"])
def test_bad_options(command: str, options: list[str], words: list[str], tmp_path: Path) -> None:
    out = [tmp_path / "out.onnx"] if command == "optimize" else []
    assert_refused(onnxfuse(command, MODELS / "small_resnet.onnx", *out, *options), *words)
    assert list(tmp_path.iterdir()) == []


def test_unknown_rules_and_commands(tmp_path: Path) -> None:
    for option in ("--rule", "--no-rule"):
        assert_refused(onnxfuse("optimize", EXAMPLE, tmp_path / "o.onnx", option, "magic"), "magic", "conv_relu")
    assert_refused(onnxfuse("optimise"), "optimise")
    assert_refused(onnxfuse("optimize", EXAMPLE), "OUT")
    assert list(tmp_path.iterdir()) == []


def test_without_arguments_there_is_help() -> None:
    result = onnxfuse()
    assert result.returncode == 2 and result.stdout == "" and len(result.stderr.splitlines()) > 10


def test_verbose_says_what_is_done_on_stderr(tmp_path: Path) -> None:
    quiet, loud = (onnxfuse(*v, "optimize", EXAMPLE, tmp_path / "o.onnx", "--json") for v in ((), ("-v",)))
    assert quiet.stderr == "" and "4 nodes" in loud.stderr and "1 rewrites chosen" in loud.stderr
    assert json.loads(quiet.stdout)["fusions"] == json.loads(loud.stdout)["fusions"]


def test_an_old_output_survives_bad_input(tmp_path: Path) -> None:
    out, bad = tmp_path / "out.onnx", tmp_path / "bad.onnx"
    out.write_bytes(b"old")
    bad.write_bytes(BAD_FILES["truncated"])
    assert_refused(onnxfuse("optimize", bad, out), "bad.onnx")
    assert out.read_bytes() == b"old"


def test_without_a_gpu_the_cuda_benchmark_says_what_is_missing() -> None:
    import onnxruntime as ort

    if "CUDAExecutionProvider" in ort.get_available_providers():
        pytest.skip("onnxruntime has the CUDA provider here")
    assert_refused(onnxfuse("benchmark", EXAMPLE), "CUDA", "--provider cpu")


def test_analyze_json_has_the_stable_names() -> None:
    result = onnxfuse("analyze", MODELS / "small_resnet.onnx", "--json", "--dim", "N=2")
    assert result.returncode == 0 and result.stderr == ""
    data = json.loads(result.stdout)
    assert {"model", "device", "target", "dims", "totals", "nodes", "candidates"} <= data.keys()
    counts = {
        "flops",
        "macs",
        "transcendentals",
        "bytes_read",
        "bytes_written",
        "bytes",
        "intensity",
        "seconds",
        "bound",
    }
    assert counts | {"params", "weight_bytes", "peak_activation_bytes", "coverage"} <= data["totals"].keys()
    assert counts | {"name", "op_type", "domain", "scope", "inputs", "outputs"} <= data["nodes"][0].keys()
    assert data["dims"] == {"N": 2} and data["totals"]["coverage"] == 1.0
    assert data["totals"]["macs"] == sum(n["macs"] for n in data["nodes"])


def test_optimize_json_has_the_stable_names(tmp_path: Path) -> None:
    result = onnxfuse("optimize", MODELS / "small_resnet.onnx", tmp_path / "o.onnx", "--json")
    assert result.returncode == 0
    data = json.loads(result.stdout)
    assert {
        "model",
        "output",
        "target",
        "device",
        "before",
        "after",
        "fusions",
        "refused",
        "verify",
        "seconds",
    } <= data.keys()
    assert {"rule", "node", "sources", "bytes_saved", "flops_saved", "seconds_saved"} == data["fusions"][0].keys()
    assert {"rule", "node", "reason"} == data["refused"][0].keys()
    expected = {"ok", "max_error", "cases", "levels", "provider", "unjudged", "rolled_back"}
    assert data["verify"].keys() == expected and data["verify"]["ok"]
    assert data["verify"]["levels"] == ["disabled", "all"] and data["verify"]["provider"] in ("cpu", "cuda")
    saved = sum(f["bytes_saved"] for f in data["fusions"])
    assert data["before"]["bytes"] - data["after"]["bytes"] == saved
    assert data["before"]["seconds"] - data["after"]["seconds"] == pytest.approx(
        sum(f["seconds_saved"] for f in data["fusions"])
    )


def test_verify_and_benchmark_on_the_cpu(tmp_path: Path) -> None:
    source, out = MODELS / "preactivation.onnx", tmp_path / "o.onnx"
    assert onnxfuse("optimize", source, out, "--target", "ort-cpu").returncode == 0
    verdict = json.loads(onnxfuse("verify", source, out, "--json").stdout)
    assert verdict["ok"] and {"max_error", "outputs", "cases"} <= verdict.keys()
    result = onnxfuse("benchmark", source, out, "--provider", "cpu", "--runs", 3, "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert {"provider", "device_name", "level", "runs", "models", "ratio"} <= report.keys()
    assert {"path", "median_ms", "p10_ms", "p90_ms", "peak_memory", "nodes_by_provider"} <= report["models"][0].keys()
    assert {"median", "ci95"} <= report["ratio"].keys()


def test_benchmark_node_by_node() -> None:
    result = onnxfuse("benchmark", EXAMPLE, "--per-node", "--runs", 2, "--device", "avx2_core", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["model"], report["device"], report["runs"]) == (str(EXAMPLE), "avx2_core", 2)
    assert report["nodes"] and {"spearman", "ratio", "works", "dims"} <= report.keys()
    said = onnxfuse("benchmark", EXAMPLE, "--per-node", "--runs", 2).stdout
    assert "rank correlation" in said and "level all" in " ".join(said.split())  # the processor's name may make it wrap


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([EXAMPLE, EXAMPLE, "--per-node"], "--per-node takes one model"),
        ([EXAMPLE, "--per-node", "--provider", "cuda"], "--per-node measures the CPU provider only"),
        ([EXAMPLE, "--device", "h200"], "--device: times are measured on this machine"),
        ([EXAMPLE, "--per-node", "--device", "abacus"], "unknown device 'abacus'"),
    ],
)
def test_benchmark_options_that_do_not_go_together(arguments: list[object], said: str) -> None:
    result = onnxfuse("benchmark", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert said in result.stderr and result.stderr.count("\n") == 1


def test_devices_measure_refuses_a_file_that_it_cannot_write_before_it_measures(tmp_path: Path) -> None:
    for path, said in ((tmp_path / "d.json", "known: .toml"), (tmp_path / "none" / "d.toml", "folder does not exist")):
        result = onnxfuse("devices", "--measure", path)
        assert result.returncode == 2 and said in result.stderr and not path.exists()


def test_verify_finds_a_difference_and_ends_with_1(tmp_path: Path) -> None:
    other = onnx.load(EXAMPLE)
    other.graph.node[1].op_type = "Abs"
    onnx.save(other, tmp_path / "b.onnx")
    result = onnxfuse("verify", EXAMPLE, tmp_path / "b.onnx")
    assert result.returncode == 1 and "DIFFERENT" in result.stdout and result.stderr == ""


def never_runs(folder: Path) -> Path:
    """A model that the checker takes, and onnxruntime refuses whatever it is fed: 16 elements are no 7."""
    model = graph(
        "t = Conv(x, w) r = Relu(t) y = Reshape(r, s)",
        inputs="float[1,1,4,4] x, float[1,1,1,1] w, int64[1] s",
        outputs="float[7] y",
    )
    del model.graph.input[1:]
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 1, 1, 1), np.float32), "w"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([7]), "s"))
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


@pytest.mark.parametrize("command", ["optimize", "benchmark", "per node"])
def test_a_finding_is_one_json_object_too(command: str, tmp_path: Path) -> None:
    """Whoever parses stdout gets an object, whoever reads stderr a line, whoever asks for the code a 1."""
    model, out = never_runs(tmp_path), tmp_path / "o.onnx"
    arguments = {
        "optimize": ["optimize", model, out],
        "benchmark": ["benchmark", model, "--provider", "cpu"],
        "per node": ["benchmark", model, "--per-node"],
    }[command]
    plain, data = onnxfuse(*arguments), onnxfuse(*arguments, "--json")
    assert (plain.returncode, data.returncode, plain.stdout) == (1, 1, "")
    assert plain.stderr == data.stderr and plain.stderr.count("\n") == 1
    found = json.loads(data.stdout)
    assert found == {"ok": False, "reason": plain.stderr.removeprefix("onnxfuse: ").strip()}
    assert not out.exists()


def test_dry_run_writes_nothing_and_explain_gives_reasons(tmp_path: Path) -> None:
    result = onnxfuse("optimize", EXAMPLE, tmp_path / "o.onnx", "--dry-run", "--explain")
    assert result.returncode == 0 and "relu_maxpool" in result.stdout and "takes a node of it" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_annotate_writes_the_numbers_into_the_nodes(tmp_path: Path) -> None:
    out = tmp_path / "annotated.onnx"
    data = json.loads(onnxfuse("analyze", EXAMPLE, "--annotate", out, "--json").stdout)
    annotated, source = onnx.load(out), onnx.load(EXAMPLE)
    for node, row in zip(annotated.graph.node, data["nodes"], strict=True):
        props = {p.key: p.value for p in node.metadata_props}
        assert int(props["onnxfuse.flops"]) == row["flops"] and int(props["onnxfuse.bytes_read"]) == row["bytes_read"]
        assert props["onnxfuse.bound"] == row["bound"]
        assert float(props["onnxfuse.intensity"]) == pytest.approx(row["intensity"], rel=1e-5)
        del node.metadata_props[:]
    assert annotated == source  # nothing else was touched


def test_annotate_in_place_as_optimize_does(tmp_path: Path) -> None:
    """The file is the model still, with notes; the graph that is executed does not replace it."""
    model = tmp_path / "m.onnx"
    model.write_bytes(EXAMPLE.read_bytes())
    assert onnxfuse("analyze", model, "--annotate", model).returncode == 0
    annotated = onnx.load(model)
    assert all(node.metadata_props for node in annotated.graph.node)
    for node in annotated.graph.node:
        del node.metadata_props[:]
    assert annotated == onnx.load(EXAMPLE)
    before = model.read_bytes()
    assert_refused(onnxfuse("analyze", model, "--as-executed", "--annotate", model), "given for two files")
    assert model.read_bytes() == before


def test_annotate_reaches_into_branches(tmp_path: Path) -> None:
    body = """y = If (c) <then_branch = t () => (float[8] u) { u = Relu(x) },
                        else_branch = e () => (float[8] v) { w = Neg(x) v = Abs(w) }>"""
    (tmp_path / "m.onnx").write_bytes(
        graph(body, inputs="float[8] x, bool c", outputs="float[8] y").SerializeToString()
    )
    assert onnxfuse("analyze", tmp_path / "m.onnx", "--annotate", tmp_path / "a.onnx").returncode == 0
    (node,) = onnx.load(tmp_path / "a.onnx").graph.node
    inner = [n for a in node.attribute for n in a.g.node]
    assert [n.op_type for n in inner] == ["Relu", "Neg", "Abs"]
    for n in inner:
        props = {p.key: p.value for p in n.metadata_props}
        assert (props["onnxfuse.flops"], props["onnxfuse.bytes_read"], props["onnxfuse.bytes_written"]) == (
            "8",
            "32",
            "32",
        )
    assert {p.key: p.value for p in node.metadata_props}["onnxfuse.flops"] == "16"  # the larger branch


def test_help_version_devices_and_rules() -> None:
    assert "optimize" in onnxfuse("--help").stdout
    assert onnxfuse("--version").stdout.startswith("onnxfuse, version ")
    assert "h200" in onnxfuse("devices").stdout
    assert json.loads(onnxfuse("devices", "--json").stdout)["devices"][0]["name"] == "a100_80gb"
    rules = onnxfuse("rules").stdout
    assert all(name in rules for name in ("conv_relu", "conv_add_relu", "relu_maxpool"))
    listed = json.loads(onnxfuse("rules", "--json").stdout)["rules"]
    assert [r["name"] for r in listed] == list(all_rules()) and all(r["doc"] and r["of"] for r in listed)


def on_a_terminal(*arguments: object, **environment: str) -> str:
    """What a terminal of that kind gets to see, stdout and stderr."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "onnxfuse", *map(str, arguments)]
    with subprocess.Popen(command, stdout=slave, stderr=slave, env={**os.environ, **environment}) as process:
        os.close(slave)
        seen = b""
        with suppress(OSError):  # Linux: the other end is closed
            while part := os.read(master, 65536):
                seen += part
    os.close(master)
    assert process.returncode == 0, seen
    return seen.decode()


@pytest.mark.parametrize("command", [["analyze", EXAMPLE], ["rules"], ["devices"]], ids=lambda c: c[0])
def test_colours_are_for_terminals_whose_users_want_them(command: list[object]) -> None:
    wanted = {"TERM": "xterm", "NO_COLOR": ""}  # empty: as if it were not there (no-color.org)
    assert "\x1b[1m" in on_a_terminal(*command, **wanted)
    for unwanted in ({"TERM": "dumb", "NO_COLOR": ""}, {"TERM": "xterm", "NO_COLOR": "1"}):
        assert "\x1b" not in on_a_terminal(*command, **unwanted)


@pytest.mark.parametrize("width", [60, 80])
def test_the_rules_fit_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert max(map(len, onnxfuse("rules").stdout.splitlines())) <= width


@pytest.mark.parametrize("columns", ["1", "-5", "wide", "999999999"])
def test_what_columns_says_may_be_anything(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    done = onnxfuse("analyze", EXAMPLE)
    assert done.returncode == 0 and max(map(len, done.stdout.splitlines())) <= 1000


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "| true", "2>/dev/full"])
def test_nobody_reads_what_is_said(closed: str, tmp_path: Path) -> None:
    line = f"set -o pipefail; {sys.executable} -m onnxfuse optimize {EXAMPLE} {tmp_path / 'o.onnx'} {closed}"
    assert subprocess.run(["bash", "-c", line], check=False, timeout=120).returncode == 0
    assert onnx.load(tmp_path / "o.onnx").graph.node


def test_an_output_that_cannot_show_an_arrow(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "onnxfuse", "optimize", str(EXAMPLE), str(tmp_path / "o.onnx")]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONIOENCODING": "latin-1"}, capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 0 and b".onnx ?" in done.stdout


def test_a_report_does_not_replace_weights(tmp_path: Path) -> None:
    path = external(tmp_path, "w.csv", data=np.ones(4, np.float32).tobytes())
    before = (tmp_path / "w.csv").read_bytes()
    done = onnxfuse("analyze", path, "--csv", tmp_path / "w.csv")
    assert done.returncode == 2 and "holds weights of the model" in done.stderr
    assert (tmp_path / "w.csv").read_bytes() == before


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; sys.argv = ['onnxfuse', '--help']\nfrom onnxfuse.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "print([m for m in ('onnx', 'numpy', 'onnx_graphsurgeon', 'onnxruntime', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_analyze_needs_no_onnxruntime_and_no_graphsurgeon() -> None:
    code = f"import sys, onnxfuse; onnxfuse.analyze({str(EXAMPLE)!r})\n"
    code += "print([m for m in ('onnx_graphsurgeon', 'onnxruntime') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("command", "option", "name", "known"),
    [
        ("analyze", "--plot", "roof.pdf", [".svg", ".png", ".html"]),
        ("analyze", "--plot", "roof", [".svg"]),
        ("analyze", "--csv", "nodes.txt", [".csv"]),
        ("optimize", "--report", "report.svg", [".html"]),
    ],
)
def test_reports_of_unknown_kinds_are_refused_before_any_work(
    command: str, option: str, name: str, known: list[str], tmp_path: Path
) -> None:
    out = [tmp_path / "out.onnx"] if command == "optimize" else []
    assert_refused(onnxfuse(command, tmp_path / "none.onnx", *out, option, tmp_path / name), option, name, *known)
    folder = tmp_path / "no" / f"f{known[-1]}"
    assert_refused(onnxfuse(command, tmp_path / "none.onnx", *out, option, folder), "folder does not exist")
    assert list(tmp_path.iterdir()) == []


def test_a_report_never_takes_the_place_of_a_model(tmp_path: Path) -> None:
    model = tmp_path / "m.html"
    model.write_bytes(EXAMPLE.read_bytes())
    assert_refused(onnxfuse("analyze", model, "--plot", model), "m.html", "two files")
    assert_refused(onnxfuse("analyze", model, "--annotate", tmp_path / "a.csv", "--csv", tmp_path / "a.csv"), "a.csv")
    assert_refused(onnxfuse("optimize", model, tmp_path / "o.onnx", "--report", model), "m.html")
    assert_refused(onnxfuse("optimize", model, tmp_path / "o.html", "--report", tmp_path / "o.html"), "o.html")
    assert [p.name for p in tmp_path.iterdir()] == ["m.html"] and model.read_bytes() == EXAMPLE.read_bytes()


def test_analyze_writes_its_reports(tmp_path: Path) -> None:
    source, page, table = MODELS / "small_resnet.onnx", tmp_path / "r.HTML", tmp_path / "n.csv"
    plain = onnxfuse("analyze", source, "--dim", "N=2")
    result = onnxfuse("analyze", source, "--dim", "N=2", "--plot", page, "--csv", table)
    assert result.returncode == 0 and result.stderr == "" and result.stdout == plain.stdout
    assert page.read_text("utf-8").startswith("<!DOCTYPE html>") and "N=2" in page.read_text("utf-8")
    assert len(table.read_text("utf-8").splitlines()) == 28
    assert sorted(p.name for p in tmp_path.iterdir()) == ["n.csv", "r.HTML"]


def test_analyze_draws_plots_for_a_device_of_ones_own(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from onnxfuse import devices

    own = tmp_path / "own.toml"
    own.write_bytes((Path(devices.__file__).parent / "l4.toml").read_bytes())
    for kind, start in (("svg", b"<?xml"), ("png", b"\x89PNG")):
        result = onnxfuse("analyze", EXAMPLE, "--device", own, "--plot", tmp_path / f"roof.{kind}")
        assert result.returncode == 0 and "Error" not in result.stderr
        assert (tmp_path / f"roof.{kind}").read_bytes().startswith(start)


def test_optimize_writes_a_report_also_of_a_dry_run_and_in_place(tmp_path: Path) -> None:
    model, page = tmp_path / "m.onnx", tmp_path / "r.html"
    model.write_bytes((MODELS / "small_resnet.onnx").read_bytes())
    assert onnxfuse("optimize", model, model, "--dry-run", "--report", page).returncode == 0
    dry = page.read_text("utf-8")
    assert "(not written)" in dry and "9 arrows" in dry
    assert onnxfuse("optimize", model, model, "--report", page).returncode == 0
    assert page.read_text("utf-8") == dry.replace("(not written)", str(model))


def test_optimize_reports_a_dry_run_of_a_model_with_external_data(tmp_path: Path) -> None:
    model, page = external(tmp_path, "w.bin", data=bytes(16)), tmp_path / "r.html"
    result = onnxfuse("optimize", model, tmp_path / "o.onnx", "--dry-run", "--report", page)
    assert result.returncode == 0, result.stderr
    assert page.exists() and not (tmp_path / "o.onnx").exists()


def test_analyze_says_where_sizes_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    body = "y = MaxPool <kernel_shape = [3]> (x) z = Relu(y)"
    onnx.save(graph(body, inputs="float[1,1,M] x", outputs="float[1,1,K] z"), path)
    result = onnxfuse("analyze", path, "--dim", "M=1")
    line = "onnxfuse: these sizes do not fit the model at MaxPool 'y'; what depends on it is unknown"
    assert result.returncode == 0 and result.stderr.splitlines() == [line]


def test_analyze_as_executed(tmp_path: Path) -> None:
    source, noted, page = MODELS / "small_resnet.onnx", tmp_path / "noted.onnx", tmp_path / "r.html"
    options = ("analyze", source, "--as-executed", "--dim", "N=2")
    result = onnxfuse(*options, "--annotate", noted, "--plot", page, "--csv", tmp_path / "n.csv")
    assert result.returncode == 0 and result.stderr == ""
    said = " ".join(result.stdout.split())  # a long path wraps
    assert "small_resnet.onnx as executed by onnxruntime on " in said and "target ort-cpu" in said
    assert "as executed by onnxruntime" in page.read_text("utf-8")
    data = json.loads(onnxfuse(*options, "--json").stdout)
    assert (data["model"], data["as_executed"], data["target"]) == (str(source), True, "ort-cpu")
    assert len(data["nodes"]) == len(onnx.load(noted).graph.node)
    assert any("Relu" in node["fused"] for node in data["nodes"])
    totals = data["totals"]
    assert totals["weight_traffic"] + totals["activation_traffic"] == totals["bytes"]
    assert totals["peak_activation_bytes_in_place"] <= totals["peak_activation_bytes"]
    assert onnxfuse(*options).stdout == onnxfuse(*options).stdout


def test_analyze_as_executed_says_what_onnxruntime_refuses(tmp_path: Path) -> None:
    model = graph("y = Relu (x)", inputs="float[2] x", outputs="float[2] y")
    model.graph.node[0].domain = "nobody.knows"
    model.opset_import.add(domain="nobody.knows", version=1)
    onnx.save(model, tmp_path / "odd.onnx")
    assert onnxfuse("analyze", tmp_path / "odd.onnx").returncode == 0
    result = onnxfuse("analyze", tmp_path / "odd.onnx", "--as-executed")
    assert result.returncode == 1 and result.stdout == ""
    assert len(result.stderr.splitlines()) == 1 and "odd.onnx: onnxruntime does not load it" in result.stderr


def in_a_deleted_folder(tmp_path: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    folder, words = tmp_path / "gone", " ".join(map(str, arguments))
    folder.mkdir()
    line = f"cd {folder}; rmdir {folder}; {sys.executable} -m onnxfuse {words}"
    environment = os.environ | {"PYTHONPATH": str(MODELS.parent)}
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=environment, check=False, timeout=120
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["analyze", "m.onnx"], ["analyze", EXAMPLE, "--annotate", "a.onnx"], ["optimize", EXAMPLE, "o.onnx"],
        ["verify", "m.onnx", EXAMPLE], ["benchmark", "m.onnx", "--provider", "cpu"], ["devices", "--measure", "d.toml"],
    ],
    ids=lambda a: a[0],
)  # fmt: skip
def test_a_working_directory_that_was_deleted(arguments: list[object], tmp_path: Path) -> None:
    """Nothing relative can be found there, which is not the fault of the name that was given."""
    assert_refused(in_a_deleted_folder(tmp_path, *arguments), "the working directory does not exist any more")


def test_an_absolute_path_needs_no_working_directory(tmp_path: Path) -> None:
    done = in_a_deleted_folder(tmp_path, "optimize", EXAMPLE, tmp_path / "o.onnx")
    assert (done.returncode, done.stderr) == (0, "") and (tmp_path / "o.onnx").exists()


# --- names that are not UTF-8 ---

ODD = os.fsdecode(b"m\xff.onnx")


def odd_models(folder: Path) -> dict[str, Path]:
    """A file of such a name, and one with external data in a folder of such a name."""
    (folder / ODD).write_bytes((MODELS / "small_resnet.onnx").read_bytes())
    inner = folder / os.fsdecode(b"d\xff")
    inner.mkdir()
    onnx.save(onnx.load(MODELS / "small_resnet.onnx"), folder / "m.onnx", save_as_external_data=True,
              location="m.data", size_threshold=0)  # fmt: skip
    for name in ("m.onnx", "m.data"):
        (folder / name).rename(inner / name)
    return {"file": folder / ODD, "folder": inner / "m.onnx"}


@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize(
    "arguments",
    [["analyze"], ["analyze", "--as-executed"], ["benchmark", "--provider", "cpu", "--runs", "2"],
     ["benchmark", "--per-node", "--runs", "2"]],
    ids=" ".join,
)  # fmt: skip
def test_names_that_are_not_utf8(arguments: list[str], kind: str, tmp_path: Path) -> None:
    model = odd_models(tmp_path)[kind]
    before = sorted(tmp_path.rglob("*"))
    for options in ([], ["--json"]):
        done = onnxfuse(arguments[0], model, *arguments[1:], *options)
        assert done.returncode == 0, done.stderr
        assert "onnxfuse-" not in done.stdout + done.stderr  # no name of a link
    assert sorted(tmp_path.rglob("*")) == before


def test_reports_of_names_that_are_not_utf8(tmp_path: Path) -> None:
    model = odd_models(tmp_path)["file"]
    odd = [tmp_path / os.fsdecode(b"r\xff" + end) for end in (b".html", b".csv", b".onnx")]
    done = onnxfuse("analyze", model, "--plot", odd[0], "--csv", odd[1], "--annotate", odd[2])
    assert done.returncode == 0, done.stderr
    assert all(path.stat().st_size for path in odd)
    done = onnxfuse("optimize", model, tmp_path / "o.onnx", "--no-verify", "--report", odd[0], "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["model"] == str(model).replace("\udcff", "?")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_models_of_names_that_are_not_utf8_are_verified(kind: str, tmp_path: Path) -> None:
    model = odd_models(tmp_path)[kind]
    out = model.parent / os.fsdecode(b"o\xff.onnx") if kind == "file" else model.parent / "o.onnx"
    done = onnxfuse("optimize", model, out, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["verify"]["ok"], done.stderr
    assert onnxfuse("verify", model, out).returncode == 0
    names = {p.name for p in tmp_path.rglob("*")}
    assert names == {ODD, os.fsdecode(b"d\xff"), "m.onnx", "m.data", out.name}


def test_external_data_beside_a_name_that_is_not_utf8_is_refused_in_one_line(tmp_path: Path) -> None:
    """No link of another name can stand where its data is."""
    inner = odd_models(tmp_path)["folder"]
    model = inner.rename(inner.parent / ODD)
    assert onnxfuse("analyze", model).returncode == 0
    assert_refused(onnxfuse("benchmark", model, "--provider", "cpu"), "not UTF-8; rename it")
    assert_refused(onnxfuse("analyze", model, "--as-executed"), "not UTF-8; rename it")
    assert_refused(onnxfuse("verify", model, model), "not UTF-8; rename it")


def test_inputs_of_the_user_let_a_model_run_that_nothing_else_fits(tmp_path: Path) -> None:
    body = "s = Add(k, k) t = Reshape(x, s) u = MatMul(t, w) v = Mul(u, one) y = Relu(v)"  # t has to be 6 wide
    made = graph(body, inputs="float[N] x, int64[2] k, float[6,2] w, float one", outputs="float[A,B] y")
    del made.graph.input[2:]
    made.graph.initializer.append(numpy_helper.from_array(np.ones((6, 2), np.float32), "w"))
    made.graph.initializer.append(numpy_helper.from_array(np.array(1, np.float32), "one"))
    model, out, given = tmp_path / "m.onnx", tmp_path / "out.onnx", tmp_path / "given.npz"
    onnx.save(made, model)
    without = onnxfuse("optimize", model, out)
    assert without.returncode == 1 and "Pass real ones with --inputs data.npz" in without.stderr and not out.exists()
    np.savez(given, x=np.arange(24, dtype=np.float32), k=np.array([2, 3]))
    done = onnxfuse("optimize", model, out, "--inputs", given, "--json")
    assert done.returncode == 0, done
    data = json.loads(done.stdout)
    assert data["fusions"] and data["dims"] == {"N": 24} and data["assumed"] == []
    assert onnxfuse("verify", model, out, "--inputs", given).returncode == 0
    for options in (["--runs", 1], ["--runs", 1, "--per-node"]):
        assert onnxfuse("benchmark", model, "--provider", "cpu", *options, "--inputs", given).returncode == 0
    analyzed = json.loads(onnxfuse("analyze", model, "--inputs", given, "--json").stdout)
    assert analyzed["dims"] == {"N": 24} and analyzed["assumed"] == []


@pytest.mark.parametrize("command", ["analyze", "optimize", "verify", "benchmark", "benchmark --per-node"])
def test_inputs_that_do_not_fit(command: str, tmp_path: Path) -> None:
    model, given = MODELS / "small_resnet.onnx", tmp_path / "given.npz"
    out = tmp_path / "out.onnx"
    arguments = {"optimize": [model, out], "verify": [model, model]}.get(command, [model])
    options = ["--provider", "cpu"] if command.startswith("benchmark") else []
    name = onnx.load(model).graph.input[0].name
    good = np.ones((2, 3, 112, 112), np.float32)
    np.savez(given, **{name: good.astype(np.float64)})
    assert_refused(onnxfuse(*command.split(), *arguments, *options, "--inputs", given), "given.npz", "float64")
    np.savez(given, **{name: good})
    assert_refused(onnxfuse(*command.split(), *arguments, *options, "--inputs", given, "--dim", "N=3"), "N=3")
    several = ["--inputs", given, "--inputs", tmp_path / "none.npz"]
    assert_refused(onnxfuse(*command.split(), *arguments, *options, *several), "none.npz")
    assert not out.exists()
