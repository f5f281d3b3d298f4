"""Environment steps inside kernels, for tables and Miniworld's rooms.

Numba compiles a kernel once for each type of world (`Certain`, `Uncertain`, `Rooms`).  In certain
tables a step is a look-up.  In uncertain tables the kernel draws one number in [0, 1) if an action
has several outcomes.  In rooms a step moves a pose.
"""

from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from sad_hpc.kernels.random import (
    digits_word,
    high_product,
    next_double,
    rejection_threshold,
)
from sad_hpc.tasks.mdps import FiniteMDPs, Starts, TabularMDPs, bounds
from sad_hpc.tasks.miniworld.motion import moved, random_pose, rewarded
from sad_hpc.tasks.miniworld.room import Geometry


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
    """(M, S, A, J) cumulative probabilities of the outcomes; see `mdps.bounds`."""
    occupied: NDArray[np.bool_]
    """(M, S): whether an episode can visit a state."""


class Rooms(NamedTuple):
    """Miniworld's rooms; a task is the corner of its target, a state is a pose (x, z, heading)."""

    geometry: Geometry
    boxes: NDArray[np.float64]
    """(4, 2): centers (x, z) of the boxes."""


def step_tables(mdps: FiniteMDPs) -> Certain | Uncertain:
    """Return the tables of MDPs that kernels read."""
    if isinstance(mdps, TabularMDPs):
        return Certain(mdps.next_states, mdps.rewards)
    may = mdps.outcomes
    return Uncertain(may.next_states, may.rewards, may.ends, bounds(may.chances), mdps.occupied)


def start_table(starts: Starts) -> Starts:
    """Return the start state, or the cumulative probabilities (M, S) of start states."""
    return starts if isinstance(starts, int) else bounds(starts)


def find_task(world, number):  # type: ignore[no-untyped-def]
    """In a kernel: convert a task's number to the form that `take` and `draw_state` expect."""
    raise NotImplementedError("kernels only")


def take(world, task, state, action, stream):  # type: ignore[no-untyped-def]
    """In a kernel: return the next state, the reward, and whether the episode ends."""
    raise NotImplementedError("kernels only")


def begin(starts, mdp, stream):  # type: ignore[no-untyped-def]
    """In a kernel: draw a start state."""
    raise NotImplementedError("kernels only")


def can_be(tables, mdp, state):  # type: ignore[no-untyped-def]
    """In a kernel: return whether an episode can visit a state."""
    raise NotImplementedError("kernels only")


def draw_state(world, task, stream):  # type: ignore[no-untyped-def]
    """In a kernel: draw a state uniformly among those that an episode can visit."""
    raise NotImplementedError("kernels only")


@overload(find_task)
def _find_task(world, number):  # type: ignore[no-untyped-def]
    def table(world, number):  # type: ignore[no-untyped-def]
        return number

    def room(world, number):  # type: ignore[no-untyped-def]
        return world.boxes[number, 0], world.boxes[number, 1]

    return room if world.instance_class is Rooms else table


@overload(take)
def _take(world, task, state, action, stream):  # type: ignore[no-untyped-def]
    def certain(world, task, state, action, stream):  # type: ignore[no-untyped-def]
        reward = world.paid[task, state, action]
        return np.uint64(world.following[task, state, action]), reward, False

    def uncertain(world, task, state, action, stream):  # type: ignore[no-untyped-def]
        j = 0
        if world.bounds[task, state, action, 0] < 1:
            number = next_double(stream)
            while number >= world.bounds[task, state, action, j]:
                j += 1
        after = np.uint64(world.following[task, state, action, j])
        return after, world.paid[task, state, action, j], world.ending[task, state, action, j]

    def room(world, task, state, action, stream):  # type: ignore[no-untyped-def]
        box_x, box_z = task
        x, z, heading = moved(world.geometry, box_x, box_z, state[0], state[1], state[2], action)
        reward = np.float64(rewarded(world.geometry, box_x, box_z, x, z, heading))
        return (x, z, heading), reward, False

    return {Certain: certain, Uncertain: uncertain, Rooms: room}[world.instance_class]


@overload(begin)
def _begin(starts, mdp, stream):  # type: ignore[no-untyped-def]
    def certain(starts, mdp, stream):  # type: ignore[no-untyped-def]
        return np.uint64(starts)

    def uncertain(starts, mdp, stream):  # type: ignore[no-untyped-def]
        number = next_double(stream)
        return np.uint64(np.searchsorted(starts[mdp], number, side="right"))

    return certain if isinstance(starts, types.Integer) else uncertain


@overload(can_be)
def _can_be(tables, mdp, state):  # type: ignore[no-untyped-def]
    def certain(tables, mdp, state):  # type: ignore[no-untyped-def]
        return True

    def uncertain(tables, mdp, state):  # type: ignore[no-untyped-def]
        return tables.occupied[mdp, state]

    return {Certain: certain, Uncertain: uncertain}[tables.instance_class]


@overload(draw_state)
def _draw_state(world, task, stream):  # type: ignore[no-untyped-def]
    def number(world, task, stream):  # type: ignore[no-untyped-def]
        n_states = np.uint64(world.paid.shape[1])
        threshold = rejection_threshold(n_states)
        while True:
            state = high_product(digits_word(stream, n_states, threshold), n_states)
            if can_be(world, task, state):
                return state

    def pose(world, task, stream):  # type: ignore[no-untyped-def]
        return random_pose(world.geometry, task[0], task[1], stream)

    return pose if world.instance_class is Rooms else number
