"""The rewrites: one file each, found automatically.

A rule file has the algebra in its docstring, `ROOTS` (operators at which it is tried), `match(node, scope)`, and
`BEFORE`/`AFTER` as ONNX text. One that answers `Match`, a fusion, has `pairs(target)`: the neighbours that it merges
there, for the candidates of `analyze`. One that answers `Rewrite` has a `STAGE` and may have `MEASURED` (see `Rule`).
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from onnxfuse.errors import UsageError
from onnxfuse.patterns import Rule

SAVED = Path(__file__).parent / "saved.json"  # written by tests/benchmarks/rules.py


def saved() -> Mapping[str, Any]:
    """What each rule does on 24 real models: {"of": models, "rules": {name: {"models", target: {"made", "seconds"}}}}.

    seconds: by how much the estimated time of all of them together fell.
    """
    table: dict[str, Any] = json.loads(SAVED.read_text("utf-8"))
    return table


@cache
def all_rules() -> dict[str, Rule]:
    """Every rule by name, in alphabetical order."""
    found = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        found[info.name] = Rule(
            info.name,
            frozenset(module.ROOTS),
            getattr(module, "pairs", None),
            module.match,
            module.__doc__ or "",
            getattr(module, "STAGE", 0),
            frozenset(getattr(module, "MEASURED", ())),
        )
    return found


def select(only: Iterable[str] | None = None, exclude: Iterable[str] = ()) -> tuple[Rule, ...]:
    """The rules to try: all, or `only` those, without `exclude`. Raises UsageError for an unknown name."""
    rules = all_rules()
    if isinstance(only, str) or isinstance(exclude, str):
        raise UsageError("rules and exclude are sequences of rule names, not one text")
    only, exclude = (None if only is None else tuple(only)), tuple(exclude)
    for name in (*(only or ()), *exclude):
        if name not in rules:
            raise UsageError(f"unknown rule '{name}'; known: {', '.join(rules)}")
    return tuple(r for n, r in rules.items() if (only is None or n in only) and n not in exclude)
