"""Tables and lines rendered to a string by rich, the same on every machine and terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnxfuse.report.units import printable, shorten_apart

if TYPE_CHECKING:
    from rich.console import RenderableType

    Part = str | RenderableType

MIN_WIDTH = 60  # narrower terminals get this width and wrap by themselves
GAP = 2  # blanks between columns
FLOOR = 12  # a column that gives way keeps this much

STYLES = {"memory": "yellow", "compute": "green", "overhead": "magenta", "yes": "green", "no": "red"}


@dataclass(frozen=True, slots=True)
class Column:
    """A table column. Numbers are right-aligned and never cut.

    cut: the column gives way when the table is too wide, its cells cut where they are alike; wrap: they wrap instead.
    limit: the most characters the column takes.
    """

    title: str
    right: bool = False
    cut: bool = False
    wrap: bool = False
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class Cell:
    """A text with a style of `STYLES` or of rich."""

    text: str
    style: str = ""


Line = list[str | Cell]


def render(parts: Iterable[Part], width: int, colour: bool) -> str:
    """Lines and tables as one string without trailing blanks or newline; colour codes only if asked for."""
    from rich.console import Console  # rich takes 50 ms to import, which --json and --help need not pay

    out = io.StringIO()
    console = Console(
        file=out,
        width=max(width, MIN_WIDTH),
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        _environ={},  # NO_COLOR and the like are the caller's business
    )
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def table(columns: Sequence[Column], rows: Sequence[Line], width: int) -> RenderableType:
    """A table of at most `width` characters; the widest of the columns that give way gives way first."""
    from rich.table import Table
    from rich.text import Text

    cells = [[c if isinstance(c, Cell) else Cell(c) for c in row] for row in rows]
    widths = [
        min(max([len(column.title), *(len(row[i].text) for row in cells)]), column.limit)
        for i, column in enumerate(columns)
    ]
    flexible = [i for i, column in enumerate(columns) if column.cut or column.wrap]
    for _ in range(sum(widths) + GAP * (len(columns) - 1) - max(width, MIN_WIDTH)):
        widest = max(flexible, key=lambda i: widths[i], default=None)
        if widest is None or widths[widest] <= FLOOR:
            break
        widths[widest] -= 1
    drawn = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold")
    for column, w in zip(columns, widths, strict=True):
        drawn.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=not column.wrap,
            width=w if column.wrap else None,
        )
    shown = []
    for i, (column, w) in enumerate(zip(columns, widths, strict=True)):
        texts = [row[i].text for row in cells]
        shown.append(list(map(printable, texts)) if column.wrap else shorten_apart(texts, w))
    for row, *texts in zip(cells, *shown, strict=True):
        styles = [STYLES.get(cell.style, cell.style) for cell in row]
        drawn.add_row(*[Text(text, style) for text, style in zip(texts, styles, strict=True)])
    return drawn


def pairs(rows: Sequence[tuple[str, str]], width: int) -> RenderableType:
    """A list of names and what is said of them, without a heading; long sentences wrap beside the name."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_header=False, width=max(width, MIN_WIDTH))
    drawn.add_column(no_wrap=True)
    drawn.add_column(ratio=1)
    for name, said in rows:
        drawn.add_row(Text(name, "bold"), Text(printable(said)))
    return drawn


def title(text: str) -> RenderableType:
    """A heading line."""
    from rich.text import Text

    return Text(printable(text), "bold")
