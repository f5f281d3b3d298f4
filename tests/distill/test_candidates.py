"""Candidate vectors of a label, where the best one is known."""

from unittest.mock import Mock

import numpy as np
import pytest

from sad_hpc.distill import make_block
from sad_hpc.distill.candidates import Candidates
from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.rollout import Behavior, Following, Followings
from sad_hpc.experiment.sections import DataConfig
from tests.distill.test_simulated import Slopes

OPTIMUM = np.array([0.6, -1.0, 0.1])


def refined_labels(refinements: int, following: Followings | None = None) -> np.ndarray:
    """The labels (300, 3) of 300 states where the score is the negative distance from OPTIMUM."""
    generator = np.random.default_rng(0)
    behavior = Behavior(np.arange(3), 3, components=3)
    rule = LabelRule(1, 1, 0.9, False, None, False, candidates=16, refinements=refinements)
    candidates = Candidates(behavior, rule, following, generator)
    drawn, nowhere = behavior.candidates(300, rule, generator), np.zeros((300, 1))

    def score(vectors: np.ndarray) -> np.ndarray:
        assert vectors.shape == (300, 16, 3) and vectors.dtype == np.float32
        assert np.abs(vectors).max() <= 1
        return -np.linalg.norm(vectors - OPTIMUM, axis=2)

    best, labels = candidates.chosen(drawn, nowhere, np.arange(300), score)
    assert labels.shape == (300, 3) and best.shape == (300,)
    return labels


def test_refined_candidates_come_closer_to_the_optimum() -> None:
    errors = [np.linalg.norm(refined_labels(n) - OPTIMUM, axis=1).mean() for n in (0, 1, 2, 4)]
    assert errors[1] < 0.7 * errors[0] and errors[2] < 0.7 * errors[1] and errors[3] < 0.15


@pytest.mark.parametrize("sign, kept", [(1, 1.0), (-1, 0.0)])
def test_an_incumbents_vector_is_kept_through_refinements(sign: int, kept: float) -> None:
    vector = (sign * OPTIMUM).astype(np.float32)
    always = Following(Mock(), *(lambda seen: np.tile(vector, (len(seen), 1)),) * 2)
    labels = refined_labels(2, lambda tasks: always)
    assert (labels == vector).all(axis=1).mean() == kept
    assert np.linalg.norm(labels - OPTIMUM, axis=1).mean() < 0.4


def test_every_set_of_candidates_is_rolled_out() -> None:
    data = DataConfig(tasks=20, trust_horizon=3, return_threshold=None, candidates=8)
    family, spent = Slopes(), []
    family.sparse_reward = False
    for refinements in (0, 1, 3):
        settings = data.model_copy(update={"refinements": refinements})
        spent.append(make_block(family, settings, "train", 0).steps["labels_sad"])
    rollouts = family.n_tasks("train", 20) * 8 * 3
    assert spent[1] - spent[0] == rollouts and spent[2] - spent[0] == 3 * rollouts
