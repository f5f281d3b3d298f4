"""All experiments of a results folder side by side: the paper's two tables, and one page."""

from pathlib import Path

from sad_hpc.aggregate.comparison_files import write_comparisons
from sad_hpc.aggregate.html import write_report
from sad_hpc.aggregate.paper import FAMILY_NAMES, family_name
from sad_hpc.aggregate.results_folder import ResultsFolder
from sad_hpc.errors import SadError
from sad_hpc.storage.files import lies_in

PAGE = "report.html"


def overview(results: Path) -> Path:
    """Writes compare_{offline,online}.{csv,md,tex} and report.html, which it returns, to `results`.

    Raises:
        SadError: there is no experiment, one is a link elsewhere or not what aggregate writes, or
            two are of one task family of which neither bears its name.
    """
    found = find_results(results)
    if not found:
        raise SadError(f"{results} holds no finished experiment; make one with `sad-hpc launch`")
    chosen = choose(found)
    notes = [note for one in chosen for note in one.notes] + left_out(found, chosen)
    write_comparisons(
        results, [one.summary for one in chosen], [one.seeds for one in chosen], notes
    )
    path = results / PAGE
    write_report(path, chosen, notes)
    return path


def find_results(results: Path) -> list[ResultsFolder]:
    """The experiments that have a summary, in the paper's order of task families.

    Raises:
        SadError: see `overview`.
    """
    found = []
    for path in sorted(results.glob("*/summary.csv")):
        if not lies_in(path.parent, results):
            raise SadError(
                f"{path.parent} is a link to a folder elsewhere, which the page would show to its "
                "readers: copy that folder, or move the link aside"
            )
        found.append(ResultsFolder(path.parent))
    order = list(FAMILY_NAMES)
    return sorted(found, key=lambda one: (*order, one.family).index(one.family))


def choose(found: list[ResultsFolder]) -> list[ResultsFolder]:
    """One experiment a task family: the only one, or the one that is named after the family.

    Raises:
        SadError: neither is there.
    """
    chosen = []
    for family in dict.fromkeys(one.family for one in found):
        members = [one for one in found if one.family == family]
        named = [one for one in members if len(members) == 1 or one.folder.name == family]
        if not named:
            raise SadError(
                f"{', '.join(str(one.folder) for one in members)} are all of "
                f"{family_name(family)}, and none of them is named {family}: move those aside that "
                "the tables shall not show"
            )
        chosen += named
    return chosen


def left_out(found: list[ResultsFolder], chosen: list[ResultsFolder]) -> list[str]:
    """Which experiments the tables do not show, as sentences that name what stands for them."""
    shown = {one.family: one.name for one in chosen}
    return [
        f"{one.name} is not shown: {shown[one.family]} stands for {family_name(one.family)}"
        for one in found
        if one.name != shown[one.family]
    ]
