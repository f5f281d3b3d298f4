"""Exact learners of bandits.

They know pulls and sums of rewards by arm, and answer with chances of arms, (n, A), after any
number of pulls:

| method | chance of an arm                                                                     |
|--------|--------------------------------------------------------------------------------------|
| AD     | the posterior predictive of the next pull                                            |
| DIT    | its expected weight among all T pulls, of which some are still unknown; at least 0   |
| DPT*   | the posterior probability that it is the best arm                                    |
| SAD    | the posterior probability that it has the best average of N pulls                    |
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.dataset.reader import Arrays
from sad_hpc.evaluate.acting import greedy, sampled
from sad_hpc.evaluate.bandit import at_kept_steps, gaps, mean_over_lengths
from sad_hpc.evaluate.bandit_policies import Tally, run_bandit, running_tally
from sad_hpc.evaluate.result import Played
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.per_round import first_round
from sad_hpc.ideal.arms import best_arm_chances, posterior_means
from sad_hpc.ideal.pull_law import next_pull_chances
from sad_hpc.tasks.bandit import BanditFamily, GaussianBandit
from sad_hpc.tasks.base import make_family

Numbers = NDArray[np.float64]
Answer = Callable[[Numbers, Numbers], Numbers]
"""A function from pulls and sums of rewards by arm, both (n, A), to chances (n, A)."""


def arms_played(
    family: BanditFamily, experiment: Experiment[Any], method: str
) -> Callable[[Arrays, np.random.Generator], dict[str, Played]] | None:
    """Return the exact learner of a method's labels on test bandits; see `exact_learner`."""
    answer = arm_answer(experiment, method)
    if answer is None:
        return None

    def play(columns: Arrays, generator: np.random.Generator) -> dict[str, Played]:
        means = columns["tasks/parameters"].astype(np.float32)
        offline = gaps(means, _offline_arms(answer, family.n_actions, columns))
        policy = ExactArms(answer, family, len(means), generator)
        pulled = run_bandit(family, means, policy, generator)
        regret = gaps(means, pulled).cumsum(axis=1, dtype=np.float32)
        return {
            "offline": (at_kept_steps(offline), None),
            "lengths": (mean_over_lengths(offline), None),
            "online": (at_kept_steps(regret), None),
        }

    return play


def arm_answer(experiment: Experiment[Any], method: str) -> Answer | None:
    """Return the answers of a method's exact learner; None if they are not computable.

    Labels of Algorithm 2 are assumed to come from exactly N pulls of every arm, although most arms
    have more pulls when the last one reaches N.
    """
    trained, data = make_family(experiment.source.task), experiment.source.data
    drawn, known = data.context_policy, ("behavior", "dpt")
    if not isinstance(trained, GaussianBandit) or data.imported_contexts is not None:
        return None
    sigma, horizon = trained.sigma, trained.config.horizon
    if method in ("SAD", "DPT*"):
        noise = sigma / np.sqrt(first_round(data.trust_horizon)) if method == "SAD" else 0.0
        return lambda counts, sums: best_arm_chances(counts, sums, sigma, noise)
    if drawn not in known or data.behavior_policy != "uniform" or experiment.dit.floor is not None:
        return None

    def predictive(counts: Numbers, sums: Numbers) -> Numbers:
        if drawn == "dpt":
            return next_pull_chances(counts, horizon)
        return np.full(counts.shape, 1 / counts.shape[1])

    def weighted(counts: Numbers, sums: Numbers) -> Numbers:
        left = horizon - counts.sum(axis=1, keepdims=True)
        later = left * predictive(counts, sums) * posterior_means(counts, sums, sigma)
        weights = np.maximum(sums + later, 0)
        totals = weights.sum(axis=1, keepdims=True)
        even = np.full(weights.shape, 1 / weights.shape[1])
        return np.divide(weights, totals, out=even, where=totals > 0)

    return {"AD": predictive, "DIT": weighted}.get(method)


class ExactArms(Tally):
    """A policy that samples arms by exact answers.

    Args:
        answer: the answers.
        family, n_tasks, generator: see `Tally`.
    """

    def __init__(
        self, answer: Answer, family: BanditFamily, n_tasks: int, generator: np.random.Generator
    ) -> None:
        super().__init__(family, n_tasks, generator)
        self._answer = answer

    def choose(self) -> NDArray[np.int64]:
        """Implement `BanditPolicy.choose`."""
        with np.errstate(divide="ignore"):
            logits = np.log(self._answer(self._counts, self._sums)).astype(np.float32)
        return sampled(logits, self._generator.random(len(logits)))


def _offline_arms(answer: Answer, n_arms: int, columns: Arrays) -> NDArray[np.int64]:
    """Return the greedy arm after each prefix of 1 to T pulls, (n, T)."""
    actions = columns["transitions/actions"].astype(np.int64)
    rewards = columns["transitions/rewards"].astype(np.float32)
    counts, sums = running_tally(actions, rewards, n_arms)
    chances = [answer(counts[:, t], sums[:, t]) for t in range(actions.shape[1])]
    return greedy(np.stack(chances, axis=1).astype(np.float32))
