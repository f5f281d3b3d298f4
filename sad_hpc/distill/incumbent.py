"""The incumbent of a later round: the model of the round before.

Label rollouts follow it, and a share of the training contexts (`data.own_contexts`) is what it
collects when it plays online.  A model that saw only contexts of random play can be misled by those
of its own play.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.block import Transitions

EPISODES = 10
"""Length of the longest online run that a training context comes from."""


@dataclass(frozen=True)
class Incumbent:
    """The model of the round before."""

    follow: Callable[..., Any]
    """A function from contexts (n, T) to its policy in label rollouts: an `ActionTable` for tables;
    `Followings` for simulators, with a generator as the second argument."""
    play: Callable[..., Transitions]
    """A function from n tasks, numbers (n,) of episodes from 1 on, and a generator to these
    episodes of online runs.  Tasks are M tables and each task's number (n,), or parameters (n, p)
    for simulators."""


def with_own_play(
    context: Transitions,
    share: float,
    play: Callable[[NDArray[np.int64], NDArray[np.int64], np.random.Generator], Transitions],
    generator: np.random.Generator,
) -> tuple[Transitions, int]:
    """Replace the contexts of a share of the tasks by episodes of the incumbent's online play.

    Args:
        context: (n, T).
        share: the chance of a task to get such an episode.
        play: function from rows (m,) of the context, numbers of episodes (m,) and a generator to
            the episodes (m, T).
        generator: random numbers of the choice and of the play.

    Returns:
        contexts (n, T), and the number of transitions that the play took.
    """
    n_tasks, horizon = context.rewards.shape
    own = np.flatnonzero(generator.random(n_tasks) < share)
    if not own.size:
        return context, 0
    episodes = generator.integers(1, EPISODES + 1, size=len(own))
    return context.replaced(own, play(own, episodes, generator)), int(episodes.sum()) * horizon
