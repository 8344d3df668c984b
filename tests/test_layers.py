"""Data flows one way: a module imports only from the layers before its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import onnxfuse

LAYERS = """
errors arguments jsonable devices ir targets releases quantizing bridge storage validity ordering shadowing model
graph facts cost memory weights roofline execution candidates patterns misfits rules bounds interface feeds inputs
binding surroundings pricing quantized plan misfused legality rewrite worklist headroom interruption runtime gpu
executed trace workloads measure verification optimizer analysis pipeline ratio bench profiled report cli
""".split()  # noqa: SIM905 - a list of words reads better as words
ROOT = Path(onnxfuse.__file__).parent
FILES = sorted(p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.stem not in ("__init__", "__main__"))


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names |= {f"{node.module}.{a.name}" for a in node.names}
    return names


def layer(dotted: str) -> str | None:
    parts = dotted.split(".")
    return parts[1] if parts[0] == "onnxfuse" and len(parts) > 1 and parts[1] in LAYERS else None


def test_the_list_of_layers_is_the_package() -> None:
    present = {p.stem if p.is_file() else p.name for p in ROOT.iterdir() if not p.name.startswith("_")} - {"py"}
    assert present == set(LAYERS)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down(path: Path) -> None:
    own = LAYERS.index(path.relative_to(ROOT).parts[0].removesuffix(".py"))
    used = {found for name in imported(ast.parse(path.read_text("utf-8"))) if (found := layer(name))}
    assert not {name for name in used if LAYERS.index(name) > own}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_the_runtime_and_bench_know_onnxruntime(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    uses = any(name.split(".")[0] == "onnxruntime" for name in imported(tree))
    assert not uses or path.stem in ("runtime", "bench")
    at_import = {a.name for n in tree.body if isinstance(n, ast.Import) for a in n.names}
    assert "onnxruntime" not in at_import


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_the_lower_layers_make_protobuf_messages(path: Path) -> None:
    if path.relative_to(ROOT).parts[0].removesuffix(".py") in ("ir", "bridge", "storage", "validity", "model"):
        return
    made = {
        node.func.attr
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("Proto")
    }
    assert not made - {"ValueInfoProto"}
