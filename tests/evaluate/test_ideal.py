"""Returns of the Bayes-optimal learner, compared with a simulation in plain loops.

For the paper's two rooms the simulation gave 42.6 and 84.4 online, 43.6 and 89.6 with a memory of
all episodes, 43.7 and 89.7 offline if the context shows the goal, and 27.9 and 56.3 over all
contexts.
"""

import numpy as np
import pytest

from sad_hpc.distill.contexts import sample_transitions
from sad_hpc.evaluate.acting import sampled
from sad_hpc.evaluate.episode import as_numbers
from sad_hpc.evaluate.ideal import TasksLeft, ideal_returns, logits_of, tasks_left
from sad_hpc.experiment.behavior_policy import policy_table
from sad_hpc.experiment.sections import EvaluateConfig
from sad_hpc.ideal.posterior import Posterior
from sad_hpc.kernels.random import stream
from sad_hpc.model.context import Context
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.tasks.mdps import TabularMDPs
from sad_hpc.tasks.permuted_darkroom import PermutedDarkroomConfig
from sad_hpc.tasks.tabular import TabularFamily

DARKROOM = DarkroomConfig()
LARGE = DarkroomConfig(size=10, horizon=100, train_goals=80)


def made(family: TabularFamily, n: int) -> tuple[TabularMDPs, Context]:
    """The first test tasks and a context of each."""
    mdps, table = family.mdps(family.parameters("test", 0, n)), policy_table("uniform", 5)
    drawn = sample_transitions(family, mdps, np.arange(n), table, stream(0, 1, 0, "transitions"))
    return mdps, Context.of_group({f"c/{k}": part for k, part in drawn.parts.items()}, "c")


def error(values: np.ndarray) -> float:
    """Three standard errors of the mean, and one of a reference of 400 tasks."""
    return 3 * values.std() * np.sqrt(1 / len(values) + 1 / 400)


@pytest.mark.parametrize(
    ("config", "n", "whole", "seen", "forgetful", "remembering"),
    [(DARKROOM, 200, 27.9, 43.7, 42.6, 43.6), (LARGE, 100, 56.3, 89.7, 84.4, 89.6)],
)
def test_the_ideal_reaches_its_known_returns(config, n, whole, seen, forgetful, remembering):
    family = make_family(config)
    mdps, context = made(family, n)
    for memory, expected in (("episode", forgetful), ("history", remembering)):
        settings, generator = EvaluateConfig(memory=memory), np.random.default_rng(1)
        found = ideal_returns(family, mdps, context, settings, generator)
        name, offline, shown = found["offline"]
        assert name == "Bayes-optimal" and offline.shape == shown.shape == (n, 1)
        assert offline.mean() == pytest.approx(whole, abs=error(offline))
        those = offline[shown > 0]
        assert those.mean() == pytest.approx(seen, abs=error(those))
        name, online, counts = found["online"]
        names = {"episode": "Bayes-optimal", "history": "Bayes-optimal, history"}
        assert name == names[memory]
        last = online[:, -10:].mean(axis=1)
        assert last.mean() == pytest.approx(expected, abs=error(last))
        past = online if memory == "episode" else online.cumsum(axis=1)
        assert (counts[:, 1:] == past[:, :-1]).all() and not counts[:, 0].any()


def test_the_ideal_reads_what_actions_do_where_that_is_the_task():
    """Tasks of `permuted_darkroom` differ in their next states."""
    family = make_family(PermutedDarkroomConfig())
    mdps, context = made(family, 24)
    posterior = Posterior.of_family(family)
    settings = EvaluateConfig(online_episodes=6, headline_episodes=1)
    online = ideal_returns(family, mdps, context, settings, np.random.default_rng(0))["online"][1]
    assert online[:, 0].mean() < 15 and online[:, 1:].mean() > 30
    seen = as_numbers(family, context)
    alive = tasks_left(posterior, seen)
    assert (alive.sum(axis=1) == 1).mean() > 0.9  # 49 random transitions tell it, too


def test_a_memory_of_everything_rules_out_what_any_episode_does():
    family = make_family(DARKROOM)
    posterior, (_, context) = Posterior.of_family(family), made(family, 30)
    whole = as_numbers(family, context)
    halves = [whole.map(lambda part, rows=rows: part[:, rows])
              for rows in (slice(0, 25), slice(25, 49))]  # fmt: skip
    remembers, forgets = TasksLeft(posterior, 30, False), TasksLeft(posterior, 30, True)
    for half in halves:
        for memory in (remembers, forgets):
            memory.add(half)
    assert (remembers.context == tasks_left(posterior, whole)).all()
    assert (forgets.context == tasks_left(posterior, halves[1])).all()
    assert (remembers.context != forgets.context).any()
    assert (remembers.rewards == (whole.rewards > 0).sum(axis=1)).all()


def test_what_is_impossible_is_never_drawn():
    posterior = Posterior.of_family(make_family(DARKROOM))
    alive = np.zeros((1, posterior.n_tasks), bool)
    alive[0, 0] = True
    logits = logits_of(posterior, alive)[0]
    assert np.isinf(logits).any() and not np.isnan(logits).any()
    for uniform in (0.0, 0.5, np.nextafter(1.0, 0.0)):
        actions = sampled(logits, np.full(len(logits), uniform))
        assert np.isfinite(logits[np.arange(len(logits)), actions]).all()


def test_of_too_many_tasks_there_is_no_reference():
    family = make_family(DarkroomConfig(size=60, train_goals=39, horizon=5))
    mdps, context = made(family, 2)
    generator = np.random.default_rng(0)
    assert ideal_returns(family, mdps, context, EvaluateConfig(), generator) == {}
