"""The README says what is true: its commands run, its output is real, its Python works."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
COMMANDS = [line.split("#")[0].strip() for line in re.findall(r"^onnxfuse .*$", README, re.MULTILINE)]


def marked(name: str) -> str:
    found = re.search(rf"<!-- {name}.*?-->\n```\w*\n(.*?)```\n<!-- /{name.split(':')[0]} -->", README, re.DOTALL)
    assert found, name
    return found.group(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all commands, in the README's order: later ones read what earlier ones wrote."""
    path = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "models", path / "models")
    return path


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    words = command.split()
    assert words[0] == "onnxfuse"
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 8 and len({c.split()[1] for c in COMMANDS}) == 6  # every subcommand is shown


def test_every_command_runs(folder: Path) -> None:
    for command in COMMANDS:  # in one test: tests of one file may run in several processes
        done = run(command, folder)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout.strip(), command


def test_the_output_is_real(folder: Path) -> None:
    command = marked("try").strip().split("&& .venv/bin/")[-1]
    assert f"<!-- output: {command} -->" in README
    done = run(command, folder)
    # what depends on the machine: the time, and the last bit of a sum
    varies = r"\(\d+\.\d s\)|\d\.\de-\d\d"
    assert re.sub(varies, "", done.stderr + done.stdout).strip() == re.sub(varies, "", marked("output:")).strip()


def test_the_python_works(folder: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_the_two_commands_stand_alone() -> None:
    for name in ("try", "test"):
        (line,) = marked(name).strip().splitlines()
        assert line.startswith("python3 -m venv .venv && .venv/bin/pip install ")
