"""Offline deployment (Algorithm 6): greedy for one episode, under a given random context.

Algorithm 6 samples an unseen environment and a context C of it, and takes the likeliest action of
F(. | C, s_t) at every step.  C never changes: one pass over it answers for every state, and the
episode looks its actions up.
"""

import numpy as np
from numpy.typing import NDArray

from sad_hpc.evaluate.episode import play_episode
from sad_hpc.evaluate.policy import greedy, state_logits
from sad_hpc.model.context import Context
from sad_hpc.model.transformer import Transformer
from sad_hpc.tasks.base import TabularFamily, TabularMDPs


def offline_returns(
    model: Transformer,
    family: TabularFamily,
    mdps: TabularMDPs,
    context: Context,
    batch_size: int,
) -> NDArray[np.float32]:
    """(n, 1): the return of one greedy episode in each of n tasks.

    Args:
        model: the trained transformer.
        family: of the tasks.
        mdps: one MDP a task (M = n).
        context: n contexts of T transitions.
        batch_size: contexts in one forward pass.
    """
    actions = greedy(state_logits(model, family, context, batch_size))
    tasks = np.arange(len(actions))
    episode = play_episode(family, mdps, lambda states, _: actions[tasks, states])
    return episode.rewards.sum(axis=1, keepdims=True)
