"""Evaluation on tabular tasks: the return of an episode, offline and online."""

import numpy as np
from numpy.typing import NDArray

from sad_hpc.dataset.reader import Arrays
from sad_hpc.evaluate.acting import ActingRule
from sad_hpc.evaluate.agent_memory import recollection
from sad_hpc.evaluate.baselines import optimal_returns, policy_returns
from sad_hpc.evaluate.evaluation import Evaluation
from sad_hpc.evaluate.ideal import ideal_returns
from sad_hpc.evaluate.offline import offline_returns
from sad_hpc.evaluate.online import online_returns
from sad_hpc.evaluate.policy import state_logits
from sad_hpc.evaluate.result import ModeResult
from sad_hpc.model.context import Context
from sad_hpc.tasks.mdps import FiniteMDPs
from sad_hpc.tasks.tabular import TabularFamily


def evaluate_tabular(
    family: TabularFamily,
    evaluation: Evaluation,
    columns: Arrays,
) -> dict[str, ModeResult]:
    """Measure offline and online returns; see `families.evaluate_family`."""
    trained, settings = evaluation.trained, evaluation.settings
    parameters, episodes = columns["tasks/parameters"], settings.online_episodes
    mdps = family.mdps(parameters)
    whole = Context.of_group(columns, settings.context)
    context = trained.shown(whole)
    logits = state_logits(trained.model, family, context, settings.batch_size)
    references = _references(family, mdps)
    modes = {
        "offline": ModeResult.of_episodes(
            offline_returns(family, mdps, logits, evaluation.generator),
            context.rewarded[:, None],
            1,
            references,
        )
    }
    evaluation.report(1)
    for mode, rule, each in evaluation.online_modes(1, episodes):
        played = play_tables(family, each, parameters, rule)
        modes[mode] = ModeResult.of_episodes(*played, settings.headline_episodes, references)
    # An independent stream, so that every row of a seed has the same Bayes-optimal reference.
    ideal = ideal_returns(family, mdps, whole, settings, evaluation.generator.spawn(1)[0])
    for mode in modes:
        kind = "offline" if mode == "offline" else "online"
        if kind in ideal:
            modes[mode] = modes[mode].with_reference(*ideal[kind])
    return modes


def play_tables(
    family: TabularFamily,
    evaluation: Evaluation,
    parameters: NDArray[np.int16],
    rule: ActingRule,
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Play online; see `families.play_online`."""
    trained, settings, generator = evaluation.trained, evaluation.settings, evaluation.generator
    count, kind = len(parameters), settings.memory
    memory = recollection(family, count, trained.longest, kind, generator)

    def answer(context: Context) -> NDArray[np.float32]:
        logits = state_logits(trained.model, family, context, settings.batch_size)
        return rule.applied(logits, context.rewarded > 0)

    mdps, episodes = family.mdps(parameters), settings.online_episodes
    return online_returns(answer, memory, family, mdps, episodes, generator, evaluation.report)


def _references(family: TabularFamily, mdps: FiniteMDPs) -> dict[str, NDArray[np.float32]]:
    """Return the expected returns (n,) of an episode of the reference policies."""
    horizon, starts = family.config.horizon, family.starts(mdps)
    uniform = np.full(family.n_actions, 1 / family.n_actions)
    return {
        "optimal": optimal_returns(mdps, horizon, starts),
        "random": policy_returns(mdps, horizon, starts, uniform),
    }
