"""CSV tables that are safe to open in a spreadsheet.

Text that a spreadsheet would take for a formula gets an apostrophe in front, as OWASP advises, and
the reader removes it: https://owasp.org/www-community/attacks/CSV_Injection
"""

import io
import re
from pathlib import Path
from typing import Any

import pandas as pd

from sad_hpc.storage.files import atomic_path

FORMULA = r"[=+\-@\t\r＝＋－＠]"
"""First characters of formulas, in any language version of a spreadsheet."""
CELL_START = r"(?:\A|(?<=[;\t\r\n]))"
"""Beginnings of cells; a spreadsheet may separate cells at other characters than the comma."""
DANGEROUS = re.compile(rf"{CELL_START}(?='*{FORMULA})")
GUARDED = re.compile(rf"{CELL_START}'(?='*{FORMULA})")


def csv_text(table: pd.DataFrame) -> str:
    """Return a table as CSV."""
    text: str = table.map(guard).rename(columns=guard).to_csv(index=False)
    return text


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(csv_text(table), encoding="utf-8")


def read_records(content: bytes) -> list[dict[str, Any]]:
    """Return the rows in the bytes of a file of `write_table`, by column.

    Raises:
        ValueError: the content is not CSV.
    """
    table = pd.read_csv(io.BytesIO(content)).map(unguard).rename(columns=unguard)
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def guard(value: Any) -> Any:
    """Return text with an apostrophe before formulas, and other values unchanged."""
    return DANGEROUS.sub("'", value) if isinstance(value, str) and not _is_number(value) else value


def unguard(value: Any) -> Any:
    """Return the original value of a result of `guard`."""
    return GUARDED.sub("", value) if isinstance(value, str) else value


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", text, re.ASCII | re.I) is not None
