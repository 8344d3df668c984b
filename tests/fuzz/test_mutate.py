"""A fixed part of the damaged files; `python -m tests.fuzz.mutate --count 10000` looks at many more."""

from __future__ import annotations

import random
from collections import Counter

import onnx
import pytest

from .mutate import described, mutant, run, shrink, warm
from .mutations import MUTATIONS, dump, parse
from .sources import FUNCTIONS, MODEL, sources

MUTANTS, PARTS = 200, 8


@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_files(part: int) -> None:
    warm()
    ends: Counter[str] = Counter()
    for index in range(part, MUTANTS, PARTS):
        case = mutant(2024, index, operators=False)
        finding, ended = run(case)
        ends[ended[-1] if ended else ""] += 1
        if finding is not None:
            pytest.fail(f"index {index}: {finding.kind}\n{finding.text}\n{described(shrink(case, finding))}")
    refused = ends["ModelError"]
    assert refused > 3 and sum(ends.values()) - refused > 1  # else little was looked at


def test_a_mutant_is_the_same_every_time() -> None:
    for index in range(5):
        assert mutant(1, index, operators=False).make() == mutant(1, index, operators=False).make()


def test_fields_are_taken_apart_and_put_together() -> None:
    data = onnx.parser.parse_model(FUNCTIONS).SerializeToString()
    assert dump(parse(data, onnx.ModelProto.DESCRIPTOR)) == data


@pytest.mark.parametrize("name", MUTATIONS)
def test_every_mutation_changes_something(name: str) -> None:
    original = sources(False)["external preactivation.onnx"]()
    changed = 0
    for seed in range(20):
        files = dict(original)
        MUTATIONS[name](random.Random(seed), files)
        changed += files != original
    assert changed > 5 and original[MODEL]
