"""The node rows of an analysis as CSV (RFC 4180)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING

from onnxfuse.jsonable import plain

if TYPE_CHECKING:
    from onnxfuse.roofline import Row


def node_rows(rows: Iterable[Row]) -> bytes:
    """One line a node in UTF-8, below a line with the names of the `--json` output.

    An unknown number is an empty field, a symbolic one its expression; the lists `inputs` and `outputs` are JSON, since
    a name may contain any character.
    """
    from onnxfuse.roofline import Row

    out = io.StringIO(newline="")
    writer = csv.writer(out)
    names = [field.name for field in fields(Row)]
    writer.writerow(names)
    writer.writerows([_field(getattr(row, name)) for name in names] for row in rows)
    return out.getvalue().encode("utf-8", "backslashreplace")


def _field(value: object) -> object:
    data = plain(value)
    return json.dumps(data, ensure_ascii=False) if isinstance(data, list) else data
