"""One step of an MDP inside a kernel: the same kernels serve certain tables and uncertain ones.

Numba compiles a kernel once for each type of the tables that it is given.  In certain ones a step
is a look-up, as if nothing else existed; in uncertain ones its outcome is drawn from the kernel's
own stream, by one number in [0, 1), where there is more than one.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from sad_hpc.kernels.random import next_double
from sad_hpc.tasks.mdps import FiniteMDPs, Starts, TabularMDPs, bounds


class Certain(NamedTuple):
    """Tables of deterministic MDPs."""

    following: NDArray[np.uint16]
    """(M, S, A)"""
    paid: NDArray[np.float32]
    """(M, S, A)"""


class Uncertain(NamedTuple):
    """Tables of any MDPs; the parts of the outcomes are (M, S, A, J)."""

    following: NDArray[np.uint16]
    paid: NDArray[np.float32]
    ending: NDArray[np.bool_]
    bounds: NDArray[np.float64]
    """See `mdps.bounds`."""
    occupied: NDArray[np.bool_]
    """(M, S): whether an episode can be in a state."""


def step_tables(mdps: FiniteMDPs) -> Certain | Uncertain:
    """What kernels look up of MDPs."""
    if isinstance(mdps, TabularMDPs):
        return Certain(mdps.next_states, mdps.rewards)
    may = mdps.outcomes
    return Uncertain(may.next_states, may.rewards, may.ends, bounds(may.chances), mdps.occupied)


def start_table(starts: Starts) -> Starts:
    """What kernels look up of starts: the state, or bounds (M, S) of a draw."""
    return starts if isinstance(starts, int) else bounds(starts)


def take(tables, mdp, state, action, stream):  # type: ignore[no-untyped-def]
    """In a kernel: the next state, the reward, and whether the episode ends with it."""
    raise NotImplementedError("kernels only")


def begin(starts, mdp, stream):  # type: ignore[no-untyped-def]
    """In a kernel: the state in which an episode begins."""
    raise NotImplementedError("kernels only")


def can_be(tables, mdp, state):  # type: ignore[no-untyped-def]
    """In a kernel: whether an episode can be in a state."""
    raise NotImplementedError("kernels only")


@overload(take)
def _take(tables, mdp, state, action, stream):  # type: ignore[no-untyped-def]
    def certain(tables, mdp, state, action, stream):  # type: ignore[no-untyped-def]  # pragma: no cover
        reward = tables.paid[mdp, state, action]
        return np.uint64(tables.following[mdp, state, action]), reward, False

    def uncertain(tables, mdp, state, action, stream):  # type: ignore[no-untyped-def]  # pragma: no cover
        j = 0
        if tables.bounds[mdp, state, action, 0] < 1:
            number = next_double(stream)
            while number >= tables.bounds[mdp, state, action, j]:
                j += 1
        after = np.uint64(tables.following[mdp, state, action, j])
        return after, tables.paid[mdp, state, action, j], tables.ending[mdp, state, action, j]

    return certain if _are_certain(tables) else uncertain


@overload(begin)
def _begin(starts, mdp, stream):  # type: ignore[no-untyped-def]
    def certain(starts, mdp, stream):  # type: ignore[no-untyped-def]  # pragma: no cover
        return np.uint64(starts)

    def uncertain(starts, mdp, stream):  # type: ignore[no-untyped-def]  # pragma: no cover
        number = next_double(stream)
        return np.uint64(np.searchsorted(starts[mdp], number, side="right"))

    return certain if isinstance(starts, types.Integer) else uncertain


@overload(can_be)
def _can_be(tables, mdp, state):  # type: ignore[no-untyped-def]
    def certain(tables, mdp, state):  # type: ignore[no-untyped-def]  # pragma: no cover
        return True

    def uncertain(tables, mdp, state):  # type: ignore[no-untyped-def]  # pragma: no cover
        return tables.occupied[mdp, state]

    return certain if _are_certain(tables) else uncertain


def _are_certain(tables: Any) -> bool:
    return bool(tables.instance_class is Certain)
