"""Trials under random play, before collecting: exact copies, and parameters without an effect."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.errors import ConfigError, described
from sad_hpc.experiment.numbers import in_range
from sad_hpc.tasks.environments.actions import Actions, actions_of
from sad_hpc.tasks.environments.atari import AleState
from sad_hpc.tasks.environments.config import EnvironmentConfig
from sad_hpc.tasks.environments.engine import StatePair
from sad_hpc.tasks.environments.mujoco_state import MujocoState
from sad_hpc.tasks.environments.observations import Observations, first_out_of_range
from sad_hpc.tasks.environments.replayed import Replayed
from sad_hpc.tasks.environments.simulator import DeepCopied, Simulator, Step
from sad_hpc.tasks.environments.task import EnvironmentTask, make_environment
from sad_hpc.user_code import FAILURES, UserCode

ADAPTERS: tuple[type[Simulator], ...] = (
    MujocoState,
    AleState,
    StatePair,
    DeepCopied,
    Replayed,
)
"""Adapters in the order of the trials."""

STEPS = 50
"""Number of random actions that are repeated after a copy."""

BEFORE = 10
"""Steps before the copy; half of the episode if it is shorter than twice that."""

EPISODES = 10
"""Largest number of episodes; fewer are compared if they have STEPS steps together."""

IDLE_VALUES, IDLE_EPISODES = 4, 20
"""Numbers of alternative values of a parameter and of episodes of a value, after which it has no
effect.  In a sparse room random play must reach the goal of one of them."""


def choose_adapter(task: EnvironmentTask) -> type[Simulator]:
    """Return the first adapter whose copies behave like the environment itself.

    Raises:
        ConfigError: the environment is not reproducible from its seed, or no adapter copies it;
            the message has the first difference for each adapter.
    """
    faults = [f"{task} cannot be copied in the middle of an episode"]
    recorder = Recorder(task)
    episodes = _true_episodes(recorder)
    for adapter in ADAPTERS:
        if not adapter.fits(recorder.environment):
            continue
        fault = _fault(adapter, task, recorder, episodes)
        if fault is None:
            return adapter
        faults.append(fault)
    faults.append(
        "add get_state(), which returns its whole state, and set_state(state), or keep its "
        "whole state in attributes that copy.deepcopy copies"
    )
    raise ConfigError("; ".join(faults))


@dataclass(frozen=True)
class Episode:
    """An episode of an environment under random actions, without copies."""

    seed: int
    actions: list[Any]
    first: NDArray[Any]
    """The first observation, a row of `Observations`."""
    steps: list[Step]
    """One for each action, with such observations."""


class Recorder:
    """Recorder of a simulator's steps under random actions."""

    def __init__(self, task: EnvironmentTask) -> None:
        self.task = task
        self.taken = 0
        """Number of steps of all simulators so far."""
        self.environment = make_environment(task)
        try:
            self._observations = Observations(self.environment.observation_space)
            self._actions: Actions = actions_of(self.environment.action_space)
        except ConfigError as error:
            raise ConfigError(f"{task}: {error}") from error

    def episode(self, seed: int) -> Episode:
        """Record an episode without copies, of at most BEFORE + STEPS steps."""
        drawn = self._actions.drawn(BEFORE + STEPS, np.random.default_rng(seed))
        actions = [self._actions.taken(action) for action in drawn]
        make = functools.partial(make_environment, self.task)
        simulator = DeepCopied(self.environment, make)  # it is never copied here
        steps: list[Step] = []

        def place() -> str:
            return f"step {len(steps) + 1} of the episode of seed {seed}"

        with UserCode(lambda: f"{self.task}, {place()}"):
            try:
                first = self._row(simulator.reset(seed))
                for step in self._taken(simulator, actions):
                    steps.append(step)
            except FAILURES as error:
                text = f"{self.task} fails in {place()}: {described(error)}"
                raise ConfigError(text) from error
        return Episode(seed, actions[: len(steps)], first, steps)

    def steps(self, simulator: Simulator, actions: Sequence[Any]) -> list[Step]:
        """Return the steps of the actions until the episode ends."""
        return list(self._taken(simulator, actions))

    def _taken(self, simulator: Simulator, actions: Sequence[Any]) -> Iterator[Step]:
        for action in actions:
            self.taken += 1
            observation, reward, ended = simulator.step(action)
            yield self._row(observation), reward, ended
            if ended:
                break

    def _row(self, observation: Any) -> NDArray[Any]:
        row = np.zeros(self._observations.shape, self._observations.dtype)
        self._observations.write(observation, row)
        if not in_range(row).all():
            raise ValueError(first_out_of_range(row))
        return row


def _true_episodes(recorder: Recorder) -> list[Episode]:
    """Record episodes without copies, and check that the first one is reproducible."""
    episodes = [recorder.episode(0)]
    again = recorder.episode(0)
    while len(episodes) < EPISODES and sum(len(e.steps) for e in episodes) < STEPS:
        episodes.append(recorder.episode(len(episodes)))
    fault = "the start differs" if not np.array_equal(episodes[0].first, again.first) else None
    fault = fault or first_difference(again.steps, episodes[0].steps)
    if fault is not None:
        raise ConfigError(
            f"{recorder.task} is not reproducible: after a second reset(seed=0), {fault}; "
            "reset must set its whole state and call super().reset(seed=seed), and all "
            "random numbers must come from self.np_random"
        )
    return episodes


def _fault(
    adapter: type[Simulator], task: EnvironmentTask, recorder: Recorder, episodes: list[Episode]
) -> str | None:
    """Describe the first difference between copies and recorded episodes, or return None."""
    environment = make_environment(task)
    with UserCode(lambda: f"{task}, step {recorder.taken} of trying {adapter.adapter}"):
        try:
            simulator = adapter(environment, functools.partial(make_environment, task))
            for episode in episodes:
                fault = _episode_fault(simulator, recorder, episode)
                if fault is not None:
                    return f"{adapter.adapter}: {fault}"
        except FAILURES as error:  # objects that cannot be copied raise errors of any kind
            return f"{adapter.adapter}: {described(error)}"
    return None


def _episode_fault(simulator: Simulator, recorder: Recorder, episode: Episode) -> str | None:
    """Copy a simulator within an episode, and compare it and its copies under the same actions."""
    before = min(BEFORE, len(episode.steps) // 2)
    simulator.reset(episode.seed)
    recorder.steps(simulator, episode.actions[:before])
    saved = simulator.copied()
    others = simulator.copied(seed=1)
    recorder.steps(others, episode.actions[::-1])  # steps of another copy must have no effect
    rest, true = episode.actions[before:], episode.steps[before:]
    trials: list[tuple[str, Callable[[], Simulator]]] = [
        ("in a copy", saved.copied),
        ("in a second copy of the same state", lambda: saved),
        ("in the original after steps of its copies", lambda: simulator),
    ]
    for where, trial in trials:
        fault = first_difference(recorder.steps(trial(), rest), true)
        if fault is not None:
            return f"{where}, {fault}"
    return None


def first_difference(found: list[Step], true: list[Step]) -> str | None:
    """Describe the first step that differs, or return None."""
    for step, (one, other) in enumerate(zip(found, true, strict=False), start=1):
        unequal = np.flatnonzero(one[0] != other[0])
        if len(unequal):
            i = unequal[0]
            found_here, true_here = one[0].flat[i], other[0].flat[i]
            return f"observation[{i}] of step {step} is {found_here} instead of {true_here}"
        if one[1] != other[1]:
            return f"the reward of step {step} is {one[1]} instead of {other[1]}"
        if one[2] != other[2]:
            return f"step {step} {'ends' if one[2] else 'does not end'} the episode"
    return None


def idle_parameters(config: EnvironmentConfig) -> list[str]:
    """Return the names of parameters whose change alone does not change random play.

    An environment can derive values from an attribute before the attribute is set, or ignore a
    keyword.  All tasks are then the same and contexts have no information.  A parameter that random
    play rarely depends on, such as a distant goal, is also listed.

    Raises:
        ConfigError: the environment fails.
    """
    rows = config.laws.draw("train", 1 + IDLE_VALUES, np.random.default_rng(0))
    unchanged = functools.cache(Recorder(config.task(rows[0])).episode)
    idle = []
    for place, name in enumerate(config.laws.values(rows[0])):
        others = np.repeat(rows[:1], IDLE_VALUES, axis=0)
        others[:, place] = rows[1:, place]
        changed = others[others[:, place] != rows[0, place]]
        if len(changed) and not any(_differs(config.task(row), unchanged) for row in changed):
            idle.append(name)
    return idle


def _differs(task: EnvironmentTask, unchanged: Callable[[int], Episode]) -> bool:
    recorder = Recorder(task)
    return not all(_alike(recorder.episode(i), unchanged(i)) for i in range(IDLE_EPISODES))


def _alike(one: Episode, other: Episode) -> bool:
    same_start = np.array_equal(one.first, other.first)
    return same_start and first_difference(one.steps, other.steps) is None
