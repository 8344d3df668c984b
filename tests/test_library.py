"""The public names: what the README shows, on every kind of source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import onnx_graphsurgeon as gs
import pytest
from support import graph

import onnxfuse

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
    for name in ("ModelError", "UsageError", "OutputError", "MissingDependency", "Finding"):
        assert issubclass(getattr(onnxfuse, name), onnxfuse.OnnxfuseError)
    with pytest.raises(onnxfuse.UsageError, match="known"):
        onnxfuse.optimize(RESNET, rules=["nothing"])
    with pytest.raises(onnxfuse.ModelError):
        onnxfuse.analyze("nowhere.onnx")
    with pytest.raises(onnxfuse.ModelError, match="int"):
        onnxfuse.analyze(3)


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
