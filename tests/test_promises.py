"""What the README promises of every run: the same bytes, no network, no telemetry, nothing of a model is executed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from support import parse

MODELS = Path(__file__).parent.parent / "models"
TARGETS = ("ort-cuda", "ort-cpu", "portable")


def python(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a program as a user would, at home in a folder, with none of the variables that may quiet onnxruntime."""
    quiet = ("ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS", "CI", "GITHUB_ACTIONS", "TF_BUILD", "XDG_CACHE_HOME")
    left = {k: v for k, v in os.environ.items() if k not in quiet}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={
            **left,
            "HOME": str(folder),
            "PYTHONPATH": str(MODELS.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


OPTIMIZE = """
import sys
import onnxfuse
{before}
for name in ("small_resnet", "preactivation"):
    for target in {targets}:
        onnxfuse.optimize(f"{models}/{{name}}.onnx", f"{{name}}-{{target}}.onnx", target=target, verify={verify})
        print(onnxfuse.analyze(f"{models}/{{name}}.onnx", target=target).to_json())
"""


def results(folder: Path, before: str = "", verify: bool = False, **variables: str) -> dict[str, bytes]:
    folder.mkdir()
    done = python(OPTIMIZE.format(models=MODELS, targets=TARGETS, before=before, verify=verify), folder, **variables)
    assert done.returncode == 0, done.stderr
    found = {path.name: path.read_bytes() for path in folder.glob("*.onnx")}
    assert len(found) == 6
    return {**found, "analyze": done.stdout.encode()}


def test_the_same_input_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    first, second = (results(tmp_path / seed, PYTHONHASHSEED=seed) for seed in ("1", "2"))
    assert first == second


def test_the_bytes_do_not_depend_on_the_runtime(tmp_path: Path) -> None:
    """Without any onnxruntime they are those of a verified run: neither its version nor its build is in them."""
    with_it = results(tmp_path / "with", verify=True)
    without = results(tmp_path / "without", "sys.modules['onnxruntime'] = None")
    assert with_it == without


TOKEN = "__import__('os').system('touch pwned')"
WATCH = """
import os, sys
home = os.path.realpath(os.getcwd())
real = sys.stderr

def watch(event, args):
    said = repr(args)[:2000]
    if event.startswith(("socket.", "subprocess.", "os.exec", "os.posix_spawn", "os.system", "os.fork", "urllib.")):
        bad = True
    elif event in ("compile", "exec", "marshal.loads", "pickle.find_class", "import"):
        code = args[0].co_name + args[0].co_filename if event == "exec" else said
        bad = "pwned" in code
    elif event == "open" and isinstance(args[0], (str, bytes)) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        bad = not os.path.realpath(os.fsdecode(args[0])).startswith((home, os.path.realpath("/dev/null")))
    else:
        bad = False
    if bad:
        real.write(f"AUDIT {event} {said}\\n")
        real.flush()
        os._exit(99)

import onnxfuse
import onnxfuse.cli, onnxfuse.optimizer, onnxfuse.verification, onnxruntime  # extension modules are loaded before
sys.addaudithook(watch)
sys.argv = ["onnxfuse", *%s]
onnxfuse.cli.main()
"""
COMMANDS = {
    "analyze": ["analyze", "m.onnx"],
    "annotate": ["analyze", "m.onnx", "--annotate", "noted.onnx", "--csv", "m.csv", "--plot", "m.html"],
    "as executed": ["analyze", "m.onnx", "--as-executed"],
    "optimize": ["optimize", "m.onnx", "out.onnx", "--report", "r.html"],
    "verify": ["verify", "m.onnx", "m.onnx"],
}


def evil() -> onnx.ModelProto:
    """A model all of whose free texts are a program."""
    model = parse("""
        <ir_version: 8, opset_import: ["" : 17]> g (float[N,4] x) => (float[N,4] y) <float[1] one = {1}>
        { a = Relu(x)  b = Mul(a, one)  y = Sigmoid(b) }""")
    names = {"a": TOKEN, "b": f"{TOKEN}#b"}
    for node in model.graph.node:
        node.name = node.doc_string = f"{TOKEN} {node.op_type}"
        node.input[:] = [names.get(n, n) for n in node.input]
        node.output[:] = [names.get(n, n) for n in node.output]
        node.metadata_props.add(key=TOKEN, value=TOKEN)
        node.metadata_props.add(key="onnxfuse.sources", value='["' + TOKEN + '"]')
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = TOKEN
    model.producer_name = model.doc_string = model.graph.name = TOKEN
    model.metadata_props.add(key=TOKEN, value=TOKEN)
    return model


@pytest.mark.parametrize("command", COMMANDS)
def test_no_network_no_process_and_nothing_of_the_model_is_executed(command: str, tmp_path: Path) -> None:
    onnx.save(evil(), tmp_path / "m.onnx")
    done = python(WATCH % COMMANDS[command], tmp_path, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("code", ["import socket; socket.socket()", "exec('pwned = 1')", "open('/var/tmp/x', 'w')"])
def test_the_watch_sees_what_it_forbids(code: str, tmp_path: Path) -> None:
    watch, _, _ = (WATCH % "[]").rpartition("sys.argv")
    assert python(watch + code, tmp_path).returncode == 99


def test_onnxruntime_is_told_to_send_nothing(tmp_path: Path) -> None:
    """Its wheels for Linux and macOS report sessions over HTTPS by default (its docs/Privacy.md; since 1.29). Where
    they are at it they keep a device id and a spool in the user's cache folder.
    """
    done = python(
        f"import onnxfuse; onnxfuse.verify({str(MODELS / 'small_resnet.onnx')!r}, "
        f"{str(MODELS / 'small_resnet.onnx')!r})",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
