"""The folder of all results: its experiments, each of which is read once."""

from functools import cached_property
from pathlib import Path

from sad_hpc.aggregate.comparison import FAMILY_NAMES
from sad_hpc.aggregate.results_file import RESULTS
from sad_hpc.aggregate.results_folder import ResultsFolder
from sad_hpc.errors import UserError
from sad_hpc.storage.files import lies_in

PAPER_GROUP = "paper"
"""The folder of experiments to compare with the paper's tables."""
DEEPEST = 2
"""Most folders between the folder of all results and results.h5."""


class AllResults:
    """All experiments below a folder.

    Args:
        folder: the folder of all results.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened: dict[Path, ResultsFolder] = {}

    def open(self, folder: str | Path) -> ResultsFolder:
        """Return the results folder at a relative path, which is read once."""
        return self._opened.setdefault(Path(folder), ResultsFolder(self.folder / folder))

    @cached_property
    def found(self) -> list[ResultsFolder]:
        """All experiments, those of the paper's task families first.

        Raises:
            UserError: see `find_folders`.
        """
        found, order = list(map(self.open, find_folders(self.folder))), list(FAMILY_NAMES)
        return sorted(found, key=lambda one: (*order, one.family).index(one.family))

    @cached_property
    def beside_the_paper(self) -> list[ResultsFolder]:
        """The experiments to compare with the paper: one for each task family.

        They lie in the folder `paper` if it exists, else directly in the folder.  If a family has
        several experiments, the one with the family's name counts, else the first.
        """
        group = self.folder / PAPER_GROUP
        inside = [one for one in self.found if one.folder.parent == group]
        inside = inside or [one for one in self.found if one.folder.parent == self.folder]
        chosen: dict[str, ResultsFolder] = {}
        for one in inside or self.found:
            if one.family not in chosen or one.folder.name == one.family:
                chosen[one.family] = one
        return list(chosen.values())


def find_folders(results: Path) -> list[Path]:
    """Return the sorted relative paths of all experiments below a folder, without reading them.

    Raises:
        UserError: there is no experiment, or one is a link to a folder elsewhere.
    """
    patterns = ["/".join(["*"] * depth) for depth in range(1, DEEPEST + 1)]
    files = [file for pattern in patterns for file in results.glob(f"{pattern}/{RESULTS}")]
    for folder in (folders := sorted(file.parent for file in files)):
        if not lies_in(folder, results):
            raise UserError(
                f"{folder} is a link to a folder outside of {results}, which pages must not "
                "show: copy that folder, or remove the link"
            )
    if not folders:
        raise UserError(f"{results} has no finished experiment; make one with `sad-hpc launch`")
    return [folder.relative_to(results) for folder in folders]
