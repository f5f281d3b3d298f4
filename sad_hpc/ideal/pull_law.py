"""The exact posterior predictive of pulls by a policy that is drawn for each task, as DPT draws it.

The policy is p = (1 - c) d + c e with d ~ Dirichlet(1, ..., 1), e one arm and c in {0, 0.1, ..., 1}
(see `distill.bandits.draw_policies_of_dpt`).  Given c and e, the share of e in d has a Beta(1, A -
1) distribution, and the others divide the rest evenly in law.  The likelihood of pulls is a
polynomial in that share, which Gauss-Legendre quadrature integrates exactly.
"""

import functools

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

CERTAIN = np.arange(11) / 10
"""Values of c."""


def next_pull_chances(counts: NDArray[np.float64], horizon: int) -> NDArray[np.float64]:
    """Return the probability that the next pull is of an arm, (n, A), as AD's exact learner.

    Args:
        counts: (n, A), numbers of pulls so far, at most T in all.
        horizon: T.
    """
    n_arms = counts.shape[1]
    table = _log_moments(n_arms, horizon)
    own = counts.astype(np.int64)
    others = own.sum(axis=1, keepdims=True) - own
    # (11, n, A): the likelihood of the pulls for each c and e, up to a common factor.
    now = table[:, own, others]
    among_others = gammaln(own + 1).sum(axis=1, keepdims=True) - gammaln(own + 1)
    likelihood = now + among_others - gammaln(n_arms - 1 + others)
    weights = np.exp(likelihood - logsumexp(likelihood, axis=(0, 2), keepdims=True))
    possible = np.where(np.isfinite(now), now, 0.0)
    again = np.exp(table[:, own + 1, others] - possible)
    another = np.exp(table[:, own, others + 1] - possible)
    # Not e but some other arm a, in proportion to a's pulls plus one.
    rest = (weights * another / (n_arms - 1 + others)).sum(axis=0)
    share_of_others = (rest.sum(axis=1, keepdims=True) - rest) * (own + 1)
    chances: NDArray[np.float64] = (weights * again).sum(axis=0) + share_of_others
    return chances


@functools.cache
def _log_moments(n_arms: int, horizon: int) -> NDArray[np.float64]:
    """Return log E[(c + (1 - c) d)^k ((1 - c)(1 - d))^m] with d ~ Beta(1, A - 1).

    The shape is (11, T + 2, T + 2), of c, k and m.
    """
    longest = horizon + 1  # one more pull than there are
    nodes, shares = np.polynomial.legendre.leggauss((longest + n_arms) // 2 + 1)
    nodes, shares = (nodes + 1) / 2, shares / 2
    powers = np.arange(longest + 1)
    beta = (n_arms - 1) * (1 - nodes) ** (n_arms - 2) * shares
    others = (1 - nodes)[:, None] ** powers * beta[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = [
            np.log((certain + (1 - certain) * nodes) ** powers[:, None] @ others)
            + np.where(powers > 0, powers * np.log(1 - certain), 0.0)
            for certain in CERTAIN
        ]
    return np.stack(found)
