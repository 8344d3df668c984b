"""What the project installs: few packages within bounds, in CI at exact versions (.ci/constraints.txt)."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
LINES = [line for line in (ROOT / ".ci/constraints.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
PINNED = {canonicalize_name(name): Version(version) for name, version in (line.split("==") for line in LINES)}


def requirements() -> list[Requirement]:
    """What pyproject.toml asks for, the extras that the dev extra is made of included."""
    named = ("cpu", "plot", "test", "dev")
    texts = [*PROJECT["dependencies"], *(text for extra in named for text in EXTRAS[extra])]
    return [r for r in map(Requirement, texts) if r.name != PROJECT["name"]]


def closure() -> tuple[set[str], set[str]]:
    """Names of all packages that these bring, and of those which are not installed here, so that nobody can tell."""
    found: set[tuple[str, str]] = set()
    missing: set[str] = set()
    todo = requirements()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if (name, extra) in found:
                continue
            found.add((name, extra))
            try:
                needs = map(Requirement, distribution(name).requires or ())
            except PackageNotFoundError:
                missing.add(name)
                continue
            todo += [r for r in needs if r.marker is None or r.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}, missing


def test_the_constraints_name_what_the_dev_extra_brings() -> None:
    names, missing = closure()
    assert names <= PINNED.keys()
    if not missing:
        assert names == PINNED.keys()


def test_the_constraints_are_within_the_bounds() -> None:
    for requirement in requirements():
        assert PINNED[canonicalize_name(requirement.name)] in requirement.specifier


def test_every_dependency_has_a_lower_and_an_upper_bound() -> None:
    texts = [*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)]
    for requirement in map(Requirement, texts):
        if requirement.name != PROJECT["name"]:
            assert {s.operator for s in requirement.specifier} == {">=", "<"}, requirement


def test_few_packages_are_needed_to_run() -> None:
    assert len(PROJECT["dependencies"]) <= 5
