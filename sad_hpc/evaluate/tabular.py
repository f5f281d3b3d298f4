"""Evaluation on tabular tasks: the return of an episode, offline and online."""

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sad_hpc.dataset.reader import Arrays
from sad_hpc.evaluate.agent_memory import History, LastEpisode, Recollection
from sad_hpc.evaluate.baselines import optimal_returns, policy_returns
from sad_hpc.evaluate.ideal import ideal_returns
from sad_hpc.evaluate.offline import offline_returns
from sad_hpc.evaluate.online import online_returns
from sad_hpc.evaluate.policy import Trained, settled, state_logits
from sad_hpc.evaluate.result import Measure, ModeResult
from sad_hpc.experiment.sections import EvaluateConfig
from sad_hpc.model.context import Context
from sad_hpc.tasks.mdps import FiniteMDPs
from sad_hpc.tasks.tabular import TabularFamily


def evaluate_tabular(
    family: TabularFamily,
    trained: Trained,
    columns: Arrays,
    settings: EvaluateConfig,
    generator: np.random.Generator,
    report: Callable[[int], None],
) -> dict[str, ModeResult]:
    """Measure offline and online returns; see `stage.evaluate_family`."""
    mdps, episodes = family.mdps(columns["tasks/parameters"]), settings.online_episodes
    whole = Context.of_group(columns, settings.context)
    context = trained.shown(whole)
    logits = functools.partial(state_logits, trained.model, family, batch_size=settings.batch_size)

    def answer(context: Context) -> NDArray[np.float32]:
        drawn = not settings.greedy_after_reward
        return logits(context) if drawn else settled(logits(context), context.rewarded > 0)

    offline = offline_returns(family, mdps, answer(context), generator)
    report(1)
    memory: Recollection = LastEpisode(family, len(offline), trained.longest)
    if settings.memory == "history":
        memory = History(family, len(offline), trained.longest, generator)
    online, online_rewards = online_returns(
        answer, memory, family, mdps, episodes, generator, lambda played: report(1 + played)
    )
    modes = {
        "offline": ModeResult(
            Measure("return", "episode", 1),
            np.ones(1, np.int32),
            offline,
            context.rewarded[:, None],
            _references(family, mdps, 1),
        ),
        "online": ModeResult(
            Measure("return", "episode", settings.headline_episodes),
            np.arange(1, episodes + 1, dtype=np.int32),
            online,
            online_rewards,
            _references(family, mdps, episodes),
        ),
    }
    # An independent stream, so that every row of a seed has the same Bayes-optimal reference.
    ideal = ideal_returns(family, mdps, whole, settings, generator.spawn(1)[0])
    return modes | {mode: modes[mode].with_reference(*each) for mode, each in ideal.items()}


def _references(
    family: TabularFamily, mdps: FiniteMDPs, episodes: int
) -> dict[str, NDArray[np.float32]]:
    horizon, starts = family.config.horizon, family.starts(mdps)
    uniform = np.full(family.n_actions, 1 / family.n_actions)
    found = {
        "optimal": optimal_returns(mdps, horizon, starts),
        "random": policy_returns(mdps, horizon, starts, uniform),
    }
    return {name: returns[:, None].repeat(episodes, 1) for name, returns in found.items()}
