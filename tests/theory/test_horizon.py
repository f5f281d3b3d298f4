"""Labels of given query states, their consensus, and the choice of N and N_ep by it."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sad_hpc.cli import main
from sad_hpc.distill.labels import LabelRule
from sad_hpc.distill.pose_contexts import sample_pose_actions
from sad_hpc.distill.rollout_labels import distill_labels, distill_pose_labels
from sad_hpc.errors import ConfigError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.experiment.numbers import labelled, no_labels
from sad_hpc.kernels.random import stream
from sad_hpc.tasks.base import make_family
from sad_hpc.theory.horizon import candidates, choose
from sad_hpc.theory.repeats import Repeats, repeat_labels
from tests.conftest import ROOT

POLICY = np.arange(5, dtype=np.uint8)


def tiny(*overrides: str, config: str = "tiny"):
    experiment = load_experiment(ROOT / f"tests/configs/{config}.yaml", overrides)
    return make_family(experiment.task), experiment.data


def one_room(stop_at_reward: bool):
    family, data = tiny()
    rule = dataclasses.replace(
        LabelRule.of(data, family.sparse_reward),
        stop_at_reward=stop_at_reward,
        return_threshold=0.5,
        episodes_per_action=2,
    )
    return family, family.mdps(np.array([[2, 1]], np.int16)), rule


@pytest.mark.parametrize("stop_at_reward", [True, False], ids=["Algorithm 5", "Algorithm 3"])
def test_labels_of_given_states_have_the_law_of_drawn_ones(stop_at_reward: bool):
    """The action of an accepted state is distributed as if the state had been drawn."""
    family, mdps, rule = one_room(stop_at_reward)
    n, tasks = 90_000, np.zeros(90_000, np.int64)
    drawn = distill_labels(mdps, tasks, POLICY, rule, stream(0, 0, 0, "sad"))
    states = (np.arange(n) % family.n_states).astype(np.uint16)
    given = distill_labels(mdps, tasks, POLICY, rule, stream(1, 0, 0, "sad"), states.copy())
    assert (given.query_states == states).all()
    known = labelled(given.actions)
    assert 0.1 < known.mean() < 0.9
    for state in range(family.n_states):
        ours = given.actions[known & (states == state)]
        theirs = drawn.actions[drawn.query_states == state]
        assert (len(ours) == 0) == (len(theirs) == 0)
        if len(ours):
            shares = [np.bincount(each, minlength=5) / len(each) for each in (ours, theirs)]
            assert shares[0] == pytest.approx(shares[1], abs=5 / np.sqrt(len(ours)))
    # Drawing until one is accepted costs as many tries as the share of accepted ones says.
    assert drawn.transitions / n == pytest.approx(given.transitions / n / known.mean(), rel=0.03)


def test_given_poses_cost_what_drawn_ones_do():
    _, data = tiny(config="tiny_miniworld")
    rule = dataclasses.replace(LabelRule.of(data, True), trust_horizon=6)
    targets, policy = np.arange(20_000) % 4, np.arange(4, dtype=np.uint8)
    poses, _ = sample_pose_actions(targets, policy, stream(0, 0, 0, "dpt"))
    before = poses.copy()
    given = distill_pose_labels(targets, policy, rule, stream(0, 0, 0, "sad"), poses)
    drawn = distill_pose_labels(targets, policy, rule, stream(1, 0, 0, "sad"))
    known = labelled(given.actions)
    assert (given.query_states == before).all() and 0.02 < known.mean() < 0.3
    assert drawn.transitions == pytest.approx(given.transitions / known.mean(), rel=0.05)
    shares = [np.bincount(each, minlength=4) / len(each)
              for each in (given.actions[known], drawn.actions)]  # fmt: skip
    assert shares[0] == pytest.approx(shares[1], abs=0.05)


def test_consensus_is_the_mean_of_squared_shares_and_below_the_right_labels_share():
    family, data = tiny("data.episodes_per_action=16")
    found = repeat_labels(family, data, 20_000)
    rule = LabelRule.of(data, family.sparse_reward)
    parameters = family.distinct_tasks("train")
    pairs = [(mdp, state) for mdp in range(len(parameters)) for state in range(family.n_states)]
    mdps, states = (np.repeat(column, 2000) for column in np.array(pairs).T)
    tables, states = family.mdps(parameters), states.astype(np.uint16)
    labels = distill_labels(tables, mdps, POLICY, rule, stream(3, 0, 0, "sad"), states)
    actions = labels.actions.reshape(len(pairs), 2000)
    shares = np.stack([(actions == action).mean(axis=1) for action in range(5)], axis=1)
    assert found.consensus == pytest.approx((shares**2).sum(axis=1).mean(), abs=0.012)
    assert found.consensus < shares.max(axis=1).mean()


@pytest.mark.parametrize("config", ["tiny", "tiny_gaussian", "tiny_miniworld"])
def test_more_rollouts_agree_more_and_the_cheapest_that_is_enough_is_chosen(
    config: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sad_hpc.theory.horizon.EPISODES", (1, 4, 16, 64))
    family, data = tiny(config=config)
    tried = candidates(family, data, 0.5)
    by_horizon = {one.data.trust_horizon: one for one in tried}
    for one, other in itertools.pairwise(tried):
        if one.data.trust_horizon == other.data.trust_horizon:
            assert one.consensus < other.consensus + 0.02
            assert one.transitions < other.transitions
    chosen = choose(tried, 0.5)
    enough = [one for one in tried if one.consensus >= 0.5]
    if enough:
        assert chosen.consensus >= 0.5
        assert chosen.transitions == min(one.transitions for one in enough)
        assert chosen.right(family) >= chosen.consensus - 0.02
    else:
        assert chosen.consensus == max(one.consensus for one in tried)
    assert len(by_horizon) > 3


def test_a_family_whose_labels_are_not_repeated_is_one_line_with_another_way():
    config = ROOT / "examples/environments/cartpole.yaml"
    experiment = load_experiment(config)
    with pytest.raises(ConfigError, match="compare rows with grid"):
        repeat_labels(make_family(experiment.task), experiment.data, 10)


def test_two_that_never_agree_have_no_consensus():
    _, data = tiny()
    unlabelled = no_labels(4, 5)
    some = np.concatenate([np.arange(3, dtype=np.uint8), no_labels(1, 5)])
    rows = np.zeros((4, 1))
    assert Repeats(data, rows, rows, unlabelled, unlabelled, 1.0).consensus == 0
    assert Repeats(data, rows, rows, some, some, 1.0).consensus == 0.75
    cheap, dear = (Repeats(data, rows, rows, some, some, float(n)) for n in (3, 5))
    assert choose([dear, cheap], 0.7) is cheap
    assert choose([cheap, dear], 0.9) is cheap


@pytest.mark.parametrize("asked", [1.5, 1.0, 0.0])
def test_a_consensus_that_is_none_is_refused(asked: float):
    with pytest.raises(ConfigError, match=f"consensus={asked:g} must be between 0 and 1"):
        candidates(*tiny(), asked)


def test_consensus_is_not_asked_of_labels_that_differ_among_right_ones(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("sad_hpc.theory.horizon.EPISODES", (1,))
    with pytest.raises(ConfigError, match="score=fastest"):
        candidates(*tiny("data.score=fastest", "data.tie_break=random"), 0.5)
    assert candidates(*tiny("data.score=fastest"), 0.5)


def test_the_luckiest_arm_is_not_the_best():
    with pytest.raises(ConfigError, match="sparse rewards"):
        load_experiment(ROOT / "tests/configs/tiny_gaussian.yaml", ["data.score=fastest"])


@pytest.mark.parametrize(("config", "asked"), [("tiny", 0.7), ("tiny_gaussian", 0.999)])
def test_the_overrides_of_the_cheapest_rule_that_is_enough_are_printed(
    config: str, asked: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = ROOT / f"tests/configs/{config}.yaml"
    given = ["--agreement", str(asked), "--results", str(tmp_path)]
    assert main(["theory", "horizon", str(path), *given]) == 0
    said = capsys.readouterr().out
    table = pd.read_csv(tmp_path / f"theory/horizon_{config}.csv")
    (chosen,) = table[table["chosen"]].itertuples()
    data = load_experiment(path, said.splitlines()[-1].split()).data
    assert (data.trust_horizon, data.episodes_per_action) == (chosen.N, chosen.N_ep)
    enough = table[table["consensus"] >= asked]
    assert ("no rule reaches" in said) == enough.empty == (asked == 0.999)
    best = table["consensus"].max() if enough.empty else enough["transitions"].min()
    assert best == (chosen.consensus if enough.empty else chosen.transitions)
    assert f"took {table['trial_transitions'].sum():,.0f} transitions" in said
    assert (table["consensus"] <= table["labelled"]).all()
    assert (table["optimal"] <= table["labelled"]).all()
