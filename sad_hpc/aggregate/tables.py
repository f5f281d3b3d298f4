"""Tables of text for a terminal."""

from collections.abc import Sequence

NOT_COMPUTED = "–"

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Header and lines."""


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an aligned table: the first column to the left, the others to the right."""
    lines = [[printable(cell) for cell in line] for line in (header, *rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    text = ""
    for first, *others in lines:
        numbers = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        text += "  ".join([first.ljust(widths[0]), *numbers]) + "\n"
    return text


def printable(text: str) -> str:
    """Return text with control characters replaced, except line breaks."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
