"""Tables as text: Markdown, CSV, and columns aligned for a terminal."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from sad_hpc.storage.files import atomic_path

NOT_COMPUTED = "–"

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Header and rows."""


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; stars, bars and line breaks in cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    escaped = [[_escape(cell) for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("*", "\\*").replace("\n", "<br>")


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return the first column aligned to the left, the others to the right, below a rule."""
    lines = [header, *rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    ruled = [header, ["-" * width for width in widths], *rows]
    text = ""
    for first, *others in ruled:
        numbers = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        text += "  ".join([first.ljust(widths[0]), *numbers]) + "\n"
    return text


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV in one step."""
    with atomic_path(path) as temporary:
        table.to_csv(temporary, index=False)
