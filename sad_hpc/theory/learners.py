"""Exact learners: what a model without any error would reach with the labels of each method.

An exact learner of SAD or DPT* knows the distribution of query states and labels in every task.  It
answers with the posterior of the label given a context, under a uniform prior over all tasks of the
family, of test, too.

DIT's labels are the context's own actions.  After a whole context its exact learner answers with
the actions that the context has in the state, weighted by their returns-to-go, whatever the tasks.
Where the context has no such weight, nothing is trained, and it answers at random.

The learners are evaluated like models on test tasks.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sad_hpc.distill import make_block
from sad_hpc.errors import ConfigError
from sad_hpc.evaluate.agent_memory import LastEpisode
from sad_hpc.evaluate.episode import as_numbers
from sad_hpc.evaluate.ideal import learner_returns
from sad_hpc.evaluate.offline import offline_returns
from sad_hpc.evaluate.online import online_returns
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.ideal.label_law import label_law
from sad_hpc.ideal.posterior import Posterior
from sad_hpc.model.context import Context
from sad_hpc.pretrain.examples import return_to_go
from sad_hpc.tasks.base import SPLITS, make_family
from sad_hpc.tasks.mdps import FiniteMDPs
from sad_hpc.tasks.tabular import TabularFamily

ORACLES = {"DPT*": "random", "DPT*, lowest": "lowest"}
"""Learners of optimal labels, and their `data.oracle_tie_break`."""


def exact_learners(experiment: Experiment[Any]) -> pd.DataFrame:
    """Return one line for each exact learner: the means over the test tasks of `evaluate.tasks`.

    Columns: learner, offline, reward_seen (offline, over contexts with a reward) and online (the
    headline number, at temperature 1).  SAD is left out where its law is not computed.

    Raises:
        ConfigError: the family has no tables, or too many tasks.
    """
    family, settings = make_family(experiment.task), experiment.evaluate
    if not isinstance(family, TabularFamily):
        raise ConfigError(f"{family.name} has no tables: exact learners are for tabular families")
    prior = Posterior.of_family(family)
    if prior is None:
        raise ConfigError(f"{family.name} has too many tasks for exact learners")
    data = experiment.data.model_copy(update={"block_tasks": settings.tasks})
    arrays = make_block(family, data, "test", 0).arrays
    mdps = family.mdps(arrays["tasks/parameters"])
    context = Context.of_group(arrays, settings.context)
    lines = []

    def add(learner: str, offline: NDArray[np.float32], online: NDArray[np.float32]) -> None:
        last = online[:, -settings.headline_episodes :].mean()
        lines.append((learner, offline.mean(), offline[context.rewarded > 0].mean(), last))

    for learner, law in label_laws(family, experiment.data).items():
        generator = np.random.default_rng(settings.seed)
        found = learner_returns(
            Posterior(prior.mdps, law), family, mdps, context, settings, generator
        )
        add(learner, found["offline"][0], found["online"][0])
    add("DIT", *dit_returns(family, mdps, context, experiment))
    return pd.DataFrame(lines, columns=["learner", "offline", "reward_seen", "online"])


def label_laws(family: TabularFamily, data: DataConfig) -> dict[str, NDArray[np.float64]]:
    """Return the law of query states and labels of each learner, (G, S, A), over all tasks."""
    wanted = {
        name: ("labels/dpt_star", data.model_copy(update={"oracle_tie_break": ties}))
        for name, ties in ORACLES.items()
    }
    wanted["SAD"] = "labels/sad", data
    laws = {}
    for name, (labels, settings) in wanted.items():
        parts = [label_law(family, settings, labels, split) for split in SPLITS]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            laws[name] = np.concatenate(known)
    return laws


def dit_returns(
    family: TabularFamily, mdps: FiniteMDPs, context: Context, experiment: Experiment[Any]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the returns of DIT's exact learner, offline (n, 1) and online (n, E)."""
    settings = experiment.evaluate
    answer = dit_answers(family, experiment.dit.discount)
    generator = np.random.default_rng(settings.seed)
    offline = offline_returns(family, mdps, answer(context), generator)
    memory = LastEpisode(family, mdps.sizes[0], family.config.horizon)
    episodes = settings.online_episodes
    online, _ = online_returns(answer, memory, family, mdps, episodes, generator)
    return offline, online


def dit_answers(family: TabularFamily, discount: float) -> Callable[[Context], NDArray[np.float32]]:
    """Return a function from contexts (n, T) to DIT's exact log-probabilities (n, S, A)."""

    def answer(context: Context) -> NDArray[np.float32]:
        seen = as_numbers(family, context)
        returns = return_to_go(seen.rewards, discount, seen.ends)
        table = np.zeros((len(returns), family.n_states, family.n_actions))
        rows = np.arange(len(returns))[:, None]
        np.add.at(table, (rows, seen.states, seen.actions), returns)
        totals = table.sum(axis=2, keepdims=True)
        shares = np.full_like(table, 1 / family.n_actions)
        np.divide(table, totals, out=shares, where=totals > 0)
        with np.errstate(divide="ignore"):
            return np.log(shares).astype(np.float32)

    return answer
