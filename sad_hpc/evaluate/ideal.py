"""The ideal learner on test tasks: the exact DPT*, offline and online, as a reference.

It is asked as a model is: offline greedily under the given context, online by actions drawn from
the posterior mean of the optimal actions.  Its prior is uniform over all tasks of the family, and
what it keeps of a context are the tasks that the context does not contradict.
"""

import functools

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.block import Transitions
from sad_hpc.evaluate.episode import as_numbers
from sad_hpc.evaluate.offline import offline_returns
from sad_hpc.evaluate.online import online_returns
from sad_hpc.experiment.sections import EvaluateConfig
from sad_hpc.ideal.posterior import Posterior, consistent
from sad_hpc.model.context import Context
from sad_hpc.tasks.base import TabularFamily, TabularMDPs


def ideal_returns(
    family: TabularFamily,
    mdps: TabularMDPs,
    context: Context,
    settings: EvaluateConfig,
    generator: np.random.Generator,
) -> dict[str, tuple[str, NDArray[np.float32], NDArray[np.int32]]]:
    """By mode: the reference's name, returns (n, K), and context rewards (n, K).

    Nothing where the family has too many tasks for an exact posterior.  With `memory: history` no
    episode is forgotten.

    Args:
        family: of the tasks.
        mdps: one MDP a task (M = n).
        context: n contexts, for the offline episode.
        settings: of the evaluation.
        generator: of the action draws.
    """
    posterior = Posterior.of_family(family)
    if posterior is None:
        return {}
    forgetful = settings.memory == "episode"
    seen = as_numbers(family, context)
    offline = offline_returns(family, mdps, logits_of(posterior, tasks_left(posterior, seen)))
    online, online_rewards = online_returns(
        functools.partial(logits_of, posterior),
        TasksLeft(posterior, len(mdps.rewards), forgetful),
        family,
        mdps,
        settings.online_episodes,
        generator,
    )
    rewards = (seen.rewards > 0).sum(axis=1, keepdims=True, dtype=np.int32)
    given = "ideal" if settings.context == "transitions" else "ideal, episodes"
    collected = "ideal" if forgetful else "ideal, history"
    return {
        "offline": (given, offline, rewards),
        "online": (collected, online, online_rewards),
    }


def logits_of(posterior: Posterior, alive: NDArray[np.bool_]) -> NDArray[np.float32]:
    """(n, S, A): logits of the ideal answers when tasks (n, G) are left; -inf: never."""
    with np.errstate(divide="ignore"):
        return np.log(posterior.probabilities(alive)).astype(np.float32)


def tasks_left(posterior: Posterior, seen: Transitions) -> NDArray[np.bool_]:
    """(n, G): the tasks that no transition (n, T), states by number, contradicts."""
    alive: NDArray[np.bool_] = np.logical_and.reduce(
        consistent(posterior.mdps, **vars(seen)), axis=1
    )
    return alive


class TasksLeft:
    """The tasks that experience has not ruled out: a `Memory` of (n, G).

    Args:
        posterior: over G tasks.
        n_tasks: n.
        forgetful: whether only the last episode counts, as for a model whose context it is.
    """

    def __init__(self, posterior: Posterior, n_tasks: int, forgetful: bool) -> None:
        self._posterior, self._forgetful = posterior, forgetful
        self.context: NDArray[np.bool_] = np.ones((n_tasks, posterior.n_tasks), np.bool_)
        self.rewards: NDArray[np.int32] = np.zeros(n_tasks, np.int32)

    def add(self, episode: Transitions) -> None:
        """See Memory."""
        left = tasks_left(self._posterior, episode)
        rewarded = (episode.rewards > 0).sum(axis=1, dtype=np.int32)
        self.context = left if self._forgetful else self.context & left
        self.rewards = rewarded if self._forgetful else self.rewards + rewarded
