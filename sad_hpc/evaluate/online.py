"""Online deployment (Algorithm 6): a policy that collects its own context over several episodes.

Algorithm 6 begins with an empty context C, samples every action of an episode from F(. | C, s_t),
and adds the episode to C at its end.  C is constant within an episode, so the logits of all states
are computed at once.
"""

import functools
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sad_hpc.evaluate.acting import sampled
from sad_hpc.evaluate.agent_memory import AgentMemory
from sad_hpc.evaluate.episode import play_episode, returns_of
from sad_hpc.tasks.mdps import FiniteMDPs
from sad_hpc.tasks.tabular import TabularFamily

ContextT = TypeVar("ContextT")


def online_returns(
    answer: Callable[[ContextT], NDArray[np.float32]],
    memory: AgentMemory[ContextT],
    family: TabularFamily,
    mdps: FiniteMDPs,
    n_episodes: int,
    generator: np.random.Generator,
    report: Callable[[int], None] = lambda episodes: None,
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Play successive episodes with actions sampled from the softmax.

    Args:
        answer: function from a context to logits (n, S, A).
        memory: memory that turns past episodes into the next context.
        family: family of the tasks.
        mdps: one MDP for each task (M = n).
        n_episodes: E.
        generator: random numbers of actions, (T, n) an episode, and then of the tasks.
        report: called with the number of episodes played.

    Returns:
        returns (n, E) and numbers of rewarded transitions in the contexts (n, E).
    """
    n_tasks, horizon = mdps.sizes[0], family.config.horizon
    returns = np.empty((n_tasks, n_episodes), np.float32)
    context_rewards = np.empty((n_tasks, n_episodes), np.int32)
    for number in range(n_episodes):
        logits = answer(memory.context)
        context_rewards[:, number] = memory.rewards
        uniforms = generator.random((horizon, n_tasks))
        act = functools.partial(_draw, logits, uniforms)
        episode = play_episode(family, mdps, act, generator)
        returns[:, number] = returns_of(episode)
        memory.add(episode)
        report(number + 1)
    return returns, context_rewards


def _draw(
    logits: NDArray[np.float32],
    uniforms: NDArray[np.float64],
    states: NDArray[np.int64],
    step: int,
) -> NDArray[np.int64]:
    """Sample actions (n,) in states (n,), by logits (n, S, A) and uniform numbers (T, n)."""
    return sampled(logits[np.arange(len(states)), states], uniforms[step])
