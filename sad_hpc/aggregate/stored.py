"""Results that a results folder keeps, so that their run folders may be deleted."""

from pathlib import Path
from typing import Any

from sad_hpc.aggregate.results_file import RESULTS, RowFacts, SeedResult
from sad_hpc.aggregate.results_folder import ResultsFolder
from sad_hpc.errors import UserError
from sad_hpc.experiment.experiment import Element, Experiment


class StoredResults:
    """The (row, seed)s of results/<experiment> whose settings are still those of the experiment.

    A folder that is missing or damaged has none.
    """

    def __init__(self, experiment: Experiment[Any], results: Path) -> None:
        """Read results/<experiment>.

        Args:
            experiment: the experiment of the new tables.
            results: the folder of all results.
        """
        self.elements: dict[Element, SeedResult] = {}
        self.rows: dict[str, RowFacts] = {}
        self.stages: dict[str, Any] = {}
        folder = ResultsFolder(results / experiment.name)
        if not folder.has(RESULTS):
            return
        try:
            found, stages = folder.results, folder.provenance["stages"]
        except UserError:
            return
        wanted = set(experiment.elements)
        for each in found.seeds:
            element = (each.result.row, each.result.seed)
            if element in wanted and each.result.signature == _signature(experiment, element):
                self.elements[element] = each
        kept = {row for row, _ in self.elements}
        self.rows = {row: facts for row, facts in found.rows.items() if row in kept}
        self.stages = stages


def _signature(experiment: Experiment[Any], element: Element) -> str:
    own, method = experiment.of_element(*element)
    return own.evaluate_signature(method, element[1])
