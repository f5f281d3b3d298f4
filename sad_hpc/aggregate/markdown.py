"""Markdown writer, which escapes all text that is not of type `Markdown`."""

import html
import re
from collections.abc import Sequence

from sad_hpc.aggregate.tables import printable

MARKUP = re.compile(r"[\\`*_\[\]|~$]")
"""Inline markup of CommonMark, GitHub and Python-Markdown, besides HTML."""


class Markdown(str):
    """Text in Markdown, which is not escaped again."""


def markdown(value: object) -> Markdown:
    """Return text escaped for a line of Markdown, with HTML shown as text."""
    if isinstance(value, Markdown):
        return value
    shown = MARKUP.sub(r"\\\g<0>", html.escape(printable(str(value)), quote=False))
    return Markdown(shown.replace("\n", "<br>"))


def code(text: str) -> Markdown:
    """Return text as a code span, between more backticks than it has in a row."""
    line = " ".join(printable(text).split())
    fence = "`" * (_longest_row_of_backticks(line) + 1)
    space = " " if "`" in line or not line else ""
    return Markdown(f"{fence}{space}{line}{space}{fence}")


def code_block(text: str, language: str = "") -> Markdown:
    """Return lines as a fenced block of code."""
    fence = "`" * max(3, _longest_row_of_backticks(text) + 1)
    return Markdown(f"{fence}{language}\n{printable(text).rstrip()}\n{fence}")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Markdown:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return Markdown("".join(f"| {' | '.join(map(markdown, line))} |\n" for line in lines))


def _longest_row_of_backticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
