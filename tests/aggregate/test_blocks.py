"""Tables and numbers in documents are those of the result files."""

import os
import shutil
from pathlib import Path

import pytest

from sad_hpc.aggregate.blocks import fill, filled
from sad_hpc.aggregate.overview import overview
from sad_hpc.aggregate.readme import render
from sad_hpc.aggregate.stage import aggregate
from sad_hpc.errors import UserError
from tests.conftest import ROOT, committed

from .synthetic import fill as fill_run
from .synthetic import make_run


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    run = make_run(folder)
    fill_run(run)
    return aggregate(run, folder / "results").parent


def test_a_number_and_a_table_are_written_between_their_marks(results: Path, tmp_path: Path):
    document = tmp_path / "page.md"
    document.write_text(
        "It is <!-- report: value synthetic SAD online -->1<!-- end -->, of "
        "<!-- report: value synthetic SAD offline reward_seen --><!-- end -->.\n\n"
        "<!-- report: online synthetic -->\nold\n<!-- end -->\n\nLast line.\n"
    )
    fill(document, results)
    text = document.read_text()
    assert text.startswith("It is <!-- report: value synthetic SAD online -->25.00<!-- end -->, of")
    assert "reward_seen -->27.00<!-- end -->" in text and "old" not in text
    line = "| Darkroom | return ↑ | 25.00 ± 1.00 | – | 3.00 ± 1.00 (DPT) | 33.00 ± 1.00 (DPT\\*)"
    assert line in text and text.endswith("<!-- end -->\n\nLast line.\n")
    assert filled(text, results) == text


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("valeu synthetic SAD online", "unknown block 'valeu'; valid: online, headline, value"),
        ("value synthetic BC online", "has no online value of 'BC'"),
        ("online elsewhere", "is missing"),
    ],
)
def test_a_block_that_cannot_be_filled_is_one_line(results: Path, block: str, said: str):
    with pytest.raises(UserError, match=said) as caught:
        filled(f"<!-- report: {block} --><!-- end -->", results)
    assert "\n" not in str(caught.value)


def test_documents_have_the_numbers_of_the_committed_results():
    documents = [*committed("*.md"), *committed("docs/*.md")]
    marked = [path for path in documents if "<!-- report: " in path.read_text(encoding="utf-8")]
    assert {path.name for path in marked} >= {"README.md", "results.md"}
    for path in marked:
        text = path.read_text(encoding="utf-8")
        assert filled(text, ROOT / "results", path.name) == text, f"sad-hpc report --fill {path}"


@pytest.mark.slow
def test_committed_pages_follow_from_the_committed_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Pictures depend on the version of matplotlib, texts on nothing but results.h5."""
    monkeypatch.chdir(tmp_path)
    for path in committed("results/**/results.h5"):
        folder = path.parent.relative_to(ROOT)
        shutil.copytree(path.parent, tmp_path / folder)
        os.remove(tmp_path / folder / "README.md")
        render(tmp_path / folder, tmp_path / folder)
        for name in ("README.md", "summary.csv"):
            assert (tmp_path / folder / name).read_text() == (path.parent / name).read_text()
    overview(tmp_path / "results")
    for name in ("README.md", "report.html"):
        assert (tmp_path / "results" / name).read_text() == (ROOT / "results" / name).read_text()
