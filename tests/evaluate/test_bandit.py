import functools

import numpy as np
import pytest
import torch

from sad_hpc.evaluate.acting import sampled
from sad_hpc.evaluate.bandit import (
    TransformerPolicy,
    evaluate_bandit,
    gaps,
    kept_steps,
    offline_arms,
)
from sad_hpc.evaluate.bandit_policies import (
    LINEAR_POLICIES,
    POLICIES,
    offline_empirical_mean,
    offline_ideal,
    reference_policies,
    run_bandit,
)
from sad_hpc.evaluate.evaluation import Evaluation
from sad_hpc.evaluate.policy import Trained
from sad_hpc.experiment.sections import EvaluateConfig, ModelConfig
from sad_hpc.model.context import Context, Inputs, Queries
from sad_hpc.model.transformer import Transformer
from sad_hpc.tasks.bandit import BanditFamily, BernoulliBanditConfig, GaussianBanditConfig
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.linear_bandit import LinearBanditConfig

T, N = 12, 6


def family(config=GaussianBanditConfig, horizon: int = T) -> BanditFamily:
    made = make_family(config(horizon=horizon))
    assert isinstance(made, BanditFamily)
    return made


@pytest.fixture(scope="module")
def model() -> Transformer:
    torch.manual_seed(0)
    network = Transformer(ModelConfig(dropout=0.0), Inputs.of_family(family())).eval()
    torch.nn.init.normal_(network.head.weight, std=3.0)
    return network


def contexts(generator: np.random.Generator) -> Context:
    states = torch.zeros((N, T, 1), dtype=torch.uint8)
    actions = torch.from_numpy(generator.integers(0, 5, (N, T)).astype(np.uint8))
    rewards = torch.from_numpy(generator.standard_normal((N, T), np.float32))
    return Context(states, actions, rewards, states)


@torch.no_grad()
def ask_from_scratch(network: Transformer, context: Context) -> np.ndarray:
    """(n, A): one question, after the whole of a context."""
    n, length = context.actions.shape
    state = torch.zeros((n, 1, 1), dtype=torch.uint8)
    return network(context, Queries(state, torch.full((n, 1, 1), length)))[:, 0].numpy()


@pytest.mark.parametrize(("batch_size", "longest"), [(1, T), (4, T), (512, T), (512, T - 1)])
def test_one_pass_answers_for_every_prefix(model: Transformer, batch_size: int, longest: int):
    """A model that was trained on at most T - 1 pulls is shown the last ones of T."""
    context = contexts(np.random.default_rng(0))
    arms = offline_arms(Trained(model, longest), context, batch_size)
    assert arms.shape == (N, T)
    for length in range(1, T + 1):
        first = max(0, length - longest)
        prefix = context.map(lambda part, shown=slice(first, length): part[:, shown])
        assert (arms[:, length - 1] == ask_from_scratch(model, prefix).argmax(-1)).all()


def test_a_pull_added_to_memory_answers_as_if_it_started_from_scratch(model: Transformer):
    """With the same uniform numbers: n of them a pull, and no others."""
    means = np.random.default_rng(1).random((N, 5), np.float32)
    drawn, uniforms = np.random.default_rng(2), np.random.default_rng(2)
    policy, rewards = TransformerPolicy(model, N, drawn), np.random.default_rng(3)
    states = torch.zeros((N, T, 1), dtype=torch.uint8)
    pulled = np.zeros((N, 0), np.int64)
    paid = np.zeros((N, 0), np.float32)
    for pull in range(T):
        context = Context(
            states[:, :pull], torch.from_numpy(pulled), torch.from_numpy(paid), states[:, :pull]
        )
        arms = policy.choose()
        assert (arms == sampled(ask_from_scratch(model, context), uniforms.random(N))).all()
        reward = family().draw_rewards(means[np.arange(N), arms], rewards)
        policy.observe(arms, reward)
        pulled = np.column_stack([pulled, arms])
        paid = np.column_stack([paid, reward])
    assert drawn.random() == uniforms.random()


def test_an_evaluation_adds_up_what_every_pull_loses(model: Transformer):
    context = contexts(np.random.default_rng(0))
    means = np.random.default_rng(1).random((N, 5), np.float32)
    columns = {f"transitions/{name}": part.numpy() for name, part in vars(context).items()
               if part is not None} | {"tasks/parameters": means}  # fmt: skip
    settings = EvaluateConfig(tasks=N, batch_size=4)
    evaluation = Evaluation(Trained(model, T), settings, np.random.default_rng(2))
    modes = evaluate_bandit(family(), evaluation, columns)
    offline, online = modes["offline"], modes["online"]
    generator = np.random.default_rng(2)
    arms = run_bandit(family(), means, TransformerPolicy(model, N, generator), generator)
    best, tasks, regret = means.max(axis=1), np.arange(N), np.zeros(N)
    steps = online.steps.tolist()
    assert steps == offline.steps.tolist() == [1, 2, 3, 5, 7, 10, T]
    for pull in range(T):
        regret += best - means[tasks, arms[:, pull]]
        if pull + 1 in steps:
            column = steps.index(pull + 1)
            assert online.values[:, column] == pytest.approx(regret, abs=2.1e-3)
            expected = (pull + 1) * (best - means.mean(axis=1))
            assert online.references["random"][:, column] == pytest.approx(expected, abs=2.1e-3)
    every = gaps(means, offline_arms(Trained(model, T), context, 4))
    assert (offline.values == every[:, offline.steps - 1]).all()
    assert offline.references["random"][:, 0] == pytest.approx(best - means.mean(axis=1), abs=1e-6)
    lengths = [int(length) for length in np.linspace(1, T, 50)]
    mean = np.mean([every[:, length - 1] for length in lengths], axis=0)
    assert modes["lengths"].values[:, 0] == pytest.approx(mean, abs=1e-6)
    assert modes["lengths"].references.keys() == offline.references.keys()
    for mode in (offline, online):
        assert not mode.references["optimal"].any()
        assert all(values.shape == (N, len(steps)) for values in mode.references.values())
    for name in POLICIES:
        assert (np.diff(online.references[name], axis=1) >= 0).all()


CONFIGS = [
    GaussianBanditConfig,
    BernoulliBanditConfig,
    functools.partial(LinearBanditConfig, arms=5),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_offline_the_ideal_loses_least(config):
    bandits, generator = family(config), np.random.default_rng(0)
    means = bandits.draw_means(400, generator)
    actions = generator.integers(0, 5, (400, 1000))
    rewards = bandits.draw_rewards(np.take_along_axis(means, actions, axis=1), generator)
    ideal = gaps(means, offline_ideal(bandits, actions, rewards))
    assert ideal[:, -100:].mean() < 0.01 * gaps(means, np.arange(5)[None]).mean()
    empirical = gaps(means, offline_empirical_mean(actions, rewards, 5))
    # With few pulls, most of all: an arm that paid badly is worse than one not yet pulled.
    assert ideal[:, :3].mean() < 0.9 * empirical[:, :3].mean()
    assert ideal.mean() <= empirical.mean()


@pytest.mark.parametrize("horizon", [1, 3, 4, 77, 500, 2000])
def test_about_twenty_steps_are_kept_and_always_the_last(horizon: int):
    steps = kept_steps(horizon)
    assert steps[0] == 1 and steps[-1] == horizon and len(steps) <= 20
    assert (np.diff(steps) > 0).all() and steps.dtype == np.int32


def test_gaps_are_what_an_arm_loses_against_the_best():
    means = np.array([[0.2, 0.9, 0.5]], np.float32)
    assert gaps(means, np.array([[1, 2, 0]])) == pytest.approx(np.array([[0, 0.4, 0.7]]))


def test_the_empirical_mean_of_a_prefix_is_that_of_its_pulls():
    actions = np.array([[2, 0, 2, 1, 0]])
    rewards = np.array([[0.5, 0.6, 0.8, 0.1, 0.9]], np.float32)
    assert offline_empirical_mean(actions, rewards, 3).tolist() == [[2, 0, 2, 2, 0]]


def lost_by(name: str, bandits: BanditFamily) -> tuple[np.ndarray, np.ndarray]:
    """Means (100, A), and what the pulls of a reference policy lose, (100, T)."""
    generator = np.random.default_rng(0)
    means = bandits.draw_means(100, generator)
    policy = reference_policies(bandits)[name](bandits, 100, generator)
    return means, gaps(means, run_bandit(bandits, means, policy, generator))


@pytest.mark.parametrize("config", [GaussianBanditConfig, BernoulliBanditConfig])
@pytest.mark.parametrize("name", sorted(POLICIES))
def test_reference_policies_find_the_best_arm(config, name: str):
    means, lost = lost_by(name, family(config, 400))
    random = gaps(means, np.arange(5)[None]).mean()
    assert lost[:, -100:].mean() < 0.3 * random
    assert lost[:, :5].mean() > 2 * lost[:, -100:].mean()


def test_what_knows_that_arms_are_linear_loses_less():
    """Two numbers decide ten means, so that independent arms learn slowly."""
    bandits = family(LinearBanditConfig, 200)
    regret = {name: lost_by(name, bandits)[1].sum(axis=1).mean() for name in LINEAR_POLICIES}
    blind = min(regret["UCB"], regret["empirical mean"])
    assert max(regret["Bayes-optimal"], regret["LinUCB"]) < 0.5 * blind
