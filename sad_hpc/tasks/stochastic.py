"""Families whose tasks are dictionaries of outcomes, as FrozenLake, Taxi or CliffWalking have."""

import functools
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.tasks.mdps import ActionOutcomes, FiniteMDPs, Starts, StochasticMDPs, tables_of
from sad_hpc.tasks.q_tables import optimal_q
from sad_hpc.tasks.tabular import TabularFamily

OPTIMAL_ERROR = 1e-9
"""TD error of the optimal Q: actions whose values differ by little more are all called optimal."""


class StochasticFamily(TabularFamily):
    """A distribution over finite MDPs with uncertain steps and ends.

    A family of its own says what a task is (`outcomes_of`) and how states are shown
    (`coordinates`); everything else follows.
    """

    has_histories = False
    has_ends = True
    certain = False
    discount: float = 0.99
    """gamma of the returns that optimal actions maximise."""

    @abstractmethod
    def outcomes_of(
        self, parameters: NDArray[Any]
    ) -> tuple[ActionOutcomes, NDArray[np.float64]]:  # fmt: skip
        """A task (p,): outcomes by state and action, and the chance (s,) to begin in a state."""

    def mdps(self, parameters: NDArray[Any]) -> StochasticMDPs:
        """See TabularFamily."""
        return _tables(self, parameters.tobytes(), parameters.shape, parameters.dtype.str)

    def starts(self, mdps: FiniteMDPs) -> Starts:
        """See TabularFamily."""
        assert isinstance(mdps, StochasticMDPs)
        return mdps.starts

    def optimal_actions(self, parameters: NDArray[Any]) -> NDArray[np.bool_]:
        """(n, S, A): by value iteration."""
        return _optimal(self, parameters.tobytes(), parameters.shape, parameters.dtype.str)


# Every block, and every check of one, asks for the same tasks: Python reads dictionaries slowly.
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
