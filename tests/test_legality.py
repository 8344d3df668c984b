"""What the engine refuses of any rule: values that are not known to be alike."""

from __future__ import annotations

from dataclasses import replace

import onnx_graphsurgeon as gs
import pytest
from support import graph, optimized

import onnxfuse.rules
from onnxfuse import worklist
from onnxfuse.patterns import Build, Rewrite, Scope

INPUTS = "float[N,4] x, float[M,4] z, int64[K] s, float[2,4] w, double[N,4] d, float[3,4,1] c"
SHAPES = [  # nodes that make u and v, and whether v may stand for u
    ("u = Abs(x) v = Neg(x)", True),
    ("u = Abs(x) v = Neg(z)", False),  # N and M
    ("u = Abs(x) v = Neg(w)", False),  # N may be 2, or not
    ("u = Reshape(x, s) v = Reshape(x, s)", False),  # of unknown rank
    ("r = Reshape(x, s) u = Abs(x) v = Neg(r)", False),
    ("u = Abs(x) v = Neg(d)", False),
]


def outcome(monkeypatch: pytest.MonkeyPatch, body: str, *, new: bool, alike: bool) -> tuple[int, list[str]]:
    """How often a rule was made that lets v stand for u, or makes u anew of v, and why it was refused."""

    def match(node: gs.Node, scope: Scope) -> Rewrite | None:
        u, v = node.inputs
        if u is v or scope.editor.producer(u).op == "Sqrt":
            return None
        if not new:
            return Rewrite(same=((u, v),), alike=alike)
        build = Build(scope, node)
        build("Sqrt", v, out=u)
        return build.rewrite(alike=alike)

    rule = replace(onnxfuse.rules.all_rules()["dead_node"], name="fake", roots=frozenset({"Less"}), match=match)
    monkeypatch.setattr(onnxfuse.rules, "all_rules", lambda: {"fake": rule})
    monkeypatch.setattr(worklist, "_check_pays", lambda *args: None)
    model = graph(f"{body} y = Less(u, v)", inputs=INPUTS, outputs="bool[?] y")
    result = optimized(model, verify=False)
    return len(result.fusions), [r.reason for r in result.refused]


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize(("body", "known"), SHAPES)
def test_what_is_not_known_to_agree_is_refused(
    body: str, known: bool, new: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, reasons = outcome(monkeypatch, body, new=new, alike=False)
    assert count == known and bool(reasons) is not known


@pytest.mark.parametrize("new", [True, False])
def test_a_rule_may_know_more_than_facts(new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome(monkeypatch, "u = Reshape(x, s) v = Reshape(x, s)", new=new, alike=True)[0] == 1


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize("body", ["u = Abs(w) v = Neg(c)", "u = Abs(w) v = Flatten(c)", "u = Abs(x) v = Neg(d)"])
def test_no_rule_may_contradict_facts(body: str, new: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    count, (reason,) = outcome(monkeypatch, body, new=new, alike=True)
    assert not count and "would be of another" in reason
