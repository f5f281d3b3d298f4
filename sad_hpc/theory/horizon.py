"""Table of the rules for N and N_ep that are tried for a config."""

from pathlib import Path
from typing import Any

import pandas as pd

from sad_hpc.aggregate.formats import write_csv
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.storage.files import write_json
from sad_hpc.storage.provenance import portable, provenance
from sad_hpc.tasks.base import make_family
from sad_hpc.theory.choose import candidates, choose


def tried_rules(experiment: Experiment[Any], asked: float) -> pd.DataFrame:
    """Try rules for an experiment, and return one row for each in the order of the trials.

    Columns: `N`, `N_ep`, the `consensus` of two labels, the share of query states with a label
    (`labelled`) and with an optimal label (`optimal`), the `transitions` of a label and of the
    trial (`trial_transitions`), and whether the rule is `chosen`.  The choice does not use
    `optimal`, nor N and N_ep of the experiment.

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
    """Write `theory/horizon_<name>.csv` in a results folder, with its provenance as `.json`.

    Returns:
        the path of the table.
    """
    path = results / "theory" / f"horizon_{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(path, table)
    write_json(path.with_suffix(".json"), portable(provenance()))
    return path
