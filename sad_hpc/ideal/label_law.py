"""The exact distribution of query states and labels, for Algorithm 5 by dynamic programming.

The Bayes-optimal answer is this distribution, averaged over the posterior of tasks given the
context.  An accepted query state is also evidence of the task, because it is more often near the
reward.
"""

import numpy as np
from numpy.typing import NDArray

from sad_hpc.experiment.behavior_policy import policy_shares
from sad_hpc.experiment.per_round import first_round
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.ideal.common_law import common_actions_chances
from sad_hpc.tasks.base import SPLITS
from sad_hpc.tasks.mdps import FiniteMDPs, Outcomes
from sad_hpc.tasks.tabular import TabularFamily

TASKS_AT_ONCE = 64


def label_law(
    family: TabularFamily, data: DataConfig, labels: str, split: str = "train"
) -> NDArray[np.float64] | None:
    """Return the joint distribution of query state and label in distinct tasks, (M, S, A).

    Return None where it is not computed: for SAD's labels by the mean of several rollouts, of dense
    rewards, or of a later round, whose rollouts follow a model; with common actions, by several
    rollouts or of drawn trust horizons, and where `common_actions_chances` is None.

    Args:
        family: family of the tasks.
        data: settings of the labels.
        labels: HDF5 group of the labels, such as `labels/sad`.
        split: split of the tasks.
    """
    parameters = family.distinct[split]
    policy = policy_shares(data.behavior_policy, family.n_actions)
    mdps = family.mdps(parameters)
    asked, choices = mdps.occupied[:, :, None], mdps.occupied.sum(axis=1)[:, None, None]
    if labels == "labels/dpt":
        return policy * asked / choices
    if labels == "labels/dpt_star":
        optimal = family.optimal_actions(parameters)
        lowest = data.oracle_tie_break == "lowest"
        meant = optimal & (optimal.cumsum(axis=-1) == 1) if lowest else optimal
        right = meant / meant.sum(axis=-1, keepdims=True)
        return _with_errors(right, optimal, data) * asked / choices
    ties, steps = data.tie_break == "random", first_round(data.trust_horizon)
    episodes = first_round(data.episodes_per_action)
    if data.rounds > 1 or not family.sparse_reward or (data.score == "mean" and episodes > 1):
        return None
    if data.common_actions:
        known = episodes == 1 and data.continuation == 1
        single = common_actions_chances(mdps, policy, steps, ties) if known else None
        return None if single is None else _joint(single, mdps.occupied)
    tasks = np.arange(len(parameters))
    parts = np.array_split(tasks, -(-len(tasks) // TASKS_AT_ONCE))
    settings = steps, ties, episodes, data.continuation
    return np.concatenate([_laws(mdps, policy, *settings, part) for part in parts])


def prior_law(family: TabularFamily, data: DataConfig, labels: str) -> NDArray[np.float64] | None:
    """Return `label_law` of all distinct tasks, (G, S, A), in the order of `prior_tasks`."""
    parts = [label_law(family, data, labels, split) for split in SPLITS]
    found = [part for part in parts if part is not None]
    return np.concatenate(found) if len(found) == len(parts) else None


def _with_errors(
    right: NDArray[np.float64], optimal: NDArray[np.bool_], data: DataConfig
) -> NDArray[np.float64]:
    """Return the distribution (M, S, A) of the oracle's labels with `oracle_error`."""
    if not data.oracle_error:
        return right
    others = ~optimal * 1.0
    counts = others.sum(axis=-1, keepdims=True)
    wrong = np.divide(others, counts, out=right.copy(), where=counts > 0)
    return (1 - data.oracle_error) * right + data.oracle_error * wrong


def hitting_step_law(may: Outcomes, policy: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    """Return the probability of a first reward at step 1..N or, last, of none, (S, A, N + 1).

    Args:
        may: the outcomes (S, A, J) of one MDP.
        policy: (A,) probabilities of the behavior policy.
        steps: N.
    """
    n_states, n_actions, _ = may.rewards.shape
    law = np.zeros((n_states, n_actions, steps + 1))
    # Probability of a first reward k steps from a state under the policy.
    from_state = np.zeros((n_states, steps + 1))
    for k in range(1, steps + 1):
        paid = may.rewards > 0
        later = ~paid & ~may.ends
        now = paid * 1.0 if k == 1 else later * from_state[may.next_states, k - 1]
        per_action = (may.chances * now).sum(axis=-1)
        law[:, :, k - 1] = per_action
        from_state[:, k] = per_action @ policy
    law[:, :, steps] = 1 - law[:, :, :steps].sum(axis=-1)
    return law


def best_of(law: NDArray[np.float64], episodes: int) -> NDArray[np.float64]:
    """Return the distribution of the fastest of several independent rollouts, (S, A, N + 1)."""
    beyond = np.maximum(1 - law[:, :, :-1].cumsum(axis=-1), 0) ** episodes
    none = np.ones((*law.shape[:2], 1))
    return -np.diff(np.concatenate([none, beyond, np.zeros_like(none)], axis=-1))


def algorithm_5_law(
    mdps: FiniteMDPs,
    policy: NDArray[np.float64],
    steps: int,
    random_ties: bool,
    episodes: int = 1,
    continuation: float = 1.0,
    task: int = 0,
) -> NDArray[np.float64]:
    """Return the joint distribution of query state and action label in one of the MDPs, (S, A).

    With N_ep > 1 the score is that of the fastest rollout (`data.score: fastest`).
    """
    return _laws(mdps, policy, steps, random_ties, episodes, continuation, np.array([task]))[0]


def _laws(
    mdps: FiniteMDPs,
    policy: NDArray[np.float64],
    steps: int,
    random_ties: bool,
    episodes: int,
    continuation: float,
    tasks: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return `algorithm_5_law` of several tasks, (M, S, A)."""
    law = np.concatenate(
        [hitting_step_law(mdps.outcomes.at(np.array(task)), policy, steps) for task in tasks]
    )
    if episodes > 1:
        law = best_of(law, episodes)
    chances = label_chances(law, random_ties, continuation).reshape(len(tasks), -1, len(policy))
    return _joint(chances, mdps.occupied[tasks])


def _joint(chances: NDArray[np.float64], occupied: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the joint distribution (M, S, A) of query state and label.

    Args:
        chances: (M, S, A), that a query state is accepted with each label.
        occupied: (M, S), the states that may be asked.
    """
    joint = chances * occupied[:, :, None]
    return joint / joint.sum(axis=(1, 2), keepdims=True)


def label_chances(
    law: NDArray[np.float64], random_ties: bool, continuation: float = 1.0
) -> NDArray[np.float64]:
    """Return the probability that a query state is accepted with each label, (S, A).

    Args:
        law: (S, A, N + 1), of `hitting_step_law`.
        random_ties: whether ties are broken at random instead of by the lowest action.
        continuation: chance that a query state's trust horizon has another step, up to N.
    """
    # Probability that an action needs more than k steps.
    beyond = 1 - law.cumsum(axis=-1)
    chances = np.zeros(law.shape[:2])
    for action in range(law.shape[1]):
        for k in range(law.shape[2] - 1):
            wins = _wins(law, beyond, action, k, random_ties)
            chances[:, action] += continuation**k * law[:, action, k] * wins
    return chances


def _wins(
    law: NDArray[np.float64],
    beyond: NDArray[np.float64],
    action: int,
    k: int,
    random_ties: bool,
) -> NDArray[np.float64]:
    """Return the probability that `action`, rewarded at step k, is chosen, (S,)."""
    others = [a for a in range(law.shape[1]) if a != action]
    if not random_ties:
        chance = np.ones(len(law))
        for other in others:
            ties = 0.0 if other < action else law[:, other, k]
            chance = chance * (beyond[:, other, k] + ties)
        return chance
    # counts[:, m]: probability that m of the others tie and the rest need longer.
    counts = np.zeros((len(law), len(others) + 1))
    counts[:, 0] = 1
    for other in others:
        longer, ties = beyond[:, other, k, None], law[:, other, k, None]
        counts[:, 1:] = counts[:, 1:] * longer + counts[:, :-1] * ties
        counts[:, :1] = counts[:, :1] * longer
    return counts @ (1 / np.arange(1, counts.shape[1] + 1))
