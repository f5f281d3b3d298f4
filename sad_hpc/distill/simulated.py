"""Blocks of simulated tasks: rollouts as contexts, and Algorithm 3 or 5 by copies of simulators.

Algorithm 1 draws states, but simulators cannot be set to a state.  Contexts are therefore
successive episodes of the behavior policy up to T transitions.  Query states come from further
rollouts: the simulator is copied at a step drawn uniformly among T, once for every label rollout.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sad_hpc.distill.block import Block, Draw, Given
from sad_hpc.distill.candidates import Candidates
from sad_hpc.distill.incumbent import Incumbent, with_own_play
from sad_hpc.distill.labels import LabelRule, Labels, hopeless
from sad_hpc.distill.logged_labels import logged_labels
from sad_hpc.distill.rollout import Act, Behavior, Followings, rollout
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.kernels.interruption import STOP_FLAG, Interrupted
from sad_hpc.tasks.simulated import SimulatedFamily, Simulators

MAX_VAIN_TRIES = 2000
"""Number of successive rejected query states after which the search stops with an error."""

FOLLOWED = 0.5
"""Share of query-state rollouts by the incumbent, if there is one."""

COPIES_AT_ONCE = 4096
"""Largest number of simulators in memory for label rollouts."""


def simulated_block(
    family: SimulatedFamily,
    data: DataConfig,
    split: str,
    block: int,
    incumbent: Incumbent | None = None,
    given: Given | None = None,
) -> Block:
    """Make a block of simulated tasks; see `distill.make_block`.

    `incumbent` replaces the behavior policy after the first action of label rollouts, and in half
    of the rollouts that search for query states.  Its own play replaces a share of the contexts,
    after the labels are made.
    """
    draw = Draw.of(family, data, split, block, ("tasks", "transitions", "sad", "dpt", "own"))
    generators = {name: np.random.default_rng(each) for name, each in draw.streams.items()}
    horizon, behavior = family.config.horizon, Behavior.of(family, draw.policy)
    if given is None:
        parameters = family.draw_tasks(split, draw.count, generators["tasks"])
        context = rollout(
            family.simulators(parameters, generators["transitions"]),
            horizon,
            behavior.act(generators["transitions"]),
            generators["transitions"],
        )
    else:
        parameters, context = given.parameters, given.context
    queries = data.queries_per_task
    if not data.has_known_tasks:  # no rollouts, in test tasks neither
        numbers = np.arange(draw.count) if given is None else parameters[:, 0]
        pairs = logged_labels(numbers, context, queries, generators["dpt"])
        return Block.of(draw.first, parameters, {"transitions": context}, {"dpt": pairs})
    rule = LabelRule.of(data, family.sparse_reward)
    of_sad = generators["sad"]
    following = None if incumbent is None else incumbent.follow(context, of_sad)
    sad = Distillation(family, parameters, behavior, following, rule, queries, of_sad).labels()
    spent = {}
    if incumbent is not None and split == "train":
        context, spent["own_contexts"] = with_own_play(
            context,
            data.own_contexts,
            lambda rows, *others: incumbent.play(parameters[rows], *others),
            generators["own"],
        )
    # A state of the context, and a newly drawn action.
    seen = generators["dpt"].integers(horizon, size=(draw.count, queries))
    drawn = behavior.draw(seen.size, generators["dpt"])
    rows = np.arange(draw.count)[:, None]
    asked = context.states[rows, seen].reshape(seen.size, *family.state_shape)
    dpt = Labels(asked, drawn)
    labels = {"sad": sad, "dpt": dpt}
    return Block.of(draw.first, parameters, {"transitions": context}, labels, spent)


class Distillation:
    """The search for K query states with labels in each of n tasks.

    Args:
        family: family of the tasks.
        parameters: (n, p) of the tasks.
        behavior: policy of first actions and rollouts.
        following: the incumbent, the policy of rollouts after the first action; None: `behavior`.
        rule: settings of label distillation.
        queries: K.
        generator: random numbers of the search.
    """

    def __init__(
        self,
        family: SimulatedFamily,
        parameters: NDArray[np.float64],
        behavior: Behavior,
        following: Followings | None,
        rule: LabelRule,
        queries: int,
        generator: np.random.Generator,
    ) -> None:
        self._family, self._parameters, self._behavior = family, parameters, behavior
        self._rule, self._queries, self._generator = rule, queries, generator
        self._random_play = behavior.act(generator)
        self._following = following
        shape = len(parameters), queries
        self._missing = np.ones(shape, np.bool_)
        self.candidates = Candidates(behavior, rule, following, generator)
        self._actions = behavior.draw(self._missing.size, generator)
        self._actions = self._actions.reshape(*shape, *self._actions.shape[1:])
        self._states = np.zeros((*shape, *family.state_shape), family.state_dtype)
        self._spent = self._vain_tries = 0

    def labels(self) -> Labels:
        """Search for K labels of each task, and return them.

        Raises:
            UserError: MAX_VAIN_TRIES successive query states were rejected.
            Interrupted: STOP_FLAG was set.
        """
        while (lacking := np.flatnonzero(self._missing.any(axis=1))).size:
            if self._vain_tries >= MAX_VAIN_TRIES:
                raise hopeless(self._rule, "state", self._vain_tries)
            self._search(lacking)
        states, actions = (
            part.reshape(-1, *part.shape[2:]) for part in (self._states, self._actions)
        )
        return Labels(states, actions, self._spent)

    def _search(self, tasks: NDArray[np.int64]) -> None:
        """Roll out `tasks` (m,) for up to T steps, and try a query state for each missing label."""
        horizon = self._family.config.horizon
        when = self._generator.integers(horizon, size=(len(tasks), self._queries))
        simulators = self._family.simulators(self._parameters[tasks], self._generator)
        go_on = self._searching(tasks)

        def act(simulators: Simulators, step: int) -> NDArray[Any]:
            rows, slots = np.nonzero((when == step) & self._missing[tasks])
            self._try(simulators, rows, (tasks[rows], slots))
            return go_on(simulators, step)

        steps = int(when.max()) + 1
        rollout(simulators, steps, act, self._generator)
        self._spent += steps * len(tasks)

    def _searching(self, tasks: NDArray[np.int64]) -> Act:
        """Return the policy of the search, the incumbent in a share FOLLOWED of tasks (m,).

        The others play at random, because a good policy does not visit all kinds of states.
        """
        if self._following is None:
            return self._random_play
        followed = self._generator.random(len(tasks)) < FOLLOWED
        policy = self._following(tasks).act

        def act(simulators: Simulators, step: int) -> NDArray[Any]:
            actions = self._random_play(simulators, step)
            actions[followed] = policy(simulators, step)[followed]
            return actions

        return act

    def _try(
        self,
        simulators: Simulators,
        rows: NDArray[np.int64],
        places: tuple[NDArray[np.int64], NDArray[np.int64]],
    ) -> None:
        """Label the accepted states of `rows` (m,) for places (task (m,), slot (m,))."""
        drawn = self._behavior.candidates(len(rows), self._rule, self._generator)
        size = max(1, COPIES_AT_ONCE // (drawn.shape[1] * self._rule.episodes_per_action))
        for first in range(0, len(rows), size):
            part = slice(first, first + size)
            best, labels = self.labelled(simulators, rows[part], drawn[part], places[0][part])
            accepted = np.flatnonzero(best >= self._rule.least_score)
            self._vain_tries = 0 if accepted.size else self._vain_tries + len(best)
            labelled = tuple(each[part][accepted] for each in places)
            self._actions[labelled] = labels[accepted]
            self._states[labelled] = simulators.observations[rows[part][accepted]]
            self._missing[labelled] = False

    def labelled(
        self,
        simulators: Simulators,
        rows: NDArray[np.int64],
        drawn: NDArray[Any],
        tasks: NDArray[np.int64],
    ) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Return the best scores (m,) and the labels of the simulators `rows` (m,).

        Args:
            simulators: the simulators.
            rows: (m,), the simulators to label.
            drawn: candidates of the behavior policy, (m, C) or (m, C, a).
            tasks: (m,), the task of each.
        """
        score = partial(self.scores, simulators, rows, tasks=tasks)
        return self.candidates.chosen(drawn, simulators.observations[rows], tasks, score)

    def scores(
        self,
        simulators: Simulators,
        rows: NDArray[np.int64],
        candidates: NDArray[Any],
        tasks: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        """Return the score of each candidate's rollouts, (m, C): mean or best discounted return."""
        shape = *candidates.shape[:2], self._rule.episodes_per_action
        first_actions = np.repeat(candidates.reshape(-1, *candidates.shape[2:]), shape[2], axis=0)
        copies = simulators.copied(np.repeat(rows, shape[1] * shape[2]), self._generator)
        go_on = self._common_play(*shape) if self._rule.common_actions else self._random_play
        if self._following is not None:
            go_on = self._following(np.repeat(tasks, shape[1] * shape[2])).act
        last_steps = np.repeat(self._horizons(len(rows)) - 1, shape[1] * shape[2])
        returns, running = np.zeros(len(first_actions)), np.ones(len(first_actions), np.bool_)
        for step, discount in enumerate(self._rule.discounts):
            if STOP_FLAG[0]:
                raise Interrupted
            rewards = copies.step(first_actions if step == 0 else go_on(copies, step))
            self._spent += int(running.sum())
            returns += discount * rewards * running
            running &= ~copies.ended & (step < last_steps)
            if self._rule.stop_at_reward:
                running &= rewards <= 0
            if not running.any():
                break
        by_candidate = returns.reshape(shape)
        return by_candidate.max(axis=2) if self._rule.best_episode else by_candidate.mean(axis=2)

    def _horizons(self, count: int) -> NDArray[np.int64]:
        """Return the trust horizons of query states, (count,)."""
        largest, going_on = self._rule.trust_horizon, self._rule.continuation
        if going_on == 1:
            return np.full(count, largest)
        return np.minimum(self._generator.geometric(1 - going_on, count), largest)

    def _common_play(self, count: int, candidates: int, episodes: int) -> Act:
        """Return random play in which the candidates' rollouts share their actions.

        Of `count` query states, the i-th rollouts of all `candidates` take the same actions after
        the first one.
        """

        def act(simulators: Simulators, step: int) -> NDArray[Any]:
            drawn = self._behavior.draw(count * episodes, self._generator)
            shared = drawn.reshape(count, 1, episodes, *drawn.shape[1:])
            return np.repeat(shared, candidates, axis=1).reshape(-1, *drawn.shape[1:])

        return act
