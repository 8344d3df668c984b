"""What holds for every rule, be it a fusion or a rewrite: taken through its own BEFORE."""

from __future__ import annotations

import pytest
from examples import example, target
from support import optimized

from onnxfuse.rules import all_rules, select

NAMES = list(all_rules())


@pytest.mark.parametrize("rule", NAMES)
def test_a_second_run_changes_nothing(rule: str) -> None:
    once = optimized(example(rule, "BEFORE"), rules=[rule], target=target(rule)).model
    again = optimized(once, rules=[rule], target=target(rule))
    assert again.fusions == () and again.model.SerializeToString() == once.SerializeToString()


@pytest.mark.parametrize("rule", NAMES)
def test_the_docstring_tells_the_algebra(rule: str) -> None:
    doc = all_rules()[rule].doc
    assert "=" in doc and len(doc.splitlines()) > 2


@pytest.mark.parametrize("rule", NAMES)
def test_a_rule_can_be_switched_off(rule: str) -> None:
    result = optimized(example(rule, "BEFORE"), exclude=[rule], target=target(rule))
    assert rule not in {f.rule for f in result.fusions}
    assert [r.name for r in select([rule])] == [rule]
