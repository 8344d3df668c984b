"""Results as JSON: what is written reads back as the same data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from onnxfuse import jsonable
from onnxfuse.facts.expr import symbol


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: Any
    _private: int = 0


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Point(1, (2.5, None, True)), {"x": 1, "y": [2.5, None, True]}),
        ({"n": symbol("N") * 4, 3: "µ"}, {"n": "4·N", "3": "µ"}),
        ([Point(1, "a"), Point(2, [Point(3, b"\xff")])], [{"x": 1, "y": "a"}, {"x": 2, "y": [{"x": 3, "y": "\\xff"}]}]),
        ([float("nan"), float("inf"), 1e300], [None, None, 1e300]),
    ],
)
def test_plain_data(value: object, data: object) -> None:
    assert jsonable.plain(value) == data


@pytest.mark.parametrize(
    "data", [{}, {"a": []}, {"a": [{"b": 1}, {"b": 'µ\n"'}], "c": {"d": [1, 2]}, "e": None, "f": [1.5, "x"]}]
)
def test_the_text_reads_back(data: dict[str, Any]) -> None:
    said = "".join(jsonable.text(data))
    assert json.loads(said) == data
    assert list(json.loads(said)) == list(data)


def test_a_list_of_objects_has_a_line_an_object() -> None:
    said = "".join(jsonable.text({"model": "m", "nodes": [{"name": "a"}, {"name": "b"}]}))
    assert said == '{\n "model": "m",\n "nodes": [\n  {"name": "a"},\n  {"name": "b"}\n ]\n}'
