"""Labels of given query states, their consensus, and the choice of N and N_ep by it."""

import dataclasses
import itertools

import numpy as np
import pytest

from sad_hpc.distill.labels import NO_LABEL, LabelRule
from sad_hpc.distill.rollout_labels import distill_labels
from sad_hpc.distill.rollouts import distill_pose_labels, sample_pose_actions
from sad_hpc.errors import ConfigError
from sad_hpc.experiment.load import horizon_question, load_experiment
from sad_hpc.kernels.random import stream
from sad_hpc.tasks import make_family
from sad_hpc.theory.choose import Candidate, candidates, choose
from sad_hpc.theory.repeats import Repeats, repeat_labels
from tests.conftest import ROOT, TINY

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
    """Where one is accepted, the action is distributed as if the state had been drawn."""
    family, mdps, rule = one_room(stop_at_reward)
    n, tasks = 90_000, np.zeros(90_000, np.int64)
    drawn = distill_labels(mdps, tasks, POLICY, rule, stream(0, 0, 0, "sad"))
    states = (np.arange(n) % family.n_states).astype(np.uint16)
    given = distill_labels(mdps, tasks, POLICY, rule, stream(1, 0, 0, "sad"), states.copy())
    assert (given.query_states == states).all()
    known = given.actions != NO_LABEL
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
    known = given.actions != NO_LABEL
    assert (given.query_states == before).all() and 0.02 < known.mean() < 0.3
    assert drawn.transitions == pytest.approx(given.transitions / known.mean(), rel=0.05)
    shares = [np.bincount(each, minlength=4) / len(each)
              for each in (given.actions[known], drawn.actions)]  # fmt: skip
    assert shares[0] == pytest.approx(shares[1], abs=0.05)


def test_consensus_is_the_mean_of_squared_shares_and_below_the_right_labels_share():
    family, data = tiny("data.episodes_per_action=16")
    found = repeat_labels(family, data, 20_000)
    rule = LabelRule.of(data, family.sparse_reward)
    parameters = family.variants("train")
    pairs = [(mdp, state) for mdp in range(len(parameters)) for state in range(family.n_states)]
    mdps, states = (np.repeat(column, 2000) for column in np.array(pairs).T)
    tables, states = family.mdps(parameters), states.astype(np.uint16)
    labels = distill_labels(tables, mdps, POLICY, rule, stream(3, 0, 0, "sad"), states)
    actions = labels.actions.reshape(len(pairs), 2000)
    shares = np.stack([(actions == action).mean(axis=1) for action in range(5)], axis=1)
    assert found.consensus == pytest.approx((shares**2).sum(axis=1).mean(), abs=0.012)
    assert found.consensus < shares.max(axis=1).mean()


@pytest.mark.parametrize("config", ["tiny", "tiny_gaussian", "tiny_miniworld"])
def test_more_rollouts_agree_more_and_the_cheapest_that_is_enough_is_chosen(config: str):
    family, data = tiny(config=config)
    tried = candidates(family, data, 0.5, episodes=(1, 4, 16, 64))
    by_horizon = {one.trust_horizon: one for one in tried}
    for one, other in itertools.pairwise(tried):
        if one.trust_horizon == other.trust_horizon:
            assert one.consensus < other.consensus + 0.02
            assert one.repeats.transitions < other.repeats.transitions
    chosen = choose(tried, 0.5)
    enough = [one for one in tried if one.consensus >= 0.5]
    if enough:
        assert chosen.consensus >= 0.5
        assert chosen.repeats.transitions == min(one.repeats.transitions for one in enough)
        assert chosen.right(family) >= chosen.consensus - 0.02
    else:
        assert chosen.consensus == max(one.consensus for one in tried)
    assert len(by_horizon) > 3


def test_two_that_never_agree_have_no_consensus():
    nobody = np.full(4, NO_LABEL, np.uint8)
    some = np.array([0, 1, 2, NO_LABEL], np.uint8)
    rows = np.zeros((4, 1))
    assert Repeats(rows, rows, nobody, nobody, 1.0).consensus == 0
    assert Repeats(rows, rows, some, some, 1.0).consensus == 0.75
    cheap, dear = (
        Candidate(n, 1, Repeats(rows, rows, some, some, float(n))) for n in (3, 5)
    )  # fmt: skip
    assert choose([dear, cheap], 0.7) is cheap
    assert choose([cheap, dear], 0.9) is cheap


def test_auto_in_a_config_becomes_numbers():
    plain = load_experiment(TINY)
    chosen = load_experiment(TINY, ["data.trust_horizon=auto", "data.trustworthiness=0.7"])
    family = make_family(plain.task)
    best = choose(candidates(family, plain.data, 0.7), 0.7)
    assert (best.trust_horizon, best.episodes_per_action) == (
        chosen.data.trust_horizon,
        chosen.data.episodes_per_action,
    )
    row = "SAD, auto"
    settings = "{data.trust_horizon: auto, data.trustworthiness: 0.7}"
    beside = load_experiment(TINY, [f"variants={{'{row}': {settings}}}"])
    assert beside.data == plain.data
    assert beside.of_row(row)[0].data == chosen.data
    told = chosen.data.chosen
    assert told is not None and (told["asked"], told["consensus"]) == (0.7, best.consensus)
    assert told["transitions"] > best.spent
    assert beside.of_row(row)[0].data_signature() == chosen.data_signature()


def test_what_is_given_beside_auto_stays():
    both = load_experiment(TINY, ["data.trust_horizon=auto", "data.episodes_per_action=4"])
    assert both.data.episodes_per_action == 4 and both.data.trust_horizon > 1
    other = "variants={'DPT, auto': {data.trust_horizon: auto, model.heads: 1}}"
    own, method = load_experiment(TINY, [other]).of_row("DPT, auto")
    assert method == "DPT" and own.model.heads == 1 and own.data.episodes_per_action > 4
    numbers = ["data.trust_horizon=auto", "data.trustworthiness=0.5", "data.trust_horizon=2"]
    assert load_experiment(TINY, numbers).data.trust_horizon == 2


@pytest.mark.parametrize("given", [["data.trustworthiness=0.5"], ["data.episodes_per_action=4"]])
def test_what_is_shown_of_a_choice_is_what_auto_chooses(given: list[str]):
    overrides = ["data.trust_horizon=auto", *given]
    question, loaded = horizon_question(TINY, overrides), load_experiment(TINY, overrides).data
    best = choose(question.candidates(), question.asked)
    assert (best.trust_horizon, best.episodes_per_action) == (
        loaded.trust_horizon,
        loaded.episodes_per_action,
    )


def test_a_variant_asks_for_what_the_experiment_asks():
    variant = "variants={'SAD, auto': {data.trust_horizon: auto}}"
    own, _ = load_experiment(TINY, [variant, "data.trustworthiness=0.6"]).of_row("SAD, auto")
    assert own.data.chosen is not None and own.data.chosen["asked"] == 0.6


def test_a_choice_is_told_of_rows_that_use_it_only():
    """A row that sets another N by hand owes nothing to it."""
    variants = "variants={'SAD, by hand': {data.trust_horizon: 2}, 'SAD, small': {model.heads: 1}}"
    experiment = load_experiment(TINY, ["data.trust_horizon=auto", variants])
    assert experiment.of_row("SAD, by hand")[0].data.chosen is None
    assert experiment.of_row("SAD, small")[0].data.chosen == experiment.data.chosen is not None


def test_a_trustworthiness_without_effect_is_told(capsys: pytest.CaptureFixture[str]):
    load_experiment(TINY, ["data.trustworthiness=0.6"])
    assert "data.trustworthiness has no effect" in capsys.readouterr().err
    by_hand = "{data.trust_horizon: 2, data.trustworthiness: 0.6}"
    load_experiment(TINY, [f"variants={{'SAD, by hand': {by_hand}}}"])
    assert "SAD, by hand: no N is auto" in capsys.readouterr().err
    load_experiment(TINY, ["data.trust_horizon=auto", "data.trustworthiness=0.6"])
    assert "no effect" not in capsys.readouterr().err


@pytest.mark.parametrize("horizon", ["auto", "3"])
@pytest.mark.parametrize("asked", ["1.5", "0.0", "high", "1"])
def test_a_trustworthiness_that_is_none_is_refused(asked: str, horizon: str):
    with pytest.raises(ConfigError, match="trustworthiness"):
        load_experiment(TINY, [f"data.trust_horizon={horizon}", f"data.trustworthiness={asked}"])


def test_consensus_is_not_asked_of_labels_that_differ_among_right_ones():
    with pytest.raises(ConfigError, match="score=best"):
        load_experiment(
            TINY, ["data.trust_horizon=auto", "data.score=best", "data.tie_break=random"]
        )
    assert load_experiment(TINY, ["data.trust_horizon=auto", "data.score=best"]).data.chosen


def test_the_luckiest_arm_is_not_the_best():
    with pytest.raises(ConfigError, match="sparse rewards"):
        load_experiment(ROOT / "tests/configs/tiny_gaussian.yaml", ["data.score=best"])
