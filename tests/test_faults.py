"""Faults while running: killed, interrupted, a full disk, no memory, an odd output, two writers at once.

Old output whole or new output whole, no temporary files left (after a kill: after the next run), one line and the code.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
from support import graph, with_weights

import onnxfuse
from onnxfuse import interruption, storage
from onnxfuse.errors import OutputError
from onnxfuse.storage import files

EXAMPLE = Path(__file__).parent.parent / "models" / "preactivation.onnx"


def cli(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "onnxfuse", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, **options)


def assert_refused(done: subprocess.CompletedProcess[str], text: str) -> None:
    lines = [line for line in done.stderr.splitlines() if "assumed" not in line]
    assert done.returncode == 2 and len(lines) == 1 and text in lines[0], done


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def external(folder: Path, model: onnx.ModelProto) -> Path:
    """The model with its weights in a file beside it."""
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    return folder / "m.onnx"


# --- kill and Ctrl-C at every step ---

# Runs `optimize` again and again, and sends itself a signal at its 1st, 2nd, … operation on a file of the output's
# folder, until a run ends without having come so far. Every run is a fork, so that everything is imported once. After
# each it tells the code, the output where it is not the old one, which names lie about, and what stderr has.
AT_EVERY_STEP = """
import json, os, sys
from pathlib import Path
from onnxfuse import storage
from onnxfuse.__main__ import main
source, out, sign = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
old = out.read_bytes()
sys.argv = ["onnxfuse", "optimize", str(source), str(out), *sys.argv[4:]]
import onnxfuse.cli, onnxfuse.pipeline, onnxfuse.optimizer, onnxfuse.report.text, onnxfuse.report.progress, onnxruntime
from onnxfuse.rules import all_rules
all_rules()
STEPS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "fcntl.flock"}

def run(step):
    seen = 0
    def hook(event, arguments):
        nonlocal seen
        if event in STEPS and (event == "fcntl.flock" or str(arguments[0]).startswith(str(out.parent))):
            seen += 1
            if seen == step:
                os.kill(os.getpid(), sign)
    sys.addaudithook(hook)
    main()

for step in range(1, 1000):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writer, 2), os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.close(reader), os.close(writer)
        try:
            run(step)
        except SystemExit as end:
            sys.stderr.flush()
            os._exit(end.code or 0)
        except BaseException as error:
            os.write(2, repr(error).encode())
            os._exit(99)
    os.close(writer)
    said = os.fdopen(reader).read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    now = out.read_bytes()
    print(json.dumps([code, "" if now == old else now.hex(), sorted(os.listdir(out.parent)), said]), flush=True)
    if code == 0:
        break
    out.write_bytes(old)
"""


def at_every_step(tmp_path: Path, sign: int, *, beside: bool = False, onto_itself: bool = False) -> list[list]:
    """What each run that was ended by a signal left; the last one came to its end."""
    folder = tmp_path / "out"
    folder.mkdir()
    body = "t = Conv(x, w) u = Mul(t, s) y = Relu(u)"
    inputs = "float[N,3,6,6] x, float[4,3,3,3] w, float[1,4,1,1] s"
    model = with_weights(graph(body, inputs=inputs, outputs="float[N,4,4,4] y"))
    source = external(folder, model) if beside else folder / "m.onnx"
    if not beside:
        onnx.save(model, source)
    out = source if onto_itself else folder / "o.onnx"
    if not onto_itself:
        out.write_bytes(b"old")
    command = [sys.executable, "-c", AT_EVERY_STEP, source, out, str(int(sign)), "--target", "ort-cpu"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(runs) > 8 and runs[-1][0] == 0
    for _, new, _, _ in runs:
        assert not new or onnx.ModelProto.FromString(bytes.fromhex(new)) == onnx.load(out, load_external_data=False)
    return runs


KINDS = {"inline": {}, "external": {"beside": True}, "onto itself": {"onto_itself": True}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_every_step_leaves_a_whole_output_and_the_next_run_sweeps(kind: str, tmp_path: Path) -> None:
    runs = at_every_step(tmp_path, signal.SIGKILL, **KINDS[kind])
    expected = {"m.onnx", "o.onnx", "m.data"}
    killed = runs[:-1]
    assert {code for code, *_ in killed} == {-signal.SIGKILL}
    left = [set(names) - expected for *_, names, _ in killed]
    assert any(left) and all(name.startswith(".onnxfuse-") for names in left for name in names)
    assert all(len(names) <= 5 for names in left)  # one run's; the run after it has swept
    assert set(runs[-1][2]) <= expected


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_at_every_step_leaves_nothing(kind: str, tmp_path: Path) -> None:
    runs = at_every_step(tmp_path, signal.SIGINT, **KINDS[kind])
    for code, _, names, said in runs[:-1]:
        assert set(names) <= {"m.onnx", "o.onnx", "m.data"}
        assert code in (0, 130), said
        assert code == 0 or [line for line in said.splitlines() if line] == ["onnxfuse: interrupted"]


@pytest.mark.slow
def test_a_kill_at_random_moments(tmp_path: Path) -> None:
    """Slow: 20 runs of the command line, each a second or two; what is killed may be in onnxruntime or in an import."""
    out = tmp_path / "o.onnx"
    assert cli("optimize", EXAMPLE, out).returncode == 0
    new, killed = out.read_bytes(), 0
    for i in range(20):
        out.write_bytes(b"old")
        child = subprocess.Popen(
            [sys.executable, "-m", "onnxfuse", "optimize", str(EXAMPLE), str(out)], stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            child.wait(random.Random(i).uniform(0.1, 2.5))
        except subprocess.TimeoutExpired:
            child.kill()
        killed += child.wait() == -signal.SIGKILL
        assert out.read_bytes() in (b"old", new)
    assert killed and cli("optimize", EXAMPLE, out).returncode == 0
    assert contents(tmp_path) == {"o.onnx": new}


# --- sweeping ---

HOLD = """
import sys
from pathlib import Path
from onnxfuse.storage import files
with files.atomic(Path(sys.argv[1])) as out, files.scratch(Path(sys.argv[1]).parent) as made:
    out.write(b"first half, ")
    Path(f"{made}-beside").touch()
    print("ready", flush=True)
    sys.stdin.readline()
    out.write(b"second half")
"""


@contextmanager
def held(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has begun to write, and waits for a line."""
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process


def test_what_a_living_process_writes_is_not_swept(tmp_path: Path) -> None:
    with held(tmp_path / "theirs") as process:
        before = {p.name for p in tmp_path.iterdir()}
        assert len(before) == 3  # the file, the folder and what is beside it
        assert cli("optimize", EXAMPLE, tmp_path / "o.onnx").returncode == 0
        assert {p.name for p in tmp_path.iterdir()} == before | {"o.onnx"}
        process.communicate("go\n")
    assert process.returncode == 0 and (tmp_path / "theirs").read_bytes() == b"first half, second half"
    assert {p.name for p in tmp_path.iterdir()} == {"theirs", "o.onnx"}


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    with held(tmp_path / "theirs") as process:
        process.kill()
    assert len(list(tmp_path.iterdir())) == 3
    storage.copy(storage.read(EXAMPLE), tmp_path / "o.onnx")
    assert {p.name for p in tmp_path.iterdir()} == {"o.onnx"}


def test_only_names_of_this_start_of_this_system_are_swept(tmp_path: Path) -> None:
    """Another machine's process may be alive whatever the locks say that are seen here."""
    names = [".onnxfuse-00000000-01234567", ".onnxfuse-", f".onnxfuse-{files._boot()}-012345678", "onnxfuse.tmp"]
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / f".onnxfuse-{files._boot()}-01234567").symlink_to(tmp_path / "onnxfuse.tmp")
    files.sweep(tmp_path)
    assert len(list(tmp_path.iterdir())) == len(names) + 1


def test_without_locks_nothing_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    stale = tmp_path / f".onnxfuse-{files._boot()}-01234567"
    stale.touch()
    monkeypatch.setattr(fcntl, "flock", refuse)
    storage.copy(storage.read(EXAMPLE), tmp_path / "o.onnx")
    assert {p.name for p in tmp_path.iterdir()} == {stale.name, "o.onnx"}
    monkeypatch.undo()
    files.sweep(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"o.onnx"}


def test_sweeping_and_writing_at_once(tmp_path: Path) -> None:
    """A sweep may see a file between its making and its locking; its writer then takes another name."""
    over = threading.Event()

    def sweep() -> None:
        while not over.is_set():
            files.sweep(tmp_path)

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        for i in range(100):
            with files.atomic(tmp_path / "o") as out, files.scratch(tmp_path) as made:
                out.write(str(i).encode())
                assert made.is_dir()
            assert (tmp_path / "o").read_bytes() == str(i).encode()
    finally:
        over.set()
        sweeper.join()
    assert [p.name for p in tmp_path.iterdir()] == ["o"]


# --- disks and permissions ---


def limited(**limits: int) -> Mapping[str, object]:
    """Options of a process with such limits, RLIMIT_… by the end of the name."""

    def apply() -> None:
        for name, value in limits.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))

    return {"preexec_fn": apply}


@pytest.mark.parametrize("options", [(), ("--no-verify",)], ids=["verified", "unverified"])
def test_a_disk_that_takes_no_more(options: tuple[str, ...], tmp_path: Path) -> None:
    """A limit on the size of a file stands for the disk: the kernel refuses the same call."""
    out = tmp_path / "o.onnx"
    out.write_bytes(b"old")
    done = cli("optimize", EXAMPLE, out, *options, **limited(FSIZE=5000))
    assert_refused(done, "cannot be written: File too large")
    assert contents(tmp_path) == {"o.onnx": b"old"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    (tmp_path / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(tmp_path / "disk")]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    yield tmp_path / "disk"
    subprocess.run(["umount", str(tmp_path / "disk")], check=True)


@pytest.mark.parametrize("options", [(), ("--no-verify",)], ids=["verified", "unverified"])
@pytest.mark.parametrize("kind", ["inline", "external"])
def test_a_full_disk(kind: str, options: tuple[str, ...], small_disk: Path, tmp_path: Path) -> None:
    source = external(tmp_path, onnx.load(EXAMPLE)) if kind == "external" else EXAMPLE
    (small_disk / "o.onnx").write_bytes(b"old")
    (small_disk / "filler").write_bytes(bytes(52_000))  # three pages are left
    done = cli("optimize", source, small_disk / "o.onnx", *options)
    assert_refused(done, "cannot be written: No space left on device")
    assert str(small_disk) in done.stderr and ".onnxfuse-" not in done.stderr  # the folder, and no temporary name
    (small_disk / "filler").unlink()
    assert contents(small_disk) == {"o.onnx": b"old"}


def test_a_report_on_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "r.html").write_bytes(b"old")
    done = cli("analyze", EXAMPLE, "--plot", tmp_path / "r.html", **limited(FSIZE=5000))
    assert_refused(done, "cannot be written: File too large")
    assert contents(tmp_path) == {"r.html": b"old"}


def test_a_read_only_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(files, "_new_file", refuse)
    with pytest.raises(OutputError, match=r"o\.onnx: cannot be written: Read-only file system"):
        onnxfuse.optimize(EXAMPLE, tmp_path / "o.onnx", verify=False)
    assert contents(tmp_path) == {}


def as_anybody() -> None:
    """Takes from root, in a process that is about to start, the right to write where its permissions do not let it."""
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(24, 1, 0, 0, 0):  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
        raise OSError("the capability cannot be dropped")


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
@pytest.mark.parametrize("protected", ["file", "folder"])
def test_a_write_protected_target(protected: str, tmp_path: Path) -> None:
    """Told before any work."""
    folder = tmp_path / "out"
    folder.mkdir()
    source, out = tmp_path / "m.onnx", folder / "o.onnx"
    source.write_bytes(EXAMPLE.read_bytes())
    out.write_bytes(b"old")
    (out if protected == "file" else folder).chmod(0o444 if protected == "file" else 0o555)
    try:
        assert_refused(cli("optimize", source, out, preexec_fn=as_anybody), "write-protected")
    finally:
        folder.chmod(0o777)
    assert contents(folder) == {"o.onnx": b"old"}


# --- odd outputs ---


@pytest.mark.parametrize("options", [(), ("--no-verify",)], ids=["verified", "unverified"])
def test_outputs_that_are_no_files(options: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to folder").symlink_to("folder")
    (tmp_path / "to pipe").symlink_to("pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("none/o.onnx")
    cases = {
        "folder": "is a folder",
        "to folder": "is a folder",
        "pipe": "not a regular file",
        "to pipe": "not a regular file",
        "loop": "cannot be written",
        "nowhere": "folder does not exist",
        "/dev/null": "not a regular file",
        "/dev/full": "not a regular file",
    }
    before = sorted(tmp_path.rglob("*"))
    for name, text in cases.items():
        with pytest.raises(OutputError, match=text):
            onnxfuse.optimize(EXAMPLE, tmp_path / name, verify=not options)
    assert_refused(cli("optimize", EXAMPLE, tmp_path / "pipe", *options), "not a regular file")
    assert sorted(tmp_path.rglob("*")) == before and (tmp_path / "loop").is_symlink()


@pytest.mark.parametrize("exists", [True, False])
def test_an_output_that_is_a_symlink_is_written_through(exists: bool, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "o.onnx").symlink_to("real/n.onnx")
    if exists:
        (tmp_path / "real" / "n.onnx").write_bytes(b"old")
    result = onnxfuse.optimize(EXAMPLE, tmp_path / "o.onnx")
    assert (tmp_path / "o.onnx").is_symlink() and onnx.load(tmp_path / "real" / "n.onnx") == result.model
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["n.onnx", "o.onnx", "real"]


def test_a_hard_link_to_the_input_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(EXAMPLE.read_bytes())
    os.link(tmp_path / "m.onnx", tmp_path / "o.onnx")
    result = onnxfuse.optimize(tmp_path / "m.onnx", tmp_path / "o.onnx")
    assert result.fusions and onnx.load(tmp_path / "o.onnx") == result.model
    assert (tmp_path / "m.onnx").read_bytes() == EXAMPLE.read_bytes()


def test_three_processes_write_one_output(tmp_path: Path) -> None:
    """Each with another result; the last one's stands."""
    rules = {f.rule for f in onnxfuse.optimize(EXAMPLE, verify=False).fusions}
    variants = [(), ("--no-rule", sorted(rules)[0]), ("--target", "ort-cpu")]
    whole = set()
    for options in ({}, {"exclude": [sorted(rules)[0]]}, {"target": "ort-cpu"}):
        onnxfuse.optimize(EXAMPLE, tmp_path / "one", **options)
        whole.add((tmp_path / "one").read_bytes())
    (tmp_path / "one").unlink()
    assert len(whole) > 1
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "onnxfuse", "optimize", str(EXAMPLE), str(tmp_path / "o.onnx"), *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for options in variants
    ]  # fmt: skip
    for process in running:
        said = process.communicate(timeout=100)[1]
        assert process.returncode == 0, said
    assert [p.name for p in tmp_path.iterdir()] == ["o.onnx"] and (tmp_path / "o.onnx").read_bytes() in whole


def test_a_save_that_fails_leaves_the_data_that_another_writer_has_begun_to_use(tmp_path: Path) -> None:
    """The other one finishes amid the first one's work, into the same folder with the same data file."""
    (tmp_path / "in").mkdir()
    stored, out = storage.read(external(tmp_path / "in", onnx.load(EXAMPLE))), tmp_path / "out"
    out.mkdir()

    no_space = pytest.raises(OutputError, match=r"a\.onnx: cannot be written: No space left")
    with no_space, storage._saving(stored, out / "a.onnx"):
        storage.copy(stored, out / "b.onnx")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert contents(out) == {"b.onnx": (tmp_path / "in" / "m.onnx").read_bytes(),
                             "m.data": (tmp_path / "in" / "m.data").read_bytes()}  # fmt: skip
    onnx.checker.check_model(out / "b.onnx")  # it refuses a data file of several names


@pytest.mark.parametrize("links", [True, False])
def test_two_writers_at_once_with_other_data_of_one_name(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one to finish is refused; the first one's model keeps its data."""
    if not links:

        def refuse(*_: object) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "in").mkdir()
    stored, out = storage.read(external(tmp_path / "in", onnx.load(EXAMPLE))), tmp_path / "out"
    out.mkdir()
    refused = pytest.raises(OutputError, match=r"m\.data: another file of this name is there")
    with refused, storage._saving(stored, out / "a.onnx"):
        (out / "m.data").write_bytes(b"another model's")
    assert contents(out) == {"m.data": b"another model's"}


# --- Ctrl-C ---

# The command line, interrupted as it begins to import a module, or to run a model whose loop never ends.
AT_AN_IMPORT = """
import os, signal, sys
wanted = sys.argv[1]
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from onnxfuse.__main__ import main
sys.argv = ["onnxfuse", *sys.argv[2:]]
main()
"""


@pytest.mark.parametrize("module", ["onnxfuse.cli", "click", "onnxfuse.cli.output", "onnx", "numpy"])
def test_an_interrupt_while_modules_are_imported_is_one_line(module: str) -> None:
    command = [sys.executable, "-c", AT_AN_IMPORT, module, "analyze", str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "onnxfuse: interrupted\n")


def endless(folder: Path) -> Path:
    """A loop whose condition stays true, without a trip count."""
    body = """t = Constant <value = bool {1}> ()
              y = Loop ("", t, x) <body = b (int64 i, bool c, float[4] v) => (bool d, float[4] w)
                                          { d = Identity(c) w = Relu(v) }>"""
    onnx.save(graph(body, inputs="float[4] x", outputs="float[4] y"), folder / "endless.onnx")
    return folder / "endless.onnx"


@pytest.mark.parametrize("command", ["verify", "benchmark"])
def test_an_interrupt_ends_a_run_inside_onnxruntime(command: str, tmp_path: Path) -> None:
    """Sent once the process computes: what is waited for would take 300 s, which is the time limit of a run."""
    model = endless(tmp_path)
    arguments = [str(model), str(model)] if command == "verify" else [str(model), "--provider", "cpu"]
    process = subprocess.Popen(
        [sys.executable, "-m", "onnxfuse", "-v", command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert busy(process.pid)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)
    assert (process.returncode, *said) == (130, "", "onnxfuse: interrupted\n")


def busy(process: int) -> bool:
    """Waits until some thread of a process has computed for seconds: as no import does, nor the loading of a model."""
    ticks = os.sysconf("SC_CLK_TCK")
    while True:
        seconds = [
            int(stat.read_text().rpartition(")")[2].split()[11]) / ticks
            for stat in Path(f"/proc/{process}/task").glob("*/stat")
        ]
        if sorted(seconds)[-1] > 3:
            return True
        time.sleep(0.05)


def test_work_in_a_thread_returns_raises_and_ends() -> None:
    assert interruption.call(lambda: 3, lambda: None) == 3
    with pytest.raises(ZeroDivisionError):
        interruption.call(lambda: 1 / 0, lambda: None)  # type: ignore[arg-type, return-value]
    over = threading.Event()
    with pytest.raises(TimeoutError):
        interruption.call(over.wait, over.set, 0.01)
    assert over.is_set()

    def late() -> None:
        raise TimeoutError("the work's own")

    with pytest.raises(TimeoutError, match="own"):
        interruption.call(late, over.clear, 100)
    assert over.is_set()


# --- memory ---


@pytest.mark.skipif(sys.platform != "linux", reason="the size of a process is read from /proc")
@pytest.mark.parametrize("limit", [250, 300, 400])
@pytest.mark.parametrize("command", ["verify", "optimize", "analyze", "benchmark"])
def test_no_memory_for_onnxruntime(command: str, limit: int, tmp_path: Path) -> None:
    """It would abort the process, or take the lack of memory for a difference."""
    arguments = {
        "verify": [EXAMPLE, EXAMPLE],
        "optimize": [EXAMPLE, tmp_path / "o.onnx"],
        "analyze": [EXAMPLE, "--as-executed"],
        "benchmark": [EXAMPLE, "--provider", "cpu"],
    }[command]
    assert_refused(cli(command, *arguments, **limited(AS=limit << 20, CORE=0)), "not enough memory")
    assert contents(tmp_path) == {}


def test_too_little_memory_to_read_the_model(tmp_path: Path) -> None:
    """150 MiB of names in the graph, which parsing holds twice, and room for less beyond what Python itself needs."""
    model = onnx.load(EXAMPLE)
    model.graph.doc_string = "d" * (150 << 20)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "o.onnx").write_bytes(b"old")
    done = cli("optimize", tmp_path / "m.onnx", tmp_path / "o.onnx", **limited(AS=400 << 20))
    assert_refused(done, "not enough memory")
    assert (tmp_path / "o.onnx").read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 2
    (tmp_path / "m.onnx").unlink()  # pytest keeps the folders of its last runs


def test_no_memory_amid_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    from onnxfuse import cli as commands
    from onnxfuse.verification import Trial

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    (tmp_path / "o.onnx").write_bytes(b"old")
    monkeypatch.setattr(Trial, "judge", fail)
    monkeypatch.setattr(sys, "argv", ["onnxfuse", "optimize", str(EXAMPLE), str(tmp_path / "o.onnx")])
    with pytest.raises(SystemExit) as ended:
        commands.main()
    assert ended.value.code == 2 and capsys.readouterr().err == "onnxfuse: not enough memory for this model\n"
    assert contents(tmp_path) == {"o.onnx": b"old"} and len(list(tmp_path.iterdir())) == 1


def test_no_room_to_map_the_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    model = graph("y = Mul(x, v)", inputs="float[4000] x, float[4000] v", outputs="float[4000] y")
    onnx.save(with_weights(model), tmp_path / "m.onnx")
    monkeypatch.setattr(mmap, "mmap", full)
    with pytest.raises(onnxfuse.OutOfMemory):
        onnxfuse.optimize(tmp_path / "m.onnx", verify=False)


def refuse_thread(*_: object, **__: object) -> None:
    raise RuntimeError("can't start new thread")


def refuse_session(*_: object, **__: object) -> None:
    raise ort.capi.onnxruntime_pybind11_state.Fail("PosixThread: Resource temporarily unavailable")


@pytest.mark.parametrize(
    ("owner", "name", "refuse"),
    [(threading.Thread, "start", refuse_thread), (ort, "InferenceSession", refuse_session)],
    ids=["Python", "onnxruntime"],
)
def test_no_thread_may_be_started(
    owner: object, name: str, refuse: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, refuse)
    with pytest.raises(onnxfuse.OutOfMemory, match="no more threads may be started"):
        onnxfuse.optimize(EXAMPLE)


# --- odd places ---


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="there is no folder of descriptors")
@pytest.mark.parametrize("option", ["", "--annotate", "--csv"])
def test_a_folder_that_takes_no_files(option: str) -> None:
    end = ".csv" if option == "--csv" else ".onnx"
    command = ("analyze", EXAMPLE, option) if option else ("optimize", EXAMPLE, "--no-verify")
    place = [*command, f"/dev/fd/x{end}"] if option else [*command[:2], f"/dev/fd/x{end}", *command[2:]]
    done = cli(*place)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert "cannot be written" in last or "write-protected" in last


def test_the_standard_output_as_the_model(tmp_path: Path) -> None:
    """It would take the place of the file that the report goes to."""
    with (tmp_path / "report").open("w") as report:
        done = subprocess.run(
            [sys.executable, "-m", "onnxfuse", "optimize", EXAMPLE, "/dev/stdout", "--no-verify"],
            stdout=report, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2 and "is the standard output" in done.stderr
    assert (tmp_path / "report").read_text() == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
def test_messages_that_cannot_be_written(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        run = [sys.executable, "-m", "onnxfuse"]
        assert subprocess.run(run, stderr=full, check=False).returncode == 2
        command = [*run, "optimize", EXAMPLE, tmp_path / "o.onnx", "--no-verify", "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["output"] == str(tmp_path / "o.onnx")
