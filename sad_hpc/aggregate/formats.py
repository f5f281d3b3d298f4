"""Writers of tables and pages: plain text, Markdown, LaTeX, CSV, and the templates.

Each writer escapes text for its format, so that names are shown unchanged and never executed.
"""

import html
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader

from sad_hpc.storage.files import atomic_path

if TYPE_CHECKING:  # importing pandas takes a second
    import pandas as pd

NOT_COMPUTED = "–"

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Header and lines."""

MARKUP = re.compile(r"[\\`*_\[\]|~$]")
"""Inline markup of CommonMark, GitHub and Python-Markdown, besides HTML."""

SPECIAL = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "#": r"\#",
        "%": r"\%",
        "_": r"\_",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "`": r"\textasciigrave{}",
        "*": "$^*$",
        "±": r"$\pm$",
        "\n": " ",
    }
)
"""Characters that LaTeX does not print as they are."""
LATEX_TABLE = r"""\begin{table}[ht]
\centering
\caption{%s}
\label{%s}
\begin{tabular}{%s}
\hline\hline
%s
\hline
%s
\hline\hline
\end{tabular}
\end{table}
"""
RULE = r"\hline"

DANGEROUS = re.compile(r"(?:\A|(?<=[;\t\r\n]))(?='*[=+\-@\t\r＝＋－＠])")
"""Beginnings of cells that a spreadsheet in any language takes for a formula.  A spreadsheet may
separate cells at other characters than the comma."""
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.I)


def shown_safely(text: str) -> str:
    """Return text with control characters replaced, except line breaks."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an aligned table: the first column to the left, the others to the right."""
    lines = [[shown_safely(cell) for cell in line] for line in (header, *rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    text = ""
    for first, *others in lines:
        numbers = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        text += "  ".join([first.ljust(widths[0]), *numbers]) + "\n"
    return text


class Markdown(str):
    """Text in Markdown, which is not escaped again."""


def markdown(value: object) -> Markdown:
    """Return text escaped for a line of Markdown, with HTML shown as text."""
    if isinstance(value, Markdown):
        return value
    shown = MARKUP.sub(r"\\\g<0>", html.escape(shown_safely(str(value)), quote=False))
    return Markdown(shown.replace("\n", "<br>"))


def code(text: str) -> Markdown:
    """Return text as a code span, between more backticks than it has in a row."""
    line = " ".join(shown_safely(text).split())
    fence = "`" * (_longest_row_of_backticks(line) + 1)
    space = " " if "`" in line or not line else ""
    return Markdown(f"{fence}{space}{line}{space}{fence}")


def code_block(text: str, language: str = "") -> Markdown:
    """Return lines as a fenced block of code."""
    fence = "`" * max(3, _longest_row_of_backticks(text) + 1)
    return Markdown(f"{fence}{language}\n{shown_safely(text).rstrip()}\n{fence}")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Markdown:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return Markdown("".join(f"| {' | '.join(map(markdown, line))} |\n" for line in lines))


def _longest_row_of_backticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


class Latex(str):
    """Text in LaTeX, which is not escaped again."""


def latex(text: str) -> Latex:
    """Return text escaped for LaTeX; numbers with % or ∞ become formulas."""
    if isinstance(text, Latex):
        return text
    shown = shown_safely(text).translate(SPECIAL)
    shown = re.sub(r"(-?\d+(?:\.\d)?) \\%", r"$\1\\%$", shown)
    shown = re.sub(r"(-?)∞", r"$\1\\infty$", shown)
    return Latex(shown.replace(NOT_COMPUTED, "--"))


def latex_line(cells: Iterable[str]) -> Latex:
    """Return a line of a table."""
    line = r" & ".join(map(latex, cells))
    # A bracket at the start would be read as the optional argument of the previous line break.
    return Latex(("{}" if line.startswith("[") else "") + line + r" \\")


def latex_table(
    caption: str, label: str, columns: str, header: Iterable[str], lines: Sequence[str]
) -> Latex:
    """Return a table environment.

    Args:
        caption: the caption.
        label: the label for references.
        columns: alignments, such as `ll|r`.
        header: cells of the header.
        lines: lines of the body, from `latex_line` or RULE.
    """
    body = "\n".join(lines)
    return Latex(LATEX_TABLE % (latex(caption), label, columns, latex_line(header), body))


def guard(value: Any) -> Any:
    """Return text with an apostrophe before formulas, and other values unchanged.

    A spreadsheet then shows the text, as OWASP advises:
    https://owasp.org/www-community/attacks/CSV_Injection
    """
    if not isinstance(value, str) or NUMBER.fullmatch(value):
        return value
    return DANGEROUS.sub("'", value)


def csv_text(table: "pd.DataFrame") -> str:
    """Return a table as CSV, safe to open in a spreadsheet; see `guard`."""
    text: str = table.map(guard).rename(columns=guard).to_csv(index=False)
    return text


def write_csv(path: Path, table: "pd.DataFrame") -> None:
    """Write a table as CSV atomically; see `csv_text`."""
    with atomic_path(path) as temporary:
        temporary.write_text(csv_text(table), encoding="utf-8")


def write_page(path: Path, template: str, **values: Any) -> None:
    """Fill in a file of templates/ atomically; values are escaped for HTML or Markdown."""
    is_html = ".html" in template
    environment = Environment(
        loader=PackageLoader("sad_hpc.aggregate"),
        autoescape=is_html,
        finalize=None if is_html else markdown,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"code": code, "code_block": code_block, "as_markdown": Markdown}
    page = environment.get_template(template).render(values)
    with atomic_path(path) as temporary:
        # File names may be any bytes.
        temporary.write_text(page, encoding="utf-8", errors="replace")
