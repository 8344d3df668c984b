"""The public names: what the README shows, on every kind of source."""

from __future__ import annotations

import builtins
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from support import graph

import onnxfuse
from onnxfuse import runtime, storage

RESNET = Path(__file__).parent.parent / "models" / "small_resnet.onnx"


def test_verify_is_a_function_whatever_was_imported_before() -> None:
    import onnxfuse.optimizer  # imports the module that does it

    assert callable(onnxfuse.verify) and callable(onnxfuse.benchmark)


@pytest.mark.parametrize("kind", ["path", "text", "proto", "gs.Graph"])
def test_verify_and_benchmark_take_every_kind_of_source(kind: str) -> None:
    proto = onnx.load(RESNET)
    source = {"path": RESNET, "text": str(RESNET), "proto": proto, "gs.Graph": gs.import_onnx(proto)}[kind]
    fused = onnxfuse.optimize(source).model
    verdict = onnxfuse.verify(source, fused)
    assert verdict.ok and verdict.cases >= 2 and verdict.outputs[0].name == "y"
    report = onnxfuse.benchmark(source, fused, provider="cpu", runs=2, warmup=1)
    assert len(report.models) == 2 and report.ratio is not None and report.ratio.median > 0


def test_a_wrong_model_is_found() -> None:
    wrong = onnx.load(RESNET)
    wrong.graph.node[1].op_type = "Abs"
    verdict = onnxfuse.verify(RESNET, wrong)
    assert not verdict.ok and verdict.max_error > 1e-3 and verdict.reason


def test_all_public_names_exist() -> None:
    assert all(getattr(onnxfuse, name) is not None for name in onnxfuse.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = onnxfuse.nothing


def test_every_error_is_an_onnxfuse_error() -> None:
    for name in ("ModelError", "UsageError", "OutputError", "OutOfMemory", "MissingDependency", "Finding"):
        assert issubclass(getattr(onnxfuse, name), onnxfuse.OnnxfuseError)
    with pytest.raises(onnxfuse.UsageError, match="known"):
        onnxfuse.optimize(RESNET, rules=["nothing"])
    with pytest.raises(onnxfuse.ModelError):
        onnxfuse.analyze("nowhere.onnx")
    with pytest.raises(onnxfuse.ModelError, match="int"):
        onnxfuse.analyze(3)


@pytest.mark.parametrize("name", ["analyze", "optimize", "verify", "benchmark", "benchmark_nodes"])
def test_lack_of_memory_is_an_error_of_both_kinds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(storage, "read", lacking)
    given = {"verify": (RESNET, RESNET)}.get(name, (RESNET,))
    with pytest.raises(onnxfuse.OutOfMemory, match="not enough memory for this model") as caught:
        getattr(onnxfuse, name)(*given, **({"provider": "cpu"} if name == "benchmark" else {}))
    assert isinstance(caught.value, MemoryError) and isinstance(caught.value, onnxfuse.OnnxfuseError)


def test_a_decoder_with_a_cache_that_may_be_empty() -> None:
    """Scores of 128 queries against 128 keys in the cache and 128 new ones, 2 heads of 4: 2·128·256·4 MACs."""
    decoder = graph(
        "k = Concat <axis = 2> (past, x) t = Transpose <perm = [0, 1, 3, 2]> (k) y = MatMul (x, t)",
        inputs="float[batch, 2, past_len, 4] past, float[batch, 2, seq, 4] x",
        outputs="float[batch, 2, seq, total] y",
    )
    report = onnxfuse.analyze(decoder)
    assert report.dims == {"batch": 1, "past_len": 128, "seq": 128}
    assert onnxfuse.analyze(decoder, dims=report.dims).totals.macs == 262144
    assert onnxfuse.optimize(decoder).verdict is not None
    assert onnxfuse.verify(decoder, decoder).ok  # its first case is the empty cache


def test_threads_leave_the_standard_output_of_the_process_alone() -> None:
    """onnx's checker is silenced by turning the process's descriptor away for the while."""
    code = f"""
import os, onnx, onnxfuse
from concurrent.futures import ThreadPoolExecutor
model, before = onnx.load({str(RESNET)!r}), os.fstat(1)
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda _: onnxfuse.analyze(model), range(160)))
assert os.path.samestat(before, os.fstat(1))
print("still here")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "still here\n"), done.stderr


ODD = {
    "dims": [3, "N=1", {3: 1}, [("N", 1)]],
    "target": [3, None, [], b"ort-cpu", ""],
    "device": [7, "", [], b"h200"],
    "max_intensity": ["x", True, 0, float("nan"), [1]],
    "as_executed": ["yes", 1, None],
    "annotate": [3, b"a.onnx", []],
    "out": [3, b"a.onnx", []],
    "rules": ["conv_relu", 3, [3], {"conv_relu": 1}, b"conv_relu"],
    "exclude": ["conv_relu", None, [None]],
    "verify": ["no", 0, None],
    "seed": [-1, 1.0, "0", None, True, 1 << 64],
    "provider": [3, None, [], "gpu"],
    "level": [3, None, [], "most"],
    "runs": [0, 1.5, "3", None, 1 << 64],
    "inputs": [3, b"a.npz", {1, 2}, True],
    "warmup": [-1, None],
}
TAKEN = {
    "analyze": ["dims", "inputs", "device", "max_intensity", "as_executed", "annotate"],
    "optimize": ["dims", "inputs", "target", "device", "max_intensity", "out", "rules", "exclude", "verify", "seed"],
    "benchmark": ["dims", "inputs", "provider", "level", "runs", "warmup", "seed"],
    "benchmark_nodes": ["dims", "inputs", "device", "level", "runs", "warmup", "seed"],
}
ARGUMENTS = [(f, n, v) for f, names in TAKEN.items() for n in names for v in ODD[n]]


@pytest.mark.parametrize(("function", "name", "value"), ARGUMENTS)
def test_an_argument_of_an_odd_kind_is_a_usage_error(function: str, name: str, value: object) -> None:
    """One sentence that names the argument, or what it should have named; never a TypeError from inside."""
    options = {"provider": "cpu", "runs": 1} if function == "benchmark" else {}
    with pytest.raises(onnxfuse.UsageError) as raised:
        getattr(onnxfuse, function)(RESNET, **options | {name: value})
    text = str(raised.value)
    assert text.isprintable() and text.startswith((f"{name} is ", f"unknown {name} "))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (n, v)
        for n, odd in {"tolerance": ["x", -1, True, float("nan"), []], **ODD}.items()
        for v in odd
        if n in ("dims", "inputs", "seed", "tolerance")
    ],
)
def test_an_argument_of_an_odd_kind_for_verify(name: str, value: object) -> None:
    with pytest.raises(onnxfuse.UsageError, match=f"^{name} is "):
        onnxfuse.verify(RESNET, RESNET, **{name: value})


@pytest.mark.parametrize("source", [None, 123, b"m.onnx", [], ""])
def test_a_source_of_an_odd_kind(source: object) -> None:
    for call in (onnxfuse.analyze, onnxfuse.optimize, lambda s: onnxfuse.verify(s, RESNET),
                 lambda s: onnxfuse.verify(RESNET, s), lambda s: onnxfuse.benchmark(s, provider="cpu"),
                 onnxfuse.benchmark_nodes):  # fmt: skip
        with pytest.raises(onnxfuse.ModelError):
            call(source)


def test_messages_name_what_the_user_knows(tmp_path: Path) -> None:
    """A model from memory lies in a temporary file while it runs, of which nobody has heard."""
    good, odd = onnx.load(RESNET), onnx.load(RESNET)
    odd.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.STRING  # of which there is no convolution
    onnx.save(odd, tmp_path / "odd.onnx")
    reason = "onnxruntime does not load it: This is an invalid model. Type Error: "
    for sources, name in (((odd,), "model A"), ((good, odd), "model B"),
                          ((good, tmp_path / "odd.onnx"), str(tmp_path / "odd.onnx"))):  # fmt: skip
        with pytest.raises(onnxfuse.Finding) as raised:
            onnxfuse.benchmark(*sources, provider="cpu", runs=1)
        assert str(raised.value).startswith(f"{name}: {reason}") and "onnxfuse-" not in str(raised.value)
    assert [m.path for m in onnxfuse.benchmark(good, provider="cpu", runs=1).models] == ["model A"]
    verdict = onnxfuse.verify(odd, odd)
    assert verdict.reason is not None and "does not load" in verdict.reason and "onnxfuse-" not in verdict.reason


def test_numpys_numbers_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    result = onnxfuse.optimize(RESNET, seed=numpy.int64(1), max_intensity=numpy.float32(10))
    assert result.verify is not None and result.verify.ok


def test_an_interrupt_amid_the_import_of_onnxruntime_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its extension module makes an ImportError of it."""
    real = builtins.__import__

    def interrupted(name: str, *rest: Any, **given: Any) -> Any:
        if name == "onnxruntime":
            raise ImportError("initialization failed") from KeyboardInterrupt()
        return real(name, *rest, **given)

    monkeypatch.setattr(builtins, "__import__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runtime.onnxruntime()


class _Bytes:
    def __fspath__(self) -> bytes:
        return b"m.onnx"


@pytest.mark.parametrize(
    "call",
    [
        lambda: onnxfuse.analyze(_Bytes()),
        lambda: onnxfuse.analyze(RESNET, device="\ud800.toml"),
        lambda: onnxfuse.analyze(RESNET, device="\0.toml"),
        lambda: onnxfuse.evaluate(3, None),
        lambda: onnxfuse.evaluate(3, 5),
        lambda: onnxfuse.analyze(RESNET, dims={"N": 2.5}),
        lambda: onnxfuse.analyze(RESNET, dims={"N": True}),
    ],
)
def test_odd_arguments_are_usage_errors(call: Callable[[], object]) -> None:
    with pytest.raises(onnxfuse.UsageError) as caught:
        call()
    assert len(str(caught.value).splitlines()) == 1


def test_numbers_of_numpy_and_very_large_ones_are_numbers() -> None:
    assert onnxfuse.analyze(RESNET, dims={"N": np.int64(3)}).dims == {"N": 3}
    assert onnxfuse.analyze(RESNET, max_intensity=10**400).to_json()
    assert onnxfuse.verify(RESNET, RESNET, tolerance=10**400).ok
