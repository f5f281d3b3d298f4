"""Exact learners of the rows' labels."""

from pathlib import Path

import numpy as np
import pytest
import torch

from sad_hpc.distill.bandits import draw_policies_of_dpt
from sad_hpc.evaluate.exact import (
    ExactReference,
    dit_answer,
    plays_randomly,
    table_posterior,
)
from sad_hpc.evaluate.exact_arms import arm_answer
from sad_hpc.evaluate.result import EXACT, Measure, ModeResult
from sad_hpc.experiment.experiment import Experiment
from sad_hpc.experiment.load import load_experiment, parse_experiment
from sad_hpc.ideal.arms import best_arm_chances, best_arm_probabilities
from sad_hpc.ideal.label_law import label_law
from sad_hpc.ideal.posterior import Posterior, optimal_law
from sad_hpc.model.context import Context
from sad_hpc.tasks.base import make_family
from tests.conftest import ROOT

ROOM = [
    "task.size=3", "task.horizon=4", "task.train_goals=7", "data.tasks=4500", "evaluate.tasks=400",
    "data.trust_horizon=3", "dit.discount=0.5",
]  # fmt: skip
BANDIT = ["task.arms=3", "task.horizon=8", "data.trust_horizon=4"]


def room(*overrides: str) -> Experiment:
    return load_experiment(ROOT / "configs/darkroom.yaml", [*ROOM, *overrides])


def bandit(*overrides: str) -> Experiment:
    return load_experiment(ROOT / "configs/paper/gaussian_bandit.yaml", [*BANDIT, *overrides])


def test_laws_are_those_of_the_labels_over_all_tasks():
    family = make_family(room().task)
    known = table_posterior(family, room(), "SAD")
    every = np.concatenate([family.distinct["train"], family.distinct["test"]])
    test = label_law(family, room().data, "labels/sad", "test")
    assert known is not None and test is not None
    assert known.n_tasks == len(every) == 9
    totals = test.sum(axis=2, keepdims=True)
    wanted = np.divide(test, totals, out=np.full_like(test, 0.2), where=totals > 0)
    assert known.probabilities(np.eye(9))[7:] == pytest.approx(wanted)
    optimal = family.optimal_actions(every)
    random = table_posterior(family, room(), "DPT*")
    lowest = table_posterior(family, room("data.oracle_tie_break=lowest"), "DPT*")
    assert random is not None and lowest is not None
    drawn = Posterior(family.mdps(every), optimal_law(optimal)).probabilities(np.eye(9))
    assert random.probabilities(np.eye(9)) == pytest.approx(drawn)
    first = lowest.probabilities(np.eye(9))
    assert (first.argmax(axis=2) == optimal.argmax(axis=2)).all() and first.max(axis=2).min() == 1


def test_dit_answers_with_the_actions_of_the_context_by_their_returns():
    family = make_family(room().task)
    known = table_posterior(family, room(), "DIT")
    assert known is not None
    cells = torch.tensor([[[0, 0], [1, 0], [0, 0], [0, 0]]])
    context = Context(
        cells, torch.tensor([[0, 1, 2, 4]]), torch.tensor([[0, 0, 1, 0]]), cells.roll(-1, 1)
    )
    alive = np.ones((1, 9))
    expected = known.probabilities(alive)[0]
    told = Uncertain(known, alive)
    found = np.exp(dit_answer(family, told, room().dit)(context)[0])
    start, other = family.state_numbers(np.array([[0, 0], [1, 0]]))
    assert found[start] == pytest.approx([0.2, 0, 0.8, 0, 0])  # returns 0.25, 1 and 0
    assert found[other] == pytest.approx([0, 1, 0, 0, 0])
    unseen = np.delete(np.arange(9), [start, other])
    assert found[unseen] == pytest.approx(expected[unseen], rel=1e-5)
    floored = np.exp(dit_answer(family, told, room("dit.floor=0.01").dit)(context)[0])
    assert floored[start] == pytest.approx(np.array([0.25, 0, 1, 0, 0.01]) / 1.26, rel=1e-5)


class Uncertain(Posterior):
    """A posterior whose contexts contradict nothing."""

    def __init__(self, known: Posterior, alive: np.ndarray) -> None:
        super().__init__(known.mdps, known._law)
        self._alive = alive

    def probabilities(self, alive: np.ndarray) -> np.ndarray:
        return super().probabilities(self._alive)


@pytest.mark.parametrize("policy", ["behavior", "dpt"])
@pytest.mark.parametrize("method", ["AD", "DIT"])
def test_answers_of_bandits_are_means_over_weighted_tasks(policy: str, method: str):
    """Tasks and policies of the prior, weighted by the likelihood of three pulls and rewards."""
    arms, rewards, left = np.array([0, 2, 0]), np.array([0.9, 0.2, 0.6]), 8 - 3
    generator = np.random.default_rng(0)
    means, policies = generator.random((1_000_000, 3)), np.full((1, 3), 1 / 3)
    if policy == "dpt":
        policies = draw_policies_of_dpt(len(means), 3, generator)
    weights = np.exp(-(((rewards - means[:, arms]) / 0.3) ** 2) / 2).prod(axis=1)
    weights *= policies[:, arms].prod(axis=1)
    wanted = weights @ np.broadcast_to(policies, means.shape) / weights.sum()
    if method == "DIT":
        sums = np.bincount(arms, rewards, 3)
        wanted = sums + left * (weights @ (policies * means)) / weights.sum()
        wanted /= wanted.sum()
    answer = arm_answer(bandit(f"data.context_policy={policy}"), method)
    assert answer is not None
    counts, sums = np.bincount(arms, minlength=3), np.bincount(arms, rewards, 3)
    found = answer(counts[None].astype(float), sums[None])[0]
    assert found == pytest.approx(wanted, abs=0.003)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_chances_of_tallies_are_those_of_prefixes(noise: float):
    actions = np.array([[0, 1, 2, 0, 1], [2, 2, 2, 1, 0]])
    rewards = np.random.default_rng(0).normal(0.5, 0.5, actions.shape)
    wanted = best_arm_probabilities(actions, rewards, 3, 0.3, noise)
    for length in range(6):
        pulled = actions[:, :length, None] == np.arange(3)
        sums = (pulled * rewards[:, :length, None]).sum(axis=1)
        found = best_arm_chances(pulled.sum(axis=1).astype(float), sums, 0.3, noise)
        assert found == pytest.approx(wanted[:, length], abs=1e-4)


def test_labels_are_those_of_the_experiment_that_trains_the_models(tmp_path: Path):
    trained = room("data.oracle_tie_break=lowest").model_dump(mode="json")
    again = {key: trained[key] for key in ("task", "evaluate")} | {"name": "again"}
    again |= {"data": room().model_dump(mode="json")["data"], "pretrained": trained}
    experiment = parse_experiment(again, "x")
    assert experiment.data.oracle_tie_break != experiment.source.data.oracle_tie_break
    family = make_family(experiment.task)
    known = table_posterior(family, experiment, "DPT*")
    wanted = table_posterior(family, experiment.source, "DPT*")
    assert known is not None and wanted is not None
    assert (known.probabilities(np.eye(9)) == wanted.probabilities(np.eye(9))).all()


def test_rows_of_random_labels_have_random_play_as_their_exact_learner():
    one = ModeResult(
        Measure("return", "episode", 1), np.ones(1, np.int32), np.zeros((2, 1), np.float32), None,
        {"random": np.full((2, 1), 7, np.float32)},
    )  # fmt: skip
    family = make_family(room().task)
    for method in ("AD", "DPT"):
        reference = ExactReference(family, room(), method)
        found = reference.added({"online": one}, {}, np.random.default_rng(0))
        assert (found["online"].references[EXACT] == 7).all()
    for other in ("data.q_learning_steps=100", "data.behavior_policy=[0.6,0.1,0.1,0.1,0.1]"):
        reference = ExactReference(family, room(other), "AD")
        found = reference.added({"online": one}, {}, np.random.default_rng(0))
        assert EXACT not in found["online"].references


def test_contexts_that_are_not_random_play_have_no_known_learner():
    imported = room("data.imported_contexts=minari-0123456789ab")
    assert table_posterior(make_family(imported.task), imported, "DIT") is None
    config = ROOT / "examples/environments/cartpole.yaml"
    two = ["data.rounds=2", "data.own_contexts=0.5"]
    assert plays_randomly(load_experiment(config), "AD")
    assert not plays_randomly(load_experiment(config, two), "AD")
    assert plays_randomly(room(*two), "AD"), "rooms have episodes for AD"


def test_random_labels_of_a_policy_that_is_not_uniform_are_its_draws():
    policy = [0.6, 0.1, 0.1, 0.1, 0.1]
    experiment = room(f"data.behavior_policy={policy}")
    assert not plays_randomly(experiment, "DPT")
    known = table_posterior(make_family(experiment.task), experiment, "DPT")
    assert known is not None
    assert known.probabilities(np.eye(9)) == pytest.approx(np.broadcast_to(policy, (9, 9, 5)))
