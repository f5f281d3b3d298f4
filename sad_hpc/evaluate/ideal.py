"""The Bayes-optimal learner on test tasks, offline and online: the exact DPT* as a reference.

It is evaluated like a model.  Offline, it acts greedily under the given context.  Online, it
samples actions from the posterior mean of the optimal actions.  Its prior is uniform over all tasks
of the family.  Its memory of a context is the likelihood of each task.
"""

import functools

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.block import Transitions
from sad_hpc.evaluate.episode import as_numbers
from sad_hpc.evaluate.offline import offline_returns
from sad_hpc.evaluate.online import online_returns
from sad_hpc.evaluate.result import BAYES_OPTIMAL
from sad_hpc.experiment.sections import EvaluateConfig
from sad_hpc.ideal.posterior import Posterior, Weights, after_all, consistent, together
from sad_hpc.model.context import Context
from sad_hpc.tasks.mdps import FiniteMDPs
from sad_hpc.tasks.tabular import TabularFamily


def ideal_returns(
    family: TabularFamily,
    mdps: FiniteMDPs,
    context: Context,
    settings: EvaluateConfig,
    generator: np.random.Generator,
) -> dict[str, tuple[str, NDArray[np.float32], NDArray[np.int32]]]:
    """Return, by mode, the reference's name, returns (n, K) and context rewards (n, K).

    The result is empty if the family has too many tasks for an exact posterior.  With
    `memory: history`, the learner remembers all episodes.

    Args:
        family: family of the tasks.
        mdps: one MDP for each task (M = n).
        context: n contexts, for the offline episode.
        settings: settings of the evaluation.
        generator: random numbers of tasks and actions.
    """
    posterior = Posterior.of_family(family)
    if posterior is None:
        return {}
    forgetful, given = settings.memory == "episode", settings.context == "transitions"
    found = learner_returns(posterior, family, mdps, context, settings, generator)
    of_episodes, of_history = (f"{BAYES_OPTIMAL}, {kind}" for kind in ("episodes", "history"))
    return {
        "offline": (BAYES_OPTIMAL if given else of_episodes, *found["offline"]),
        "online": (BAYES_OPTIMAL if forgetful else of_history, *found["online"]),
    }


def learner_returns(
    posterior: Posterior,
    family: TabularFamily,
    mdps: FiniteMDPs,
    context: Context,
    settings: EvaluateConfig,
    generator: np.random.Generator,
) -> dict[str, tuple[NDArray[np.float32], NDArray[np.int32]]]:
    """Return, by mode, returns (n, K) and context rewards (n, K) of an exact learner.

    Args:
        posterior: prior and labels of the learner.
        family, mdps, context, settings, generator: see `ideal_returns`.
    """
    forgetful, given = settings.memory == "episode", settings.context == "transitions"
    seen = as_numbers(family, context)
    left = logits_of(posterior, tasks_left(posterior, seen, drawn=given))
    offline = offline_returns(family, mdps, left, generator)
    online, online_rewards = online_returns(
        functools.partial(logits_of, posterior),
        TasksLeft(posterior, mdps.sizes[0], forgetful),
        family,
        mdps,
        settings.online_episodes,
        generator,
    )
    rewards = (seen.rewards > 0).sum(axis=1, keepdims=True, dtype=np.int32)
    return {"offline": (offline, rewards), "online": (online, online_rewards)}


def logits_of(posterior: Posterior, alive: Weights) -> NDArray[np.float32]:
    """Return log-probabilities of Bayes-optimal actions, (n, S, A), for likelihoods (n, G)."""
    with np.errstate(divide="ignore"):
        return np.log(posterior.probabilities(alive)).astype(np.float32)


def tasks_left(posterior: Posterior, seen: Transitions, *, drawn: bool = False) -> Weights:
    """Return the likelihoods of tasks, (n, G), given transitions (n, T); see `consistent`."""
    return after_all(consistent(posterior.mdps, **seen.parts, drawn=drawn))


class TasksLeft:
    """An `AgentMemory` of the likelihoods (n, G) of tasks.

    Args:
        posterior: posterior over G tasks.
        n_tasks: n.
        forgetful: whether only the last episode counts, as with `memory: episode`.
    """

    def __init__(self, posterior: Posterior, n_tasks: int, forgetful: bool) -> None:
        self._posterior, self._forgetful = posterior, forgetful
        self.context: Weights = np.ones((n_tasks, posterior.n_tasks), np.bool_)
        self.rewards: NDArray[np.int32] = np.zeros(n_tasks, np.int32)

    def add(self, episode: Transitions) -> None:
        """Implement `AgentMemory.add`."""
        left = tasks_left(self._posterior, episode)
        rewarded = (episode.rewards > 0).sum(axis=1, dtype=np.int32)
        self.context = left if self._forgetful else together(self.context, left)
        self.rewards = rewarded if self._forgetful else self.rewards + rewarded
