from pathlib import Path

import numpy as np
import pytest

from sad_hpc.cli import main
from sad_hpc.errors import ConfigError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.q_tables import FINE_THRESHOLD, policy_q
from sad_hpc.theory import trust as trust_module
from sad_hpc.theory.bounds import BanditBound
from sad_hpc.theory.trust import (
    assumption_2,
    expected_trustworthiness,
    gap_quantile,
    mdp_bound,
    theorem_horizon,
    trust,
)

CONFIGS = Path(__file__).parents[2] / "configs"


def experiment(name: str, *overrides: str):
    return load_experiment(CONFIGS / f"{name}.yaml", list(overrides))


@pytest.mark.parametrize("name", ["gaussian_bandit", "bernoulli_bandit", "linear_bandit"])
def test_the_level_is_the_mean_over_the_familys_tasks(name: str):
    family = make_family(experiment(name).task)
    means = np.sort(family.draw_means(20_000, np.random.default_rng(1)), axis=1)
    bound = family.sigma or 1.0
    levels = [BanditBound(bound, gap).trustworthiness(320) for gap in means[:, -1] - means[:, -2]]
    error = np.std(levels) / np.sqrt(len(levels))
    assert expected_trustworthiness(family, 320) == pytest.approx(np.mean(levels), abs=4 * error)


@pytest.mark.parametrize("name", ["gaussian_bandit", "linear_bandit"])
def test_the_quantiles_of_the_gap_are_those_of_drawn_tasks(name: str):
    family = make_family(experiment(name).task)
    means = np.sort(family.draw_means(20_000, np.random.default_rng(1)), axis=1)
    for share in (0.1, 0.5, 0.9):
        below = (means[:, -1] - means[:, -2] <= gap_quantile(family, share)).mean()
        assert below == pytest.approx(share, abs=0.014)  # four standard errors


def test_more_pulls_promise_and_give_more():
    found = [trust(experiment("gaussian_bandit", f"data.trust_horizon={n}")) for n in (20, 320)]
    assert found[0].promised < found[1].promised and found[0].measured < found[1].measured
    assert all(one.promised < one.measured for one in found)
    assert found[0].transitions < found[1].transitions


def test_theorem_2_is_silent_below_its_least_horizon_and_holds_above(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(trust_module, "SIMULATED_TASKS", 1000)
    small = ("task.size=3", "task.horizon=9", "task.train_goals=6", "data.discount=0.5")
    silent = trust(experiment("darkroom", *small, "data.trust_horizon=2"))
    assert silent.promised is None and silent.measured > 0.5 and silent.labels == 1000
    room = make_family(experiment("darkroom", *small).task)
    mdps = room.mdps(room.distinct_tasks("train"))
    least = mdp_bound(mdps, policy_q(mdps, np.full(5, 0.2), 0.5, FINE_THRESHOLD)).least_horizon
    longer = ("data.episodes_per_action=3000", f"data.trust_horizon={least + 4}")
    loud = trust(experiment("darkroom", *small, *longer))
    assert loud.promised is not None and loud.promised <= loud.measured
    assert theorem_horizon(experiment("darkroom", *small, *longer).data) == least + 3


def test_assumption_2_counts_every_state_of_every_task():
    found = assumption_2(experiment("darkroom"), 0.9)
    assert found.misled == [] and found.checked == 49 * 49
    assert 0 < found.unequal < found.checked


def test_a_very_uneven_policy_breaks_assumption_2():
    """It nearly always goes to -x: another row, from which that leads to the goal, looks best."""
    policy = "data.behavior_policy=[0.01, 0.96, 0.01, 0.01, 0.01]"
    found = assumption_2(experiment("darkroom", policy), 0.9)
    assert found.misled
    silent = trust(experiment("darkroom", policy, "data.trust_horizon=200"))
    assert silent.promised is None and "Assumption 2" in silent.silence
    split, parameters, state = found.misled[0]
    assert split in ("train", "test") and len(parameters) == len(state) == 2


def test_pictures_have_no_table():
    with pytest.raises(ConfigError, match="no table of states"):
        assumption_2(experiment("miniworld"), 0.9)


def test_the_command_answers_in_numbers(capsys: pytest.CaptureFixture[str]):
    assert main(["theory", "bandit", "--bound", "1", "--gap", "0.5", "--delta", "0.1"]) == 0
    assert "N = 96 pulls" in capsys.readouterr().out  # 32 log((1 + sqrt 0.9) / 0.1) = 95.03
    assert main(["theory", "assumption", str(CONFIGS / "darkroom.yaml")]) == 0
    said = capsys.readouterr().out
    assert "2,401 states of all tasks" in said and "long rollouts do not mislead" in said
    assert main(["theory", "config", str(CONFIGS / "darkroom.yaml"), "data.trust_horizon=3"]) == 0
    assert "measured" in capsys.readouterr().out
    assert main(["theory", "config", str(CONFIGS / "gaussian_bandit.yaml")]) == 0
    assert "50% of the tasks have 0.129 or less" in capsys.readouterr().out  # 1 - 0.5^(1/5)
    small = ["task.size=3", "task.horizon=9", "task.train_goals=6", "data.discount=0.5"]
    promise = ["theory", "config", str(CONFIGS / "darkroom.yaml"), *small, "data.trust_horizon=20"]
    assert main(promise) == 0
    assert "1 - delta = 95% needs N_ep = " in capsys.readouterr().out
    problem = ["--bound", "1", "--kappa", "0", "--gamma", "0.9", "--horizon", "9"]
    assert main(["theory", "mdp", *problem, "--delta", "0.1"]) == 1
    assert "kappa=0 must be positive" in capsys.readouterr().err
