"""Evaluation on bandits: suboptimality by context length offline, cumulative regret online.

Algorithm 6 with episodes of one step.  Offline it takes the likeliest arm of F(. | C), here for
every prefix C of a context: the context's own tokens answer for all of them in one pass.  Online it
begins with an empty C, draws an arm from F(. | C), and adds the pull to C: one token more to keys
and values that stay.
"""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from sad_hpc.dataset.reader import Arrays
from sad_hpc.evaluate.bandit_policies import (
    POLICIES,
    offline_empirical_mean,
    offline_thompson,
    play,
)
from sad_hpc.evaluate.policy import answers, greedy, sampled
from sad_hpc.evaluate.result import Measure, ModeResult
from sad_hpc.experiment.sections import EvaluateConfig
from sad_hpc.model.context import Context, Queries
from sad_hpc.model.memory import Memory
from sad_hpc.model.transformer import Transformer
from sad_hpc.tasks.bandit import BanditFamily


def evaluate_bandit(
    family: BanditFamily,
    model: Transformer,
    columns: Arrays,
    settings: EvaluateConfig,
    generator: np.random.Generator,
    report: Callable[[int], None],
) -> dict[str, ModeResult]:
    """Offline suboptimality and online regret; see `element.play`."""
    means = columns["tasks/parameters"].astype(np.float32)
    contexts = Context.of_group(columns, "context")
    arms = offline_arms(model, contexts, settings.batch_size)
    transformer = TransformerPolicy(model, len(means), generator)
    online = play(family, means, transformer, generator, report=report)
    return {
        "offline": ModeResult(
            Measure("suboptimality", "context length", 1),
            gaps(means, arms),
            None,
            _offline_references(family, means, columns, generator),
        ),
        "online": ModeResult(
            Measure("regret", "pull", 1),
            gaps(means, online).cumsum(axis=1, dtype=np.float32),
            None,
            _online_references(family, means, generator),
        ),
    }


def gaps(means: NDArray[np.float32], arms: NDArray[np.int64]) -> NDArray[np.float32]:
    """(n, K): what arms (n, K) lose against the best one, for means (n, A)."""
    return means.max(axis=1, keepdims=True) - np.take_along_axis(means, arms, axis=1)


def offline_arms(model: Transformer, contexts: Context, batch_size: int) -> NDArray[np.int64]:
    """(n, T): the greedy arm after each prefix of 1 to T pulls."""
    state = contexts.states[0, :1].numpy()
    prefixes = np.arange(contexts.actions.shape[1] + 1)[None]
    return greedy(answers(model, contexts, state, prefixes, batch_size)[:, 1:])


class TransformerPolicy:
    """Arms drawn from the softmax of the model's answer to all pulls so far, n tasks at once.

    Args:
        model: the transformer.
        n_tasks: n.
        generator: of the draws, n uniform numbers a pull.
    """

    def __init__(self, model: Transformer, n_tasks: int, generator: np.random.Generator) -> None:
        self._model, self._generator = model, generator
        device = model.head.weight.device
        self._state = torch.zeros((n_tasks, 1, 1), dtype=torch.uint8, device=device)
        self._memory = Memory(capacity=model.inputs.horizon)
        self._logits = self._before_any_pull()

    def choose(self) -> NDArray[np.int64]:
        """(n,): an arm for each task."""
        return sampled(self._logits, self._generator.random(len(self._logits)))

    @torch.no_grad()
    def observe(self, arms: NDArray[np.int64], rewards: NDArray[np.float32]) -> None:
        """Adds a pull (n,) to the contexts."""
        device = self._state.device
        pull = Context(
            self._state,
            torch.from_numpy(arms)[:, None].to(device),
            torch.from_numpy(rewards)[:, None].to(device),
            self._state,
        )
        answers = self._model.extend(self._memory, self._model.context_tokens(pull))
        self._logits = answers[:, 0].float().cpu().numpy()

    @torch.no_grad()
    def _before_any_pull(self) -> NDArray[np.float32]:
        """(n, A)"""
        nothing = torch.zeros_like(self._state, dtype=torch.int64)
        tokens = self._model.query_tokens(Queries(self._state, nothing))
        answers = self._model.ask(self._memory, tokens, nothing[:, :, 0])
        return answers[:, 0].float().cpu().numpy()


def _offline_references(
    family: BanditFamily,
    means: NDArray[np.float32],
    columns: Arrays,
    generator: np.random.Generator,
) -> dict[str, NDArray[np.float32]]:
    actions = columns["context/actions"].astype(np.int64)
    rewards = columns["context/rewards"].astype(np.float32)
    random = gaps(means, np.arange(means.shape[1])[None]).mean(axis=1, keepdims=True)
    return {
        "optimal": np.zeros(actions.shape, np.float32),
        "random": random.repeat(actions.shape[1], axis=1),
        "empirical mean": gaps(means, offline_empirical_mean(actions, rewards, means.shape[1])),
        "Thompson": gaps(means, offline_thompson(family, actions, rewards, generator)),
    }


def _online_references(
    family: BanditFamily, means: NDArray[np.float32], generator: np.random.Generator
) -> dict[str, NDArray[np.float32]]:
    horizon = family.config.horizon
    random = gaps(means, np.arange(means.shape[1])[None]).mean(axis=1, keepdims=True)
    references = {
        "optimal": np.zeros((len(means), horizon), np.float32),
        "random": random * np.arange(1, horizon + 1, dtype=np.float32),
    }
    for name, policy in POLICIES.items():
        arms = play(family, means, policy(family, len(means), generator), generator)
        references[name] = gaps(means, arms).cumsum(axis=1, dtype=np.float32)
    return references
