"""report.html: every experiment's numbers, pictures and origin on one self-contained page."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader

from sad_hpc.aggregate.compare import comparison_cells, comparison_header
from sad_hpc.aggregate.origin import describe_stages
from sad_hpc.aggregate.paper import family_name
from sad_hpc.aggregate.read import MODES
from sad_hpc.aggregate.summary import headline_cells
from sad_hpc.run import atomic_path, read_json

PICTURES = {
    "offline.png": "Offline evaluation",
    "online.png": "Online evaluation",
    "training.png": "Pretraining: loss and label accuracy on held-out training tasks",
}
STAGE_HEADER = ("stage", "commit", "machine", "versions")


def write_page(path: Path, folders: Sequence[Path], notes: Sequence[str]) -> None:
    """Writes the page.

    Args:
        path: of the page; beside it are compare_{offline,online}.csv.
        folders: of the experiments, below the page's folder.
        notes: sentences about missing numbers.
    """
    loader = PackageLoader("sad_hpc.aggregate", "templates")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True)
    page = environment.get_template("report.html.jinja").render(
        comparisons=[_comparison(path.parent, mode) for mode in MODES],
        experiments=[_experiment(folder, path.parent) for folder in folders],
        notes=notes,
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _comparison(results: Path, mode: str) -> dict[str, Any]:
    table = pd.read_csv(results / f"compare_{mode}.csv")
    return {"mode": mode, "header": comparison_header(), "rows": comparison_cells(table)}


def _experiment(folder: Path, results: Path) -> dict[str, Any]:
    summary = pd.read_csv(folder / "summary.csv")
    provenance = read_json(folder / "provenance.json")
    header, rows = headline_cells(summary)
    files = [folder / "summary.h5", *sorted((folder / "evaluations").glob("*.h5"))]
    return {
        "name": folder.name,
        "family": family_name(summary["task_family"].iloc[0]),
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
