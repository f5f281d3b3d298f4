import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from sad_hpc.distill import make_block
from sad_hpc.evaluate.baselines import optimal_returns
from sad_hpc.experiment.sections import DataConfig
from sad_hpc.tasks.base import make_family
from sad_hpc.tasks.darkroom import Darkroom, DarkroomConfig


def room(size: int = 7, train_goals: int = 39) -> Darkroom:
    family = make_family(DarkroomConfig(size=size, train_goals=train_goals))
    assert isinstance(family, Darkroom)
    return family


def test_environment_passes_gymnasiums_checker():
    check_env(gymnasium.make("sad_hpc/Darkroom-v0", size=4, goal=(1, 3)).unwrapped)


def test_tables_agree_with_the_environment_in_every_state_action_and_goal():
    family = room(4, 3)
    goals = family.coordinates.astype(np.int16)
    mdps = family.mdps(goals)
    for number, goal in enumerate(goals):
        env = gymnasium.make("sad_hpc/Darkroom-v0", size=4, goal=tuple(goal)).unwrapped
        for state, cell in enumerate(family.coordinates):
            for action in range(family.n_actions):
                env.reset(options={"state": cell})
                after, reward, terminated, _, _ = env.step(action)
                assert (family.coordinates[mdps.next_states[number, state, action]] == after).all()
                assert mdps.rewards[number, state, action] == reward == (after == goal).all()
                assert not terminated


def test_episode_starts_in_the_corner_and_is_truncated_after_the_horizon():
    env = gymnasium.make("sad_hpc/Darkroom-v0", horizon=5).unwrapped
    first, _ = env.reset(seed=0)
    ends = [env.step(0)[3] for _ in range(5)]
    assert (first == 0).all()
    assert ends == [False, False, False, False, True]


@pytest.mark.parametrize(("size", "middle"), [(9, (4, 4)), (4, (2, 2))])
def test_episodes_may_start_in_the_middle(size: int, middle: tuple[int, int]):
    family = make_family(DarkroomConfig(size=size, train_goals=10, start="center", horizon=20))
    assert isinstance(family, Darkroom)
    assert tuple(family.coordinates[family.start_state]) == middle
    env = gymnasium.make("sad_hpc/Darkroom-v0", size=size, goal=(0, 1), start="center").unwrapped
    assert tuple(env.reset(seed=0)[0]) == middle
    episodes = make_block(family, DataConfig(tasks=200, trust_horizon=9), "train", 0).arrays
    assert (episodes["episodes/states"][:, 0] == middle).all()
    steps = abs(np.array(middle) - family.distinct["test"]).sum(axis=1)
    best = optimal_returns(family.mdps(family.distinct["test"]), 20, family.start_state)
    assert (best == 20 - np.maximum(steps - 1, 0)).all()


def test_optimal_actions_are_those_of_value_iteration():
    family = room(5, 10)
    goals = family.distinct_tasks("test")
    mdps = family.mdps(goals)
    values = np.zeros(mdps.rewards.shape[:2])
    task = np.arange(len(goals))[:, None, None]
    for _ in range(400):
        action_values = mdps.rewards + 0.9 * values[task, mdps.next_states]
        values = action_values.max(axis=-1)
    expected = np.isclose(action_values, values[..., None], rtol=0, atol=1e-9)
    assert (family.optimal_actions(goals) == expected).all()


@pytest.mark.parametrize("size, train_goals", [(7, 39), (10, 80)])
def test_goals_are_split_without_overlap(size: int, train_goals: int):
    family = room(size, train_goals)
    train, test = ({tuple(goal) for goal in family.distinct_tasks(s)} for s in ("train", "test"))
    assert len(train) == train_goals
    assert not train & test
    assert train | test == {tuple(cell) for cell in family.coordinates.astype(int)}


def test_another_split_seed_gives_another_split():
    other = make_family(DarkroomConfig(split_seed=1))
    assert isinstance(other, Darkroom)
    ours, others = ({tuple(g) for g in each.distinct_tasks("test")} for each in (room(), other))
    assert ours != others


def test_tasks_of_the_paper_are_490_of_each_goal():
    family = room()
    assert (family.n_tasks("train", 24010), family.n_tasks("test", 24010)) == (19110, 4900)
    goals, counts = np.unique(family.parameters("train", 0, 19110), axis=0, return_counts=True)
    assert len(goals) == 39
    assert (counts == 490).all()


def test_state_numbers_are_the_inverse_of_coordinates():
    family = room(5, 10)
    assert (family.state_numbers(family.coordinates) == np.arange(25)).all()
    with pytest.raises(KeyError):
        family.state_numbers(np.array([[5, 0]], np.uint8))
