"""Offline deployment (Algorithm 6): one greedy episode under a given random context.

Algorithm 6 samples an unseen environment and a context C of it, and takes the most likely action of
F(. | C, s_t) at every step.  C is constant, so the actions of all states are computed at once.
"""

import numpy as np
from numpy.typing import NDArray

from sad_hpc.evaluate.acting import greedy
from sad_hpc.evaluate.episode import play_episode, returns_of
from sad_hpc.tasks.mdps import FiniteMDPs
from sad_hpc.tasks.tabular import TabularFamily


def offline_returns(
    family: TabularFamily,
    mdps: FiniteMDPs,
    logits: NDArray[np.float32],
    generator: np.random.Generator,
) -> NDArray[np.float32]:
    """Play one greedy episode in each of n tasks, and return its return, (n, 1).

    Args:
        family: family of the tasks.
        mdps: one MDP for each task (M = n).
        logits: (n, S, A), the answers under each task's context.
        generator: random numbers of the tasks.
    """
    actions = greedy(logits)
    tasks = np.arange(len(actions))
    episode = play_episode(family, mdps, lambda states, _: actions[tasks, states], generator)
    return returns_of(episode)[:, None]
