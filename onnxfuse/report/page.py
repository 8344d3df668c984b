"""One HTML page that needs no network: data as JSON, and the script in the page that draws it.

Names of a model are untrusted. They reach the page only inside the JSON, in which `<`, `>` and `&` are escaped, and
from there as text nodes; the page's content security policy names the hashes of its own script and style, so nothing
else runs or loads.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import resources
from typing import Any, TypeVar

from onnxfuse.report import chart, units

MAX_ROWS = 2000  # of a table; more make a browser slow
NAME = 160  # characters of a name that are shown

# A column is (title, kind); kind: "" text, "long" text that wraps, "right" numbers, "bar" a share drawn as a bar.
# A cell is a text, or (number or None, text).
Column = tuple[str, str]
Cell = str | tuple[float | None, str]
Part = dict[str, Any]
T = TypeVar("T")


def section(title: str, note: str, views: Sequence[Part]) -> Part:
    """A heading and one or more tables to switch between."""
    return {"title": title, "note": note, "views": views}


def view(
    name: str, columns: Sequence[Column], items: Sequence[T], line: Callable[[T], Sequence[Cell]], note: str = ""
) -> Part:
    """A table with a line an item, `MAX_ROWS` at most; without a note one says what is left out."""
    if len(items) > MAX_ROWS:
        note = note or f"The first {MAX_ROWS:,} of {len(items):,}."
    rows = [line(item) for item in items[:MAX_ROWS]]
    return {"name": name, "columns": columns, "rows": rows, "note": note if rows else "None."}


def number(x: object, say: Callable[[Any], str]) -> Cell:
    """A cell that sorts as a number; what is none, such as an expression, is "?" and sorts last."""
    return (x, say(x)) if isinstance(x, int | float) else (None, say(None))


def share(seconds: float | None, whole: float | None) -> Cell:
    """A cell with a part of the time, from 0 to 1."""
    return (seconds / whole, units.percent(seconds, whole)) if seconds is not None and whole else (None, "–")


def render(drawn: chart.Chart, subtitle: str, facts: Sequence[tuple[str, str]], sections: Sequence[Part]) -> bytes:
    """The page: title, facts as names and sentences, the roofline, and the tables."""
    title = units.shorten(drawn.title, NAME)
    data = {"title": title, "subtitle": subtitle, "facts": facts, "chart": _drawn(drawn), "sections": sections}
    script, style = _file("page.js"), _file("page.css")
    parts = {
        "title": html.escape(f"{title} · onnxfuse"),
        "style": style,
        "script": script,
        "style_hash": _hash(style),
        "script_hash": _hash(script),
        "data": _embedded(data),
    }
    pieces = _file("page.html").split("@")  # text, name, text, name, … text
    pieces[1::2] = [parts[name] for name in pieces[1::2]]
    return "".join(pieces).encode()


def _drawn(drawn: chart.Chart) -> Part:
    """The chart as data of the page, with every text that it shows."""
    dots = [
        {
            "legend": chart.legend(d.kind),
            "intensity": d.intensity,
            "rate": d.rate,
            "seconds": d.seconds,
            "text": f"{units.shorten(d.name, NAME)}\n{d.kind}, {units.time(d.seconds)}\n"
            f"{units.digits(d.intensity)} FLOP/byte, {units.count(d.rate, 'FLOP/s')}",
        }
        for d in drawn.dots
    ]
    arrows = [asdict(a) | {"text": f"{units.shorten(a.name, NAME)}\n{_move(a)}"} for a in drawn.arrows]
    said = "A dot is a node, its area the time, its height the FLOP/s reached in it under the model."
    return {
        "limits": drawn.limits(),
        "slopes": [
            {"rate": rate, "text": f"{name} {units.count(rate, 'B/s')}"}
            for name, rate in {"memory": drawn.bandwidth, "cache": drawn.cache}.items()
            if rate is not None
        ],
        "ridge": drawn.ridge,
        "ridge_text": f"ridge point, fp32: {units.digits(drawn.ridge)} FLOP/byte",
        "ceilings": [{"rate": c.rate, "text": f"{c.name}  {units.count(c.rate, 'FLOP/s')}"} for c in drawn.ceilings],
        "dots": dots,
        "arrows": arrows,
        "arrows_text": f"{len(arrows)} arrows: apart → fused",
        "colours": chart.COLOURS,
        "other": chart.OTHER,
        "legend": [(kind, f"{kind} {units.time(spent)}") for kind, spent in drawn.spent().items()],
        "note": " ".join(f"{part[0].upper()}{part[1:]}." for part in (said[:-1], *drawn.notes)),
    }


def _move(arrow: chart.Arrow) -> str:
    (x0, y0), (x1, y1) = arrow.before, arrow.after
    rates = f"{units.count(y0, 'FLOP/s')} → {units.count(y1, 'FLOP/s')}"
    return f"{units.digits(x0)} → {units.digits(x1)} FLOP/byte, {rates}"


def _embedded(data: Part) -> str:
    """JSON that may stand inside a script element: no character of it can end the element or open another."""
    said = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return said.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text("utf-8")


def _hash(source: str) -> str:
    """A source expression of Content Security Policy level 2 for an inline script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"
