"""report.html: every experiment's numbers, images and origin on one self-contained page."""

import base64
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader

from sad_hpc.aggregate.comparison import comparison
from sad_hpc.aggregate.comparison_files import (
    PERCENT_HEADER,
    PERCENT_TEXT,
    VALUES_HEADER,
    VALUES_TEXT,
    percent_cells,
    value_cells,
)
from sad_hpc.aggregate.finished import Finished
from sad_hpc.aggregate.origin import describe_stages
from sad_hpc.aggregate.paper import family_name
from sad_hpc.aggregate.summary import headline_cells
from sad_hpc.evaluate.result import MODES
from sad_hpc.storage.files import atomic_path

IMAGES = {
    "offline.png": "Offline evaluation",
    "online.png": "Online evaluation",
    "training.png": "Pretraining: loss and label accuracy on held-out training tasks",
}
STAGE_HEADER = ("stage", "commit", "machine", "versions")


def write_page(path: Path, experiments: Sequence[Finished], notes: Sequence[str]) -> None:
    """Writes the page.

    Args:
        path: of the page.
        experiments: whose folders are below the page's.
        notes: sentences about missing numbers.

    Raises:
        SadError: one has no config.yaml of its own, or the page cannot be written.
    """
    summaries = [one.summary for one in experiments]
    tables = {mode: comparison(summaries, mode) for mode in MODES}
    loader = PackageLoader("sad_hpc.aggregate", "templates")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True)
    page = environment.get_template("report.html.jinja").render(
        values={mode: value_cells(table) for mode, table in tables.items()},
        values_header=VALUES_HEADER,
        values_text=VALUES_TEXT,
        percent={mode: percent_cells(table) for mode, table in tables.items()},
        percent_header=PERCENT_HEADER,
        percent_text=PERCENT_TEXT,
        experiments=[_experiment(one, path.parent) for one in experiments],
        notes=notes,
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace")  # names that are no UTF-8


def _experiment(one: Finished, results: Path) -> dict[str, Any]:
    folder, provenance = one.folder, one.provenance
    header, rows = headline_cells(one.summary)
    files = [folder / "summary.h5", *sorted((folder / "evaluations").glob("*.h5"))]
    own = [file for file in files if one.has(str(file.relative_to(folder)))]
    return {
        "name": one.name,
        "family": family_name(one.family),
        "header": header,
        "rows": rows,
        "images": [
            {"title": title, "data": base64.b64encode(one.content(name)).decode()}
            for name, title in IMAGES.items()
            if one.has(name)
        ],
        "files": [{"name": file.name, "link": _link(file, results)} for file in own],
        "command": " ".join(provenance["command"]),
        "dataset": provenance["dataset_signature"],
        "seeds": ", ".join(map(str, provenance["seeds"])),
        "stage_header": STAGE_HEADER,
        "stages": describe_stages(provenance),
        "config": one.content("config.yaml").decode(errors="replace"),
    }


def _link(file: Path, results: Path) -> str:
    """The address of a file from the page, whatever its folder's name means in addresses."""
    return quote(os.fsencode(file.relative_to(results)))
