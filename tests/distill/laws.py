"""Exact distributions of the kernels' samples, by dynamic programming."""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sad_hpc.distill.labels import Labels


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
