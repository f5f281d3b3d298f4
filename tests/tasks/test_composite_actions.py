"""Actions of several parts: right labels, and a run through all stages."""

from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from sad_hpc import api
from sad_hpc.dataset.reader import read_columns
from sad_hpc.dataset.schema import Manifest
from sad_hpc.errors import ConfigError
from sad_hpc.experiment.load import load_experiment
from sad_hpc.tasks.environments.actions import actions_of
from tests.tasks.own_environments import Lock

CONFIG = """
name: lock
task:
  family: gymnasium
  env: "tests.tasks.own_environments:Lock-v0"
  horizon: 10
  rewards: sparse
  vary: {digit: {choice: [1, 2, 3]}, letter: {choice: [0, 1, 2]}}
  test_share: 0.3
data: {tasks: 300, block_tasks: 100, queries_per_task: 4, trust_horizon: 1, candidates: 64}
rows: [SAD]
seeds: [0]
model: {dropout: 0.0}
pretrain: {epochs: 1, batch_size: 32, holdout_tasks: 64}
evaluate: {tasks: 5, online_episodes: 2, headline_episodes: 1}
"""

SPACES = [
    spaces.Discrete(4, start=-3),
    spaces.Box(np.array([-1.0, 5.0]), np.array([3.0, 5.0]), dtype=np.float64),
    spaces.MultiDiscrete([[2, 3], [5, 1]], start=[[0, 1], [2, 3]]),
    spaces.MultiBinary(3),
    spaces.Dict(
        a=spaces.Discrete(5), b=spaces.Tuple((spaces.Box(-2, 9, (2, 2)), Lock.action_space))
    ),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_logged_action_is_the_action_that_a_model_would_take(space):
    """`taken` undoes `given`, also of actions outside the bounds, which are clipped."""
    actions = actions_of(space)
    space.seed(0)
    for _ in range(50):
        logged = space.sample()
        given = np.asarray(actions.given(logged))
        assert given.shape == ((actions.size,) if actions.size else ())
        assert (abs(given) <= 1).all() or actions.count
        close(actions.taken(given), logged)
    if isinstance(space, spaces.Box):
        close(actions.taken(actions.given(space.high + 1)), space.high)
    else:
        assert str(refused(actions.given, space))


def close(one, other):
    """Compare elements of a space."""
    if isinstance(one, dict | tuple):
        keys = range(len(one)) if isinstance(one, tuple) else one
        for key in keys:
            close(one[key], other[key])
    else:
        np.testing.assert_allclose(one, other, atol=1e-5)


def refused(given, space):
    """The error for an action of another space."""
    with pytest.raises((ValueError, TypeError, LookupError)) as raised:
        given(np.full(getattr(space, "shape", None) or (2,), 99))
    return raised.value


def test_candidates_without_a_reward_are_not_drawn_again(tmp_path: Path):
    (tmp_path / "lock.yaml").write_text(CONFIG)
    with pytest.raises(ConfigError, match=r"refinements needs dense .* use data.refinements=0"):
        load_experiment(tmp_path / "lock.yaml", ["data.refinements=1"])


@pytest.mark.slow
def test_labels_of_several_parts_are_the_pair_that_opens_the_lock(tmp_path):
    """64 candidates miss the right pair, one of nine, once in 1,900 times."""
    config = tmp_path / "lock.yaml"
    config.write_text(CONFIG)
    run = api.load_run(config, runs=tmp_path / "runs")
    family = run.experiment.family
    assert (family.components, family.n_actions) == (3, 6)
    api.collect(run)
    folder = run.data().path / "train"
    columns = read_columns(
        folder, Manifest.load(folder), ["labels/sad/actions", "tasks/parameters"]
    )
    taken, wanted = actions_of(Lock.action_space).taken, run.experiment.task.laws.values
    right = []
    for labels, row in zip(*columns.values(), strict=True):
        values = wanted(row)
        for action in map(taken, labels):
            found = action["digit"], action["letters"][1]
            right.append(found == (values["digit"], values["letter"]))
    assert np.mean(right) > 0.99
    api.train(run)
    api.evaluate(run)
    table = api.table(run, tmp_path / "results")
    assert set(table["mode"]) == {"offline", "online"} and table["value"].between(0, 10).all()
