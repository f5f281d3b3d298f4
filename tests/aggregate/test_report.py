"""Pages of all experiments, also in a real browser; numbers in documents; results as a table."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sad_hpc import results
from sad_hpc.aggregate.all_results import AllResults
from sad_hpc.aggregate.comparison import better_by, improvement
from sad_hpc.aggregate.documents import fill, filled
from sad_hpc.aggregate.report import comparison_tables, overview
from sad_hpc.aggregate.stage import aggregate
from sad_hpc.aggregate.stale import stale_pages
from sad_hpc.cli import main
from sad_hpc.errors import UserError
from tests.conftest import ROOT, committed
from tests.patience import HUNG

from .synthetic import fill as fill_run
from .synthetic import level, make_run, write_result

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def add_experiment(folder: Path, name: str, missing=()) -> Path:
    run = make_run(folder, name=name, question="How good is it?")
    fill_run(run, skip=missing)
    return aggregate(run, folder / "results", allow_missing=bool(missing))


def add_bandit(folder: Path) -> Path:
    """SAD loses 0.1 a pull, DPT 0.4, over 2 seeds and 5 pulls."""
    run = make_run(folder, rows=["SAD", "DPT"], seeds=(0, 1), name="gaussian_bandit")
    for method, seed in run.experiment.elements:
        lost = np.full((8, 5), {"SAD": 0.1, "DPT": 0.4}[method])
        write_result(
            run,
            method,
            seed,
            {"values": lost, "metric": "suboptimality", "axis": "context length"},
            {"values": lost.cumsum(axis=1), "metric": "regret", "axis": "pull"},
            family="gaussian_bandit",
        )
    return aggregate(run, folder / "results")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Darkroom, of which one seed is missing, and a bandit."""
    folder = tmp_path_factory.mktemp("two families")
    add_experiment(folder, "darkroom", missing=[("DPT", 2)])
    add_bandit(folder)
    overview(AllResults(folder / "results"))
    return folder / "results"


def test_each_family_has_its_row_from_its_own_experiment(two: Path):
    table = comparison_tables(AllResults(two).found)["offline"].set_index(["environment", "row"])
    better = table[better_by("SAD")]
    assert better["Gaussian Bandits", "DPT"] == pytest.approx(300)
    sad, oracle = (np.mean([level(name, seed) for seed in range(3)]) for name in ("SAD", "DPT*"))
    assert better["Darkroom", "DPT*"] == pytest.approx(improvement("return", sad, oracle))
    assert better["Average", "DPT*"] == better["Darkroom", "DPT*"]
    assert table["at_chance"]["Darkroom", "DPT"]  # 2 and 3 of 44.5: two seeds do not tell
    assert better["Average", "DPT"] == pytest.approx(300)
    assert np.isnan(better["Miniworld", "DPT"])


def test_a_missing_seed_is_named_in_tables_and_page(two: Path):
    for name in ("README.md", "report.html", "darkroom/README.md"):
        text = (two / name).read_text()
        assert "INCOMPLETE" in text and "DPT seed 2" in text


def test_the_experiment_named_after_the_family_stands_beside_the_papers(
    made: Path, tmp_path: Path, unrendered: None
):
    results_folder = tmp_path / "results"
    for name in ("a_trial", "darkroom", "quickstart"):
        shutil.copytree(made, results_folder / name)
    everything = AllResults(results_folder)
    assert [one.name for one in everything.found] == ["a_trial", "darkroom", "quickstart"]
    assert [one.name for one in everything.beside_the_paper] == ["darkroom"]
    page = overview(everything).read_text()
    assert page.count('<h2 id="') == 3
    (results_folder / "paper").mkdir()
    shutil.move(results_folder / "quickstart", results_folder / "paper")
    assert [one.name for one in AllResults(results_folder).beside_the_paper] == ["quickstart"]


def test_the_index_names_every_experiment_and_its_question(two: Path):
    index = (two / "README.md").read_text()
    assert "| [darkroom](darkroom/README.md) | Darkroom | How good is it? | 0, 1, 2 |" in index
    assert r"[gaussian\_bandit](gaussian_bandit/README.md) | Gaussian Bandits | – | 0, 1 |" in index


def test_what_an_experiment_says_cannot_become_html(made: Path, tmp_path: Path, unrendered: None):
    folder = Path(shutil.copytree(made, tmp_path / "results/darkroom"))
    origin = json.loads((folder / "provenance.json").read_text())
    origin["command"] = ["sad-hpc", "<script>alert(1)</script>"]
    (folder / "provenance.json").write_text(json.dumps(origin))
    page = overview(AllResults(tmp_path / "results")).read_text()
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page


def test_an_empty_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["report", "--results", str(tmp_path)]) == 1
    assert "no finished experiment" in capsys.readouterr().err


def shown_by_a_browser(page: Path, tmp_path: Path, width: int = 1000) -> dict[str, Any]:
    """Images (decoded or not), links, rows and width of a page after layout."""
    if CHROMIUM is None and os.environ.get("SAD_HPC_REQUIRE_BROWSER") != "1":
        pytest.skip("no Chromium on the PATH")
    probe = tmp_path / "probe.html"
    script = """<script>window.onload = () => {
      const images = [...document.images].map(i => i.complete && i.naturalWidth > 100);
      const links = [...document.querySelectorAll('a')].map(a => a.getAttribute('href'));
      const rows = document.querySelectorAll('tbody tr').length;
      const wide = document.documentElement.scrollWidth <= window.innerWidth;
      document.body.innerHTML = JSON.stringify({images, links, rows, wide});
    }</script>"""
    text = page.read_text().replace(' loading="lazy"', "").replace("</body>", script + "</body>")
    probe.write_text(text.replace("<head>", f'<head><base href="{page.as_uri()}">'))
    shown = subprocess.run(
        [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}",
            f"--window-size={width},800", "--virtual-time-budget=5000", "--dump-dom",
            probe.as_uri(),
        ],
        capture_output=True, text=True, timeout=HUNG, check=True,
    ).stdout  # fmt: skip
    return json.loads(shown[shown.index("<body>") + 6 : shown.index("</body>")])


@pytest.mark.parametrize("width", [400, 1000])
def test_a_browser_shows_the_page(two: Path, tmp_path: Path, width: int):
    found = shown_by_a_browser(two / "report.html", tmp_path, width)
    pictures = sorted(two.glob("*/*.png"))
    # Every picture is shown in its section, and that of the online returns at the top as well.
    assert found["images"] == [True] * (len(pictures) + 2) and len(pictures) == 6
    files = [link for link in found["links"] if not link.startswith("#")]
    assert sorted(files) == ["darkroom/results.h5", "gaussian_bandit/results.h5"]
    assert {link[1:] for link in found["links"] if link.startswith("#")} == {
        "darkroom", "gaussian_bandit",
    }  # fmt: skip
    assert found["rows"] > 12 + 5
    assert found["wide"], "the page scrolls sideways"


def test_a_browser_shows_the_committed_page(tmp_path: Path):
    folder = ROOT / "results"
    names = committed("results/**/results.h5")
    found = shown_by_a_browser(folder / "report.html", tmp_path)
    assert len(found["images"]) >= 2 * len(names) and all(found["images"])
    files = [link for link in found["links"] if not link.startswith("#")]
    assert {folder / link for link in files} == set(names)
    assert found["wide"], "the page scrolls sideways"


def test_load_gives_every_value_with_its_place(two: Path):
    table = results.load(two / "gaussian_bandit")
    assert len(table) == 2 * 2 * 2 * 8 * 5
    online = table[(table["mode"] == "online") & (table["row"] == "DPT")]
    assert np.allclose(online["value"], 0.4 * online["step"])
    assert set(table["metric"]) == {"suboptimality", "regret"}
    assert table["context_rewards"].isna().all()


def test_load_agrees_with_the_summary(two: Path):
    table = results.load(two / "darkroom")
    headline = table[(table["mode"] == "offline") & (table["row"] == "SAD")]
    summary = pd.read_csv(two / "darkroom/summary.csv")
    for subset, chosen in (
        ("all", headline),
        ("reward_seen", headline.query("context_rewards > 0")),
    ):
        row = summary.query(f"row == 'SAD' and mode == 'offline' and subset == '{subset}'")
        assert chosen.groupby("seed")["value"].mean().mean() == pytest.approx(row["mean"].item())


def test_load_reads_one_file_and_names_an_empty_folder(two: Path, tmp_path: Path):
    one = results.load(two / "darkroom/results.h5")
    assert one.equals(results.load(two / "darkroom"))
    with pytest.raises(UserError, match="results/darkroom"):
        results.load(tmp_path)


@pytest.fixture
def documented(finished: Path) -> AllResults:
    return AllResults(finished / "results")


def test_a_number_and_a_table_are_written_between_their_marks(
    documented: AllResults, tmp_path: Path
):
    document = tmp_path / "page.md"
    document.write_text(
        "It is <!-- report: value synthetic SAD online -->1<!-- end -->, of "
        "<!-- report: value synthetic SAD offline reward_seen --><!-- end -->.\n\n"
        "<!-- report: online synthetic -->\nold\n<!-- end -->\n\n"
        "<!-- report: claim synthetic SAD DPT online --><!-- end -->\n\nLast line.\n"
    )
    fill(document, documented)
    text = document.read_text()
    assert text.startswith("It is <!-- report: value synthetic SAD online -->25.00<!-- end -->, of")
    assert "reward_seen -->27.00<!-- end -->" in text and "old" not in text
    line = "| Darkroom | return ↑ | 25.00 ± 1.00 | – | 3.00 ± 1.00 (DPT) | 33.00 ± 1.00 (DPT\\*)"
    assert line in text and text.endswith("<!-- end -->\n\nLast line.\n")
    claim = "+22.00 (95 % interval +22.00 to +22.00, corrected p = 0)"
    assert f"SAD DPT online -->{claim}<!-- end -->" in text
    assert filled(text, documented) == text


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (
            "valeu synthetic SAD online",
            "unknown block 'valeu'; valid: online, headline, sizes, value, claim",
        ),
        ("claim synthetic SAD BC online", "does not compare 'SAD' with 'BC'"),
        ("value synthetic BC online", "has no online value of 'BC'"),
        ("online elsewhere", "is missing"),
        ("value synthetic SAD", "the text: block 'value synthetic SAD': not enough values"),
        ("value synthetic 'SAD online", "No closing quotation"),
        ("claim synthetic SAD DPT nowhere", "has no claims of 'nowhere'"),
        ("", "unknown block ''"),
    ],
)
def test_a_block_that_cannot_be_filled_is_one_line(documented: AllResults, block: str, said: str):
    with pytest.raises(UserError, match=said) as caught:
        filled(f"<!-- report: {block} --><!-- end -->", documented)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_committed_pages_and_documents_follow_from_the_committed_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Pictures depend on the version of matplotlib, texts on nothing but results.h5."""
    documents = [
        path
        for path in (*committed("*.md"), *committed("docs/*.md"))
        if "<!-- report: " in path.read_text(encoding="utf-8")
    ]
    assert {path.name for path in documents} >= {"README.md", "results.md"}
    monkeypatch.chdir(tmp_path)
    for path in committed("results/**/results.h5"):
        folder = path.parent.relative_to(ROOT)
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for page in ("README.md", "report.html"):
        shutil.copy(ROOT / "results" / page, tmp_path / "results" / page)
    assert stale_pages(Path("results"), documents) == []


def test_a_check_names_pages_that_do_not_follow(
    documented: AllResults, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder, document = tmp_path / "results", tmp_path / "page.md"
    shutil.copytree(documented.folder, folder)
    document.write_text("<!-- report: value synthetic SAD online -->1<!-- end -->\n")
    overview(AllResults(folder))
    fill(document, AllResults(folder))
    checked = ["report", "--results", str(folder), "--check", "--fill", str(document)]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert main(checked) == 0
    for page in ("synthetic/summary.csv", "synthetic/README.md", "report.html"):
        (folder / page).write_text((folder / page).read_text().replace("25.00", "26.00") + "x")
    document.write_text(document.read_text().replace("25.00", "26.00"))
    assert main(checked) == 1
    named = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()[1:]]
    stale = ["synthetic/README.md", "synthetic/summary.csv", "report.html"]
    assert named == [*(str(folder / page) for page in stale), str(document)]
    assert before.keys() == {path for path in tmp_path.rglob("*") if path.is_file()}
