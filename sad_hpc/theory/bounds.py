"""Theorems 1 and 2: how far a random policy can be trusted, and the inverses.

Both say: with probability 1 - delta the action that looks best is the best one, if there are enough
pulls of each arm (Theorem 1: N), or if rollouts are long enough and each action has enough of them
(Theorem 2: N and N_ep).  Their proofs hold for one competing action and one query state at a time:
with more than two actions, or for all states at once, the level is a guide, and no bound.
"""

import math
from dataclasses import dataclass

from sad_hpc.errors import ConfigError

ROUNDING = 1e-9
"""Differences below this share are those of floating-point numbers."""


@dataclass(frozen=True)
class BanditBound:
    """Theorem 1."""

    bound: float
    """B: |rewards| are at most this; for Gaussian rewards their standard deviation does."""
    gap: float
    """Mean reward of the best arm less that of the second best."""

    def __post_init__(self) -> None:
        _check_positive(bound=self.bound, gap=self.gap)

    def trust_horizon(self, delta: float) -> float:
        """The least N, pulls of every arm, for trustworthiness 1 - delta.

        Raises:
            ConfigError: it is too large to be computed.
        """
        ratio = self.bound / self.gap
        return _finite(8 * ratio * ratio * log_term(delta), f"N for gap={self.gap:g}")

    def trustworthiness(self, pulls: float) -> float:
        """1 - delta for N pulls of every arm."""
        _check_positive(N=pulls)
        ratio = self.gap / self.bound
        return _level(pulls * ratio * ratio / 8)


@dataclass(frozen=True)
class MDPBound:
    """Theorem 2."""

    bound: float
    """B: |rewards| are at most this."""
    kappa: float
    """The least gap, over states, of Q under the random policy: best action less second best."""
    discount: float
    """gamma."""

    def __post_init__(self) -> None:
        _check_positive(bound=self.bound, kappa=self.kappa)
        if not 0 < self.discount < 1:
            raise ConfigError(f"gamma={self.discount} must lie between 0 and 1")
        if self._scaled_gap == 0:
            raise ConfigError(f"kappa={self.kappa:g} is too small to be computed with")
        if self._scaled_gap > 1:
            raise ConfigError(
                f"kappa={self.kappa:g} is impossible with rewards within {self.bound:g} and "
                f"gamma={self.discount}: at most {2 * self.bound / (1 - self.discount):g}"
            )

    @property
    def least_horizon(self) -> int:
        """The smallest trust horizon N that the theorem allows: what follows N can decide nothing.

        A rollout of N has the rewards of t = 0 .. N.
        """
        horizon = max(0, math.floor(math.log(self._scaled_gap, self.discount) - 1))
        while self.discount ** (horizon + 1) >= self._scaled_gap * (1 - ROUNDING):
            horizon += 1
        return horizon

    def g_1(self, horizon: int) -> float:
        """G_1 of equation (9): episodes by which each unit of the logarithm is paid.

        Raises:
            ConfigError: N is below `least_horizon`, or G_1 is too large to be computed.
        """
        if horizon < self.least_horizon:
            raise ConfigError(
                f"N={horizon} is below the {self.least_horizon} that Theorem 2 asks for with "
                f"kappa={self.kappa:g}, gamma={self.discount}, B={self.bound:g}"
            )
        beyond = self.discount ** (horizon + 1)
        ratio = (1 - beyond) / (self._scaled_gap - beyond)
        return _finite(2 * ratio * ratio, f"G_1 for kappa={self.kappa:g}")

    def episodes(self, delta: float, horizon: int) -> float:
        """The least N_ep, rollouts of every action, for trustworthiness 1 - delta."""
        return _finite(self.g_1(horizon) * log_term(delta), f"N_ep for kappa={self.kappa:g}")

    def trustworthiness(self, episodes: float, horizon: int) -> float:
        """1 - delta for N_ep rollouts of N steps."""
        _check_positive(N_ep=episodes)
        return _level(episodes / self.g_1(horizon))

    @property
    def _scaled_gap(self) -> float:
        return self.kappa * (1 - self.discount) / (2 * self.bound)


def log_term(delta: float) -> float:
    """log((1 + sqrt(1 - delta)) / delta), which both theorems multiply by."""
    if not 0 < delta < 1:
        raise ConfigError(f"delta={delta:g} must lie between 0 and 1")
    return math.log((1 + math.sqrt(1 - delta)) / delta)


def _level(exponent: float) -> float:
    """The inverse: 1 - delta = (1 - exp(-x))^2 has log_term(delta) = x."""
    return math.expm1(-exponent) ** 2


def _finite(value: float, name: str) -> float:
    if not math.isfinite(value):
        raise ConfigError(f"{name} is too large to be computed")
    return value


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise ConfigError(f"{name}={value:g} must be more than 0, and finite")
