"""Fusion candidates: which pairs, in which order, with the numbers of each pair."""

from __future__ import annotations

import pytest
from support import graph

import onnxfuse


def test_pairs_that_are_alike_have_the_numbers_of_the_pair_alone() -> None:
    """Three times Relu → Neg on [8, 100]: 2 FLOPs an element, 16 bytes apart, 8 as one; and one of another size."""
    text = "".join(f"a{i} = Relu(x) b{i} = Neg(a{i}) " for i in range(3)) + "c = Relu(z) d = Neg(c)"
    outputs = "".join(f"float[8,100] b{i}, " for i in range(3)) + "float[5,100] d"
    found = onnxfuse.analyze(graph(text, inputs="float[8,100] x, float[5,100] z", outputs=outputs)).candidates
    assert [c.nodes for c in found] == [(f"Relu(a{i})", f"Neg(b{i})") for i in range(3)] + [("Relu(c)", "Neg(d)")]
    assert [c.bytes_saved for c in found] == [8 * 800] * 3 + [8 * 500]
    assert all(c.intensity_apart == pytest.approx(2 / 16) and c.intensity_fused == pytest.approx(2 / 8) for c in found)


def test_a_shared_input_counts_once_and_what_is_not_shared_is_another_kind_of_pair() -> None:
    """Abs(x) → Add with x: 4n + 4n, 8n + 4n apart; as one x is read once and the sum written: 8n."""
    model = graph(
        "a = Abs(x) y = Add(a, x) b = Abs(x) z = Add(b, w)",
        inputs="float[1000] x, float[1000] w",
        outputs="float[1000] y, float[1000] z",
    )
    saved = {c.nodes[1]: c.bytes_saved for c in onnxfuse.analyze(model).candidates}
    assert saved == {"Add(y)": 12_000, "Add(z)": 8_000}


def test_a_value_with_another_reader_or_an_output_is_no_candidate() -> None:
    model = graph(
        "a = Relu(x) b = Neg(a) c = Abs(a) d = Relu(c) y = Neg(d)",
        inputs="float[64] x",
        outputs="float[64] b, float[64] d, float[64] y",
    )
    assert [c.nodes for c in onnxfuse.analyze(model).candidates] == [("Abs(c)", "Relu(d)")]


@pytest.mark.parametrize(("dtype", "by_itself"), [("float", True), ("double", False)])
def test_a_runtime_merges_in_some_dtypes_only(dtype: str, by_itself: bool) -> None:
    model = graph("a = Gemm(x, w) y = Relu(a)", inputs=f"{dtype}[8,64] x, {dtype}[64,64] w", outputs=f"{dtype}[8,64] y")
    (found,) = onnxfuse.analyze(model, target="ort-cpu", max_intensity=1e9).candidates
    assert (found.reason == "ort-cpu merges them by itself") == by_itself
