"""Exact learners of labels and of query states show why SAD explores otherwise than its oracle.

    python benchmarks/query_states.py      # writes results/theory/query_states.csv

An exact learner answers by the posterior of the label, given a context and a query state.  SAD
accepts a query state only if a rollout finds the reward, so near goals have more labels.  Lines of
the table combine query states with labels:

- query states: uniform (the oracle's), those that SAD accepts with the trust horizon of the room's
  protocol, with N = T, or with drawn trust horizons (`data.continuation`) of at most T steps;
- labels: optimal ones, or those of random rollouts.

Returns are those of test tasks at temperature 1, means over the splits of development seeds.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sad_hpc.evaluate.exact import posterior_learner
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.load import load_experiment
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.ideal.label_law import prior_law
from sad_hpc.ideal.posterior import Posterior, prior_tasks
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.tabular import TabularFamily
from sad_hpc.theory.learners import mean_returns
from sad_hpc.theory.table import write_table

ROOT = Path(__file__).parent.parent
ROOMS = "darkroom", "darkroom_9x9", "darkroom_large", "key_to_door"
SEEDS = 100, 101, 102, 103, 104
CONTINUATIONS = 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3

Law = NDArray[np.float64]


def law_of(family: TabularFamily, data: DataConfig, labels: str) -> Law:
    """Return the joint distribution of query states and labels of all tasks, (G, S, A)."""
    law = prior_law(family, data, labels)
    assert law is not None, f"{family.name} has no exact law of {labels}"
    return law


def answers(law: Law) -> Law:
    """Return the distribution of labels in each state; uniform in states without a query."""
    asked = law.sum(axis=-1, keepdims=True)
    return np.divide(law, asked, out=np.full_like(law, 1 / law.shape[-1]), where=asked > 0)


def laws(family: TabularFamily, data: DataConfig) -> Iterator[tuple[str, str, Law]]:
    """Yield the names of query states and labels, and their joint distribution (G, S, A)."""
    horizon, fixed = family.config.horizon, f"N = {data.trust_horizon}"
    oracle, sad = (law_of(family, data, f"labels/{name}") for name in ("dpt_star", "sad"))
    yield "uniform", "optimal", oracle
    yield "uniform", f"rollouts, {fixed}", answers(sad) * oracle.sum(axis=-1, keepdims=True)
    yield fixed, "optimal", answers(oracle) * sad.sum(axis=-1, keepdims=True)
    yield fixed, "rollouts", sad
    long = data.model_copy(update={"trust_horizon": horizon})
    yield f"N = T = {horizon}", "rollouts", law_of(family, long, "labels/sad")
    for continuation in CONTINUATIONS:
        drawn = long.model_copy(update={"continuation": continuation})
        yield f"drawn N, {continuation}", "rollouts", law_of(family, drawn, "labels/sad")


def of_seed(room: str, seed: int) -> tuple[TabularFamily, Experiment]:
    """Return a room with the split of a seed, and the settings of its SAD+."""
    config = ROOT / f"configs/protocol/{room}.yaml"
    own, _ = load_experiment(config, [f"task.split_seed={seed}"]).of_row("SAD+")
    family = make_family(own.task)
    assert isinstance(family, TabularFamily)
    return family, own


def played(posterior: Posterior, room: str, seed: int) -> dict[str, float]:
    """Return the returns of an exact learner on the test tasks of a seed's split."""
    family, own = of_seed(room, seed)
    return mean_returns(posterior_learner(posterior, family, own.evaluate), family, own)


def lines(room: str) -> Iterator[dict[str, object]]:
    """Yield the lines of a room; laws and prior are those of all splits."""
    family, own = of_seed(room, SEEDS[0])
    parameters = prior_tasks(family)
    assert parameters is not None, f"{family.name} has too many tasks"
    for states, labels, law in laws(family, own.data):
        posterior = Posterior(family.mdps(parameters), law)
        found = pd.DataFrame([played(posterior, room, seed) for seed in SEEDS])
        line = {"room": room, "query_states": states, "labels": labels, **found.mean()}
        line["online_error"] = found["online"].sem()
        print(", ".join(map(str, line.values())), flush=True)
        yield line


def main() -> None:
    """Measure all rooms."""
    table = pd.DataFrame([line for room in ROOMS for line in lines(room)])
    write_table(ROOT / "results", "query_states", table)


if __name__ == "__main__":
    main()
