"""Weights that a rewrite makes: in little memory, and into a data file where one file cannot hold them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import run

import onnxfuse
from onnxfuse import storage
from onnxfuse.errors import ModelError
from onnxfuse.storage import apart

RULE = "affine_into_previous"


def chain(count: int, size: int, *, folder: Path | None = None) -> onnx.ModelProto:
    """Matrix products, each with a constant scale behind; the matrices in m.data of a folder, or in the model."""
    rng, nodes, weights = np.random.default_rng(0), [], []
    for i in range(count):
        array = (rng.standard_normal((size, 1)) * rng.standard_normal(size) / size).astype(np.float32)
        matrix = numpy_helper.from_array(array, f"w{i}")
        if folder is not None:
            with (folder / "m.data").open("ab") as file:
                where = (("location", "m.data"), ("offset", str(file.tell())), ("length", str(array.nbytes)))
                file.write(array.tobytes())
            matrix = TensorProto(name=f"w{i}", data_type=1, dims=array.shape, data_location=TensorProto.EXTERNAL)
            for key, value in where:
                matrix.external_data.add(key=key, value=value)
        weights += [matrix, numpy_helper.from_array(np.full(size, 1.5 + i, np.float32), f"s{i}")]
        nodes += [
            helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"p{i}"]),
            helper.make_node("Mul", [f"p{i}", f"s{i}"], [f"q{i}"]),
            helper.make_node("Relu", [f"q{i}"], [f"x{i + 1}"]),
        ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", size]) for name in ("x0", f"x{count}")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def result_of(path: Path, x: np.ndarray) -> np.ndarray:
    """What a file computes, its data files read by onnx."""
    return run(onnx.load(path), {"x0": x})[0]


@pytest.mark.parametrize("verify", [True, False])
def test_a_result_above_the_limit_gets_a_data_file(
    verify: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = tmp_path / "m.onnx", tmp_path / "out" / "n.onnx"
    out.parent.mkdir()
    onnx.save(chain(3, 160, folder=tmp_path), source)
    monkeypatch.setattr(storage, "LIMIT", 200_000)  # the new matrices have 307,200 bytes
    result = onnxfuse.optimize(source, out, rules=[RULE], target="ort-cpu", verify=verify)
    assert [f.rule for f in result.fusions] == [RULE] * 3
    assert [p.name for p in out.parent.glob("*.data")] == [p.name for p in out.parent.iterdir() if p != out]
    assert out.stat().st_size < 10_000 and {p.name for p in tmp_path.iterdir()} == {"m.onnx", "m.data", "out"}
    x = np.random.default_rng(1).standard_normal((2, 160)).astype(np.float32)
    np.testing.assert_allclose(result_of(out, x), result_of(source, x), rtol=1e-4)
    with pytest.raises(ModelError, match=r"above 2 GiB.*save it to a file"):
        _ = result.model


def test_a_message_above_the_limit_is_optimized_as_its_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = chain(3, 160)
    onnx.save(model, tmp_path / "m.onnx")
    before = model.SerializeToString()
    onnxfuse.optimize(tmp_path / "m.onnx", tmp_path / "a.onnx", target="ort-cpu")
    monkeypatch.setattr(apart, "LARGE", 100_000)
    result = onnxfuse.optimize(model, tmp_path / "b.onnx", target="ort-cpu")
    assert result.fusions and model.SerializeToString() == before
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert result.model.SerializeToString() == (tmp_path / "a.onnx").read_bytes()


def test_a_message_in_which_nothing_is_rewritten_comes_out_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "LARGE", 100_000)
    model = chain(3, 160)
    assert not onnxfuse.optimize(model, tmp_path / "b.onnx", rules=["mish"]).fusions
    assert (tmp_path / "b.onnx").read_bytes() == model.SerializeToString()


PEAK = """
import sys
import onnxfuse
result = onnxfuse.optimize(sys.argv[1], sys.argv[2], target="ort-cpu", verify=False)
assert len(result.fusions) == int(sys.argv[3])
print(next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM")) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("external", [True, False])
def test_new_weights_do_not_add_up_in_memory(external: bool, tmp_path: Path) -> None:
    """Eight matrices of 4 MB take as much as two."""
    peaks = []
    for count in (2, 8):
        folder = tmp_path / str(count)
        folder.mkdir()
        onnx.save(chain(count, 1024, folder=folder if external else None), folder / "m.onnx")
        command = [sys.executable, "-c", PEAK, str(folder / "m.onnx"), str(folder / "n.onnx"), str(count)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] - peaks[0] < 8 << 20
