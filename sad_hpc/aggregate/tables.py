"""Tables of text: Markdown, and columns aligned for a terminal."""

from collections.abc import Sequence

NOT_COMPUTED = "–"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; stars, bars and line breaks in cells are escaped: DPT* stays DPT*."""
    lines = [header, ["---"] * len(header), *rows]
    escaped = [[_escape(cell) for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in escaped)


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|").replace("*", "\\*").replace("\n", "<br>")


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the others to the right, a rule below the header."""
    lines = [header, *rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    ruled = [header, ["-" * width for width in widths], *rows]
    text = ""
    for first, *others in ruled:
        numbers = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        text += "  ".join([first.ljust(widths[0]), *numbers]) + "\n"
    return text
