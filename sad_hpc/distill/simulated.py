"""A block of simulated tasks: rollouts as contexts, and Algorithm 3 or 5 by copies of simulators.

Algorithm 1 draws states; simulators cannot be set to one.  So contexts are rollouts of the behavior
policy, an episode after another until there are T transitions, and query states come from further
rollouts: the simulator is copied at a step drawn uniformly among T, once for every label rollout.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.block import Block, Draw, Transitions
from sad_hpc.distill.labels import LabelRule, Labels, hopeless
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.kernels.interruption import STOP, Interrupted
from sad_hpc.tasks.simulated import SimulatedFamily, Simulators

MAX_ROUNDS = 100
"""Rollouts of T steps in search of query states that are good enough, before it is given up."""

COPIES_AT_ONCE = 4096
"""Simulators in memory at once for label rollouts."""

Act = Callable[[Simulators, int], NDArray[Any]]
"""Of simulators at step t: actions (n,), or vectors (n, a)."""


def simulated_block(family: SimulatedFamily, data: DataConfig, split: str, block: int) -> Block:
    """See `distill.make_block`."""
    draw = Draw.of(family, data, split, block, ("tasks", "context", "sad", "dpt"))
    generators = {name: np.random.default_rng(each) for name, each in draw.streams.items()}
    parameters = family.draw_tasks(split, draw.count, generators["tasks"])
    horizon, behavior = family.config.horizon, Behavior.of(family, draw.policy)
    context = play(
        family.simulators(parameters, generators["context"]),
        horizon,
        behavior.act(generators["context"]),
        generators["context"],
    )
    rule = LabelRule.of(data, family.sparse_reward)
    queries = data.queries_per_task
    sad = Distillation(family, parameters, behavior, rule, queries, generators["sad"]).labels()
    # A state of the context, and an action drawn anew.
    seen = generators["dpt"].integers(horizon, size=(draw.count, queries))
    drawn = behavior.draw(seen.size, generators["dpt"])
    rows = np.arange(draw.count)[:, None]
    dpt = Labels(context.states[rows, seen].reshape(seen.size, -1), drawn)
    return Block.of(draw.first, parameters, {"context": context}, {"sad": sad, "dpt": dpt})


@dataclass(frozen=True)
class Behavior:
    """The behavior policy: numbers by its table, or vectors drawn uniformly in [-1, 1]^a."""

    table: NDArray[np.uint8]
    """See `policy_table`."""
    n_actions: int
    components: int | None
    """a; None: actions are numbers."""

    @classmethod
    def of(cls, family: SimulatedFamily, table: NDArray[np.uint8]) -> "Behavior":
        """That of a family."""
        return cls(table, family.n_actions, family.components)

    def draw(self, count: int, generator: np.random.Generator) -> NDArray[Any]:
        """(count,) or (count, a) actions."""
        if self.components is None:
            return self.table[generator.integers(len(self.table), size=count)]
        return generator.uniform(-1, 1, (count, self.components)).astype(np.float32)

    def act(self, generator: np.random.Generator) -> Act:
        """The policy as something that acts."""
        return lambda simulators, step: self.draw(len(simulators.ended), generator)

    def candidates(
        self, count: int, rule: LabelRule, generator: np.random.Generator
    ) -> NDArray[Any]:
        """(count, C) or (count, C, a): first actions to try in each of `count` query states."""
        if self.components is None:
            return np.tile(np.arange(self.n_actions, dtype=np.uint8), (count, 1))
        drawn = self.draw(count * rule.candidates, generator)
        return drawn.reshape(count, rule.candidates, self.components)


def play(
    simulators: Simulators, horizon: int, act: Act, generator: np.random.Generator
) -> Transitions:
    """T transitions of each of n simulators (n, T), in time order, episode after episode.

    Raises:
        Interrupted: it was told to stop.
    """
    steps = []
    for step in range(horizon):
        if STOP[0]:
            raise Interrupted
        simulators.start(np.flatnonzero(simulators.ended), generator)
        states, actions = simulators.observations.copy(), act(simulators, step)
        rewards = simulators.step(actions)
        after = simulators.observations.copy(), simulators.ended.astype(np.uint8)
        steps.append((states, actions, rewards, *after))
    columns = (np.stack(column, axis=1) for column in zip(*steps, strict=True))
    states, actions, rewards, next_states, ends = columns
    return Transitions(states, actions, rewards, next_states, ends)


class Distillation:
    """K labels of each of n tasks, each in a query state of its own.

    Args:
        family: of the tasks.
        parameters: (n, p) of the tasks.
        behavior: the policy of rollouts.
        rule: trust horizon and the rest.
        queries: K.
        generator: of all that is random.
    """

    def __init__(
        self,
        family: SimulatedFamily,
        parameters: NDArray[np.float64],
        behavior: Behavior,
        rule: LabelRule,
        queries: int,
        generator: np.random.Generator,
    ) -> None:
        self._family, self._parameters, self._behavior = family, parameters, behavior
        self._rule, self._queries, self._generator = rule, queries, generator
        self._act = behavior.act(generator)
        shape = len(parameters), queries
        self._missing = np.ones(shape, np.bool_)
        self._actions = behavior.draw(self._missing.size, generator)
        self._actions = self._actions.reshape(*shape, *self._actions.shape[1:])
        self._states = np.zeros((*shape, len(family.state_center)), np.float32)
        self._spent = 0

    def labels(self) -> Labels:
        """The labels.

        Raises:
            SadError: for some task no query state was good enough in MAX_ROUNDS rollouts.
            Interrupted: it was told to stop.
        """
        for _ in range(MAX_ROUNDS):
            lacking = np.flatnonzero(self._missing.any(axis=1))
            if not lacking.size:
                states, actions = (
                    part.reshape(-1, *part.shape[2:]) for part in (self._states, self._actions)
                )
                return Labels(states, actions, self._spent)
            self._search(lacking)
        raise hopeless(self._rule, "state")

    def _search(self, tasks: NDArray[np.int64]) -> None:
        """One rollout of up to T steps of `tasks` (m,), and a try for each label they lack."""
        horizon = self._family.config.horizon
        when = self._generator.integers(horizon, size=(len(tasks), self._queries))
        simulators = self._family.simulators(self._parameters[tasks], self._generator)

        def act(simulators: Simulators, step: int) -> NDArray[Any]:
            rows, slots = np.nonzero((when == step) & self._missing[tasks])
            self._try(simulators, rows, (tasks[rows], slots))
            return self._act(simulators, step)

        steps = int(when.max()) + 1
        play(simulators, steps, act, self._generator)
        self._spent += steps * len(tasks)

    def _try(
        self,
        simulators: Simulators,
        rows: NDArray[np.int64],
        places: tuple[NDArray[np.int64], NDArray[np.int64]],
    ) -> None:
        """Labels the states of `rows` (m,) for places (task (m,), slot (m,)), where accepted."""
        candidates = self._behavior.candidates(len(rows), self._rule, self._generator)
        size = max(1, COPIES_AT_ONCE // (candidates.shape[1] * self._rule.episodes_per_action))
        for first in range(0, len(rows), size):
            part = slice(first, first + size)
            scores = self._scores(simulators, rows[part], candidates[part])
            accepted = np.flatnonzero(scores.max(axis=1) >= self._rule.least_score)
            here = tuple(each[part][accepted] for each in places)
            self._actions[here] = candidates[part][accepted, self._best(scores)[accepted]]
            self._states[here] = simulators.observations[rows[part][accepted]]
            self._missing[here] = False

    def _scores(
        self, simulators: Simulators, rows: NDArray[np.int64], candidates: NDArray[Any]
    ) -> NDArray[np.float64]:
        """(m, C): mean (or best) discounted return of rollouts that begin with each candidate."""
        shape = *candidates.shape[:2], self._rule.episodes_per_action
        first_actions = np.repeat(candidates.reshape(-1, *candidates.shape[2:]), shape[2], axis=0)
        copies = simulators.copied(np.repeat(rows, shape[1] * shape[2]), self._generator)
        returns, running = np.zeros(len(first_actions)), np.ones(len(first_actions), np.bool_)
        for step, discount in enumerate(self._rule.discounts):
            if STOP[0]:
                raise Interrupted
            rewards = copies.step(first_actions if step == 0 else self._act(copies, step))
            self._spent += int(running.sum())
            returns += discount * rewards * running
            running &= ~copies.ended
            if self._rule.stop_at_reward:
                running &= rewards <= 0
            if not running.any():
                break
        by_candidate = returns.reshape(shape)
        return by_candidate.max(axis=2) if self._rule.best_episode else by_candidate.mean(axis=2)

    def _best(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        """(m,): the candidate of the best score (m, C): the first of equals, or any of them."""
        if not self._rule.random_ties:
            return scores.argmax(axis=1)
        equal = scores == scores.max(axis=1, keepdims=True)
        return (equal * (1 + self._generator.random(scores.shape))).argmax(axis=1)
