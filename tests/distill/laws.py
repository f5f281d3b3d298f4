"""Exact laws of what the kernels sample, by dynamic programming."""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sad_hpc.distill.labels import Labels
from sad_hpc.tasks.base import TabularMDPs


def counts_at_the_end(n: int) -> dict[tuple[int, int], float]:
    """Law of the pulls of two equally likely arms when both first have n of them."""
    law: dict[tuple[int, int], float] = {}
    for last in (0, 1):  # the arm whose n-th pull ends the play
        for other in range(n, 60 * n):
            # other = pulls of the other arm, all of them before the last pull
            chance = stats.nbinom.pmf(other, n, 0.5)
            key = (n, other) if last == 0 else (other, n)
            law[key] = law.get(key, 0.0) + chance
    return law


def algorithm_2_law(
    means: NDArray[np.float64], pulls: int, random_ties: bool
) -> NDArray[np.float64]:
    """(n,): chance that the first of two arms is the label, of Bernoulli bandits (n, 2)."""
    expected = np.zeros(len(means))
    for (a, b), chance in counts_at_the_end(pulls).items():
        if chance < 1e-12:
            continue
        first = stats.binom.pmf(np.arange(a + 1), a, means[:, :1])[:, :, None]
        second = stats.binom.pmf(np.arange(b + 1), b, means[:, 1:])[:, None]
        left, right = np.arange(a + 1)[:, None] * b, np.arange(b + 1)[None] * a
        wins = (left > right) + (0.5 if random_ties else 1.0) * (left == right)
        expected += chance * (first * second * wins).sum(axis=(1, 2))
    return expected


def hitting_step_law(
    next_states: NDArray[np.uint16],
    rewards: NDArray[np.float32],
    policy: NDArray[np.float64],
    steps: int,
) -> NDArray[np.float64]:
    """(S, A, N + 1): chance that a rollout is first paid at step 1..N, or (last) not at all."""
    n_states, n_actions = rewards.shape
    law = np.zeros((n_states, n_actions, steps + 1))
    # Chance of being first paid k steps from a state under the policy.
    from_state = np.zeros((n_states, steps + 1))
    for k in range(1, steps + 1):
        paid = rewards > 0
        per_action = paid * 1.0 if k == 1 else ~paid * from_state[next_states, k - 1]
        law[:, :, k - 1] = per_action
        from_state[:, k] = per_action @ policy
    law[:, :, steps] = 1 - law[:, :, :steps].sum(axis=-1)
    return law


def best_of(law: NDArray[np.float64], episodes: int) -> NDArray[np.float64]:
    """(S, A, N + 1): the same of the fastest of several independent rollouts."""
    beyond = np.maximum(1 - law[:, :, :-1].cumsum(axis=-1), 0) ** episodes
    none = np.ones((*law.shape[:2], 1))
    return -np.diff(np.concatenate([none, beyond, np.zeros_like(none)], axis=-1))


def algorithm_5_law(
    mdps: TabularMDPs, policy: NDArray[np.float64], steps: int, random_ties: bool
) -> NDArray[np.float64]:
    """(S, A): joint law of query state and action label, N_ep = 1, for a single MDP."""
    law = hitting_step_law(mdps.next_states[0], mdps.rewards[0], policy, steps)
    joint = label_chances(law, random_ties)
    return joint / joint.sum()


def label_chances(law: NDArray[np.float64], random_ties: bool) -> NDArray[np.float64]:
    """(S, A): chance that a query state is accepted with each label, from `hitting_step_law`."""
    # Chance that an action needs more than k steps.
    beyond = 1 - law.cumsum(axis=-1)
    chances = np.zeros(law.shape[:2])
    for action in range(law.shape[1]):
        for k in range(law.shape[2] - 1):
            chances[:, action] += law[:, action, k] * _wins(law, beyond, action, k, random_ties)
    return chances


def _wins(
    law: NDArray[np.float64],
    beyond: NDArray[np.float64],
    action: int,
    k: int,
    random_ties: bool,
) -> NDArray[np.float64]:
    """(S,): chance that `action`, paid at step k, is chosen over the others."""
    others = [a for a in range(law.shape[1]) if a != action]
    if not random_ties:
        chance = np.ones(len(law))
        for other in others:
            ties = 0.0 if other < action else law[:, other, k]
            chance = chance * (beyond[:, other, k] + ties)
        return chance
    # counts[:, m]: chance that m of the others tie and the rest need longer.
    counts = np.zeros((len(law), len(others) + 1))
    counts[:, 0] = 1
    for other in others:
        longer, ties = beyond[:, other, k, None], law[:, other, k, None]
        counts[:, 1:] = counts[:, 1:] * longer + counts[:, :-1] * ties
        counts[:, :1] = counts[:, :1] * longer
    return counts @ (1 / np.arange(1, counts.shape[1] + 1))


def assert_law(labels: Labels, joint: NDArray[np.float64]) -> None:
    """Query states and actions (m,) are independent draws from the joint law (S, A)."""
    outcomes = labels.query_states.astype(int) * joint.shape[1] + labels.actions
    assert_drawn_from(outcomes, joint.ravel())


def assert_drawn_from(outcomes: NDArray[np.int64], law: NDArray[np.float64]) -> None:
    """Outcomes 0..n-1 (m,) are independent draws from the law (n,), by a chi-square test."""
    counts = np.bincount(outcomes, minlength=law.size)
    expected = law * counts.sum()
    possible = expected > 0
    assert counts[~possible].sum() == 0
    # Rare outcomes are pooled: chi-square needs a few expected counts in each cell.
    rare = possible & (expected < 10)
    kept = possible & ~rare
    observed = np.append(counts[kept], counts[rare].sum())
    wanted = np.append(expected[kept], expected[rare].sum())
    if not rare.any():
        observed, wanted = observed[:-1], wanted[:-1]
    assert stats.chisquare(observed, wanted).pvalue > 1e-3
