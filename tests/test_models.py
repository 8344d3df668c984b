"""The files in models/ are what models/build.py makes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

MODELS = Path(__file__).parent.parent / "models"


def test_the_files_are_what_the_script_builds(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("build", MODELS / "build.py")
    assert spec is not None and spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    built = build.build(tmp_path)
    assert sorted(p.name for p in built) == sorted(p.name for p in MODELS.glob("*.onnx"))
    for path in built:
        assert path.read_bytes() == (MODELS / path.name).read_bytes()


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")), ids=lambda p: p.stem)
def test_every_file_is_named_in_the_readme(path: Path) -> None:
    assert f"`{path.name}`" in (MODELS / "README.md").read_text("utf-8")
