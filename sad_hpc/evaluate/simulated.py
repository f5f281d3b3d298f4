"""Evaluation on simulated tasks: the return of an episode, offline and online.

This is Algorithm 6.  If an episode ends before T steps, the agent continues from a new start until
it has taken T steps, as in tabular tasks.  Only the first episode counts for the return.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sad_hpc.dataset.reader import Arrays
from sad_hpc.distill.block import Transitions
from sad_hpc.distill.rollout import Act, Behavior, rollout
from sad_hpc.evaluate.encoded import EncodedContexts
from sad_hpc.evaluate.episode import returns_of
from sad_hpc.evaluate.policy import Trained, greedy, sampled, settled
from sad_hpc.evaluate.result import Measure, ModeResult
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.experiment.sections import EvaluateConfig
from sad_hpc.model import bins
from sad_hpc.model.context import Context, Queries
from sad_hpc.model.transformer import Transformer
from sad_hpc.tasks.simulated import SimulatedFamily, Simulators

RANDOM_EPISODES = 10
"""Number of episodes in each task that estimate the reference `random`."""

Read = Callable[[NDArray[np.float32]], NDArray[Any]]
"""A function from logits (n, A) to actions (n,), or (n, a, A) to vectors (n, a)."""


def evaluate_simulated(
    family: SimulatedFamily,
    trained: Trained,
    columns: Arrays,
    settings: EvaluateConfig,
    generator: np.random.Generator,
    report: Callable[[int], None],
) -> dict[str, ModeResult]:
    """Measure offline and online returns; see `stage.evaluate_family`."""
    episodes = Episodes(family, columns["tasks/parameters"], generator)
    likeliest, sample = readings(family, generator)

    def agent(context: Context, read: Read) -> Act:
        return acting(trained.model, context, read, settings.batch_size)

    def draw(logits: NDArray[np.float32]) -> NDArray[Any]:
        drawn = not settings.greedy_after_reward
        return sample(logits if drawn else settled(logits, shown[-1] > 0))

    given = trained.shown(Context.of_group(columns, settings.context))
    offline = returns_of(episodes.rollout(agent(given, likeliest)))
    report(1)
    context, online, shown = given.map(lambda part: part[:, :0]), [], []
    for episode in range(settings.online_episodes):
        shown.append(context.rewarded)
        played = episodes.rollout(agent(context, draw))
        online.append(returns_of(played))
        context = trained.shown(Context.of_parts(played.parts))
        report(2 + episode)
    random = _random_returns(family, columns["tasks/parameters"], generator.spawn(1)[0])
    result = functools.partial(_result, family, random)
    return {
        "offline": result([offline], [given.rewarded], 1),
        "online": result(online, shown, settings.headline_episodes),
    }


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
    """Return two functions from logits to actions: the most likely ones, and samples."""
    if family.components is None:
        return greedy, lambda logits: sampled(logits, generator.random(len(logits)))
    return bins.likeliest, lambda logits: bins.drawn(logits, generator)


def acting(model: Transformer, context: Context, read: Read, batch_size: int) -> Act:
    """Return a model's policy under contexts (n, t), which are encoded once.

    Args:
        model: the transformer.
        context: n contexts.
        read: function from logits to actions.
        batch_size: number of contexts in one forward pass.
    """
    device = model.head.weight.device
    with torch.no_grad():
        tokens = model.context_tokens(context.map(lambda part: part.to(device)))
    encoded = EncodedContexts(model, tokens, batch_size)
    once = torch.zeros(len(tokens), 1, 1, dtype=torch.int64)

    @torch.no_grad()
    def act(simulators: Simulators, step: int) -> NDArray[Any]:
        states = torch.from_numpy(simulators.observations)[:, None].to(device)
        logits = encoded.ask(model.query_tokens(Queries(states, once)))
        return read(logits[:, 0] if model.inputs.components is None else logits)

    return act


def _random_returns(
    family: SimulatedFamily, parameters: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.float32]:
    """Return the mean return (n,) of RANDOM_EPISODES of the uniform policy in each task."""
    episodes = Episodes(family, parameters, generator)
    uniform = Behavior.of(family, policy_table("uniform", family.n_actions)).act(generator)
    returns = [returns_of(episodes.rollout(uniform)) for _ in range(RANDOM_EPISODES)]
    return np.mean(returns, axis=0, dtype=np.float32)


def _result(
    family: SimulatedFamily,
    random: NDArray[np.float32],
    played: list[NDArray[np.float32]],
    shown: list[NDArray[np.int32]],
    headline: int,
) -> ModeResult:
    """Return the result of a mode, one column an episode; `random` (n,) is the random policy's.

    Context rewards are counted if rewards are sparse.
    """
    steps = np.arange(1, len(played) + 1, dtype=np.int32)
    references = {"random": random[:, None].repeat(len(played), axis=1)}
    values = np.stack(played, axis=1)
    counts = np.stack(shown, axis=1) if family.sparse_reward else None
    return ModeResult(Measure("return", "episode", headline), steps, values, counts, references)
