"""Damages valid model files and sees that each ends as it should: `python -m tests.fuzz.mutate --seed 0 --count 10000`.

Every mutant is analyzed and optimized in a process of its own, with limits on time and memory. Only success or an
OnnxfuseError in one line may come out, and nothing may be left behind or read outside the model's folder; where
onnxruntime loads the mutant, it loads the result. A process that onnxruntime ends while it verifies is counted apart:
then too the old output must be whole. A finding is shrunk and printed.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from unittest import mock

import click
import onnx
import onnxruntime as ort
from google.protobuf.message import DecodeError
from onnx import parser

import onnxfuse
from onnxfuse import runtime
from onnxfuse.errors import OnnxfuseError

from .mutations import MUTATIONS, WEIGHTS
from .sources import FUNCTIONS, MODEL, Files, sources

SECONDS, MEMORY = 30, 3 << 30  # of one mutant; address space beyond what the process has when it starts
OUT = "o.onnx"


@dataclass(frozen=True)
class Mutant:
    """What is damaged, and how: names of mutations with a seed each. files: the result, where it was changed again."""

    source: str
    steps: tuple[tuple[str, int], ...]
    target: str
    verify: bool
    old_output: bool
    operators: bool
    files: tuple[tuple[str, bytes], ...] = ()

    def make(self) -> Files:
        """The files; the same for the same mutant on every machine."""
        if self.files:
            return dict(self.files)
        files = sources(self.operators)[self.source]()
        for name, seed in self.steps:
            MUTATIONS[name](random.Random(seed), files)
        return files

    def __str__(self) -> str:
        how = ", ".join(name for name, _ in self.steps)
        return f"{self.source} [{how}] {self.target}{' verified' if self.verify else ''}"


@dataclass(frozen=True)
class Finding:
    """What does not hold of a mutant; `kind` is the same for the same fault."""

    kind: str
    text: str


def mutant(seed: int, index: int, operators: bool) -> Mutant:
    """The mutant of that number."""
    rng = random.Random(f"{seed} {index}")
    rare = [name for name in sources(operators) if not name.startswith(("generated", "test_"))]
    source = rng.choice(rare if rng.random() < 0.3 else list(sources(operators)))
    names = rng.choices(list(MUTATIONS), WEIGHTS, k=rng.choice((1, 1, 1, 2, 3)))
    if source.startswith("external") and rng.random() < 0.5:
        names[0] = "external"
    steps = tuple((name, rng.getrandbits(32)) for name in names)
    target = rng.choice(("ort-cpu", "ort-cpu", "ort-cuda", "portable"))
    return Mutant(source, steps, target, rng.random() < 0.4, rng.random() < 0.5, operators)


# --- in the process of one mutant ---


def _contents(folder: Path) -> Files:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and not p.is_symlink()
    }


def _loads(path: Path) -> bool:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 - onnxruntime has many
        return False
    return True


def _attempt(action: Callable[[], object]) -> tuple[Finding | None, str]:
    """What an action ended with: "done", the name of an OnnxfuseError, or a finding."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            action()
    except OnnxfuseError as error:
        text = str(error)
        if not text.isprintable() or not text or len(text) > 2000:
            return Finding("the message is not one line", repr(text)[:1000]), ""
        return None, type(error).__name__
    except Exception as error:  # noqa: BLE001 - each is a finding
        last = traceback.extract_tb(error.__traceback__)[-1]
        own = [f for f in traceback.extract_tb(error.__traceback__) if "onnxfuse" in Path(f.filename).parts]
        where = f"{Path(own[-1].filename).stem}.{own[-1].name}" if own else last.name
        return Finding(f"{type(error).__name__} in {where}", traceback.format_exc(limit=-8)), ""
    return None, "done"


def _optimize(home: Path, case: Mutant) -> None:
    onnxfuse.optimize(home / MODEL, home / OUT, target=case.target, verify=case.verify)


def judge(case: Mutant, folder: Path, say: Callable[[str], None]) -> tuple[Finding | None, list[str]]:
    """What does not hold of a mutant, and how analyze and optimize ended. `say` is told before each part."""
    say("making")
    files = case.make()
    (folder / "secret.data").write_bytes(bytes(1 << 20))
    home = folder / "models"
    home.mkdir()
    (home / "link").symlink_to("../secret.data")
    os.mkfifo(home / "pipe")
    for name, data in files.items():
        (home / name).parent.mkdir(exist_ok=True)
        (home / name).write_bytes(data)
    if case.old_output:
        (home / OUT).write_bytes(b"old")
    opened: list[str] = []
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
    before, ends = _contents(home), []
    for what in ("analyze", "optimize"):
        say(f"{what}, verified" if what == "optimize" and case.verify else what)
        if what == "analyze":
            finding, end = _attempt(partial(onnxfuse.analyze, home / MODEL, target=case.target))
        else:
            finding, end = _attempt(partial(_optimize, home, case))
        ends.append(end)
        if finding is not None:
            return replace(finding, kind=f"{what}: {finding.kind}"), ends
        outside = [
            p for p in opened if p.endswith(("secret.data", "/link", "/pipe")) or p in ("/etc/passwd", "/dev/zero")
        ]
        if outside:
            return Finding(f"{what}: reads outside the folder", str(outside)), ends
        after = _contents(home)
        written = after.pop(OUT, None) if what == "optimize" and end == "done" else None
        if after != {k: v for k, v in before.items() if k != OUT or written is None}:
            return Finding(f"{what}: files changed", f"{list(before)} became {list(after)}, after {end}"), ends
    if ends[1] == "done":
        say("loading the result")
        if written is None:
            return Finding("optimize: wrote nothing", ""), ends
        onnx.ModelProto.FromString(written)
        if written != files[MODEL]:
            say("loading the mutant in onnxruntime")
            runs = _loads(home / MODEL)
            say("loading the result in onnxruntime")
            if runs and not _loads(home / OUT):
                return Finding("onnxruntime does not load the result", ""), ends
    return None, ends


def _child(case: Mutant, folder: Path, pipe: int) -> None:
    """Judges, and says on the pipe what is done and what was found."""
    with (folder / "stack").open("w") as stack, os.fdopen(pipe, "w") as out:
        faulthandler.dump_traceback_later(SECONDS - 2, file=stack)
        silent = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(silent, stream)
        status = Path("/proc/self/status").read_text()
        used = int(status.partition("VmSize:")[2].split()[0]) << 10
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        def say(stage: str) -> None:
            out.write(json.dumps({"stage": stage}) + "\n")
            out.flush()

        with mock.patch.object(runtime, "_SECONDS", 1.0):  # an endless Loop is ended, and that is what is looked at
            finding, ends = judge(case, folder, say)
        out.write(json.dumps({"kind": finding and finding.kind, "text": finding and finding.text, "ends": ends}) + "\n")


# --- the process that watches ---


def run(case: Mutant) -> tuple[Finding | None, list[str]]:
    """A mutant judged in a process of its own."""
    folder = Path(tempfile.mkdtemp(prefix="mutant-"))
    try:
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.close(reader)
                _child(case, folder, writer)
            except BaseException:  # noqa: BLE001 - of the fuzzer itself
                (folder / "failed").write_text(traceback.format_exc())
                os._exit(3)
            os._exit(0)
        os.close(writer)
        said = _listen(reader, child)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return _conclude(case, folder, said, code)
    finally:
        shutil.rmtree(folder)


def _listen(reader: int, child: int) -> list[dict]:
    """All that a process says until it ends, or until its time is over and it is killed."""
    deadline, text = time.monotonic() + SECONDS, b""
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], max(deadline - time.monotonic(), 0))
            part = pipe.read(1 << 16) if ready else b""
            if not ready:
                os.kill(child, signal.SIGKILL)
            if not part:
                return [json.loads(line) for line in text.splitlines()]
            text += part


def _conclude(case: Mutant, folder: Path, said: list[dict], code: int) -> tuple[Finding | None, list[str]]:
    if said and "ends" in said[-1]:
        last = said[-1]
        return (Finding(last["kind"], last["text"]) if last["kind"] else None), last["ends"]
    if (folder / "failed").exists():
        raise RuntimeError((folder / "failed").read_text())
    stage = said[-1]["stage"]
    if code == -signal.SIGKILL:
        stack = (folder / "stack").read_text()
        own = next((line for line in stack.splitlines() if "/onnxfuse/" in line), "")
        return Finding(f"{stage}: takes longer than {SECONDS} s{own.rpartition('/')[2]}", stack[:3000]), []
    out, old = folder / "models" / OUT, b"old" if case.old_output else None
    if stage == "optimize, verified" and (out.read_bytes() if out.exists() else None) != old:
        return Finding("a partial output", f"{out.stat().st_size} bytes"), []
    if stage == "optimize, verified" or stage.endswith("the mutant in onnxruntime"):
        return None, [f"onnxruntime ended the process, {signal.Signals(-code).name}, {stage}"]
    return Finding(f"{stage}: ended by {signal.Signals(-code).name if code < 0 else code}", ""), []


def warm() -> None:
    """Imports here what the process of every mutant would import again."""
    onnxfuse.optimize(parser.parse_model(FUNCTIONS), verify=False)
    onnxfuse.analyze(parser.parse_model(FUNCTIONS))


def shrink(case: Mutant, finding: Finding) -> Mutant:
    """A smaller mutant with the same kind of finding: fewer steps, then fewer parts of the model."""
    for step in case.steps:
        fewer = replace(case, steps=tuple(s for s in case.steps if s != step))
        found = run(fewer)[0]
        if found is not None and found.kind == finding.kind:
            case = fewer
    files, tries = case.make(), 0
    smaller = True
    while smaller and tries < 150:
        smaller = False
        for model in _smaller(files[MODEL]):
            tries += 1
            other = replace(case, files=tuple({**files, MODEL: model}.items()))
            found = run(other)[0]
            if found is not None and found.kind == finding.kind:
                case, files, smaller = other, other.make(), True
                break
            if tries >= 150:
                break
    return case


def _smaller(data: bytes) -> Iterator[bytes]:
    try:
        model = onnx.ModelProto.FromString(data)
    except DecodeError:
        return
    parts = ("functions", "training_info", "metadata_props", "opset_import")
    places = [(model, name) for name in parts]
    places += [(model.graph, f) for f in ("node", "initializer", "sparse_initializer", "value_info", "output", "input")]
    places += [(node, "attribute") for node in model.graph.node]
    for owner, name in places:
        field = getattr(owner, name)
        for i in reversed(range(len(field))):
            kept = [type(m).FromString(m.SerializeToString()) for m in field]
            del field[i]
            yield model.SerializeToString()
            del field[:]
            field.extend(kept)


def described(case: Mutant) -> str:
    """A mutant for a person to read."""
    files = case.make()
    try:
        text = onnx.printer.to_text(onnx.ModelProto.FromString(files[MODEL]))
    except Exception:  # noqa: BLE001 - what cannot be parsed or printed is shown as it is
        text = repr(files[MODEL][:1500])
    return "\n".join((str(case), *(line[:300] for line in text.splitlines()[:60])))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=0, help="another seed, other mutants")
    options.add_argument("--start", type=int, default=0, help="the first number")
    options.add_argument("--count", type=int, default=100, help="how many")
    options.add_argument("--no-operators", action="store_true", help="without onnx's operator tests")
    options.add_argument("--keep", action="store_true", help="do not shrink")
    options.add_argument("--save", type=Path, help="a folder for the files of findings")
    args = options.parse_args()
    ends, kinds = Counter(), Counter()
    warm()
    for index in range(args.start, args.start + args.count):
        case = mutant(args.seed, index, not args.no_operators)
        finding, ended = run(case)
        ends["; ".join(ended)] += 1
        if finding is None:
            continue
        kinds[finding.kind] += 1
        if kinds[finding.kind] > 3:
            continue
        small = case if args.keep else shrink(case, finding)
        click.echo(f"--- seed {args.seed}, index {index}: {finding.kind}\n{finding.text}\n{case}\n{described(small)}")
        sys.stdout.flush()
        if args.save:
            for name, data in small.make().items():
                path = args.save / f"{args.seed}-{index}" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
    for kind, count in kinds.most_common():
        click.echo(f"finding, {count} times: {kind}")
    click.echo(f"{args.count} mutants, {sum(kinds.values())} findings; analyze; optimize ended with:")
    for end, count in ends.most_common():
        click.echo(f"{count:6} {end}")
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
