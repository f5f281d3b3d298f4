"""Evaluation on tabular tasks: the return of an episode, offline and online."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sad_hpc.dataset.reader import Arrays
from sad_hpc.evaluate.baselines import optimal_returns, policy_returns
from sad_hpc.evaluate.offline import offline_returns
from sad_hpc.evaluate.online import online_returns
from sad_hpc.evaluate.result import Measure, ModeResult
from sad_hpc.experiment.sections import EvaluateConfig
from sad_hpc.model.context import Context
from sad_hpc.model.transformer import Transformer
from sad_hpc.tasks.base import TabularFamily, TabularMDPs


def evaluate_tabular(
    family: TabularFamily,
    model: Transformer,
    columns: Arrays,
    settings: EvaluateConfig,
    generator: np.random.Generator,
    report: Callable[[int], None],
) -> dict[str, ModeResult]:
    """Offline and online returns; see `element.play`."""
    mdps = family.mdps(columns["tasks/parameters"])
    contexts = Context.of_group(columns, "context")
    offline = offline_returns(model, family, mdps, contexts, settings.batch_size)
    report(1)
    online, online_rewards = online_returns(
        model,
        family,
        mdps,
        settings.online_episodes,
        generator,
        settings.batch_size,
        report=lambda episodes: report(1 + episodes),
    )
    rewarded = (columns["context/rewards"] > 0).sum(axis=1, keepdims=True).astype(np.int32)
    references = _references(family, mdps)
    every_episode = {name: values.repeat(online.shape[1], 1) for name, values in references.items()}
    offline_measure = Measure("return", "episode", 1)
    online_measure = Measure("return", "episode", settings.headline_episodes)
    return {
        "offline": ModeResult(offline_measure, offline, rewarded, references),
        "online": ModeResult(online_measure, online, online_rewards, every_episode),
    }


def _references(family: TabularFamily, mdps: TabularMDPs) -> dict[str, NDArray[np.float32]]:
    horizon, start = family.config.horizon, family.start_state
    uniform = np.full(family.n_actions, 1 / family.n_actions)
    return {
        "optimal": optimal_returns(mdps, horizon, start)[:, None],
        "random": policy_returns(mdps, horizon, start, uniform)[:, None],
    }
