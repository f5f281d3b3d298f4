"""Rules for N and N_ep that are tried for a config, and beside them what the choice cannot know."""

from pathlib import Path
from typing import Any

import pandas as pd

from sad_hpc.aggregate.csv_table import write_table
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.storage.files import write_json
from sad_hpc.storage.provenance import portable, provenance
from sad_hpc.tasks.base import make_family
from sad_hpc.theory.choose import candidates, choose


def tried_rules(experiment: Experiment[Any], asked: float) -> pd.DataFrame:
    """One row a rule, in the order of the trials: `N`, `N_ep`, the `consensus` of two labels of a
    query state, the shares of query states with a label (`labelled`) and with an optimal one
    (`optimal`), the `transitions` that a label takes, those that the trial took
    (`trial_transitions`), and whether it is `chosen` for the consensus `asked`.  N and N_ep of the
    experiment itself do not matter.

    Raises:
        ConfigError: see `candidates`.
    """
    family = make_family(experiment.task)
    tried = candidates(family, experiment.data, asked)
    chosen = choose(tried, asked)
    rows = [
        {
            "N": one.data.trust_horizon,
            "N_ep": one.data.episodes_per_action,
            "consensus": one.consensus,
            "labelled": one.coverage,
            "optimal": one.right(family),
            "transitions": one.transitions,
            "trial_transitions": one.spent,
            "chosen": one is chosen,
        }
        for one in tried
    ]
    return pd.DataFrame(rows)


def write_horizon(name: str, table: pd.DataFrame, results: Path) -> Path:
    """Write `theory/horizon_<name>.csv` in a results folder, its origin beside it (`.json`).

    Returns:
        the table's file.
    """
    path = results / "theory" / f"horizon_{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(path, table)
    write_json(path.with_suffix(".json"), portable(provenance()))
    return path
