"""Online deployment (Algorithm 6): a policy collects its own context, episode after episode.

Algorithm 6 begins with an empty context C, draws every action of an episode from F(. | C, s_t), and
adds the episode to C when it has ended.  While it lasts C stays as it is: the answers for every
state are made at once, and the episode looks its logits up.
"""

import functools
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sad_hpc.evaluate.agent_memory import AgentMemory
from sad_hpc.evaluate.episode import play_episode, returns_of
from sad_hpc.evaluate.policy import sampled
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
    """Return and contexts' reward counts of successive episodes, actions drawn from the softmax.

    Args:
        answer: what a context says, as logits (n, S, A).
        memory: of the episodes so far, which makes the next one's context of them.
        family: of the tasks.
        mdps: one MDP a task (M = n).
        n_episodes: E.
        generator: of the action draws, (T, n) uniform numbers an episode, and then of what is not
            certain in the tasks.
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
    """Return each task's action in its state (n,), by logits (n, S, A) and uniforms (T, n), (n,).
    """
    return sampled(logits[np.arange(len(states)), states], uniforms[step])
