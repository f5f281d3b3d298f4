"""The contextual bandit of examples/: its posterior, its references and the labels of its rule."""

import importlib.util

import numpy as np
import pytest

from sad_hpc.distill import make_block
from sad_hpc.evaluate.evaluation import Evaluation
from sad_hpc.evaluate.policy import Trained
from sad_hpc.evaluate.simulated import evaluate_simulated
from sad_hpc.experiment.sections import DataConfig, EvaluateConfig, ModelConfig
from sad_hpc.model.context import Inputs
from sad_hpc.model.transformer import Transformer
from tests.conftest import ROOT

SPEC = importlib.util.spec_from_file_location(
    "contextual_bandit", ROOT / "examples/contextual_bandit/contextual_bandit.py"
)
assert SPEC is not None and SPEC.loader is not None
bandits = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(bandits)


@pytest.fixture
def family():
    return bandits.ContextualBandit(bandits.ContextualBanditConfig(horizon=30))


def test_the_posterior_is_the_prior_weighted_by_the_likelihood():
    """A million draws of one arm's theta, weighted by three rewards, have the posterior's mean."""
    generator = np.random.default_rng(0)
    contexts, rewards = generator.standard_normal((3, 2)), np.array([0.4, -0.2, 0.9])
    theta = generator.standard_normal((1_000_000, 2)) / np.sqrt(2)
    weights = np.exp(-(((rewards - theta @ contexts.T) / 0.5) ** 2).sum(axis=1) / 2)
    weights /= weights.sum()
    regression = bandits.Thompson((1, 2, 2), 0.5, 2.0, generator)
    for context, reward in zip(contexts, rewards, strict=True):
        regression.observe(context[None], np.array([1]), np.array([reward]))
    assert regression.means[0, 1] == pytest.approx(weights @ theta, abs=0.003)
    assert not regression.means[0, 0].any()
    asked = np.array([0.3, -1.2])
    spread = np.sqrt(weights @ ((theta - weights @ theta) @ asked) ** 2)
    drawn = np.array([regression.scores(asked[None])[0] for _ in range(4000)])
    assert drawn.std(axis=0) == pytest.approx(
        [np.linalg.norm(asked) / np.sqrt(2), spread], rel=0.05
    )


def test_labels_are_mostly_the_arm_with_the_highest_mean(family):
    data = DataConfig(
        tasks=500, block_tasks=500, queries_per_task=4, trust_horizon=1, episodes_per_action=32
    )
    arrays = make_block(family, data, "train", 0).arrays
    theta = arrays["tasks/parameters"].reshape(-1, 5, 2)
    means = np.einsum("nad,nqd->nqa", theta, arrays["labels/sad/query_states"])
    right = (means.argmax(axis=2) == arrays["labels/sad/actions"]).mean()
    assert 0.9 < right < 1
    rewards = arrays["transitions/rewards"]
    pulled = np.take_along_axis(
        np.einsum("nad,ntd->nta", theta, arrays["transitions/states"]),
        arrays["transitions/actions"][:, :, None].astype(int),
        axis=2,
    )[:, :, 0]
    assert (rewards - pulled).std() == pytest.approx(0.3, rel=0.02)


def test_references_learn_from_contexts_and_pulls(family):
    generator = np.random.default_rng(0)
    data = DataConfig(tasks=300, block_tasks=300, trust_horizon=1)
    arrays = make_block(family, data, "test", 0).arrays
    columns = {name: part[:60] for name, part in arrays.items()}
    model = Transformer(ModelConfig(layers=1, dropout=0.0), Inputs.of_family(family)).eval()
    settings = EvaluateConfig(tasks=60, online_episodes=4, headline_episodes=1)
    modes = evaluate_simulated(family, Evaluation(Trained(model, 30), settings, generator), columns)
    offline, online = modes["offline"].references, modes["online"].references
    assert offline.keys() == online.keys() == {"random", "optimal", "LinUCB", "Thompson"}
    mean = {name: values.mean(axis=0) for name, values in online.items()}
    for name in ("LinUCB", "Thompson"):
        assert mean["random"][0] < mean[name][0] < mean[name][3] < mean["optimal"][3]
        assert offline[name].mean() > mean[name][0]  # it has seen a context
