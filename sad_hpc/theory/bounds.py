"""Theorems 1 and 2: sufficient sizes of rollouts for a trustworthiness, and the inverses.

With probability 1 - delta the chosen action is the best one, given N pulls of each arm (Theorem 1),
or N_ep rollouts of N steps of each action (Theorem 2).

Limits:

- The proofs hold for one competing action and one query state.  With more than two actions, or for
  all states at once, the level is a guide and not a bound.
"""

import math
from dataclasses import dataclass

from sad_hpc.errors import ConfigError

ROUNDING = 1e-9
"""Relative tolerance for floating-point errors."""


@dataclass(frozen=True)
class BanditBound:
    """Theorem 1: the bound for bandits."""

    bound: float
    """B: upper bound of |reward|; the standard deviation for Gaussian rewards."""
    gap: float
    """Mean reward of the best arm minus that of the second best."""

    def __post_init__(self) -> None:
        _check_positive(bound=self.bound, gap=self.gap)

    def trust_horizon(self, delta: float) -> float:
        """Return the least N, pulls of every arm, for trustworthiness 1 - delta.

        Raises:
            ConfigError: N is too large to compute.
        """
        ratio = self.bound / self.gap
        return _finite(8 * ratio * ratio * log_term(delta), f"N for gap={self.gap:g}")

    def trustworthiness(self, pulls: float) -> float:
        """Return 1 - delta for N pulls of every arm."""
        _check_positive(N=pulls)
        ratio = self.gap / self.bound
        return _level(pulls * ratio * ratio / 8)


@dataclass(frozen=True)
class MDPBound:
    """Theorem 2: the bound for MDPs."""

    bound: float
    """B: upper bound of |reward|."""
    kappa: float
    """Smallest gap over states, in the random policy's Q, between the best two actions."""
    discount: float
    """gamma."""

    def __post_init__(self) -> None:
        _check_positive(bound=self.bound, kappa=self.kappa)
        if not 0 < self.discount < 1:
            raise ConfigError(f"gamma={self.discount} must be between 0 and 1")
        if self._scaled_gap == 0:
            raise ConfigError(f"kappa={self.kappa:g} is too small to compute the bound")
        if self._scaled_gap > 1:
            raise ConfigError(
                f"kappa={self.kappa:g} is impossible with rewards within {self.bound:g} and "
                f"gamma={self.discount}: at most {2 * self.bound / (1 - self.discount):g}"
            )

    @property
    def least_horizon(self) -> int:
        """Smallest trust horizon N of the theorem: later rewards cannot change the best action.

        A rollout of N has the rewards of t = 0 .. N.
        """
        horizon = max(0, math.floor(math.log(self._scaled_gap, self.discount) - 1))
        while self.discount ** (horizon + 1) >= self._scaled_gap * (1 - ROUNDING):
            horizon += 1
        return horizon

    def g_1(self, horizon: int) -> float:
        """Return G_1 of equation (9), the factor of the logarithm in N_ep.

        Raises:
            ConfigError: N is below `least_horizon`, or G_1 is too large to compute.
        """
        if horizon < self.least_horizon:
            raise ConfigError(
                f"N={horizon} is below {self.least_horizon}, the minimum of Theorem 2 for "
                f"kappa={self.kappa:g}, gamma={self.discount}, B={self.bound:g}"
            )
        beyond = self.discount ** (horizon + 1)
        ratio = (1 - beyond) / (self._scaled_gap - beyond)
        return _finite(2 * ratio * ratio, f"G_1 for kappa={self.kappa:g}")

    def episodes(self, delta: float, horizon: int) -> float:
        """Return the least N_ep, rollouts of every action, for trustworthiness 1 - delta."""
        return _finite(self.g_1(horizon) * log_term(delta), f"N_ep for kappa={self.kappa:g}")

    def trustworthiness(self, episodes: float, horizon: int) -> float:
        """Return 1 - delta for N_ep rollouts of N steps."""
        _check_positive(N_ep=episodes)
        return _level(episodes / self.g_1(horizon))

    @property
    def _scaled_gap(self) -> float:
        return self.kappa * (1 - self.discount) / (2 * self.bound)


def log_term(delta: float) -> float:
    """Return log((1 + sqrt(1 - delta)) / delta), a factor in both theorems."""
    if not 0 < delta < 1:
        raise ConfigError(f"delta={delta:g} must be between 0 and 1")
    return math.log((1 + math.sqrt(1 - delta)) / delta)


def _level(exponent: float) -> float:
    """Invert `log_term`: 1 - delta = (1 - exp(-x))^2 has log_term(delta) = x."""
    return math.expm1(-exponent) ** 2


def _finite(value: float, name: str) -> float:
    if not math.isfinite(value):
        raise ConfigError(f"{name} is too large to compute")
    return value


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise ConfigError(f"{name}={value:g} must be positive and finite")
