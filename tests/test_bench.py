"""The benchmark measures what it says it measures, and refuses what it cannot."""

from __future__ import annotations

import json
import math
import sys
import time

import numpy as np
import onnx
import pytest
from onnx import parser

from onnxfuse import bench
from onnxfuse.bench import benchmark
from onnxfuse.errors import Finding, MissingDependency, ModelError, OnnxfuseError, UsageError


@pytest.fixture
def model(tmp_path):
    """Writes a model given as ONNX text and returns its path."""

    def write(name: str, body: str):
        path = tmp_path / name
        text = f'<ir_version: 9, opset_import: ["" : 20, "com.microsoft" : 1]> g {body}'
        onnx.save(parser.parse_model(text), path)
        return path

    return write


SMALL = "(float[N,64] x) => (float[N,64] y) { y = Relu(x) }"
CHAIN = "(float[N,64] x) => (float[N,64] y) {{ v0 = Identity(x) {} y = Relu(v{}) }}"


def test_the_report(model):
    path = model("a.onnx", SMALL)
    report = benchmark(path, provider="cpu", level="basic", dims={"N": 3}, runs=5, warmup=1)
    data = report.to_json()
    json.dumps(data, allow_nan=False)
    assert list(data) == ["provider", "device_name", "level", "runs", "models", "ratio"]
    assert (data["provider"], data["level"], data["runs"], data["ratio"]) == ("cpu", "basic", 5, None)
    assert data["device_name"]
    (entry,) = data["models"]
    assert list(entry) == ["path", "median_ms", "p10_ms", "p90_ms", "peak_memory", "nodes_by_provider"]
    assert entry["path"] == str(path)
    assert 0 < entry["p10_ms"] <= entry["median_ms"] <= entry["p90_ms"]
    assert entry["nodes_by_provider"] == {"CPUExecutionProvider": 1}


def test_a_slower_model_is_slower(model):
    """200 exponentials against one: far apart on any machine."""
    long = " ".join(f"e{i} = Tanh(v{i}) v{i + 1} = Add(e{i}, x)" for i in range(200))
    slow, fast = model("slow.onnx", CHAIN.format(long, 200)), model("fast.onnx", CHAIN.format("", 0))
    report = benchmark(slow, fast, provider="cpu", dims={"N": 256}, runs=20, warmup=2)
    assert [m.path for m in report.models] == [str(slow), str(fast)]
    assert report.models[0].median_ms > 3 * report.models[1].median_ms
    assert report.ratio.ci95[0] <= report.ratio.median <= report.ratio.ci95[1]
    assert report.ratio.median > 3
    assert report.models[0].nodes_by_provider["CPUExecutionProvider"] > 200


def test_levels_reach_onnxruntime(model):
    """Two Identity nodes are removed by every level but "disabled"."""
    path = model(
        "a.onnx", "(float[N,64] x) => (float[N,64] y) { a = Identity(x) b = Relu(a) c = Identity(b) y = Neg(c) }"
    )
    counts = {
        level: benchmark(path, provider="cpu", level=level, runs=1, warmup=0).models[0].nodes_by_provider
        for level in ("disabled", "basic", "all")
    }
    assert counts["disabled"] == {"CPUExecutionProvider": 4}
    assert counts["basic"] == counts["all"] == {"CPUExecutionProvider": 2}


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_peak_memory_counts_what_the_session_holds(model):
    """An intermediate value of 64 MiB, in the first and in the second model alike."""
    body = "(float[1,4096] x) => (float y) { c = Transpose(x) s = Add(x, c) y = ReduceSum<keepdims = 0>(s) }"
    paths = [model(name, body) for name in ("a.onnx", "b.onnx")]
    report = benchmark(*paths, provider="cpu", level="disabled", runs=2, warmup=1)
    for entry in report.models:
        assert 64 << 20 <= entry.peak_memory < 160 << 20


def test_models_run_in_turns():
    order = []
    seconds = bench._race([lambda: order.append("A"), lambda: order.append("B")], 4)
    assert "".join(order) == "ABBAABBA"
    assert seconds.shape == (2, 4)
    seconds = bench._race([lambda: time.sleep(0.01), lambda: None], 2)
    assert (seconds[0] >= 0.01).all()
    assert seconds[1].min() < 0.01


def test_few_runs_give_no_interval(model):
    """Eleven runs of each are five turns A B B A."""
    path = model("a.onnx", SMALL)
    data = benchmark(path, path, provider="cpu", runs=11, warmup=1).to_json()
    assert data["ratio"].keys() == {"median", "ci95"}
    assert data["ratio"]["ci95"] is None


def test_the_profile_counts_each_node_once():
    node = {"cat": "Node", "args": {"provider": "CUDAExecutionProvider"}}
    events = [
        {"cat": "Session", "name": "model_run", "args": {}},
        {**node, "name": "conv_kernel_time"},
        {**node, "name": "conv_kernel_time"},
        {**node, "name": "conv_fence_before"},
        {"cat": "Node", "name": "shape_kernel_time", "args": {"provider": "CPUExecutionProvider"}},
    ]
    assert bench._count(events) == {"CPUExecutionProvider": 1, "CUDAExecutionProvider": 1}


def test_strings_and_sequences_run(model):
    strings = model("s.onnx", "(string[N] x) => (string[N] y) { y = Identity(x) }")
    assert benchmark(strings, provider="cpu", runs=2, warmup=0).models[0].median_ms > 0
    text = model("t.onnx", "(float[N] x) => (string[N] y) { y = Cast<to = 8>(x) }")
    assert benchmark(text, provider="cpu", runs=2, warmup=0).models[0].median_ms > 0
    parts = model("q.onnx", "(seq(float[N,4]) x) => (float[M,4] y) { y = ConcatFromSequence<axis = 0>(x) }")
    assert benchmark(parts, provider="cpu", runs=2, warmup=0).models[0].median_ms > 0


# Which sizes k may hold is not seen from its use.
PICKY = "(float[N] x, int64[2] k) => (float[A,B] y) { s = Mul(k, k) y = Reshape(x, s) }"


def test_the_given_inputs_are_the_data(model, tmp_path):
    picky, same = model("p.onnx", PICKY), model("q.onnx", PICKY)
    seen = []

    def watched(session, feeds):
        seen.append(feeds)
        return run(session, feeds)

    run = bench.runtime.run
    given = [{"x": np.ones(n, np.float32), "k": np.array([3, 1])} for n in (9, 8)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.runtime, "run", watched)
        report = benchmark(picky, same, provider="cpu", runs=2, warmup=0, inputs=given)
    assert len(report.models) == 2 and len(seen) == 2
    assert all(feeds["k"].tolist() == [3, 1] and feeds["x"].shape == (9,) for feeds in seen)  # the first decides
    with pytest.raises(Finding, match=r"p\.onnx: does not run on the given inputs: "):
        benchmark(picky, provider="cpu", inputs={**given[0], "k": np.array([2, 1])})
    with pytest.raises(UsageError, match=r"inputs\[0\]: input 'k' is missing"):
        benchmark(picky, provider="cpu", inputs={"x": given[0]["x"]})
    with pytest.raises(UsageError, match=r"has the size 9, which does not fit N=4"):
        benchmark(picky, provider="cpu", inputs=given, dims={"N": 4})


def test_an_optional_input_that_is_empty(model):
    path = model("o.onnx", "(optional(float[2]) x) => (bool y) { y = OptionalHasElement(x) }")
    assert benchmark(path, provider="cpu", runs=1, warmup=0, inputs={"x": None}).models[0].median_ms > 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"provider": "rocm"}, UsageError, "unknown provider 'rocm'; known: cuda, cpu, tensorrt"),
        ({"level": "max"}, UsageError, "unknown level 'max'; known: disabled, basic, extended, all"),
        ({"runs": 0}, UsageError, "runs is 0; give a whole number from 1"),
        ({"dims": {"M": 1}}, UsageError, "no input has a free dimension 'M'; free dimensions: N"),
    ],
)
def test_bad_options(model, options, error, message):
    with pytest.raises(error, match=message):
        benchmark(model("a.onnx", SMALL), **{"provider": "cpu", **options})


def test_models_that_do_not_run(model, tmp_path):
    good = model("a.onnx", SMALL)
    custom = model("c.onnx", "(float[N,64] x) => (float[N,64] y) { y = com.microsoft.NoSuchOp(x) }")
    with pytest.raises(Finding, match=r"c\.onnx: onnxruntime does not load it: "):
        benchmark(custom, provider="cpu")
    with pytest.raises(ModelError, match=r"absent\.onnx"):
        benchmark(tmp_path / "absent.onnx", provider="cpu")
    other = model("o.onnx", "(float[N,64] z) => (float[N,64] y) { y = Relu(z) }")
    with pytest.raises(Finding, match=r"o\.onnx: does not run on the inputs of .*a\.onnx: "):
        benchmark(good, other, provider="cpu")


def test_missing_onnxruntime(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingDependency, match=r'pip install -e "\.\[cpu\]"'):
        benchmark(model("a.onnx", SMALL), provider="cpu")


def test_without_cuda_it_is_said(model):
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has the CUDA provider")
    with pytest.raises(MissingDependency, match=r"has no CUDAExecutionProvider.*--provider cpu"):
        benchmark(model("a.onnx", SMALL))


def test_a_silent_fallback_is_an_error(model, monkeypatch):
    """A session that took another provider than asked for is not timed."""
    monkeypatch.setitem(bench.PROVIDERS, "tensorrt", ("AzureExecutionProvider", "CPUExecutionProvider"))
    monkeypatch.setattr(bench.gpu, "require", lambda *_: None)

    import onnxruntime

    real = onnxruntime.InferenceSession
    monkeypatch.setattr(
        onnxruntime, "InferenceSession", lambda path, options, providers, **_: real(path, options, providers[1:])
    )
    with pytest.raises(MissingDependency, match="cannot use AzureExecutionProvider"):
        benchmark(model("a.onnx", SMALL), provider="tensorrt")


@pytest.mark.gpu
def test_cuda(model):
    path = model("a.onnx", "(float[N,3,H,W] x) => (float[N,3,H,W] y) { z = Relu(x) y = Exp(z) }")
    try:
        report = benchmark(path, path, runs=20, warmup=3, dims={"N": 8})
    except MissingDependency as error:
        pytest.skip(f"no CUDA here: {error}")
    assert report.models[0].nodes_by_provider == {"CUDAExecutionProvider": 2}
    assert report.models[0].peak_memory > 0
    assert math.isclose(report.ratio.median, 1, abs_tol=0.5)
    assert report.device_name


@pytest.mark.gpu
def test_nodes_that_fall_back_to_the_cpu_are_counted(model):
    path = model("a.onnx", "(float[4] x) => (string[4] s, float[4] y) { s = Cast<to = 8>(x) y = Relu(x) }")
    try:
        report = benchmark(path, runs=2, warmup=1)
    except MissingDependency as error:
        pytest.skip(f"no CUDA here: {error}")
    assert report.models[0].nodes_by_provider["CPUExecutionProvider"] >= 1
    assert isinstance(report, bench.BenchmarkReport)
    assert issubclass(MissingDependency, OnnxfuseError)


def test_an_output_of_another_rank_than_declared_is_timed_all_the_same() -> None:
    """Squeeze without axes: of [2,1,3] it makes rank 2, and rank 1 is declared; only binding an output minds."""
    text = "g (float[N,1,M] x) => (float[K] y) { y = Squeeze(x) }"
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 11]> {text}')
    report = benchmark(model, provider="cpu", dims={"N": 2, "M": 3}, runs=2, warmup=0)
    assert report.models[0].median_ms > 0
