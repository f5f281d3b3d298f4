"""LaTeX writer, which escapes all text that is not of type `Latex`."""

import re
from collections.abc import Iterable, Sequence

from sad_hpc.aggregate.tables import NOT_COMPUTED, printable

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
TABLE = r"""\begin{table}[ht]
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


class Latex(str):
    """Text in LaTeX, which is not escaped again."""


def latex(text: str) -> Latex:
    """Return text escaped for LaTeX; numbers with % or ∞ become formulas."""
    if isinstance(text, Latex):
        return text
    shown = printable(text).translate(SPECIAL)
    shown = re.sub(r"(-?\d+(?:\.\d)?) \\%", r"$\1\\%$", shown)
    shown = re.sub(r"(-?)∞", r"$\1\\infty$", shown)
    return Latex(shown.replace(NOT_COMPUTED, "--"))


def emphasized(text: str) -> Latex:
    """Return text in italics."""
    return Latex(rf"\emph{{{latex(text)}}}")


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
    return Latex(TABLE % (latex(caption), label, columns, latex_line(header), body))
