import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import integrate, stats

from sad_hpc.pretrain.examples import Examples
from sad_hpc.pretrain.repetition import SHAPES, Share, repetitions
from sad_hpc.pretrain.training_columns import TrainingColumns
from sad_hpc.storage.run import Run


def unrewarded(count: int, horizon: int) -> NDArray[np.bool_]:
    return np.zeros((count, horizon), np.bool_)


def test_a_share_of_the_contexts_has_repetitions_and_the_rest_is_as_it_was():
    places = repetitions(0, 7, unrewarded(20_000, 6), 0.3)
    assert places.shape == (20_000, 6) and places.min() == 0 and places.max() == 5
    changed = (places != np.arange(6)).any(axis=1).sum()
    unchanged_by_chance = 0.3 * (places.shape[1] ** -6.0)
    assert stats.binomtest(int(changed), 20_000, 0.3 - unchanged_by_chance).pvalue > 1e-3
    assert (repetitions(0, 7, unrewarded(20, 6), 0.0) == np.arange(6)).all()


def test_two_places_hold_the_same_transition_as_often_as_gamma_weights_say():
    """Two draws by Dirichlet(a, ..., a) weights of T are alike with probability (a + 1) / (T a + 1)
    and each of the T transitions is as likely as any other."""
    horizon = 5
    places = repetitions(3, 0, unrewarded(40_000, horizon), 1.0)
    low, high = np.log(SHAPES)

    def alike(log_shape: float) -> float:
        shape = np.exp(log_shape)
        return (shape + 1) / (horizon * shape + 1) / (high - low)

    expected, _ = integrate.quad(alike, low, high)
    found = int((places[:, 1] == places[:, 3]).sum())
    assert stats.binomtest(found, len(places), expected).pvalue > 1e-3
    counts = np.bincount(places[:, 2], minlength=horizon)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_rewarded_transitions_are_favoured_by_a_log_uniform_factor():
    """If two transitions have the weights gamma(a) and f gamma(a), the second is drawn with the
    mean of f w / (f w + 1 - w) over w ~ Beta(a, a)."""
    rewarded = np.tile([False, True], (40_000, 1))
    places = repetitions(5, 2, rewarded, 1.0, favour=100.0)
    generator = np.random.default_rng(1)
    shapes = np.exp(generator.uniform(*np.log(SHAPES), 400_000))
    shares = generator.beta(shapes, shapes)
    factors = np.exp(generator.uniform(0, np.log(100.0), len(shares)))
    expected = float((factors * shares / (factors * shares + 1 - shares)).mean())
    found = int(places[:, 0].sum())
    assert stats.binomtest(found, len(places), expected).pvalue > 1e-3
    assert expected > 0.6, "favour means something"
    equal = repetitions(5, 2, rewarded, 1.0)
    assert abs(equal[:, 0].mean() - 0.5) < 0.01


def test_repetitions_depend_on_seed_and_step_alone():
    first, same, later = (repetitions(1, step, unrewarded(8, 9), 0.5) for step in (4, 4, 5))
    assert (first == same).all() and (first != later).any()


@pytest.mark.parametrize("favour", [1.0, 10.0])
def test_the_shares_of_two_ranks_are_those_of_one(favour: float):
    rewarded = np.random.default_rng(0).random((8, 9)) < 0.3
    whole = repetitions(1, 4, rewarded, 0.5, favour)
    shares = [Share(0, 4, 8), Share(4, 8, 8)]
    parts = [repetitions(1, 4, rewarded[s.start : s.stop], 0.5, favour, s) for s in shares]
    assert (np.concatenate(parts) == whole).all()


def test_every_part_of_a_context_is_repeated_alike(tiny_run: Run):
    examples = Examples.load(TrainingColumns(tiny_run, "SAD"), torch.device("cpu"))
    rows, drawn = torch.tensor([3, 4]), examples.draws(0, 0, 2)
    whole = examples.batch(rows, drawn)
    places = torch.tensor([[0, 0, 1, 5, 5, 5, 2, 8, 8], list(range(9))])
    again = examples.batch(rows, drawn, places)
    for name, part in vars(again.context).items():
        if part is not None:
            before = getattr(whole.context, name)
            assert (part[0] == before[0, places[0]]).all() and (part[1] == before[1]).all()
    assert (again.labels == whole.labels).all()


def test_dit_asks_for_the_pairs_of_the_episode_after_a_resampled_context(tiny_run: Run):
    examples = Examples.load(TrainingColumns(tiny_run, "DIT"), torch.device("cpu"))
    rows, drawn = torch.tensor([3, 4]), examples.draws(0, 0, 2)
    whole = examples.batch(rows, drawn)
    places = torch.tensor([[8] * 9, list(range(9))])
    again = examples.batch(rows, drawn, places)
    assert (again.context.actions[0] == whole.context.actions[0, 8]).all()
    assert (again.queries.states == whole.queries.states).all()
    assert (again.labels == whole.labels).all()
    assert whole.weights is not None and (again.weights == whole.weights).all()


@pytest.mark.parametrize("step", [0, 1])
def test_a_training_without_repetitions_asks_for_none(tiny_run: Run, step: int):
    examples = Examples.load(TrainingColumns(tiny_run, "SAD"), torch.device("cpu"))
    assert examples.places(0, step, torch.arange(4), Share(0, 4, 4)) is None
