"""Which onnxruntime a result needs: in its metadata, in the report, refused where it is older; and that it is true."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import venv
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from packaging.requirements import Requirement
from packaging.version import Version
from support import LIGHT_ZOO, graph, optimized, parse

import onnxfuse
from onnxfuse import interface, releases, runtime, targets
from onnxfuse.rules import all_rules

ROOT = Path(__file__).parent.parent
RESNET = ROOT / "models/small_resnet.onnx"
CUDA, CPU = targets.find("ort-cuda"), targets.find("ort-cpu")
MODELS = sorted(Path(os.environ["ONNXFUSE_MODELS"]).glob("*.onnx")) if "ONNXFUSE_MODELS" in os.environ else []
CONV = "float[1,4,8,8] x, float[4,4,3,3] w, float[4] b, float[1,4,6,6] r"


def node(op_type: str, inputs: list[str], domain: str = targets.MICROSOFT) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, ["y"], domain=domain)


def model(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    return helper.make_model(helper.make_graph(nodes, "g", [], []))


def test_the_least_release_is_the_one_of_the_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for extra in ("cpu", "gpu", "cuda"):
        (requirement,) = map(Requirement, extras[extra])
        (least,) = (Version(s.version) for s in requirement.specifier if s.operator == ">=")
        assert least == Version(releases.OLDEST), extra
        assert requirement.extras == ({"cuda", "cudnn"} if extra == "cuda" else set())


@pytest.mark.parametrize("target", [targets.find(name) for name in targets.names()], ids=lambda t: t.name)
def test_every_operator_says_from_which_release_it_is_right(target: targets.Target) -> None:
    for support in (target.functions, *(kernel.support for kernel in target.kernels.values())):
        assert support is not None
        tried = [Version(release) for release in support.tried]
        assert tried == sorted(tried) and tried[-1] >= Version(onnxruntime.__version__)
        for since in (support.since, *support.since_with.values()):
            assert Version(since) <= Version(releases.OLDEST)  # the package installs nothing in which one is wrong
            assert any(release.release[:2] == Version(since).release for release in tried)


# A FusedConv with a residual is right from 1.27 on, Attention and MultiHeadAttention with a mask from 1.21 on.
@pytest.mark.parametrize(
    ("nodes", "release"),
    [
        ([node("FusedConv", ["x", "w", "b"])], "1.18"),
        ([node("FusedConv", ["x", "w", "b", ""])], "1.18"),
        ([node("FusedConv", ["x", "w", "", "r"])], "1.27"),
        ([node("Attention", ["x", "w", "b"]), node("FastGelu", ["x"])], "1.18"),
        ([node("Attention", ["x", "w", "b", "", "", "m"]), node("FastGelu", ["x"])], "1.21"),
        ([node("MultiHeadAttention", ["q", "k", "v", "", "", "m"]), node("FusedConv", ["x", "w", "b", "r"])], "1.27"),
        ([node("ReluMaxPool", ["x"], targets.ONNXFUSE)], "1.18"),
        ([node("Relu", ["x"], ""), node("Attention", ["x"], "vendor"), node("Unlisted", ["x"])], None),
    ],
)
def test_the_release_is_that_of_the_operators_that_are_there(nodes: list[onnx.NodeProto], release: str | None) -> None:
    assert releases.required(model(*nodes), CUDA) == release


def test_operators_in_bodies_and_functions_count() -> None:
    fused = helper.make_graph([node("FusedConv", ["x", "w", "b", "r"])], "body", [], [])
    branches = helper.make_node("If", ["c"], ["y"], then_branch=fused, else_branch=fused)
    assert releases.required(model(branches), CUDA) == "1.27"
    function = helper.make_function("vendor", "F", ["x"], ["y"], [node("FastGelu", ["x"])], [])
    holding = model()
    holding.functions.append(function)
    assert releases.required(holding, CPU) == "1.18"


def test_a_result_says_what_it_needs(tmp_path: Path) -> None:
    result = onnxfuse.optimize(RESNET, tmp_path / "out.onnx", target="ort-cuda")
    assert {e.key: e.value for e in onnx.load(tmp_path / "out.onnx").metadata_props}[releases.KEY] == ">=1.27"
    assert result.requires == {"onnxruntime": "1.27"} == result.to_json()["requires"]
    again = onnxfuse.optimize(tmp_path / "out.onnx", tmp_path / "again.onnx", target="ort-cuda")
    assert not again.fusions and again.requires == {"onnxruntime": "1.27"}
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "out.onnx").read_bytes()


def test_standard_operators_need_none_in_particular() -> None:
    result = optimized(graph("a = Relu (x) y = Relu (a)", inputs="float[2] x", outputs="float[2] y"), target="ort-cpu")
    assert result.fusions and result.requires is None and not result.model.metadata_props


@pytest.mark.parametrize(("there", "then"), [(">=2.5", ">=2.5"), (">=1.2", ">=1.27"), ("of mine", ">=1.27")])
def test_a_demand_that_is_there_is_kept_where_it_is_higher(there: str, then: str) -> None:
    m = graph("t = Conv (x, w, b) s = Add (t, r) y = Relu (s)", inputs=CONV, outputs="float[1,4,6,6] y")
    m.metadata_props.add(key="author", value="somebody")
    m.metadata_props.add(key=releases.KEY, value=there)
    result = optimized(m, target="ort-cuda", verify=False).model
    assert [(e.key, e.value) for e in result.metadata_props] == [("author", "somebody"), (releases.KEY, then)]


@pytest.mark.parametrize(
    ("a", "b", "older"),
    [
        ("1.9.0", "1.28", True), ("1.28.0", "1.28", False), ("1.28", "1.28.1", True), ("2.0", "1.28", False),
        ("1.29.0.dev20260101+cu12", "1.28", False), ("unknown", "1.28", True),
    ],
)  # fmt: skip
def test_releases_are_compared_by_their_numbers(a: str, b: str, older: bool) -> None:
    assert releases.older(a, b) == older


def command(*words: object, release: str = onnxruntime.__version__) -> subprocess.CompletedProcess[str]:
    """The command line with an onnxruntime that says it is of this release."""
    text = f"import onnxruntime, onnxfuse.__main__ as m; onnxruntime.__version__ = {release!r}; m.main()"
    return subprocess.run([sys.executable, "-c", text, *map(str, words)], capture_output=True, text=True, timeout=120)


def assert_refused(done: subprocess.CompletedProcess[str], said: str) -> None:
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = [line for line in done.stderr.splitlines() if "assumed" not in line]
    assert said in line and "pip install" in line


def running(model: Path, out: Path) -> list[list[object]]:
    """Every command that runs a model."""
    commands: list[list[object]] = [["verify", model, model], ["optimize", model, out]]
    return [*commands, *(["benchmark", model, *more] for more in (["--provider", "cpu"], ["--per-node"]))]


def test_an_older_onnxruntime_is_refused(tmp_path: Path) -> None:
    for words in running(RESNET, tmp_path / "out.onnx"):
        said = "onnxruntime 1.26.0 is installed, onnxfuse needs 1.28 or newer"
        assert_refused(command(*words, release="1.26.0"), said)
    assert not list(tmp_path.iterdir())


def test_a_model_that_needs_a_newer_onnxruntime_is_refused(tmp_path: Path) -> None:
    m, path = onnx.load(RESNET), tmp_path / "m.onnx"
    m.metadata_props.add(key=releases.KEY, value=">=99.5")
    onnx.save(m, path)
    said = f"onnxruntime {onnxruntime.__version__} is installed, the model needs 99.5 or newer"
    for words in running(path, tmp_path / "out.onnx"):
        assert_refused(command(*words), said)
    assert list(tmp_path.iterdir()) == [path]


def test_what_runs_nothing_works_with_any(tmp_path: Path) -> None:
    for words in (["analyze", RESNET], ["optimize", RESNET, tmp_path / "out.onnx", "--no-verify"]):
        assert command(*words, release="1.26.0").returncode == 0


# --- the oldest and the newest release ---


def sources() -> dict[str, onnx.ModelProto]:
    """Models of which every operator is made that is emitted, by name."""
    found = {f"rule-{name}": parse(str(import_module(f"onnxfuse.rules.{name}").BEFORE)) for name in all_rules()}
    attention = str(import_module("onnxfuse.rules.attention").BEFORE)
    masked = attention.replace("p = Softmax <axis = -1> (scores)", "s = Add (scores, m)  p = Softmax <axis = -1> (s)")
    found |= {
        f"attention-{shape}": parse(masked.replace("(float[1,3,2] x)", f"(float[1,3,2] x, float[{shape}] m)"))
        for shape in ("1,1,3,3", "1,2,3,3", "3,3")
    }
    found["gelu"] = parse(str(import_module("onnxfuse.rules.gelu").BEFORE).replace('"" : 20', '"" : 17'))
    found["separate"] = parse(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2,2,3,4] q, float[2,2,3,4] k, float[2,2,3,4] v, float[1,1,3,3] m) => (float[2,3,8] y)
        <int64[3] z = {0, 0, 8}>
        { t = Transpose <perm = [0, 1, 3, 2]> (k)  s = MatMul (q, t)  a = Add (s, m)  p = Softmax <axis = -1> (a)
          h = MatMul (p, v)  r = Transpose <perm = [0, 2, 1, 3]> (h)  y = Reshape (r, z) }"""
    )
    return found | {path.stem: onnx.load(path) for path in (*LIGHT_ZOO, *ROOT.glob("models/*.onnx"), *MODELS)}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of originals and their results on all targets, with feeds, for `releases.py`."""
    folder = tmp_path_factory.mktemp("pairs")
    emitted = set()
    for name, source in sources().items():
        onnx.save(source, folder / "source.onnx")
        known, session = interface.read(folder / "source.onnx"), runtime.cpu_session(folder / "source.onnx", "disabled")
        _, data, _ = runtime.find_feeds(lambda feed, s=session: runtime.run(s, feed), known, {}, 0)
        for target in targets.names():
            result = optimized(source, target=target, verify=False)
            if result.fusions:
                emitted |= {(n.domain, n.op_type) for n in result.model.graph.node}
                onnx.save(source, folder / f"{name}.{target}.before.onnx")
                onnx.save(result.model, folder / f"{name}.{target}.after.onnx")
                np.savez(folder / f"{name}.{target}.npz", **data)
    assert CUDA.kernels.keys() <= emitted
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [f"onnxruntime=={releases.OLDEST}.0", "onnxruntime<2"], ids=["oldest", "newest"])
def test_results_are_right_in_the_oldest_and_the_newest_release(wanted: str, pairs: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    installed = subprocess.run(
        [python, "-m", "pip", "install", "-q", wanted, "numpy<3"], capture_output=True, text=True
    )
    if installed.returncode:
        pytest.skip(f"pip does not install {wanted}: {installed.stderr.strip().splitlines()[-1]}")
    done = subprocess.run(
        [python, Path(__file__).with_name("releases.py"), pairs], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["ran"] >= 100 and not found["wrong"], found
