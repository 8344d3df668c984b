"""One fault has one exit code, whichever command meets it: 2 for bad usage or bad input, 1 where the answer is no."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import onnx
import pytest
from support import graph

from onnxfuse import cli, runtime

GOOD = Path(__file__).parent.parent / "models" / "conv_relu_maxpool_conv.onnx"
COMMANDS = {  # with {a} the model of the fault; static: what never runs the model
    "analyze": "analyze {a}",
    "optimize unverified": "optimize {a} {out} --no-verify",
    "analyze executed": "analyze {a} --as-executed",
    "optimize": "optimize {a} {out}",
    "verify": "verify {a} {a}",
    "verify second": "verify {good} {a}",
    "benchmark": "benchmark {a} --provider cpu --runs 1",
    "benchmark second": "benchmark {good} {a} --provider cpu --runs 1",
    "benchmark nodes": "benchmark {a} --per-node --runs 1",
}
STATIC = ("analyze", "optimize unverified")
ONLY_LOADS = (*STATIC, "analyze executed")


def ended(command: str, **paths: Path) -> int:
    """The exit code of a command, run in this process."""
    words = [word.format(**paths) for word in command.split()]
    with mock.patch.object(sys, "argv", ["onnxfuse", *words]), pytest.raises(SystemExit) as end:
        cli.main()
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.fixture(autouse=True)
def process() -> Iterator[None]:
    """What a command sets for the whole process is as before afterwards."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)
    gc.enable()


def unknown_operator() -> onnx.ModelProto:
    model = graph("t = Relu (x) u = Identity (t) y = Relu (u)", inputs="float[2] x", outputs="float[2] y")
    model.graph.node[0].domain = "nobody.knows"
    model.opset_import.add(domain="nobody.knows", version=1)
    return model


def wrong_dtype() -> onnx.ModelProto:
    return graph("t = Identity (x) y = Relu (t)", inputs="string[2] x", outputs="string[2] y")


def never_runs() -> onnx.ModelProto:
    """Every input has 3 elements a row, and 7 are wanted."""
    body = "s = Constant <value_ints = [7, 1]> () t = Reshape(x, s) u = Identity(t) y = Relu(u)"
    return graph(body, inputs="float[N,3] x", outputs="float[P,Q] y")


def never_ends() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[2] x) => (float[2] y)
        <bool on = {1}, int64 most = {9223372036854775807}>
        { i = Identity(x) y = Loop(most, on, i) <body = b (int64 n, bool c, float[2] a) => (bool d, float[2] e)
          { d = Identity(c) f = Identity(a) e = Relu(f) }> }"""
    )


def too_large() -> onnx.ModelProto:
    body = "u = Identity(x) y = ReduceMax <keepdims = 0> (u)"
    return graph(body, inputs="float[100000,100000,1000] x", outputs="float y")


def invalid() -> onnx.ModelProto:
    model = onnx.load(GOOD)
    model.graph.node[0].op_type = "NoSuchOperator"
    return model


def newer() -> onnx.ModelProto:
    model = onnx.load(GOOD)
    model.opset_import[0].version = 9999
    return model


def data_missing() -> onnx.ModelProto:
    model = onnx.load(GOOD)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="absent.data")
    return model


BAD_INPUT: dict[str, Callable[[], onnx.ModelProto | bytes | None]] = {
    "absent": lambda: None,
    "empty": lambda: b"",
    "text": lambda: b"this is not a model",
    "truncated": lambda: GOOD.read_bytes()[:-1000],
    "invalid": invalid,
    "newer opset": newer,
    "external data missing": data_missing,
}
NOT_LOADED = {"unknown operator": unknown_operator, "wrong dtype": wrong_dtype}
NOT_RUN = {"no inputs": never_runs, "endless": never_ends}


def codes(made: onnx.ModelProto | bytes | None, folder: Path) -> dict[str, int]:
    """The exit code of each command on a model, which stands second for some."""
    path = folder / "a.onnx"
    if made is not None:
        path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    return {name: ended(line, a=path, good=GOOD, out=folder / "out.onnx") for name, line in COMMANDS.items()}


@pytest.mark.parametrize("fault", BAD_INPUT)
def test_what_is_no_usable_model_is_bad_input_for_every_command(fault: str, tmp_path: Path) -> None:
    assert set(codes(BAD_INPUT[fault](), tmp_path).values()) == {2}


@pytest.mark.parametrize("fault", NOT_LOADED)
def test_what_onnxruntime_does_not_load_is_a_finding(fault: str, tmp_path: Path) -> None:
    assert codes(NOT_LOADED[fault](), tmp_path) == {name: 0 if name in STATIC else 1 for name in COMMANDS}


@pytest.mark.parametrize("fault", NOT_RUN)
def test_what_does_not_run_is_a_finding(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "_SECONDS", 1.0)
    assert codes(NOT_RUN[fault](), tmp_path) == {name: 0 if name in ONLY_LOADS else 1 for name in COMMANDS}


def test_what_no_memory_holds_is_refused_by_every_command_that_runs_it(tmp_path: Path) -> None:
    """As the second model it is another one than the first, which is a finding."""
    expected = {name: 0 if name in ONLY_LOADS else 1 if "second" in name else 2 for name in COMMANDS}
    assert codes(too_large(), tmp_path) == expected


@pytest.mark.parametrize("option", ["--dim nobody=3", "--dim N=0", "--dim N=x", "--dim N", "--nobody", "--seed x"])
def test_a_bad_option_is_bad_usage_for_every_command(option: str, tmp_path: Path) -> None:
    for name, line in COMMANDS.items():
        assert ended(f"{line} {option}", a=GOOD, good=GOOD, out=tmp_path / "out.onnx") == 2, name


@pytest.mark.parametrize("option", ["--target nobody", "--device nobody", "--device absent.toml", "--max-intensity 0"])
@pytest.mark.parametrize("name", STATIC)
def test_a_bad_target_or_device_is_bad_usage(option: str, name: str, tmp_path: Path) -> None:
    assert ended(f"{COMMANDS[name]} {option}", a=GOOD, out=tmp_path / "out.onnx") == 2


@pytest.mark.parametrize("name", COMMANDS)
def test_what_works_ends_with_0(name: str, tmp_path: Path) -> None:
    same = {"good": GOOD, "a": GOOD, "out": tmp_path / "out.onnx"}
    assert ended(COMMANDS[name], **same) == 0
