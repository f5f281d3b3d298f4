"""Tables of `sad-hpc theory` in a results folder."""

from pathlib import Path

import pandas as pd

from sad_hpc.aggregate.formats import write_csv
from sad_hpc.storage.json_files import write_json
from sad_hpc.storage.provenance import portable, provenance


def write_table(results: Path, name: str, table: pd.DataFrame) -> Path:
    """Write `theory/<name>.csv` in a results folder, with its provenance as `.json`.

    Returns:
        the path of the table.
    """
    path = results / "theory" / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(path, table)
    write_json(path.with_suffix(".json"), portable(provenance()))
    return path
