"""Memory is foreseen: what cannot fit is refused before anything is run, and large models get fewer cases."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support import graph

import onnxfuse
from onnxfuse import headroom, interface, storage
from onnxfuse.errors import OutOfMemory
from onnxfuse.facts import infer
from onnxfuse.ir import read
from onnxfuse.verification import Sessions, choose_shown
from onnxfuse.verification.room import Room

MIB = 1 << 20


def chain(shape: str, weights: int = 4) -> onnx.ModelProto:
    """Four nodes over one shape, and weights of so many bytes that nothing reads."""
    values = {"two": np.full(1, 2, np.float32), "w": np.ones(weights // 4, np.float32)}
    inputs = ", ".join([f"{shape} x", *(f"float[{a.size}] {name}" for name, a in values.items())])
    model = graph("a = Relu(x) b = Sigmoid(a) c = Mul(b, two) y = Add(c, two)", inputs=inputs, outputs=f"{shape} y")
    for name, a in values.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(a, name))
    return model


def room(model: onnx.ModelProto, left: int | None, monkeypatch: pytest.MonkeyPatch, *inner: str) -> Room:
    monkeypatch.setattr(headroom, "available", lambda: left)
    for name in inner:
        model.graph.output.add(name=name).type.tensor_type.elem_type = 1
    stored = storage.read(model)
    return Room(stored, interface.of(stored.proto), inner)


def test_the_load_of_a_run_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    load = room(chain("float[N,256,1024]"), None, monkeypatch, "a", "c").load({"N": 3})
    one = 3 * 256 * 1024 * 4
    assert (load.inputs, load.outputs, load.inner, load.peak) == (one, one, 2 * one, 2 * one)
    assert load.held(inner=False) == one + one + 2 * one
    assert load.held(inner=True) == one + one + 2 * one + 2 * 2 * one


def test_a_run_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = chain("float[N,1024,1024]", weights=4 * MIB)  # 4 MiB each: input, output, and two at the peak
    need = 4 * (1 + 1 + 2) * MIB + int(1.6 * (4 * MIB + 4))
    room(model, need, monkeypatch).require({"N": 1})
    with pytest.raises(OutOfMemory, match=r"about 22 MiB are needed \(weights 4 MiB, activations 8 MiB\) and 22 MiB"):
        room(model, need - 1, monkeypatch).require({"N": 1})
    with pytest.raises(OutOfMemory, match="--dim"):
        room(model, need, monkeypatch).require({"N": 2})


def test_cases_are_kept_as_far_as_the_bound_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 64 MiB a value: 3 × 128 of peak and 24 beside; a case holds 64 + 64, and the run of a result 128 more."""
    made = room(chain("float[N,4096,4096]"), None, monkeypatch, "a")
    base = {"N": 1}
    assert made.fits(base, base, 0, inner=False)
    assert made.fits(base, base, (3 * 128 + 24 - 256) * MIB, inner=False)
    assert not made.fits(base, base, (3 * 128 + 24 - 256) * MIB + 4, inner=False)
    assert made.fits(base, base, 0, inner=True) and not made.fits(base, base, 25 * MIB, inner=True)
    assert not made.fits(base, {"N": 3}, 0, inner=False)


def test_few_inner_values_of_large_models_are_shown() -> None:
    for n, kept in ((1, ["a", "b", "c"]), (256, ["a"]), (1024, [])):
        program = read(chain(f"float[{n},4,1024]"))
        facts = infer(program, {}, onnx.numpy_helper.to_array)
        assert choose_shown(["a", "b", "c"], facts, ["y"], 2 * n * 16384) == kept


def test_nothing_is_run_where_memory_is_short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(*_: Any) -> None:
        raise AssertionError("onnxruntime was asked to run")

    monkeypatch.setattr(headroom, "available", lambda: 20 * MIB)
    monkeypatch.setattr(Sessions, "run", run)
    model = graph(
        "t = Relu(x) u = Identity(t) y = Exp(u)", inputs="float[16,1024,1024] x", outputs="float[16,1024,1024] y"
    )
    with pytest.raises(OutOfMemory, match="not enough memory to verify"):
        onnxfuse.optimize(model, tmp_path / "out.onnx")
    assert not list(tmp_path.iterdir())
    with pytest.raises(OutOfMemory, match="not enough memory to verify"):
        onnxfuse.verify(model, model)


@pytest.mark.slow
@pytest.mark.parametrize("batch", ["64", "N,64"], ids=["fixed", "free"])
def test_a_gigabyte_of_activations_stays_in_the_bound(batch: str, tmp_path: Path) -> None:
    shape = f"float[{batch},1024,1024]"
    body = "a = Relu(x) b = Relu(a) c = Exp(b) y = Exp(c)"
    onnx.save(graph(body, inputs=f"{shape} x", outputs=f"{shape} y"), tmp_path / "m.onnx")
    code = (
        "import resource, sys, onnxfuse; r = onnxfuse.optimize(sys.argv[1], sys.argv[2]);"
        "assert r.fusions and r.verdict.ok; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    arguments = [sys.executable, "-c", code, tmp_path / "m.onnx", tmp_path / "o.onnx"]
    done = subprocess.run(arguments, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) * 1024 <= 3 * 512 * MIB + 300_000_000  # two values of 256 MiB at the peak
