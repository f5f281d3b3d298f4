"""Exact learners: what a model without any error would reach with the labels of its row.

The exact learner of SAD or DPT* knows the distribution of query states and labels in every task.
It answers with the posterior of the label given a context, under a uniform prior over all tasks of
the family, of test, too.

DIT's labels are the context's own actions.  After a whole context its exact learner answers with
the actions that the context has in the state, weighted by their returns-to-go.  Where the context
has no such weight, it answers with the expected weights of another step of the episode, which is
the limit of shorter prefixes.  It takes drawn transitions for an episode, as a model does.  With
`dit.prefixes: past` it always answers with the expected weights.

Labels that uniform play draws tell nothing, so the exact learner of AD or DPT plays at random.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.dataset.reader import Arrays
from sad_hpc.evaluate.agent_memory import recollection
from sad_hpc.evaluate.episode import as_numbers
from sad_hpc.evaluate.exact_arms import arms_played
from sad_hpc.evaluate.ideal import learner_returns, tasks_left
from sad_hpc.evaluate.offline import offline_returns
from sad_hpc.evaluate.online import online_returns
from sad_hpc.evaluate.result import EXACT, ModeResult, Played
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.methods import METHODS
from sad_hpc.experiment.sections import DITConfig, EvaluateConfig
from sad_hpc.ideal.label_law import prior_law
from sad_hpc.ideal.posterior import Posterior, prior_tasks
from sad_hpc.ideal.return_law import return_law
from sad_hpc.model.context import Context
from sad_hpc.pretrain.importance import dit_weights
from sad_hpc.tasks.bandit import BanditFamily
from sad_hpc.tasks.base import TaskFamily
from sad_hpc.tasks.tabular import TabularFamily

Learner = Callable[[Arrays, np.random.Generator], dict[str, Played]]
"""A function from the columns of test tasks to values and context rewards, by mode."""


class ExactReference:
    """The exact learner of a row as a reference in its results.

    Args:
        family: family of the test tasks.
        experiment, method: the row.
    """

    def __init__(self, family: TaskFamily, experiment: Experiment[Any], method: str) -> None:
        self._random = plays_randomly(experiment, method)
        self._learner = None if self._random else exact_learner(family, experiment, method)

    def added(
        self, modes: dict[str, ModeResult], columns: Arrays, generator: np.random.Generator
    ) -> dict[str, ModeResult]:
        """Return the results of tasks with the reference, if it is computable.

        Args:
            modes: results of the row's model.
            columns: contexts and parameters of the tasks.
            generator: random numbers of tasks and actions.
        """
        if self._random:
            played: dict[str, Played] = {
                mode: (each.references["random"], None) for mode, each in modes.items()
            }
        elif self._learner is not None:
            played = self._learner(columns, generator)
        else:
            return modes
        return {
            mode: each.with_reference(EXACT, *played[mode if mode in played else "online"])
            for mode, each in modes.items()
        }


def plays_randomly(experiment: Experiment[Any], method: str) -> bool:
    """Return whether a method's labels are uniform, whatever the context."""
    data, own = experiment.source.data, METHODS[method]
    if not own.imitates or not data.has_known_tasks or data.behavior_policy != "uniform":
        return False
    if own.labels is not None:
        return True
    at_random = data.imported_contexts is None and data.context_policy == "behavior"
    has_episodes = "episodes" in experiment.source.family.context_groups
    return at_random and not data.q_learning_steps and (has_episodes or data.has_known_contexts)


@functools.singledispatch
def exact_learner(family: TaskFamily, experiment: Experiment[Any], method: str) -> Learner | None:
    """Return the exact learner of a method's labels; None if it is not computable.

    Args:
        family: family of the test tasks.
        experiment: settings of the row.
        method: method of the row.
    """
    return None


@exact_learner.register
def _of_arms(family: BanditFamily, experiment: Experiment[Any], method: str) -> Learner | None:
    return arms_played(family, experiment, method)


@exact_learner.register
def _of_tables(family: TabularFamily, experiment: Experiment[Any], method: str) -> Learner | None:
    known = table_posterior(family, experiment, method)
    if known is None:
        return None
    settings = experiment.evaluate
    if not METHODS[method].by_return or experiment.dit.prefixes == "past":
        return posterior_learner(known, family, settings)

    def play(columns: Arrays, generator: np.random.Generator) -> dict[str, Played]:
        mdps = family.mdps(columns["tasks/parameters"])
        context = Context.of_group(columns, settings.context)
        answer = dit_answer(family, known, experiment.dit)
        drawn = settings.context == "transitions"
        offline = offline_returns(family, mdps, answer(context, drawn=drawn), generator)
        memory = recollection(
            family, mdps.sizes[0], family.config.horizon, settings.memory, generator
        )
        episodes = settings.online_episodes
        online = online_returns(answer, memory, family, mdps, episodes, generator)
        return {"offline": (offline, context.rewarded[:, None]), "online": online}

    return play


def posterior_learner(
    posterior: Posterior, family: TabularFamily, settings: EvaluateConfig
) -> Learner:
    """Return the learner that answers with the posterior of the label."""

    def play(columns: Arrays, generator: np.random.Generator) -> dict[str, Played]:
        mdps = family.mdps(columns["tasks/parameters"])
        context = Context.of_group(columns, settings.context)
        return dict(learner_returns(posterior, family, mdps, context, settings, generator))

    return play


def table_posterior(
    family: TabularFamily, experiment: Experiment[Any], method: str
) -> Posterior | None:
    """Return the prior and the labels of a method's exact learner; None if not computable."""
    parameters = prior_tasks(family)
    if parameters is None:
        return None
    mdps, data = family.mdps(parameters), experiment.source.data
    labels = METHODS[method].labels
    if labels is not None:
        known = prior_law(family, data, labels)
        return None if known is None else Posterior(mdps, known)
    if not METHODS[method].by_return:
        return None
    law = return_law(family, data, experiment.dit, mdps)
    return None if law is None else Posterior(mdps, law)


def dit_answer(
    family: TabularFamily, posterior: Posterior, dit: DITConfig
) -> Callable[..., NDArray[np.float32]]:
    """Return a function from contexts (n, T) to DIT's exact log-probabilities (n, S, A).

    Its argument `drawn` says that the states of a context are drawn, as in `consistent`.
    """

    def answer(context: Context, drawn: bool = False) -> NDArray[np.float32]:
        seen = as_numbers(family, context)
        weights = dit_weights(family, dit, seen.parts)
        table = np.zeros((len(weights), family.n_states, family.n_actions))
        np.add.at(table, (np.arange(len(weights))[:, None], seen.states, seen.actions), weights)
        totals = table.sum(axis=2, keepdims=True)
        shares = posterior.probabilities(tasks_left(posterior, seen, drawn=drawn))
        np.divide(table, totals, out=shares, where=totals > 0)
        with np.errstate(divide="ignore"):
            return np.log(shares).astype(np.float32)

    return answer
