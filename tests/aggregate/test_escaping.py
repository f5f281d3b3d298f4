"""Escaping in Markdown, HTML, LaTeX and CSV: text is shown unchanged and never executed."""

import csv
import io
import math
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from sad_hpc.aggregate.all_results import AllResults
from sad_hpc.aggregate.formats import (
    code,
    code_block,
    guard,
    latex,
    latex_line,
    markdown,
    markdown_table,
    shown_safely,
    write_csv,
)
from sad_hpc.aggregate.readme import headline_table
from sad_hpc.aggregate.report import overview
from sad_hpc.aggregate.results_file import RESULTS, read_results, write_results
from sad_hpc.cli import main

RENDERER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
LAWS = settings(derandomize=True, deadline=None, max_examples=200, database=None)
PIECES = st.sampled_from(
    ["<b>", "</td>", "&lt;", "\\", "`", "``", "*", "_", "[x](y)", "![", "|", "~~", "$", "#", "\n",
     "{", "}", "%", "^", "~", "\\input{x}", "\\write18{y}", "é", "±", "∞", "-5.0 %", "a", " ", "–"]
)  # fmt: skip
TEXTS = st.lists(PIECES, min_size=1, max_size=8).map("".join)


class Shown(HTMLParser):
    """A reader that collects the texts and tags of a page of HTML."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.tags = "", set[str]()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.text += "\n" if tag == "br" else ""

    def handle_data(self, data: str) -> None:
        self.text += data


@LAWS
@given(TEXTS)
def test_markdown_shows_the_text_and_nothing_else(text: str) -> None:
    shown = Shown(RENDERER.renderInline(f"x{markdown(text)}x"))
    assert shown.tags <= {"br"}
    assert shown.text == f"x{text}x"


@LAWS
@given(TEXTS)
def test_code_is_one_span_or_one_block(text: str) -> None:
    span = Shown(RENDERER.render(f"before {code(text)} after"))
    assert span.tags == {"p", "code"}
    assert " ".join(span.text.split()) == " ".join(f"before {text} after".split())
    block = Shown(RENDERER.render(code_block(text, "yaml")))
    assert block.tags == {"pre", "code"} and block.text.rstrip() == text.rstrip()


@LAWS
@given(TEXTS, TEXTS)
def test_a_markdown_table_keeps_its_cells(first: str, second: str) -> None:
    page = RENDERER.render(markdown_table(["a", "b"], [[first, second]]))
    cells = [Shown(cell) for cell in re.findall(r"<td>(.*?)</td>", page, re.S)]
    assert [cell.text.strip() for cell in cells] == [first.strip(), second.strip()]
    assert all(cell.tags <= {"br"} for cell in cells)


COMMANDS = {
    r"\textbackslash{}": "\\", r"\{": "{", r"\}": "}", r"\$": "$", r"\&": "&", r"\#": "#",
    r"\%": "%", r"\_": "_", r"\textasciicircum{}": "^", r"\textasciitilde{}": "~",
    r"\textless{}": "<", r"\textgreater{}": ">", r"\textbar{}": "|", r"\textquotedbl{}": '"',
    r"\textasciigrave{}": "`", "$^*$": "*", r"$\pm$": "±", r"$\infty$": "∞", r"$-\infty$": "-∞",
    "--": "–",
}  # fmt: skip
PERCENT, PLAIN = r"\$-?\d+(?:\.\d)?\\%\$", r"[^\\{}$&#^_~%]"
TOKEN = re.compile("|".join([PERCENT, *map(re.escape, COMMANDS), PLAIN]))


@LAWS
@given(TEXTS)
def test_latex_prints_the_text_and_has_no_command_of_it(text: str) -> None:
    written = latex(text)
    tokens = TOKEN.findall(written)
    assert "".join(tokens) == written
    read = [COMMANDS.get(t) or re.sub(r"\$(.*)\\%\$", r"\1 %", t) for t in tokens]
    assert "".join(read) == text.replace("\n", " ")


def test_a_latex_line_hands_nothing_to_the_line_break_before() -> None:
    assert not latex_line(["[9cm]", "x"]).startswith(("[", "*"))
    assert not latex_line(["*", "x"]).startswith(("[", "*"))


CELLS = st.lists(
    st.sampled_from(["=", "+", "-", "@", "\t", ";", ",", "'", '"', "a", "=HYPERLINK(1)", "＝"]),
    min_size=1,
    max_size=6,
).map("".join)
FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝")


def unguarded(value: object) -> object:
    """The original of a value that `guard` returned."""
    if not isinstance(value, str):
        return value
    return re.sub(r"(?:\A|(?<=[;\t\r\n]))'(?='*[=+\-@\t\r＝])", "", value)


@LAWS
@given(CELLS)
def test_no_cell_of_csv_is_a_formula_and_all_are_read_back(text: str) -> None:
    assert unguarded(guard(text)) == text
    for separator in ";\t":
        assert not any(cell.startswith(FORMULA) for cell in guard(text).split(separator) if cell)


@LAWS
@given(st.floats(allow_nan=False) | st.integers())
def test_numbers_of_csv_stay_numbers(value: float) -> None:
    assert guard(value) is value
    if math.isfinite(value):
        assert guard(str(value)) == str(value)


def test_a_table_is_read_back_from_csv(tmp_path: Path) -> None:
    table = pd.DataFrame({"=name": ["=1+1", "SAD+", "-x", "a;=b"], "value": [-1.5, 2, 0, -1e-9]})
    write_csv(tmp_path / "t.csv", table)
    lines = list(csv.reader(io.StringIO((tmp_path / "t.csv").read_text())))
    assert [line[0] for line in lines] == ["'=name", "'=1+1", "SAD+", "'-x", "a;'=b"]
    found = pd.read_csv(tmp_path / "t.csv").map(unguarded).rename(columns=unguarded)
    assert found.equals(table)


@pytest.mark.parametrize(
    "family",
    [
        r"\input{/etc/passwd}\immediate\write18{touch x}",
        "=cmd|' /C calc'!A0",
        "@SUM(1)",
        "<script>alert(1)</script>\x1b]0;title\x07",
    ],
)
def test_a_strangers_names_run_nowhere(
    made: Path, tmp_path: Path, family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = Path(shutil.copytree(made, tmp_path / "results/theirs"))
    found = read_results(theirs / RESULTS)
    seeds = [replace(e, result=replace(e.result, task_family=family)) for e in found.seeds]
    names = {"title": family, "task_family": family, "experiment": family}
    write_results(theirs / RESULTS, replace(found, seeds=seeds, **names))
    page = overview(AllResults(theirs.parent)).read_text()
    assert "<script>" not in page
    for path in (theirs.parent / "README.md", theirs / "README.md"):
        assert "script" not in Shown(RENDERER.render(path.read_text())).tags
    texts = {}
    for option in ("--latex", "--csv"):
        assert main(["report", "--results", str(theirs.parent), option]) == 0
        texts[option] = capsys.readouterr().out
    assert r"\input" not in texts["--latex"] and r"\write18" not in texts["--latex"]
    assert r"\immediate" not in texts["--latex"]
    for text in (texts["--csv"], (theirs / "summary.csv").read_text()):
        firsts = [line[0] for line in csv.reader(io.StringIO(text)) if line]
        assert not [cell for cell in firsts if cell.startswith(("=", "@", "+", "-"))]
    text = headline_table(theirs)
    assert shown_safely(text) == text and "\x1b" not in text
