"""The committed results are those of the committed configs."""

import re
from collections.abc import Iterator

import pytest

from sad_hpc.aggregate.results_file import RESULTS
from sad_hpc.aggregate.results_folder import check_overwrite
from sad_hpc.experiment.load import load_experiment
from tests.conftest import ROOT, committed

COMMAND = re.compile(r"#   sad-hpc launch (\S+).* --results (\S+)(?! --replace)(.*)")
NAME = re.compile(r"\bname[=:] ?(\S+)")
MODULES = ("examples/random_lake", "examples/dark_minigrid")


def commands() -> Iterator[tuple[str, str, list[str]]]:
    """Yield the config, results folder and settings of the launches in configs' headers.

    Those without committed results are left out, and those whose family is another package's.
    """
    for path in [*committed("configs/**/*.yaml"), *committed("examples/*/*.yaml")]:
        text = path.read_text()
        for config, results, words in COMMAND.findall(text):
            name = NAME.search(f"{words} {text}")
            assert name is not None
            if committed(f"{results}/{name[1]}/{RESULTS}") and "cheetah" not in config:
                yield config, results, words.split()


@pytest.mark.parametrize(("config", "results", "words"), commands())
def test_a_config_makes_its_committed_results_again(
    monkeypatch: pytest.MonkeyPatch, config: str, results: str, words: list[str]
) -> None:
    for module in MODULES:
        monkeypatch.syspath_prepend(ROOT / module)
    check_overwrite(load_experiment(ROOT / config, words), ROOT / results)
