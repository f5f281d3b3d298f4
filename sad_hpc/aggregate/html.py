"""report.html: every experiment's numbers, images and origin on one self-contained page."""

import base64
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sad_hpc.aggregate.comparison import comparison
from sad_hpc.aggregate.comparison_cells import (
    ORACLE_HEADER,
    ORACLE_TEXT,
    PERCENT_HEADER,
    PERCENT_TEXT,
    VALUES_HEADER,
    VALUES_TEXT,
    oracle_cells,
    percent_cells,
    value_cells,
)
from sad_hpc.aggregate.origin import STAGE_HEADER, describe_stages
from sad_hpc.aggregate.pages import write_page
from sad_hpc.aggregate.paper import family_name
from sad_hpc.aggregate.results_folder import ResultsFolder
from sad_hpc.aggregate.summary import headline_cells
from sad_hpc.evaluate.result import MODES

IMAGES = {
    "offline.png": "Offline evaluation",
    "online.png": "Online evaluation",
    "diagnosis.png": "Online returns and what the contexts show",
    "training.png": "Pretraining: loss and label accuracy on held-out training tasks",
}


def write_report(path: Path, experiments: Sequence[ResultsFolder], notes: Sequence[str]) -> None:
    """Writes the page.

    Args:
        path: of the page.
        experiments: whose folders are below the page's.
        notes: sentences about missing numbers.

    Raises:
        SadError: one has no config.yaml of its own, or the page cannot be written.
    """
    summaries = [one.summary for one in experiments]
    seeds = [one.seeds for one in experiments]
    tables = {mode: comparison(summaries, mode, seeds) for mode in MODES}
    oracles = {mode: oracle_cells(table) for mode, table in tables.items()}
    write_page(
        path,
        "report.html.jinja",
        values_text=VALUES_TEXT,
        values={mode: (VALUES_HEADER, value_cells(table)) for mode, table in tables.items()},
        percent_text=PERCENT_TEXT,
        percent={mode: (PERCENT_HEADER, percent_cells(table)) for mode, table in tables.items()},
        oracle_text=ORACLE_TEXT,
        oracles={mode: (ORACLE_HEADER, cells) for mode, cells in oracles.items() if cells},
        experiments=[_experiment(one, path.parent) for one in experiments],
        notes=notes,
    )


def _experiment(one: ResultsFolder, results: Path) -> dict[str, Any]:
    folder = one.folder
    files = [folder / "summary.h5", *sorted((folder / "evaluations").glob("*.h5"))]
    own = [file for file in files if one.has(str(file.relative_to(folder)))]
    return {
        "name": one.name,
        "family": family_name(one.family),
        "headline": headline_cells(one.summary),
        "images": [
            {"title": title, "data": base64.b64encode(one.content(name)).decode()}
            for name, title in IMAGES.items()
            if one.has(name)
        ],
        "files": [{"name": file.name, "link": _link(file, results)} for file in own],
        "provenance": one.provenance,
        "stages": (STAGE_HEADER, describe_stages(one.provenance)),
        "config": one.content("config.yaml").decode(errors="replace"),
    }


def _link(file: Path, results: Path) -> str:
    """The address of a file from the page, whatever its folder's name means in addresses."""
    return quote(os.fsencode(file.relative_to(results)))
