"""Online play of a trained model in training tasks, for the contexts of the next round.

The acting rule of its evaluation is chosen after the training, so each run has a temperature of its
own, drawn from the grid of `acting`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.block import Transitions
from sad_hpc.evaluate.acting import TEMPERATURES, sampled
from sad_hpc.evaluate.episode import as_context, no_transitions, play_episode
from sad_hpc.evaluate.policy import state_logits
from sad_hpc.evaluate.simulated import Episodes, acting, no_simulated_transitions, readings
from sad_hpc.kernels.interruption import STOP_FLAG, Interrupted
from sad_hpc.model.context import Context
from sad_hpc.model.sequence_model import SequenceModel
from sad_hpc.tasks.mdps import FiniteMDPs
from sad_hpc.tasks.simulated import SimulatedFamily
from sad_hpc.tasks.tabular import TabularFamily

COLDEST = 1e-3
"""Temperature that stands for greedy play."""

NextEpisode = Callable[[NDArray[np.int64], Transitions], Transitions]
"""Map agents (m,) and their previous episodes (m, t) to their next episodes (m, T)."""


def table_play(
    model: SequenceModel,
    family: TabularFamily,
    tasks: tuple[FiniteMDPs, NDArray[np.int64]],
    episodes: NDArray[np.int64],
    generator: np.random.Generator,
    batch_size: int,
) -> Transitions:
    """Play online in tabular tasks, and return one episode of each run.

    Args:
        model: the trained model.
        family: family of the tasks.
        tasks: M MDPs, and the number (n,) of each task's MDP.
        episodes: (n,), the number of the episode to return, from 1 on.
        generator: random numbers of temperatures, actions and tasks.
        batch_size: number of contexts in one forward pass.

    Returns:
        transitions (n, T) in time order, with coordinates as states.
    """
    mdps, mdp_of_task = tasks
    temperatures = _drawn_temperatures(len(episodes), generator)

    def next_episode(agents: NDArray[np.int64], before: Transitions) -> Transitions:
        logits = state_logits(model, family, as_context(family, before), batch_size)
        logits /= temperatures[agents, None, None]
        rows = np.arange(len(agents))

        def act(states: NDArray[np.int64], step: int) -> NDArray[np.int64]:
            return sampled(logits[rows, states], generator.random(len(rows)))

        return play_episode(family, mdps, act, generator, mdp_of_task[agents])

    shown = _episodes_of_runs(episodes, no_transitions(family, len(episodes)), next_episode)
    return Transitions(
        family.coordinates[shown.states],
        shown.actions,
        shown.rewards,
        family.coordinates[shown.next_states],
        shown.ends,
    )


def simulator_play(
    model: SequenceModel,
    family: SimulatedFamily,
    parameters: NDArray[np.float64],
    episodes: NDArray[np.int64],
    generator: np.random.Generator,
    batch_size: int,
) -> Transitions:
    """Play online in simulated tasks with parameters (n, p); see `table_play`."""
    temperatures = _drawn_temperatures(len(episodes), generator)
    _, sample = readings(family, generator)

    def next_episode(agents: NDArray[np.int64], before: Transitions) -> Transitions:
        def read(logits: NDArray[np.float32]) -> NDArray[Any]:
            return sample(logits / temperatures[agents, None])

        act = acting(model, Context.of_parts(before.parts), read, batch_size)
        return Episodes(family, parameters[agents], generator).rollout(act)

    nothing = no_simulated_transitions(family, len(episodes))
    return _episodes_of_runs(episodes, nothing, next_episode)


def _drawn_temperatures(count: int, generator: np.random.Generator) -> NDArray[np.float32]:
    drawn = generator.choice(np.array(TEMPERATURES, np.float32), size=count)
    return np.maximum(drawn, np.float32(COLDEST))


def _episodes_of_runs(
    episodes: NDArray[np.int64], nothing: Transitions, next_episode: NextEpisode
) -> Transitions:
    """Return episode number `episodes[i]` of run i, for n runs; a run ends with it."""
    active, shown = np.arange(len(episodes)), nothing
    wanted: Transitions | None = None
    for number in range(1, episodes.max() + 1):
        if STOP_FLAG[0]:
            raise Interrupted
        shown = next_episode(active, shown)
        wanted = shown if wanted is None else wanted.replaced(active, shown)
        goes_on = episodes[active] > number
        active, shown = active[goes_on], shown.at(goes_on)
    assert wanted is not None
    return wanted
