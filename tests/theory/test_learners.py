"""Exact learners of the methods' labels."""

import numpy as np
import pytest
import torch

from sad_hpc.errors import ConfigError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.ideal.label_law import label_law
from sad_hpc.ideal.posterior import Posterior, optimal_law
from sad_hpc.model.context import Context
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import DarkroomConfig
from sad_hpc.theory.learners import dit_answers, exact_learners, label_laws
from tests.conftest import ROOT

SMALL = [
    "task.size=3", "task.horizon=8", "task.train_goals=7", "data.tasks=4500", "evaluate.tasks=400",
    "data.trust_horizon=3", "evaluate.online_episodes=12",
]  # fmt: skip


def test_learners_of_right_labels_are_optimal_where_the_context_tells_the_goal():
    table = exact_learners(load_experiment(ROOT / "configs/darkroom.yaml", SMALL))
    table = table.set_index("learner")
    assert list(table.index) == ["DPT*", "DPT*, lowest", "SAD", "DIT"]
    right = table.loc[["DPT*", "DPT*, lowest", "SAD"], "reward_seen"]
    assert right.nunique() == 1 and right.iloc[0] > table.loc["DIT", "reward_seen"]
    # A policy that moves along x first needs the goal's column.
    assert table.loc["DPT*", "online"] > table.loc["DPT*, lowest", "online"]
    assert table.loc["SAD", "online"] > table.loc["DIT", "online"]


def test_laws_are_those_of_the_labels_over_all_tasks():
    experiment = load_experiment(ROOT / "configs/darkroom.yaml", SMALL)
    family = make_family(experiment.task)
    laws = label_laws(family, experiment.data)
    every = np.concatenate([family.distinct["train"], family.distinct["test"]])
    test = label_law(family, experiment.data, "labels/sad", "test")
    assert len(laws["SAD"]) == len(every) == 9 and (laws["SAD"][7:] == test).all()
    optimal = family.optimal_actions(every)
    known = [Posterior(family.mdps(every), law) for law in (laws["DPT*"], optimal_law(optimal))]
    one, other = (each.probabilities(np.eye(9)) for each in known)
    assert np.allclose(one, other)
    lowest = Posterior(family.mdps(every), laws["DPT*, lowest"]).probabilities(np.eye(9))
    assert (lowest.argmax(axis=2) == optimal.argmax(axis=2)).all() and lowest.max(axis=2).min() == 1


def test_dit_answers_with_the_actions_of_the_context_by_their_returns():
    family = make_family(DarkroomConfig(size=3, horizon=4, train_goals=7))
    cells = torch.tensor([[[0, 0], [1, 0], [0, 0], [0, 0]]])
    context = Context(
        cells, torch.tensor([[0, 1, 2, 4]]), torch.tensor([[0, 0, 1, 0]]), cells.roll(-1, 1)
    )
    found = np.exp(dit_answers(family, 0.5)(context)[0])
    start, other = family.state_numbers(np.array([[0, 0], [1, 0]]))
    assert found[start] == pytest.approx([0.2, 0, 0.8, 0, 0])  # returns 0.25, 1 and 0
    assert found[other] == pytest.approx([0, 1, 0, 0, 0])
    unseen = np.delete(found, [start, other], axis=0)
    assert unseen == pytest.approx(np.full_like(unseen, 0.2))


def test_exact_learners_are_for_tables():
    with pytest.raises(ConfigError, match="has no tables"):
        exact_learners(load_experiment(ROOT / "configs/gaussian_bandit.yaml", []))
