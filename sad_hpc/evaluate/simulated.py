"""Evaluation on simulated tasks: the return of an episode, offline and online.

This is Algorithm 6.  If an episode ends before T steps, the agent continues from a new start until
it has taken T steps, as in tabular tasks.  Only the first episode counts for the return.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sad_hpc.dataset.reader import Arrays
from sad_hpc.distill.block import Transitions
from sad_hpc.distill.rollout import Act, Behavior, rollout
from sad_hpc.evaluate.acting import ActingRule, Read, greedy, in_turn, sampled
from sad_hpc.evaluate.encoded import Ask, EncodedContexts, tokens_of
from sad_hpc.evaluate.episode import returns_of
from sad_hpc.evaluate.evaluation import Evaluation
from sad_hpc.evaluate.result import ModeResult
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.model import bins
from sad_hpc.model.context import Context, Queries
from sad_hpc.model.sequence_model import SequenceModel
from sad_hpc.tasks.simulated import SimulatedFamily

RANDOM_EPISODES = 10
"""Number of episodes in each task that estimate the reference `random`."""

Decide = Callable[[NDArray[Any], Read], NDArray[Any]]
"""Map observations (n, ...) and a reading of logits to actions (n,) or vectors (n, a)."""


def evaluate_simulated(
    family: SimulatedFamily,
    evaluation: Evaluation,
    columns: Arrays,
) -> dict[str, ModeResult]:
    """Measure offline and online returns; see `families.evaluate_family`."""
    trained, settings, generator = evaluation.trained, evaluation.settings, evaluation.generator
    parameters = columns["tasks/parameters"]
    episodes = Episodes(family, parameters, generator)
    likeliest, _ = readings(family, generator)
    given = trained.shown(Context.of_group(columns, settings.context))
    act = acting(trained.model, given, likeliest, settings.batch_size)
    offline = returns_of(episodes.rollout(act))
    evaluation.report(1)
    played, count = {}, settings.online_episodes
    for mode, rule, each in evaluation.online_modes(1, count):
        played[mode] = play_simulators(family, each, parameters, rule)
    random = _random_returns(family, parameters, generator.spawn(1)[0])
    shown = {name: columns[f"transitions/{name}"] for name in ("states", "actions", "rewards")}
    after = family.reference_returns(parameters, shown, 1, generator.spawn(1)[0])
    online = family.reference_returns(parameters, None, count, generator.spawn(1)[0])
    counts = given.rewarded[:, None] if family.sparse_reward else None
    result, headline = ModeResult.of_episodes, settings.headline_episodes
    return {
        "offline": result(offline[:, None], counts, 1, {"random": random} | after),
        **{
            mode: result(*each, headline, {"random": random} | online)
            for mode, each in played.items()
        },
    }


def play_simulators(
    family: SimulatedFamily,
    evaluation: Evaluation,
    parameters: NDArray[np.float64],
    rule: ActingRule,
) -> tuple[NDArray[np.float32], NDArray[np.int32] | None]:
    """Play online; see `families.play_online`.  Context rewards are counted if they are sparse."""
    trained, settings, generator = evaluation.trained, evaluation.settings, evaluation.generator
    episodes = Episodes(family, parameters, generator)
    _, sample = readings(family, generator)
    context = Context.of_parts(no_simulated_transitions(family, len(parameters)).parts)
    online: list[NDArray[np.float32]] = []
    shown: list[NDArray[np.int32]] = []

    def draw(logits: NDArray[np.float32]) -> NDArray[Any]:
        sharpened = rule.applied(logits, shown[-1] > 0)
        return bins.mean(sharpened) if rule.mean else sample(sharpened)

    for episode in range(settings.online_episodes):
        shown.append(context.rewarded)
        seen: list[Tensor] = []
        act = acting(trained.model, context, draw, settings.batch_size, seen)
        played = episodes.rollout(act)
        online.append(returns_of(played))
        # The states as the model has encoded them: an image is read once.
        whole = replace(Context.of_parts(played.parts), states=torch.cat(seen, dim=1))
        context = trained.shown(whole)
        evaluation.report(1 + episode)
    counts = np.stack(shown, axis=1) if family.sparse_reward else None
    return np.stack(online, axis=1), counts


def no_simulated_transitions(family: SimulatedFamily, n_tasks: int) -> Transitions:
    """Return the empty transitions before the first episode of n tasks."""
    states = np.empty((n_tasks, 0, *family.state_shape), family.state_dtype)
    none = np.empty((n_tasks, 0), np.float32)
    vectors = none if family.components is None else np.empty((n_tasks, 0, family.components))
    return Transitions(
        states, vectors.astype(family.action_dtype), none, states, none.astype(np.uint8)
    )


class Episodes:
    """Simulators of n tasks.

    Args:
        family: family of the tasks.
        parameters: (n, p) of the tasks.
        generator: random numbers of the simulators.
    """

    def __init__(
        self,
        family: SimulatedFamily,
        parameters: NDArray[np.float64],
        generator: np.random.Generator,
    ) -> None:
        self._horizon, self._generator = family.config.horizon, generator
        self._simulators = family.simulators(parameters, generator)

    def rollout(self, act: Act) -> Transitions:
        """Play T steps from a start in each task."""
        everyone = np.arange(len(self._simulators.ended))
        self._simulators.start(everyone, self._generator)
        return rollout(self._simulators, self._horizon, act, self._generator)


def readings(family: SimulatedFamily, generator: np.random.Generator) -> tuple[Read, Read]:
    """Return two readings of logits: the most likely actions or numbers, and samples."""
    if family.components is None:
        return greedy, lambda logits: sampled(logits, generator.random(len(logits)))
    return bins.likeliest, lambda logits: bins.drawn(logits, generator)


def acting(
    model: SequenceModel,
    context: Context,
    read: Read,
    batch_size: int,
    seen: list[Tensor] | None = None,
) -> Act:
    """Return a model's policy under contexts (n, t), which are encoded once.

    Args:
        model: the trained model.
        context: n contexts.
        read: function that chooses.
        batch_size: number of contexts in one forward pass.
        seen: list to which each step appends its states (n, 1, ...) (see `SequenceModel.encoded`).
    """
    tokens = tokens_of(model, context, batch_size)
    ask = EncodedContexts.of_tokens(model, tokens, batch_size).ask
    places = np.arange(len(tokens)), np.zeros(len(tokens), np.int64)
    decide = deciding(model, ask, places, seen)
    return lambda simulators, step: decide(simulators.observations, read)


def deciding(
    model: SequenceModel,
    ask: Ask,
    places: tuple[NDArray[np.int64], NDArray[np.int64]],
    seen: list[Tensor] | None = None,
) -> Decide:
    """Return the choice of a model's actions in m simulators.

    Args:
        model: the trained model.
        ask: answers after contexts.
        places: the context (m,) and the query (m,) of each simulator; each context has as many
            queries as the one with the most.
        seen: see `acting`.
    """
    contexts, queries = (int(part.max()) + 1 for part in places)
    context_of, query_of = map(torch.from_numpy, places)
    once = torch.zeros(contexts, queries, 1, dtype=torch.int64)  # not used: contexts are whole

    def by_context(each: Tensor) -> Tensor:
        """Return parts of the simulators (m, ...) by context, (n, K, ...)."""
        every = each.new_zeros((contexts, queries, *each.shape[1:]))
        every[context_of, query_of] = each
        return every

    @torch.no_grad()
    def decide(observations: NDArray[Any], read: Read) -> NDArray[Any]:
        observed = torch.from_numpy(observations).to(model.device)
        states = by_context(model.encoded(observed))
        if seen is not None:
            seen.append(states)

        def answer(first: NDArray[np.float32] | None) -> NDArray[np.float32]:
            held = None if first is None else by_context(torch.from_numpy(first).to(model.device))
            return ask(model.query_tokens(Queries(states, once, actions=held)))[places]

        return in_turn(answer, read, model.inputs.components, len(observations))

    return decide


def _random_returns(
    family: SimulatedFamily, parameters: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.float32]:
    """Return the mean return (n,) of RANDOM_EPISODES of the uniform policy in each task."""
    episodes = Episodes(family, parameters, generator)
    uniform = Behavior.of(family, policy_table("uniform", family.n_actions)).act(generator)
    returns = [returns_of(episodes.rollout(uniform)) for _ in range(RANDOM_EPISODES)]
    return np.mean(returns, axis=0, dtype=np.float32)
