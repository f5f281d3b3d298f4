"""All experiments of a results folder side by side: the paper's two tables, and one page."""

from pathlib import Path

from sad_hpc.aggregate.comparison_files import write_comparisons
from sad_hpc.aggregate.finished import Finished
from sad_hpc.aggregate.html import write_page
from sad_hpc.aggregate.paper import FAMILY_NAMES, family_name
from sad_hpc.errors import SadError
from sad_hpc.storage.files import lies_in

PAGE = "report.html"


def overview(results: Path) -> Path:
    """Writes compare_{offline,online}.{csv,md,tex} and report.html, which it returns, to `results`.

    Raises:
        SadError: there is no experiment, one is a link elsewhere or not what aggregate writes, or
            two are of one task family of which neither bears its name.
    """
    found = find_finished(results)
    if not found:
        raise SadError(f"{results} holds no finished experiment; make one with `sad-hpc launch`")
    chosen = choose(found)
    notes = [note for one in chosen for note in one.notes] + left_out(found, chosen)
    write_comparisons(results, [one.summary for one in chosen], notes)
    path = results / PAGE
    write_page(path, chosen, notes)
    return path


def find_finished(results: Path) -> list[Finished]:
    """The experiments that have a summary, in the paper's order of task families."""
    found = []
    for path in sorted(results.glob("*/summary.csv")):
        if not lies_in(path.parent, results):
            raise SadError(
                f"{path.parent} is a link to a folder elsewhere, which the page would show to its "
                "readers: copy that folder, or move the link aside"
            )
        found.append(Finished.of(path.parent))
    order = list(FAMILY_NAMES)
    known = sorted((f for f in found if f.family in order), key=lambda f: order.index(f.family))
    return known + [one for one in found if one.family not in order]


def choose(found: list[Finished]) -> list[Finished]:
    """One experiment a task family: the only one, or the one that is named after the family.

    Raises:
        SadError: neither is there.
    """
    by_family: dict[str, list[Finished]] = {}
    for one in found:
        by_family.setdefault(one.family, []).append(one)
    return [_namesake(family, members) for family, members in by_family.items()]


def left_out(found: list[Finished], chosen: list[Finished]) -> list[str]:
    """Which experiments the tables do not show, as sentences that name what stands for them."""
    shown = {one.family: one.name for one in chosen}
    return [
        f"{one.name} is not shown: {shown[one.family]} stands for {family_name(one.family)}"
        for one in found
        if one.name != shown[one.family]
    ]


def _namesake(family: str, members: list[Finished]) -> Finished:
    for one in members:
        if len(members) == 1 or one.folder.name == family:
            return one
    names = ", ".join(str(one.folder) for one in members)
    raise SadError(
        f"{names} are all of {family_name(family)}, and none of them is named {family}: "
        "move those aside that the tables shall not show"
    )
