"""Online deployment (Algorithm 4): the model collects its own context, episode after episode."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sad_hpc.evaluate.episode import as_context, empty_context, play_episode
from sad_hpc.evaluate.policy import ContextPolicy, sampled
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
        generator: of the action draws.
        batch_size: sequences in one forward pass.
        report: called with the number of episodes played.

    Returns:
        returns (n, E) and numbers of rewarded transitions in the contexts (n, E).
    """
    n_tasks, horizon = len(mdps.rewards), family.config.horizon
    returns = np.empty((n_tasks, n_episodes), np.float32)
    context_rewards = np.empty((n_tasks, n_episodes), np.int32)
    context = empty_context(family, n_tasks)
    for number in range(n_episodes):
        policy = ContextPolicy(model, family, context, batch_size)
        uniforms = generator.random((horizon, n_tasks))

        def act(
            states: NDArray[np.int64],
            step: int,
            policy: ContextPolicy = policy,
            uniforms: NDArray[np.float64] = uniforms,
        ) -> NDArray[np.int64]:
            return sampled(policy.logits(states), uniforms[step])

        episode = play_episode(family, mdps, act)
        returns[:, number] = episode.rewards.sum(axis=1)
        context_rewards[:, number] = (context.rewards.numpy() > 0).sum(axis=1)
        context = as_context(family, episode)
        report(number + 1)
    return returns, context_rewards
