"""Evaluation on bandits: suboptimality by context length offline, cumulative regret online.

This is Algorithm 6 with episodes of one step.  Offline, the agent takes the most likely arm of
F(. | C) for every prefix C of a context; one forward pass answers for all prefixes.  Online, it
starts with an empty C, samples an arm from F(. | C) and adds the pull to C, which adds one token to
cached keys and values.
"""

import operator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sad_hpc.dataset.reader import Arrays
from sad_hpc.evaluate.acting import PAPER, ActingRule, greedy, sampled
from sad_hpc.evaluate.bandit_policies import (
    offline_empirical_mean,
    offline_ideal,
    reference_policies,
    run_bandit,
)
from sad_hpc.evaluate.evaluation import Evaluation
from sad_hpc.evaluate.policy import Trained, answers
from sad_hpc.evaluate.result import BAYES_OPTIMAL, Measure, ModeResult
from sad_hpc.model.context import Context, Queries
from sad_hpc.model.kv_cache import KVCache
from sad_hpc.model.sequence_model import SequenceModel
from sad_hpc.tasks.bandit import BanditFamily

STEPS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 75, *range(100, 500, 50))
"""Context lengths and pulls, besides T, whose values are stored for every task."""


LENGTHS = 50
"""Number of equally distant context lengths, from 1 to T, of the mean offline suboptimality.  The
public code of DPT reports this mean."""


def kept_steps(horizon: int) -> NDArray[np.int32]:
    """Return the STEPS below T, followed by T, (K,)."""
    return np.array([*(step for step in STEPS if step < horizon), horizon], np.int32)


def evaluate_bandit(
    family: BanditFamily,
    evaluation: Evaluation,
    columns: Arrays,
) -> dict[str, ModeResult]:
    """Measure offline suboptimality and online regret; see `families.evaluate_family`."""
    settings, means = evaluation.settings, columns["tasks/parameters"].astype(np.float32)
    contexts = Context.of_group(columns, settings.context)
    offline = gaps(means, offline_arms(evaluation.trained, contexts, settings.batch_size))
    known = _offline_references(family, means, columns)
    modes = {
        "offline": _result("suboptimality", "context length", offline, known),
        "lengths": _mean_result(offline, known),
    }
    regrets, pulls = {}, family.config.horizon
    for mode, rule, each in evaluation.online_modes(0, pulls):
        regrets[mode], _ = play_pulls(family, each, means, rule)
    # An independent stream, so that every row of a seed has the same references.
    references = _online_references(family, means, evaluation.generator.spawn(1)[0])
    return modes | {
        mode: _result("regret", "pull", regret, references) for mode, regret in regrets.items()
    }


def play_pulls(
    family: BanditFamily,
    evaluation: Evaluation,
    parameters: NDArray[Any],
    rule: ActingRule,
) -> tuple[NDArray[np.float32], None]:
    """Play online; see `families.play_online`.  Values are regrets (n, T)."""
    means, generator = parameters.astype(np.float32), evaluation.generator
    transformer = TransformerPolicy(evaluation.trained.model, len(means), generator, rule)
    pulled = run_bandit(family, means, transformer, generator, report=evaluation.report)
    return gaps(means, pulled).cumsum(axis=1, dtype=np.float32), None


def _result(
    metric: str, axis: str, values: NDArray[np.float32], references: dict[str, NDArray[np.float32]]
) -> ModeResult:
    """Return the result of a mode, with the stored columns of all (n, T)."""
    steps = kept_steps(values.shape[1])
    kept = {name: at_kept_steps(each) for name, each in references.items()}
    return ModeResult(Measure(metric, axis, 1), steps, at_kept_steps(values), None, kept)


def _mean_result(
    values: NDArray[np.float32], references: dict[str, NDArray[np.float32]]
) -> ModeResult:
    """Return the mean of (n, T) over LENGTHS context lengths."""
    return ModeResult(
        Measure("suboptimality", "context length", 1),
        np.array([values.shape[1]], np.int32),
        mean_over_lengths(values),
        None,
        {name: mean_over_lengths(each) for name, each in references.items()},
    )


def at_kept_steps(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the stored columns (n, K) of values (n, T)."""
    return values[:, kept_steps(values.shape[1]) - 1]


def mean_over_lengths(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean over LENGTHS context lengths of values (n, T), (n, 1)."""
    places = np.linspace(1, values.shape[1], LENGTHS).astype(int) - 1
    return values[:, places].mean(axis=1, keepdims=True)


def gaps(means: NDArray[np.float32], arms: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the suboptimality (n, K) of arms (n, K) with means (n, A)."""
    return means.max(axis=1, keepdims=True) - np.take_along_axis(means, arms, axis=1)


def offline_arms(trained: Trained, contexts: Context, batch_size: int) -> NDArray[np.int64]:
    """Return the greedy arm after each prefix of 1 to T pulls, (n, T).

    Prefixes longer than the model's longest context are cut to their last pulls.
    """
    state, horizon = contexts.states[0, :1].numpy(), contexts.actions.shape[1]
    prefixes = np.arange(min(horizon, trained.longest) + 1)[None]
    parts = [answers(trained.model, contexts, state, prefixes, batch_size)[:, 1:]]
    for length in range(trained.longest + 1, horizon + 1):
        last = trained.shown(contexts.map(operator.itemgetter(np.s_[:, :length])))
        whole = prefixes[:, -1:]
        parts.append(answers(trained.model, last, state, whole, batch_size))
    return greedy(np.concatenate(parts, axis=1))


class TransformerPolicy:
    """A policy that samples arms from the model's softmax, given all pulls so far in n tasks.

    Args:
        model: the trained model.
        n_tasks: n.
        generator: random numbers of the samples, n a pull.
        rule: rule of the samples.
    """

    def __init__(
        self,
        model: SequenceModel,
        n_tasks: int,
        generator: np.random.Generator,
        rule: ActingRule = PAPER,
    ) -> None:
        self._model, self._generator, self._rule = model, generator, rule
        self._rewarded = np.zeros(n_tasks, np.bool_)
        device = model.device
        self._state = torch.zeros((n_tasks, 1, 1), dtype=torch.uint8, device=device)
        self._cache = KVCache(capacity=model.inputs.horizon)
        self._logits = self._before_any_pull()

    def choose(self) -> NDArray[np.int64]:
        """Sample an arm for each task, (n,)."""
        logits = self._rule.applied(self._logits, self._rewarded)
        return sampled(logits, self._generator.random(len(logits)))

    @torch.no_grad()
    def observe(self, arms: NDArray[np.int64], rewards: NDArray[np.float32]) -> None:
        """Add one pull (n,) to the contexts."""
        self._rewarded |= rewards > 0
        device = self._state.device
        pull = Context(
            self._state,
            torch.from_numpy(arms)[:, None].to(device),
            torch.from_numpy(rewards)[:, None].to(device),
            self._state,
        )
        answers = self._model.extend(self._cache, self._model.context_tokens(pull))
        self._logits = answers[:, 0].float().cpu().numpy()

    @torch.no_grad()
    def _before_any_pull(self) -> NDArray[np.float32]:
        """Return the logits with an empty context, (n, A)."""
        nothing = torch.zeros_like(self._state, dtype=torch.int64)
        tokens = self._model.query_tokens(Queries(self._state, nothing))
        answers = self._model.ask(self._cache, tokens, nothing[:, :, 0])
        return answers[:, 0].float().cpu().numpy()


def _offline_references(
    family: BanditFamily,
    means: NDArray[np.float32],
    columns: Arrays,
) -> dict[str, NDArray[np.float32]]:
    actions = columns["transitions/actions"].astype(np.int64)
    rewards = columns["transitions/rewards"].astype(np.float32)
    random = gaps(means, np.arange(means.shape[1])[None]).mean(axis=1, keepdims=True)
    return {
        "optimal": np.zeros(actions.shape, np.float32),
        "random": random.repeat(actions.shape[1], axis=1),
        "empirical mean": gaps(means, offline_empirical_mean(actions, rewards, means.shape[1])),
        BAYES_OPTIMAL: gaps(means, offline_ideal(family, actions, rewards)),
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
    for name, policy in reference_policies(family).items():
        arms = run_bandit(family, means, policy(family, len(means), generator), generator)
        references[name] = gaps(means, arms).cumsum(axis=1, dtype=np.float32)
    return references
