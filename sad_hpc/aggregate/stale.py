"""Pages and documents that do not follow from results.h5: `sad-hpc report --check`."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from sad_hpc.aggregate.canvas import keeping_pictures
from sad_hpc.aggregate.documents import filled
from sad_hpc.aggregate.report import INDEX, PAGE, find_folders, overview
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
    found = list(_stale_in(results))
    for document in documents:
        text = read_whole(document).decode()
        if filled(text, results, str(document)) != text:
            found.append(document)
    return found


def _stale_in(results: Path) -> Iterator[Path]:
    folders = [folder.relative_to(results) for folder in find_folders(results)]
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / results.resolve().name
        for folder in folders:
            shutil.copytree(results / folder, copy / folder, symlinks=True)
        with keeping_pictures():
            overview(copy, home=results)
        pages = [folder / name for folder in folders for name in (README, SUMMARY)]
        for page in (*pages, Path(INDEX), Path(PAGE)):
            written = results / page
            if not written.exists() or written.read_bytes() != (copy / page).read_bytes():
                yield written
