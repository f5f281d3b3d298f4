"""Pages and documents that do not follow from results.h5: `sad-hpc report --check`."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from sad_hpc.aggregate.all_results import AllResults, find_folders
from sad_hpc.aggregate.canvas import keeping_pictures
from sad_hpc.aggregate.documents import filled
from sad_hpc.aggregate.report import INDEX, PAGE, overview
from sad_hpc.aggregate.results_folder import README, SUMMARY
from sad_hpc.storage.files import read_whole


def stale_pages(results: Path, documents: Sequence[Path]) -> list[Path]:
    """Make every table again, and return the files whose text differs.

    Pictures are not compared, since they depend on the version of matplotlib.

    Args:
        results: the folder of all results.
        documents: Markdown documents with blocks of numbers.

    Raises:
        UserError: there is no experiment, or a file cannot be read.
    """
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / results.resolve().name
        folders = find_folders(results)
        for folder in folders:
            shutil.copytree(results / folder, copy / folder, symlinks=True)
        made = AllResults(copy)
        with keeping_pictures():
            overview(made, home=results)
        pages = [folder / name for folder in folders for name in (README, SUMMARY)]
        found = [
            results / page
            for page in (*pages, Path(INDEX), Path(PAGE))
            if not _same(results / page, copy / page)
        ]
        for document in documents:
            text = read_whole(document).decode()
            if filled(text, made, str(document)) != text:
                found.append(document)
    return found


def _same(written: Path, made: Path) -> bool:
    return written.exists() and written.read_bytes() == made.read_bytes()
