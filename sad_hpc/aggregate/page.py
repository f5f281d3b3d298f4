"""report.html: every experiment's numbers, pictures and origin on one self-contained page."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader

from sad_hpc.aggregate.compare import comparisons, contenders
from sad_hpc.aggregate.compare_pages import comparison_cells, comparison_header
from sad_hpc.aggregate.means import chance_notes, means_cells, means_header
from sad_hpc.aggregate.origin import describe_stages
from sad_hpc.aggregate.paper import family_name
from sad_hpc.aggregate.report import missing_notes
from sad_hpc.aggregate.summary import headline_cells
from sad_hpc.evaluate.result import MODES
from sad_hpc.files import atomic_path

PICTURES = {
    "offline.png": "Offline evaluation",
    "online.png": "Online evaluation",
    "training.png": "Pretraining: loss and label accuracy on held-out training tasks",
}
STAGE_HEADER = ("stage", "commit", "machine", "versions")


@dataclass(frozen=True)
class Finished:
    """The results folder of one experiment."""

    folder: Path
    family: str
    summary: pd.DataFrame
    provenance: dict[str, Any]

    @property
    def notes(self) -> list[str]:
        """What its numbers lack, as sentences that name it."""
        missing = self.provenance["missing"]
        return [f"{self.folder.name}: {note}" for note in missing_notes(missing)]


def write_page(path: Path, experiments: Sequence[Finished], notes: Sequence[str]) -> None:
    """Writes the page.

    Args:
        path: of the page.
        experiments: whose folders are below the page's.
        notes: sentences about missing numbers.
    """
    summaries = [one.summary for one in experiments]
    loader = PackageLoader("sad_hpc.aggregate", "templates")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True)
    page = environment.get_template("report.html.jinja").render(
        comparisons=[_comparison(summaries, mode) for mode in MODES],
        experiments=[_experiment(one, path.parent) for one in experiments],
        notes=notes,
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _comparison(summaries: Sequence[pd.DataFrame], mode: str) -> dict[str, Any]:
    rows, names = comparison_cells(comparisons(summaries, mode)), contenders(summaries)
    return {
        "mode": mode,
        "header": comparison_header(),
        "rows": rows,
        "means_header": means_header(names),
        "means": means_cells(summaries, mode, names),
        "notes": chance_notes(summaries, mode),
    }


def _experiment(one: Finished, results: Path) -> dict[str, Any]:
    folder, provenance = one.folder, one.provenance
    header, rows = headline_cells(one.summary)
    files = [folder / "summary.h5", *sorted((folder / "evaluations").glob("*.h5"))]
    return {
        "name": folder.name,
        "family": family_name(one.family),
        "header": header,
        "rows": rows,
        "pictures": [
            {"title": title, "data": base64.b64encode((folder / name).read_bytes()).decode()}
            for name, title in PICTURES.items()
            if (folder / name).exists()
        ],
        "files": [{"name": file.name, "link": str(file.relative_to(results))} for file in files],
        "command": " ".join(provenance["command"]),
        "dataset": provenance["dataset_signature"],
        "seeds": ", ".join(map(str, provenance["seeds"])),
        "stage_header": STAGE_HEADER,
        "stages": describe_stages(provenance),
        "config": (folder / "config.yaml").read_text(encoding="utf-8"),
    }
