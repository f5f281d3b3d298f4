"""What `data.trust_horizon: auto` tries for a config, and beside it what it cannot know."""

from pathlib import Path

import pandas as pd

from sad_hpc.aggregate.origin import portable
from sad_hpc.aggregate.summary import write_table
from sad_hpc.experiment.load import HorizonQuestion
from sad_hpc.storage.files import write_json
from sad_hpc.storage.provenance import provenance
from sad_hpc.tasks import make_family
from sad_hpc.theory.choose import choose


def tried_rules(question: HorizonQuestion) -> pd.DataFrame:
    """One row a rule, in the order of the trials: `N`, `N_ep`, the `consensus` of two labels of a
    query state, the shares of query states with a label (`labelled`) and with an optimal one
    (`optimal`), the `transitions` that a label takes, those that the trial took
    (`trial_transitions`), and whether it is `chosen`.

    Raises:
        ConfigError: see `candidates`.
    """
    family, tried = make_family(question.experiment.task), question.candidates()
    chosen = choose(tried, question.asked)
    rows = [
        {
            "N": one.trust_horizon,
            "N_ep": one.episodes_per_action,
            "consensus": one.consensus,
            "labelled": one.coverage,
            "optimal": one.right(family),
            "transitions": one.repeats.transitions,
            "trial_transitions": one.spent,
            "chosen": one is chosen,
        }
        for one in tried
    ]
    return pd.DataFrame(rows)


def write_horizon(question: HorizonQuestion, table: pd.DataFrame, results: Path) -> Path:
    """Writes `theory/horizon_<experiment>.csv` in a results folder, its origin beside it (`.json`).

    Returns:
        the table's file.
    """
    path = results / "theory" / f"horizon_{question.experiment.name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(path, table)
    write_json(path.with_suffix(".json"), portable(provenance()))
    return path
