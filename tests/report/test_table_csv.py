"""The CSV: the numbers and names of the JSON, whatever is in a name."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import onnxfuse
from onnxfuse.facts.expr import symbol
from onnxfuse.report.table_csv import node_rows

EXAMPLE = Path(__file__).parents[2] / "models/small_resnet.onnx"


def test_it_is_the_nodes_of_the_json() -> None:
    report = onnxfuse.analyze(EXAMPLE)
    nodes = report.to_json()["nodes"]
    read = list(csv.DictReader(io.StringIO(node_rows(report.nodes).decode(), newline="")))
    assert list(read[0]) == list(nodes[0]) and len(read) == len(nodes)
    for line, node in zip(read, nodes, strict=True):
        for name, value in node.items():
            if value is None:
                assert line[name] == ""
            elif isinstance(value, list):
                assert json.loads(line[name]) == value
            else:
                assert type(value)(line[name]) == value  # floats to the last digit


def test_hostile_names_unknown_and_symbolic_numbers() -> None:
    (row, *_) = onnxfuse.analyze(EXAMPLE).nodes
    name = 'a,"b"\r\nc\udcff'
    odd = replace(row, name=name, inputs=(name, "x y"), flops=None, bytes=symbol("batch") * 4)
    (line,) = csv.DictReader(io.StringIO(node_rows([odd]).decode(), newline=""))
    assert line["name"] == 'a,"b"\r\nc\\udcff'
    assert line["flops"] == "" and line["bytes"] == str(symbol("batch") * 4)
