"""Offline deployment (Algorithm 4): greedy for one episode, under a given random context."""

import numpy as np
from numpy.typing import NDArray

from sad_hpc.evaluate.episode import play_episode
from sad_hpc.evaluate.policy import ContextPolicy, greedy
from sad_hpc.model.transformer import Context, Transformer
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
        batch_size: sequences in one forward pass.
    """
    policy = ContextPolicy(model, family, context, batch_size)
    episode = play_episode(family, mdps, lambda states, _: greedy(policy.logits(states)))
    return episode.rewards.sum(axis=1, keepdims=True)
