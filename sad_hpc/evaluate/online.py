"""Online deployment (Algorithm 6): the model collects its own context, episode after episode.

Algorithm 6 begins with an empty context C, draws every action of an episode from F(. | C, s_t), and
adds the episode to C when it has ended.  While it lasts C stays as it is: one pass over C answers
for every state, and the episode looks its logits up.
"""

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sad_hpc.evaluate.episode import as_context, empty_context, play_episode
from sad_hpc.evaluate.policy import sampled, state_logits
from sad_hpc.model.transformer import Transformer
from sad_hpc.tasks.base import TabularFamily, TabularMDPs


def online_returns(
    model: Transformer,
    family: TabularFamily,
    mdps: TabularMDPs,
    n_episodes: int,
    generator: np.random.Generator,
    batch_size: int,
    report: Callable[[int], None] = lambda episodes: None,
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Returns and contexts' reward counts of successive episodes, actions drawn from the softmax.

    The context of an episode is the last T transitions before it, which is the episode before; the
    first one has an empty context.

    Args:
        model: the trained transformer.
        family: of the tasks.
        mdps: one MDP a task (M = n).
        n_episodes: E.
        generator: of the action draws, (T, n) uniform numbers an episode.
        batch_size: contexts in one forward pass.
        report: called with the number of episodes played.

    Returns:
        returns (n, E) and numbers of rewarded transitions in the contexts (n, E).
    """
    n_tasks, horizon = len(mdps.rewards), family.config.horizon
    returns = np.empty((n_tasks, n_episodes), np.float32)
    context_rewards = np.empty((n_tasks, n_episodes), np.int32)
    context = empty_context(family, n_tasks)
    for number in range(n_episodes):
        logits = state_logits(model, family, context, batch_size)
        uniforms = generator.random((horizon, n_tasks))
        episode = play_episode(family, mdps, functools.partial(_draw, logits, uniforms))
        returns[:, number] = episode.rewards.sum(axis=1)
        context_rewards[:, number] = (context.rewards.numpy() > 0).sum(axis=1)
        context = as_context(family, episode)
        report(number + 1)
    return returns, context_rewards


def _draw(
    logits: NDArray[np.float32],
    uniforms: NDArray[np.float64],
    states: NDArray[np.int64],
    step: int,
) -> NDArray[np.int64]:
    """(n,): each task's action in its state (n,), by logits (n, S, A) and uniforms (T, n)."""
    return sampled(logits[np.arange(len(states)), states], uniforms[step])
