"""Families whose tasks are dictionaries of outcomes, as in FrozenLake, Taxi or CliffWalking."""

import functools
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.mdps import ActionOutcomes, FiniteMDPs, Starts, StochasticMDPs, tables_of
from sad_hpc.tasks.q_tables import optimal_q
from sad_hpc.tasks.tabular import TabularFamily

OPTIMAL_ERROR = 1e-9
"""TD error of the optimal Q.  Actions with equal values within `QTables.margin` are optimal."""


class StochasticFamily(TabularFamily):
    """A distribution over finite MDPs with random steps and ends.

    A subclass defines `outcomes_of` and `coordinates`.
    """

    has_histories = False
    has_ends = True
    certain = False
    discount: float = 0.99
    """gamma of the returns that optimal actions maximize."""

    @abstractmethod
    def outcomes_of(
        self, parameters: NDArray[Any]
    ) -> tuple[ActionOutcomes, NDArray[np.float64]]:  # fmt: skip
        """Return the outcomes by state and action, and the start probabilities (s,), of a task."""

    def mdps(self, parameters: NDArray[Any]) -> StochasticMDPs:
        """Implement `TabularFamily.mdps`."""
        return _tables(self, parameters.tobytes(), parameters.shape, parameters.dtype.str)

    def starts(self, mdps: FiniteMDPs) -> Starts:
        """Implement `TabularFamily.starts`."""
        assert isinstance(mdps, StochasticMDPs)
        return mdps.starts

    def optimal_actions(self, parameters: NDArray[Any]) -> NDArray[np.bool_]:
        """Return the optimal actions, (n, S, A), by value iteration."""
        return _optimal(self, parameters.tobytes(), parameters.shape, parameters.dtype.str)


# Cached because every block and check uses the same tasks, and reading dictionaries is slow.
@functools.lru_cache(maxsize=4)
def _tables(
    family: StochasticFamily, content: bytes, shape: tuple[int, ...], dtype: str
) -> StochasticMDPs:
    parameters = np.frombuffer(content, dtype).reshape(shape)
    tasks = [family.outcomes_of(each) for each in parameters]
    outcomes, starts = [task[0] for task in tasks], [task[1] for task in tasks]
    return tables_of(outcomes, starts, family.n_states)


@functools.lru_cache(maxsize=4)
def _optimal(family: StochasticFamily, *parameters: Any) -> NDArray[np.bool_]:
    tables = _tables(family, *parameters)
    return optimal_q(tables, family.discount, OPTIMAL_ERROR).best_actions()
